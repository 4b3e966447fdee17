from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pipeline.diarization.engine import DiarizationOptions, Samples
from pipeline.domain.speech import SAMPLE_RATE, Audio, Diarization, Voiceprint
from pipeline.engines.device import choose, cores

PIECE = 6.0  # min. seconds of speech per embedding of a voiceprint (max. 12), if there are as many
MIN_VOICEPRINT_SECONDS = 3.0  # of net speech; shorter voiceprints are unreliable

Vector = npt.NDArray[np.float64]


class TorchEngine(ABC):
    """Common part of `pipeline.diarization.Engine` for engines on PyTorch: device, batches, voiceprints."""

    CPU_BATCH: ClassVar[int]  # windows per forward pass, unless set in the options
    GPU_BATCH: ClassVar[int]
    name: str
    batch_size: int

    @staticmethod
    def device_of(options: DiarizationOptions) -> str:
        import torch

        if options.device != "auto":
            return options.device
        return choose(torch.cuda.is_available, "PyTorch", torch.version.cuda, "SWITCHBOARD_DIARIZATION__DEVICE")

    def _prepare(self, options: DiarizationOptions) -> str:
        """Apply threads and batch size from the options; return the device."""
        import torch

        torch.set_num_threads(options.threads or min(torch.get_num_threads(), cores()))
        device = self.device_of(options)
        self.batch_size = options.batch_size or (self.GPU_BATCH if device == "cuda" else self.CPU_BATCH)
        return device

    def diarize(self, sound: Samples | Audio) -> Diarization:
        parts = self.parts(sound)
        inferred: list[Any] = []
        while batch := list(islice(parts, self.batch_size)):
            inferred += self.infer(batch)
        return self.finalize(inferred)

    @abstractmethod
    def parts(self, sound: Samples | Audio) -> Iterator[Any]:
        """See `pipeline.diarization.Engine`."""

    @abstractmethod
    def infer(self, parts: Sequence[Any]) -> Sequence[Any]:
        """See `pipeline.diarization.Engine`."""

    @abstractmethod
    def finalize(self, inferred: Sequence[Any]) -> Diarization:
        """See `pipeline.diarization.Engine`."""

    @property
    @abstractmethod
    def min_samples(self) -> int:
        """Min. number of samples at 16 kHz of an embedding."""

    @abstractmethod
    def embedded(self, sounds: Sequence[Samples]) -> Vector:
        """Return the unit vectors of pieces of speech, (sounds, dimension); a row without an embedding is not finite.

        Raises `EngineError`.
        """

    def voiceprint(self, spoken: Sequence[Samples]) -> Voiceprint | None:
        """See `pipeline.diarization.Engine`: averages the embeddings of equal pieces of 6 s or more."""
        speech = np.concatenate([np.asarray(x, np.float32) for x in spoken]) if spoken else np.zeros(0, np.float32)
        seconds = len(speech) / SAMPLE_RATE
        if seconds < MIN_VOICEPRINT_SECONDS:
            return None
        vectors = self.embedded(np.array_split(speech, max(1, int(seconds // PIECE))))
        voiceprint = self.of_speaker(vectors.mean(axis=0), seconds)
        return voiceprint and replace(voiceprint, agreement=_agreement(vectors))

    def voices(self, spoken: Sequence[Samples]) -> list[Voiceprint | None]:
        voiceprints: list[Voiceprint | None] = [None] * len(spoken)
        enough = [at for at, piece in enumerate(spoken) if len(piece) >= self.min_samples]
        if enough:
            for at, vector in zip(enough, self.embedded([spoken[at] for at in enough]), strict=True):
                voiceprints[at] = self._voiceprint(vector, len(spoken[at]) / SAMPLE_RATE)
        return voiceprints

    def of_speaker(self, vector: npt.NDArray[np.floating] | None, seconds: float) -> Voiceprint | None:
        """Return the voiceprint of a vector of any length; None for too little speech, and for NaN or zeros.

        pyannote returns such rows for speakers without an embedding.
        """
        if vector is None or seconds < MIN_VOICEPRINT_SECONDS:
            return None
        return self._voiceprint(vector, seconds)

    def _voiceprint(self, vector: npt.NDArray[np.floating], seconds: float) -> Voiceprint | None:
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or norm == 0:
            return None
        return Voiceprint(tuple(float(v) for v in vector / norm), self.name, round(seconds, 2))


def letters(labels: Iterable[str | int]) -> dict[str | int, str]:
    """Return "A", "B", ... for labels of any kind, in the order of their first appearance."""
    distinct = list(dict.fromkeys(labels))
    return {label: chr(ord("A") + i) if i < 26 else f"S{i + 1}" for i, label in enumerate(distinct)}


def _agreement(vectors: Vector) -> float | None:
    """Return the lowest cosine of a piece to the mean of the others: low if the pieces are of two voices.

    None for a single piece.
    """
    if len(vectors) < 2:
        return None
    others = (vectors.sum(axis=0) - vectors) / (len(vectors) - 1)
    norms = np.linalg.norm(others, axis=1) * np.linalg.norm(vectors, axis=1)
    cosines = (others * vectors).sum(axis=1) / np.where(norms > 0, norms, 1.0)
    return round(float(cosines.min()), 4)
