"""Events to receivers over HTTP, after Standard Webhooks 1.0 (https://www.standardwebhooks.com)."""
