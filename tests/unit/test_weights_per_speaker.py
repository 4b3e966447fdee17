"""Whether a window's speakers share one pass is asked of the network, whatever its class."""

from typing import Any

import pytest
import torch
from pyannote.audio import Model
from pyannote.audio.models.blocks.pooling import StatsPool
from pyannote.audio.pipelines.speaker_verification import PyannoteAudioPretrainedSpeakerEmbedding

from pipeline.diarization.steps import _takes_weights_per_speaker


class Pooling(Model):
    """An embedding of a class that nobody knows: frames of 10 ms, pooled by pyannote's own block."""

    dimension = 16

    def __init__(self) -> None:
        super().__init__(sample_rate=16000)
        self.pool = StatsPool()

    def forward(self, waveforms: Any, weights: Any = None) -> Any:
        return self.pool(waveforms.unfold(2, 160, 160)[:, 0].transpose(1, 2)[:, :8], weights)


class OneSpeaker(Pooling):
    """Takes weights of one speaker only."""

    def forward(self, waveforms: Any, weights: Any = None) -> Any:
        if weights is not None and weights.dim() != 2:
            raise ValueError("weights must have two dimensions")
        return super().forward(waveforms, weights)


class Mixing(Pooling):
    """Takes weights of several speakers, and gives all of them the same."""

    def forward(self, waveforms: Any, weights: Any = None) -> Any:
        found = super().forward(waveforms, weights)
        return found.mean(dim=1, keepdim=True).expand_as(found) if found.dim() == 3 else found


@pytest.mark.parametrize(("kind", "shares"), [(Pooling, True), (OneSpeaker, False), (Mixing, False)])
def test_a_network_is_tried_once(kind: type[Model], shares: bool) -> None:
    torch.manual_seed(0)
    embedding = PyannoteAudioPretrainedSpeakerEmbedding(kind())
    assert _takes_weights_per_speaker(embedding.model_, embedding) is shares
