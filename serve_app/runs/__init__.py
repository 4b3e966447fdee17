"""Runs: what can be set for one, and what it is made with."""
