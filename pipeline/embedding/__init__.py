from pipeline.embedding.engine import DIMENSION, ENGINES, OFF, EmbeddingOptions, Engine, embed, engine_class, load

__all__ = ["DIMENSION", "ENGINES", "OFF", "EmbeddingOptions", "Engine", "embed", "engine_class", "load"]
