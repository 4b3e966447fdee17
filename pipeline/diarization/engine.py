"""What a diarization engine must do, how it is chosen, and what it can be told."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import Audio, Diarization, Voiceprint
from pipeline.engines import registry
from pipeline.engines.registry import EngineOptions, Registry, load_engine
from pipeline.errors import EngineError

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz


@runtime_checkable
class Engine(Protocol):
    """Separates the speakers of one mixed channel. Not re-entrant, but for `parts` and `finalize`.

    A recording is cut into parts. `infer` takes them in batches, which parts of several recordings may share;
    `finalize` takes what it returned for all parts of one recording. What parts are is the engine's own affair.
    """

    Options: ClassVar[type[EngineOptions]]  # `DiarizationOptions` and what else this engine can be told
    CHECKPOINTS: ClassVar[CheckpointKind]  # how its model is found by name, and what to tell people who lack it
    name: str
    batch_size: int  # parts that `infer` takes best at once

    @staticmethod
    def device_of(options: Any) -> str:
        """Return where an engine with these options computes: "cpu" or "cuda". Raises `DeviceUnavailable`."""

    @staticmethod
    def name_of(checkpoint: str) -> str:
        """Return the name of an engine with this checkpoint: what `Voiceprint.model` says."""

    def diarize(self, sound: Samples | Audio) -> Diarization:
        """Spans of one speaker at a time, in order, labeled A, B, ... by first appearance, and their voiceprints.

        `sound` is mono, or its channel 0 is taken. A recording without speech gives no spans. Raises `EngineError`,
        and `StorageError` where the sound cannot be read.
        """

    def parts(self, sound: Samples | Audio) -> Iterator[Any]:
        """The parts of a recording, in order; sound is read as they are taken. May be asked in another thread than
        `infer`, for one recording in one thread at a time. Raises as `diarize`."""

    def infer(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Return the result of each part, whatever other parts are beside it. Raises `EngineError`."""

    def finalize(self, inferred: Sequence[Any]) -> Diarization:
        """As `diarize`, from the results of all parts of a recording, in order."""

    def voiceprint(self, spoken: Sequence[Samples]) -> Voiceprint | None:
        """The voice of one speaker from pieces of their speech; None when too little was said. Raises `EngineError`."""

    def voices(self, spoken: Sequence[Samples]) -> list[Voiceprint | None]:
        """The voice in each piece by itself, however short: to compare them with each other, to know nobody by.

        None where nothing can be told. Raises `EngineError`.
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
    """How to diarize. Further options are the engine's own, beside its code."""

    STAGE: ClassVar[str] = ENGINES.stage
    ENGINES: ClassVar[Registry] = ENGINES

    engine: str = Field(
        "pyannote", description="Which engine: pyannote, or clustering (voices of short windows, without pyannote)."
    )
    pipeline: str = Field(
        "auto",
        description="A pyannote pipeline: a repository of the Hugging Face hub (owner/name@commit pins it), a folder "
        "(/..., ./..., ~/...), segmentation-3.0+campplus, or auto (pyannote/speaker-diarization-community-1 with a hub "
        "token, else the former). Of the engine clustering: campplus, or a folder with its file; auto: campplus.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where to compute; auto: the GPU if there is one, and an error if it cannot be used."
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        description="Windows of sound in one forward pass; unset: on a CPU 4 (clustering: 8), on a GPU 32 (64).",
    )
    threads: int = Field(0, ge=0, description="PyTorch's threads on a CPU, of the whole process; 0: one for each core.")
    min_speakers: int = Field(1, ge=1, description="Fewest speakers that a mixed recording is taken to have.")
    max_speakers: int | None = Field(None, ge=1, description="Most speakers; unset: as many as are detected.")

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.max_speakers is not None and self.max_speakers < self.min_speakers:
            raise ValueError("max_speakers is below min_speakers")
        return self


def engine_class(options: DiarizationOptions) -> type[Engine]:
    """Return the class of the engine that the options name."""
    return cast(type[Engine], registry.engine_class(ENGINES, options.engine))


def load(options: DiarizationOptions, store: Path | None = None) -> Engine:
    """Load the engine that the options name; `store`: the folder of the checkpoint store, None: the user's.

    Raises `CheckpointMissing`, `CheckpointDamaged` or `DeviceUnavailable`.
    """
    return cast(Engine, load_engine(options, store))


Read = Callable[[int, int], Samples]  # samples from and to (exclusive)


def reader(sound: Samples | Audio) -> tuple[Read, int]:
    """Return how to read float32 samples of a mixed recording, and how many there are.

    Reading raises `StorageError`, and `EngineError` for samples that are not finite.
    """
    if isinstance(sound, Audio):
        return lambda first, last: sound.read(0, first, last).astype(np.float32) / np.float32(32768), sound.length
    samples = np.ascontiguousarray(sound, np.float32)

    def read(first: int, last: int) -> Samples:
        found = samples[first:last]
        if not np.isfinite(found).all():
            raise EngineError("The recording's samples are not all finite numbers.")
        return found

    return read, len(samples)
