from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import Audio, Diarization, Voiceprint
from pipeline.engines.registry import EngineOptions, Registry, load_engine
from pipeline.errors import EngineError

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz
Read = Callable[[int, int], Samples]  # samples from and to (exclusive)


@runtime_checkable
class Engine(Protocol):
    """Separates the speakers of one mixed channel. Not re-entrant, except `parts` and `finalize`.

    A recording is cut into parts. `infer` takes them in batches, which parts of several recordings may share;
    `finalize` takes its results for all parts of one recording. Each engine defines its parts.
    """

    Options: ClassVar[type[EngineOptions]]  # `DiarizationOptions` and the engine's further options
    CHECKPOINTS: ClassVar[CheckpointKind]  # how its model is resolved by name, and advice if it is missing
    name: str
    batch_size: int  # best number of parts per `infer`

    @staticmethod
    def device_of(options: Any) -> str:
        """Return the device for these options: "cpu" or "cuda". Raises `DeviceUnavailable`."""

    @staticmethod
    def name_of(checkpoint: str) -> str:
        """Return the name of an engine with this checkpoint, as in `Voiceprint.model`."""

    def diarize(self, sound: Samples | Audio) -> Diarization:
        """Return ordered spans of one speaker each, labeled A, B, ... by first appearance, and voiceprints.

        `sound` is mono, or its channel 0 is used. A recording without speech has no spans. Raises `EngineError`, and
        `StorageError` if the sound cannot be read.
        """

    def parts(self, sound: Samples | Audio) -> Iterator[Any]:
        """Yield the parts of a recording in order, reading sound on demand.

        May run in another thread than `infer`, in one thread per recording at a time. Raises the errors of `diarize`.
        """

    def infer(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Return the result of each part, independent of the other parts. Raises `EngineError`."""

    def finalize(self, inferred: Sequence[Any]) -> Diarization:
        """Return the result of `diarize` from the results of all parts of a recording, in order."""

    def voiceprint(self, spoken: Sequence[Samples]) -> Voiceprint | None:
        """Return the voiceprint of one speaker from pieces of speech, None for too little. Raises `EngineError`."""

    def voices(self, spoken: Sequence[Samples]) -> list[Voiceprint | None]:
        """Return a voiceprint of each piece, however short: to compare pieces with each other, not to identify people.

        None for a piece without a usable voice. Raises `EngineError`.
        """


ENGINES = Registry(
    {
        "pyannote": "pipeline.diarization.pyannote:Pyannote",
        "clustering": "pipeline.diarization.clustering:Clustering",
    },
    stage="diarization",
    group="switchboard.diarization",
)


class DiarizationOptions(EngineOptions):
    """Options of diarization; each engine may add more."""

    ENGINES: ClassVar[Registry] = ENGINES

    engine: str = Field("pyannote", description="pyannote, or clustering (voices of short windows, without pyannote).")
    pipeline: str = Field(
        "auto",
        description="A repository of the Hugging Face hub (owner/name@commit pins it), a folder, "
        "segmentation-3.0+campplus, or auto: pyannote/speaker-diarization-community-1 with a hub "
        "token, else the former. Engine clustering: campplus, a folder, or auto.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: the GPU if there is one, and an error if it cannot be used."
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        description="Windows of sound in one forward pass; unset: on a CPU 4 (clustering: 8), on a GPU 32 (64).",
    )
    threads: int = Field(0, ge=0, description="PyTorch's threads on a CPU; 0: one for each core.")
    min_speakers: int = Field(1, ge=1, description="Minimum number of speakers in a mixed recording.")
    max_speakers: int | None = Field(None, ge=1, description="Maximum number of speakers; unset: as many as detected.")

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.max_speakers is not None and self.max_speakers < self.min_speakers:
            raise ValueError("max_speakers is below min_speakers")
        return self


def load(options: DiarizationOptions, store: Path | None = None) -> Engine:
    """Load the engine in the options; `store`: the folder of the checkpoint store, None: the user's.

    Raises `CheckpointMissing`, `CheckpointDamaged` or `DeviceUnavailable`.
    """
    return cast(Engine, load_engine(options, store))


def reader(sound: Samples | Audio) -> tuple[Read, int]:
    """Return a function that reads float32 samples of a mixed recording, and their number.

    Reading raises `StorageError`, and `EngineError` for samples that are not finite.
    """
    if isinstance(sound, Audio):
        return lambda first, last: sound.read(0, first, last).astype(np.float32) / np.float32(32768), sound.length
    samples = np.ascontiguousarray(sound, np.float32)

    def read(first: int, last: int) -> Samples:
        piece = samples[first:last]
        if not np.isfinite(piece).all():
            raise EngineError("The recording's samples are not all finite numbers.")
        return piece

    return read, len(samples)
