from pipeline.embedding.engine import DIMENSION, ENGINES, EmbeddingOptions, Engine, embed, load

__all__ = ["DIMENSION", "ENGINES", "EmbeddingOptions", "Engine", "embed", "load"]
