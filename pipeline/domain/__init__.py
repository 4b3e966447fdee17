"""Frozen dataclasses that every package shares. Standard library and numpy only."""
