"""Who spoke when in a mixed recording, and voiceprints. Cheap to import; `load` brings in the engine's libraries."""

from pipeline.diarization.engine import ENGINES, DiarizationOptions, Engine, load

__all__ = ["ENGINES", "DiarizationOptions", "Engine", "load"]
