"""When words are what a recognizer writes because it hears nothing: see `pipeline/asr/verdicts.py`."""
