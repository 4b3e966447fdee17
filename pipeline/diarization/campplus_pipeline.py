from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pyannote.audio.core.model import Model
from pyannote.audio.core.plda import PLDA
from pyannote.audio.core.task import Problem, Resolution, Specifications
from pyannote.audio.pipelines import SpeakerDiarization
from torch import Tensor

from pipeline.diarization import campplus
from pipeline.diarization.campplus import DIMENSION, MIN_FRAMES, CAMPlusPlus, embedded, filterbanks
from pipeline.domain.speech import SAMPLE_RATE
from pipeline.voice.calibration import PipelineParameters

SEGMENTATION_FILE = "pytorch_model.bin"
EMBEDDING_FILE = "campplus_cn_en_common.pt"


class CAMPlusPlusEmbedding(Model):  # type: ignore[misc]
    """A speaker embedding of 192 dimensions, not of unit length.

    The frames of each speaker are selected before the network, since CAM++ normalizes and masks by the mean of all
    frames it receives: weights in the pooling alone would mix the voices of a window. The speakers of a window share
    its filterbank.
    """

    def __init__(self, network: CAMPlusPlus, center: Sequence[float]) -> None:
        """Use a network; `center` (192 values), the common part of telephone voices, is subtracted from embeddings."""
        super().__init__(sample_rate=SAMPLE_RATE, num_channels=1)
        self.specifications = Specifications(problem=Problem.REPRESENTATION, resolution=Resolution.CHUNK, duration=10.0)
        self.network = network
        self.register_buffer("center", torch.tensor(center, dtype=torch.float32))

    @property
    def dimension(self) -> int:
        return DIMENSION

    def forward(self, waveforms: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return (batch, 192), or (batch, speakers, 192) if `weights` have an axis of speakers.

        `waveforms` are (batch, 1, samples) at 16 kHz, `weights` (batch, frames) or (batch, speakers, frames) at any
        frame rate; a weight above 0.5 selects a frame. A speaker with fewer than 40 frames of 10 ms gets NaN. Without
        weights all frames are selected; raises `ValueError` for fewer than 40.
        """
        spectra = filterbanks(list(waveforms[:, 0]))
        if weights is None:
            if not spectra or len(spectra[0]) < MIN_FRAMES:
                raise ValueError(f"A voice cannot be embedded from fewer than {MIN_FRAMES} frames of 10 ms.")
            return self._centered(spectra)
        by_speaker = weights if weights.dim() == 3 else weights[:, None]
        masks = torch.nn.functional.interpolate(by_speaker.float(), size=len(spectra[0]), mode="nearest") > 0.5
        voices = [spectrum[mask] for spectrum, speakers in zip(spectra, masks, strict=True) for mask in speakers]
        return self._centered(voices).view(*weights.shape[:-1], DIMENSION)

    def of_sounds(self, sounds: Sequence[Tensor]) -> Tensor:
        """Return (sounds, 192) of sounds of any length, (samples,) at 16 kHz; NaN below 40 frames of 10 ms."""
        return self._centered(filterbanks(sounds))

    def _centered(self, spectra: Sequence[Tensor]) -> Tensor:
        return embedded(self.network, spectra) - self.center


def assemble(segmentation: Path, embedding: Path, parameters: PipelineParameters, center: Sequence[float]) -> Any:
    """Assemble `SpeakerDiarization` with agglomerative clustering, on the CPU, from a folder for each network.

    `center` (192 values) is subtracted by `CAMPlusPlusEmbedding`. The segmentation file is a pickle: call this within
    `weights_only`. Raises torch's errors for files of other networks.
    """
    network = campplus.load(embedding / EMBEDDING_FILE)
    pipeline = SpeakerDiarization(
        segmentation=Model.from_pretrained(segmentation / SEGMENTATION_FILE),
        segmentation_step=parameters.step,
        embedding=CAMPlusPlusEmbedding(network, center),
        embedding_exclude_overlap=True,
        plda=_UnusedPLDA(),
        clustering="AgglomerativeClustering",
    )
    clustering = {
        "method": "average",
        "min_cluster_size": parameters.min_cluster_size,
        "threshold": parameters.clustering_threshold,
    }
    return pipeline.instantiate({"segmentation": {"min_duration_off": 0.0}, "clustering": clustering})


class _UnusedPLDA(PLDA):  # type: ignore[misc]
    """`SpeakerDiarization` requires a PLDA for any clustering, and would download one from the hub."""

    def __init__(self) -> None:
        pass
