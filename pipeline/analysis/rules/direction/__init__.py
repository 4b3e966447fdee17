"""Direction: who placed the call, from cues in the talk and from numbers."""
