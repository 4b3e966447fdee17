"""From the sender's URL to channels, spans of speech and chunks."""

from pipeline.audio.hear import Loaded, examine, load

__all__ = ["Loaded", "examine", "load"]
