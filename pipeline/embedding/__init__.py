"""From sentences to vectors that lie close where the sentences mean the same: what search by meaning compares."""

from pipeline.embedding.engine import DIMENSION, ENGINES, OFF, EmbeddingOptions, Engine, engine_class, load
from pipeline.embedding.task import embed

__all__ = ["DIMENSION", "ENGINES", "OFF", "EmbeddingOptions", "Engine", "embed", "engine_class", "load"]
