from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import Chunk, Word
from pipeline.engines.registry import EngineOptions, Registry, load_engine

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz


@runtime_checkable
class Aligner(Protocol):
    """Forced aligner: adds times to the words of a text. Re-entrant.

    The constructor takes the aligner's options and the folder of the checkpoint store (None: the user's).
    """

    Options: ClassVar[type[EngineOptions]]  # `AlignmentOptions` plus the options of this aligner
    CHECKPOINTS: ClassVar[CheckpointKind]  # how to find its model by name, and advice if it is missing
    name: str  # shown as the source of the times, e.g. "whisper base int8"
    max_chunk_seconds: float  # longest chunk it accepts

    @staticmethod
    def device_of(options: Any) -> str:
        """Return the device of an aligner with these options: "cpu" or "cuda"."""

    def align(
        self, samples: Sequence[Samples], chunks: Sequence[Chunk], texts: Sequence[str]
    ) -> list[tuple[Word, ...]]:
        """Return the timed words of each text, in order; none for a text without words.

        `samples[i]` is the sound of `chunks[i]` without the pauses between its pieces, `chunks[i].language` the
        language of `texts[i]`. Times count from the start of the recording, never decrease, and stay inside one piece
        of the chunk. A word's confidence, 0..1, is how well the sound matches it. Raises `EngineError`.
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
    """Options of word alignment, for recognition engines without word times. Each aligner adds its own."""

    ENGINES: ClassVar[Registry] = ENGINES
    OFF: ClassVar[str | None] = "off"

    engine: str = Field(
        "whisper",
        description="Aligner that adds word times if the recognition engine returns none; off: none.",
    )
    model: str = Field(
        "auto",
        description="A model of the aligner, a repository or folder as for recognition, or auto (whisper: base; "
        "ctc: nemo-parakeet-ctc-0.6b).",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: the GPU if there is one, and an error if it cannot be used."
    )


def load(options: AlignmentOptions, store: Path | None = None) -> Aligner:
    """Load the aligner in the options; `store`: the folder of the checkpoint store, None: the user's.

    Raises `CheckpointMissing` or `CheckpointDamaged`.
    """
    return cast(Aligner, load_engine(options, store))
