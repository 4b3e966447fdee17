"""CAM++ as a pyannote embedding model: the frames of one speaker are selected before the network."""

from collections.abc import Sequence

import torch
from pyannote.audio.core.model import Model
from pyannote.audio.core.task import Problem, Resolution, Specifications
from torch import Tensor

from pipeline.diarization.campplus import DIMENSION, MIN_FRAMES, CAMPlusPlus, embedded, filterbanks
from pipeline.domain.speech import SAMPLE_RATE


class CAMPlusPlusEmbedding(Model):  # type: ignore[misc]
    """A speaker embedding of 192 dimensions, not of unit length.

    CAM++ normalizes and masks by the mean of all frames it is given, so that weights in the pooling alone would mix
    the voices of a window. One filterbank per window serves all its speakers.
    """

    def __init__(self, network: CAMPlusPlus, center: Sequence[float]) -> None:
        """`center` (192 values) is subtracted from every embedding: what all voices on a telephone have in common."""
        super().__init__(sample_rate=SAMPLE_RATE, num_channels=1)
        self.specifications = Specifications(problem=Problem.REPRESENTATION, resolution=Resolution.CHUNK, duration=10.0)
        self.network = network
        self.register_buffer("center", torch.tensor(center, dtype=torch.float32))

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return DIMENSION

    def forward(self, waveforms: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return (batch, 192), or (batch, speakers, 192) where `weights` have an axis of speakers.

        `waveforms` are (batch, 1, samples) at 16 kHz, `weights` (batch, frames) or (batch, speakers, frames) at any
        frame rate; a weight above 0.5 selects a frame. A speaker with fewer than 40 frames of 10 ms gets NaN. Without
        weights all frames are selected; raises `ValueError` where they are fewer than 40.
        """
        spectra = filterbanks(list(waveforms[:, 0]))
        if weights is None:
            if not spectra or len(spectra[0]) < MIN_FRAMES:
                raise ValueError(f"A voice cannot be embedded from fewer than {MIN_FRAMES} frames of 10 ms.")
            return self._centered(spectra)
        by_speaker = weights if weights.dim() == 3 else weights[:, None]
        masks = torch.nn.functional.interpolate(by_speaker.float(), size=len(spectra[0]), mode="nearest") > 0.5
        found = self._centered([spectrum[mask] for spectrum, own in zip(spectra, masks, strict=True) for mask in own])
        return found.view(*weights.shape[:-1], DIMENSION)

    def of_sounds(self, sounds: Sequence[Tensor]) -> Tensor:
        """Return (sounds, 192) of sounds of any length, (samples,) at 16 kHz; NaN below 40 frames of 10 ms."""
        return self._centered(filterbanks(sounds))

    def _centered(self, voices: Sequence[Tensor]) -> Tensor:
        return embedded(self.network, voices) - self.center
