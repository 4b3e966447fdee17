"""Speech to timed words: engines behind one protocol. Cheap to import; `load` brings in the engine's libraries."""

from pipeline.asr.engine import ENGINES, AsrOptions, Engine, NeedsAligner, RemoteEngine, engine_class, load

__all__ = ["ENGINES", "AsrOptions", "Engine", "NeedsAligner", "RemoteEngine", "engine_class", "load"]
