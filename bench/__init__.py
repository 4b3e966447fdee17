"""Measurements: one script, one question."""
