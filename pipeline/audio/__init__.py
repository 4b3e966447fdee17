"""From the sender's URL to channels, spans of speech and chunks.

Imports nothing: the process that decodes (`sandbox`) starts with every recording.
"""
