"""A recognition engine that has nothing in common with Whisper: a small network over mel frames that knows whole words.

All of an engine is in this file. What makes it an engine of the service is one line in `pipeline.asr.ENGINES`.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from pipeline import checkpoints
from pipeline.asr.engine import AsrOptions, Samples
from pipeline.asr.words import recorded
from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText, Word

STEP = 0.02  # seconds of a frame
BANDS = 40
BLANK = 0  # the class of frames without a word
WEIGHTS, WORDS = "net.pt", "words.json"


class WordNetOptions(AsrOptions):
    """Options of this engine."""

    model_config = ConfigDict(extra="forbid")

    min_frames: int = Field(4, ge=1, description="Frames that a word lasts at least.")


CHECKPOINTS = CheckpointKind(
    title="network of words",
    setting="SWITCHBOARD_ASR__MODEL",
    auto=lambda _: ("word-net",),
    stored={},
    required=(WEIGHTS, WORDS),
    patterns=(WEIGHTS, WORDS),
    advice=lambda _: ("Train one: `tests.word_net.train`.",),
)


class WordNet:
    """A recognition engine; see `pipeline.asr.Engine`. It takes every chunk for English."""

    Options = WordNetOptions
    CHECKPOINTS = CHECKPOINTS

    packing, max_chunk_seconds, batch_size, batches_at_once = True, 30.0, 8, 1

    def __init__(self, options: WordNetOptions, store: Path | None = None) -> None:
        import torch

        checkpoint = checkpoints.resolve(options.model, CHECKPOINTS, self.device_of(options), store)
        self.name = f"word-net {checkpoint.name}"
        self._words = json.loads((checkpoint.folder / WORDS).read_text())
        self._net = network(len(self._words) + 1)
        self._net.load_state_dict(torch.load(checkpoint.folder / WEIGHTS, weights_only=True))
        self._net.eval()
        self._min_frames = options.min_frames

    @staticmethod
    def device_of(options: AsrOptions) -> str:
        return "cpu" if options.device == "auto" else options.device

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        return [self._text(sound, chunk, with_fallback) for sound, chunk in zip(samples, chunks, strict=True)]

    def _text(self, samples: Samples, chunk: Chunk, with_fallback: bool) -> ChunkText:
        import torch

        with torch.inference_mode():
            odds = self._net(frames(samples)[None])[0].log_softmax(0)  # (words + 1, frames)
        spans, at = [], 0
        for index, run in groupby(odds.argmax(0).tolist()):
            length = len(list(run))
            if index != BLANK and length >= self._min_frames:
                sure = float(odds[index, at : at + length].mean().exp())
                spans.append(Word(at * STEP, (at + length) * STEP, self._words[index - 1], round(sure, 4)))
            at += length
        mean = float(odds.max(0).values.mean())
        return ChunkText(chunk, "en", 0.0, recorded(spans, chunk), mean, float(not spans), with_fallback=with_fallback)


def frames(samples: npt.NDArray[np.float32]) -> Any:
    """Return log mel frames of zero mean and unit variance, a tensor of shape (BANDS, frames)."""
    import torch
    from torchaudio.transforms import MelSpectrogram

    mel = MelSpectrogram(SAMPLE_RATE, n_fft=512, hop_length=round(STEP * SAMPLE_RATE), n_mels=BANDS, f_max=4000.0)
    features = (mel(torch.from_numpy(np.ascontiguousarray(samples))) + 1e-6).log()
    return (features - features.mean()) / (features.std() + 1e-3)


def network(classes: int) -> Any:
    """Return a network from (batch, BANDS, frames) to (batch, classes, frames); it sees 0.3 s on either side."""
    from torch import nn

    return nn.Sequential(
        nn.Conv1d(BANDS, 64, 7, padding=3),
        nn.ReLU(),
        nn.Conv1d(64, 64, 7, padding=9, dilation=3),
        nn.ReLU(),
        nn.Conv1d(64, classes, 7, padding=9, dilation=3),
    )


def train(folder: Path, examples: Sequence[tuple[Samples, Sequence[Word]]], steps: int = 120) -> None:
    """Fit a network to channels whose words and times are known, and write it as a checkpoint into `folder`."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    words = sorted({word.text for _, spoken in examples for word in spoken})
    net = network(len(words) + 1)
    inputs = [frames(samples) for samples, _ in examples]
    targets = [torch.full((x.shape[1],), BLANK) for x in inputs]
    for target, (_, spoken) in zip(targets, examples, strict=True):
        for word in spoken:
            target[round(word.start / STEP) : round(word.end / STEP)] = words.index(word.text) + 1
    optimizer = torch.optim.Adam(net.parameters(), lr=8e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        losses = [
            nn.functional.cross_entropy(net(x[None] + 0.1 * torch.randn_like(x)), y[None])
            for x, y in zip(inputs, targets, strict=True)
        ]
        torch.stack(losses).mean().backward()
        optimizer.step()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), folder / WEIGHTS)
    (folder / WORDS).write_text(json.dumps(words))
