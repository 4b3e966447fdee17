"""The client with `await`. `make generate` writes `_sync` from this folder."""
