"""The console: server-rendered pages. Only `deployment.py` imports Ray."""
