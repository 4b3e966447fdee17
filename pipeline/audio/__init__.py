"""From stored recordings to channels, labels of every second, chunks of speech, and prosody.

Imports nothing: the process that decodes (`decode.sandbox`) starts with every recording.
"""
