"""Backups: the database of one moment with its recordings, checked against digests, and put back.

`create`, `verify` and `restore` are the three things to do; `manifest` is what a backup says of itself.
"""
