"""Speaker attribution: a channel's language, turns, roles, and the rep. Pure functions of the engines' results."""

from pipeline.speakers.attribute import attribute

__all__ = ["attribute"]
