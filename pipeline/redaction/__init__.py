"""Hides personal data of a call, in its words and in its sound."""
