"""Whether the service is ready, and which part of it is not."""
