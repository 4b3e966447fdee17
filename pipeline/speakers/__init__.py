"""Who said what: a channel's language, turns, roles, and who the rep is. Pure functions on what the engines gave."""

from pipeline.speakers.attribute import attribute

__all__ = ["attribute"]
