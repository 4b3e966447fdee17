from pipeline.asr.engine import ENGINES, AsrOptions, Engine, NeedsAligner, RemoteEngine, load

__all__ = ["ENGINES", "AsrOptions", "Engine", "NeedsAligner", "RemoteEngine", "load"]
