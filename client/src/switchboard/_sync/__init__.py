"""The blocking client, generated from `_async`: `python client/generate.py`."""
