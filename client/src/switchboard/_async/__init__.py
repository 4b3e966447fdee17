"""The client with `await`. `_sync` is generated from this folder: `python client/generate.py`."""
