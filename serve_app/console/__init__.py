"""The console: calls, transcripts and tasks as pages for people. Nothing of Ray outside `deployment.py`."""
