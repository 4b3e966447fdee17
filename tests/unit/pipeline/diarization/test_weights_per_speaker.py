from typing import Any

import pytest


def networks() -> dict[str, Any]:
    """Return embeddings of unknown classes: frames of 10 ms, pooled by pyannote's block."""
    from pyannote.audio import Model
    from pyannote.audio.models.blocks.pooling import StatsPool

    class Pooling(Model):
        dimension = 16

        def __init__(self) -> None:
            super().__init__(sample_rate=16000)
            self.pool = StatsPool()

        def forward(self, waveforms: Any, weights: Any = None) -> Any:
            return self.pool(waveforms.unfold(2, 160, 160)[:, 0].transpose(1, 2)[:, :8], weights)

    class OneSpeaker(Pooling):
        def forward(self, waveforms: Any, weights: Any = None) -> Any:
            if weights is not None and weights.dim() != 2:
                raise ValueError("weights must have two dimensions")
            return super().forward(waveforms, weights)

    class Mixing(Pooling):
        def forward(self, waveforms: Any, weights: Any = None) -> Any:
            pooled = super().forward(waveforms, weights)
            return pooled.mean(dim=1, keepdim=True).expand_as(pooled) if pooled.dim() == 3 else pooled

    return {"weights per speaker": Pooling, "one speaker only": OneSpeaker, "one result for all": Mixing}


@pytest.mark.parametrize(
    ("network", "shares"),
    [("weights per speaker", True), ("one speaker only", False), ("one result for all", False)],
)
def test_speakers_share_a_pass_only_through_a_network_that_keeps_them_apart(network: str, shares: bool) -> None:
    import torch
    from pyannote.audio.pipelines.speaker_verification import PyannoteAudioPretrainedSpeakerEmbedding

    from pipeline.diarization.batched_diarization import _takes_weights_per_speaker

    torch.manual_seed(0)
    embedding = PyannoteAudioPretrainedSpeakerEmbedding(networks()[network]())
    assert _takes_weights_per_speaker(embedding.model_, embedding) is shares
