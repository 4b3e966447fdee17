"""Who spoke when in a mixed recording, and voiceprints. Cheap to import; `load` brings in the engine's libraries."""

from pipeline.diarization.engine import ENGINES, DiarizationOptions, Engine, engine_class, load

__all__ = ["ENGINES", "DiarizationOptions", "Engine", "engine_class", "load"]
