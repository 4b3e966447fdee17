"""Summary: how the call ended, what it was about, and its most telling sentences."""
