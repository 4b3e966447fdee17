"""What an embedding engine must do, how it is chosen, and what it can be told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline.checkpoints import CheckpointKind
from pipeline.engines import registry
from pipeline.engines.registry import EngineOptions, Registry, load_engine
from pipeline.errors import CheckpointMissing

Vectors = npt.NDArray[np.float32]  # shape (texts, DIMENSION), each of length 1

OFF = "off"
DIMENSION = 384  # of every vector that is stored: the column and its index have one (db/schema/tables.sql)


@runtime_checkable
class Engine(Protocol):
    """Turns texts into vectors of length 1, whose dot product is their similarity. Re-entrant.

    The class is made with its own options and the folder of the checkpoint store (None: the user's).
    """

    Options: ClassVar[type[EngineOptions]]  # `EmbeddingOptions` and what else this engine can be told
    CHECKPOINTS: ClassVar[CheckpointKind]  # how its model is found by name, and what to tell people who lack it
    name: str  # stored beside every vector: those of different models do not compare
    dimension: int

    @staticmethod
    def device_of(options: Any) -> str:
        """Return where an engine with these options computes: "cpu" or "cuda"."""

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of what was said. A text beyond the model's length counts up to there."""

    def query(self, text: str) -> Vectors:
        """Return the vector of a question, shape (1, dimension)."""


ENGINES = Registry(
    {
        "e5": "pipeline.embedding.e5:E5",
    },
    stage="embedding",
    group="switchboard.embedding",
)


class EmbeddingOptions(EngineOptions):
    """Semantic search: off unless an engine is named. Further options are the engine's own, beside its code."""

    STAGE: ClassVar[str] = ENGINES.stage
    ENGINES: ClassVar[Registry] = ENGINES
    OFF: ClassVar[str | None] = OFF

    engine: str = Field("off", description="Which engine of `ENGINES` makes calls searchable by meaning; off: none.")
    model: str = Field(
        "multilingual-e5-small-q4",
        description="A model of the checkpoint store, or a folder (/..., ./..., ~/...) that holds one. Nothing is "
        "downloaded by itself: `switchboard checkpoints fetch multilingual-e5-small-q4`.",
    )

    @property
    def on(self) -> bool:
        """Whether an engine is named."""
        return self.engine != OFF


def engine_class(options: EmbeddingOptions) -> type[Engine]:
    """Return the class of the engine that the options name."""
    return cast(type[Engine], registry.engine_class(ENGINES, options.engine))


def load(options: EmbeddingOptions, store: Path | None = None) -> Engine:
    """Load the engine that the options name; `store`: the folder of the checkpoint store, None: the user's.

    Raises `CheckpointMissing`, for a model of another dimension too, or `CheckpointDamaged`.
    """
    engine = cast(Engine, load_engine(options, store))
    if engine.dimension != DIMENSION:
        raise CheckpointMissing(
            f"The embedding model {engine.name!r} has {engine.dimension} dimensions, and vectors of {DIMENSION} are "
            "stored. Choose a model of that dimension."
        )
    return engine
