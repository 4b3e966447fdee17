"""What an aligner must do, how it is chosen, and what it can be told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import Chunk, Word
from pipeline.engines import registry
from pipeline.engines.registry import EngineOptions, Registry, load_engine

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz
OFF = "off"


@runtime_checkable
class Aligner(Protocol):
    """Says when the words of a known text are said. Re-entrant.

    The class is made with its own options and the folder of the checkpoint store (None: the user's).
    """

    Options: ClassVar[type[EngineOptions]]  # `AlignmentOptions` and what else this aligner can be told
    CHECKPOINTS: ClassVar[CheckpointKind]  # how its model is found by name, and what to tell people who lack it
    name: str  # what made the times, e.g. "whisper base int8"
    max_chunk_seconds: float  # the most sound in a chunk that it takes

    @staticmethod
    def device_of(options: Any) -> str:
        """Return where an aligner with these options computes: "cpu" or "cuda"."""

    def align(
        self, samples: Sequence[Samples], chunks: Sequence[Chunk], texts: Sequence[str]
    ) -> list[tuple[Word, ...]]:
        """Return the words of each text, in order, at their times; none for a text without words.

        `samples[i]` is the sound of `chunks[i]`, pauses between its pieces left out, and `chunks[i].language` the
        language of `texts[i]`. Times count from the start of the recording, never decrease, and lie inside one piece of
        the chunk. A word's confidence, 0..1, says how well the sound fits it. Raises `EngineError`.
        """


ENGINES = Registry(
    {
        "whisper": "pipeline.asr.alignment.whisper:WhisperAligner",
        "ctc": "pipeline.asr.alignment.ctc:CtcAligner",
    },
    stage="alignment",
    group="switchboard.alignment",
)


class AlignmentOptions(EngineOptions):
    """Word times for recognition engines whose model gives none. Further options are the aligner's own."""

    STAGE: ClassVar[str] = ENGINES.stage
    ENGINES: ClassVar[Registry] = ENGINES
    OFF: ClassVar[str | None] = OFF

    engine: str = Field(
        "whisper",
        description="Which aligner of `pipeline.asr.alignment.ENGINES` gives words their times, where the recognition "
        "engine does not; it is loaded for such an engine only. off: none.",
    )
    model: str = Field(
        "auto",
        description="A model that the aligner knows by name, a repository of the Hugging Face hub (owner/name@commit "
        "pins it), a folder (/..., ./..., ~/...), or auto (whisper: base; ctc: nemo-parakeet-ctc-0.6b).",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where to compute; auto: the GPU if there is one, and an error if it cannot be used."
    )

    @property
    def on(self) -> bool:
        """Whether an aligner is named."""
        return self.engine != OFF


def aligner_class(options: AlignmentOptions) -> type[Aligner]:
    """Return the class of the aligner that the options name."""
    return cast(type[Aligner], registry.engine_class(ENGINES, options.engine))


def load(options: AlignmentOptions, store: Path | None = None) -> Aligner:
    """Load the aligner that the options name; `store`: the folder of the checkpoint store, None: the user's.

    Raises `CheckpointMissing` or `CheckpointDamaged`.
    """
    return cast(Aligner, load_engine(options, store))
