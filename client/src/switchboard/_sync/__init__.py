"""The blocking client. `make generate` writes this folder from `_async`."""
