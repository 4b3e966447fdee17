"""What a diarization engine must do, how it is chosen, and what it can be told."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, Self, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline.domain.speech import Audio, Diarization, Voiceprint

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz


@runtime_checkable
class Engine(Protocol):
    """Tells speakers of one mixed channel apart. Not re-entrant, but for `parts` and `conclude`.

    A recording is cut into parts, which are heard in batches that they may share with parts of other recordings, and
    what was heard of all of them is concluded for each recording. What parts are is the engine's own affair.
    """

    name: str
    batch_size: int  # parts that are best heard together

    def diarize(self, sound: Samples | Audio) -> Diarization:
        """Spans of one speaker at a time, in order, labelled A, B, ... by first appearance, and their voiceprints.

        `sound` is mono, or its channel 0 is taken. A recording without speech gives no spans. Raises `EngineError`,
        and `StorageError` where the sound cannot be read.
        """

    def parts(self, sound: Samples | Audio) -> Iterator[Any]:
        """The parts of a recording, in order; sound is read as they are taken. May be asked in another thread than
        `hear`, for one recording in one thread at a time. Raises as `diarize`."""

    def hear(self, parts: Sequence[Any]) -> Sequence[Any]:
        """What is heard in each part, whatever other parts are beside it. Raises `EngineError`."""

    def conclude(self, heard: Sequence[Any]) -> Diarization:
        """As `diarize`, from what was heard of all parts of a recording, in order."""

    def voiceprint(self, spoken: Sequence[Samples]) -> Voiceprint | None:
        """The voice of one speaker from pieces of their speech; None when too little was said. Raises `EngineError`."""

    def voices(self, spoken: Sequence[Samples]) -> list[Voiceprint | None]:
        """The voice in each piece by itself, however short: to compare them with each other, to know nobody by.

        None where nothing can be told. Raises `EngineError`.
        """


ENGINES: dict[str, str] = {
    "pyannote": "pipeline.diarization.pyannote:Pyannote",
}
"""Engines by the name that settings use: "module:Class", imported only where it is loaded."""


class DiarizationOptions(BaseModel):
    """How to tell speakers apart."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = Field("pyannote", description="Which engine of `ENGINES`.")
    pipeline: str = Field(
        "auto",
        description="A pyannote pipeline: a repository of the Hugging Face hub (owner/name@commit pins it), a folder "
        "(/..., ./..., ~/...), "
        "segmentation-3.0+campplus, or auto (pyannote/speaker-diarization-community-1 with a hub token, else the "
        "former).",
    )
    checkpoints: Path | None = Field(
        None, description="Folder of the checkpoint store for diarization; none given: SWITCHBOARD_CHECKPOINTS."
    )
    trust_checkpoint: bool = Field(
        False, description="Read checkpoints that hold more than weights, which can run code of their author."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where to compute; auto: a GPU if there is one.")
    segmentation_batch_size: int | None = Field(
        None,
        ge=1,
        description="10 s windows, of any calls that wait, in one forward pass; none given: 4 on a CPU, 32 on a GPU.",
    )
    embedding_batch_size: int | None = Field(
        None, ge=1, description="Windows whose voices are embedded in one forward pass; none given: 4 or 32 likewise."
    )
    threads: int = Field(0, ge=0, description="PyTorch's threads on a CPU, for the whole process; 0 leaves them alone.")
    min_speakers: int = Field(1, ge=1, description="Fewest speakers that a mixed recording is taken to have.")
    max_speakers: int | None = Field(None, ge=1, description="Most speakers; none given: as many as are heard.")
    min_voiceprint_seconds: float = Field(
        3.0, ge=0.5, description="Net speech below which no voiceprint is made: short ones are not to be trusted."
    )

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.max_speakers is not None and self.max_speakers < self.min_speakers:
            raise ValueError("max_speakers is below min_speakers")
        return self


def load(options: DiarizationOptions) -> Engine:
    """Load the engine that the options name.

    Raises `ValueError` for a name that `ENGINES` lacks, `CheckpointMissing` or `CheckpointDamaged`.
    """
    try:
        module, name = ENGINES[options.engine].split(":")
    except KeyError:
        raise ValueError(f"{options.engine!r} is no diarization engine; known: {', '.join(ENGINES)}") from None
    return cast(Engine, getattr(import_module(module), name)(options))
