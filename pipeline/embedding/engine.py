from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline.checkpoints import CheckpointKind
from pipeline.engines.registry import EngineOptions, Registry, load_engine
from pipeline.errors import CheckpointMissing

Vectors = npt.NDArray[np.float32]  # shape (texts, DIMENSION), each of length 1

DIMENSION = 384  # of stored vectors: the column and its index have a fixed one (db/schema/tables.sql)


@runtime_checkable
class Engine(Protocol):
    """Interface: texts to vectors of length 1, whose dot product is the similarity. Reentrant.

    The constructor takes its options and the folder of the checkpoint store (None: the user's).
    """

    Options: ClassVar[type[EngineOptions]]  # `EmbeddingOptions` and those of this engine
    CHECKPOINTS: ClassVar[CheckpointKind]  # how its model is located
    name: str  # stored with every vector: only vectors of the same model are compared
    dimension: int

    @staticmethod
    def device_of(options: Any) -> str:
        """Return the device for these options: "cpu" or "cuda"."""

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of passages. A text is truncated to the maximum length of the model."""

    def query(self, text: str) -> Vectors:
        """Return the vector of a query, shape (1, dimension)."""


ENGINES = Registry({"e5": "pipeline.embedding.e5:E5"}, stage="embedding", group="switchboard.embedding")


class EmbeddingOptions(EngineOptions):
    """Options of semantic search: off unless an engine is set. An engine adds its options in its module."""

    ENGINES: ClassVar[Registry] = ENGINES
    OFF: ClassVar[str | None] = "off"

    engine: str = Field("off", description="Engine that makes calls searchable by meaning; off: none.")
    model: str = Field(
        "multilingual-e5-small-q4",
        description="A model of the checkpoint store (`switchboard checkpoints fetch` gets it), or a folder.",
    )


def load(options: EmbeddingOptions, store: Path | None = None) -> Engine:
    """Load the engine of the options. `store` is the folder of the checkpoint store (None: the user's).

    Raises `CheckpointMissing`, also for a model of another dimension, or `CheckpointDamaged`.
    """
    engine = cast(Engine, load_engine(options, store))
    if engine.dimension != DIMENSION:
        raise CheckpointMissing(
            f"The embedding model {engine.name!r} has {engine.dimension} dimensions, and vectors of {DIMENSION} are "
            "stored. Choose a model of that dimension."
        )
    return engine


def embed(options: str, store: str | None, texts: Sequence[str]) -> tuple[str, Vectors]:
    """Return the model's name and the vectors of passages, by the engine of `EmbeddingOptions` as JSON.

    Raises `CheckpointMissing` or `CheckpointDamaged`.
    """
    engine = _loaded(options, store)
    return engine.name, engine.passages(texts)


@lru_cache(maxsize=1)
def _loaded(options: str, store: str | None) -> Engine:
    return load(EmbeddingOptions.model_validate_json(options), Path(store) if store else None)
