"""Backups: the database of one moment with its recordings, checked against digests, and restored.

`create`, `verify` and `restore` are the operations; `manifest` describes a backup.
"""
