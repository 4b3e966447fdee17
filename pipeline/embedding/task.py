"""Embedding as a CPU task: a process that runs one keeps the engine for the next."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pipeline.embedding.engine import EmbeddingOptions, Engine, Vectors, load


def embed(options: str, store: str | None, texts: Sequence[str]) -> tuple[str, Vectors]:
    """Return the model's name and the vectors of passages, by the engine of `EmbeddingOptions` as JSON.

    Raises `CheckpointMissing` or `CheckpointDamaged`.
    """
    engine = _loaded(options, store)
    return engine.name, engine.passages(texts)


@lru_cache(maxsize=1)
def _loaded(options: str, store: str | None) -> Engine:
    return load(EmbeddingOptions.model_validate_json(options), Path(store) if store else None)
