from pipeline.asr.engine import ENGINES, AsrOptions, Engine, NeedsAligner, RemoteEngine, engine_class, load

__all__ = ["ENGINES", "AsrOptions", "Engine", "NeedsAligner", "RemoteEngine", "engine_class", "load"]
