"""Recordings in any codec and container to int16 at 16 kHz.

Imports nothing: the process that decodes (`sandbox`) starts with every recording.
"""
