"""Speakers of a mixed recording, and voiceprints. Cheap to import; `load` imports the engine's libraries."""

from pipeline.diarization.engine import ENGINES, DiarizationOptions, Engine, load

__all__ = ["ENGINES", "DiarizationOptions", "Engine", "load"]
