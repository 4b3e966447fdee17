"""The sample calls as arrays, their chunks, and how much of them was heard wrong."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText, Span
from tests.synthetic_calls import FOLDER


@dataclass(frozen=True)
class SampleCall:
    """A sample call; `samples` float32 of shape (channels, n) at 16 kHz, `expected` as in its expected.json."""

    name: str
    samples: np.ndarray
    expected: dict[str, Any]

    def said(self, role: str | None = None) -> list[dict[str, Any]]:
        return [s for s in self.expected["segments"] if role is None or s["speaker"] == role]

    def speech(self, role: str) -> tuple[Span, ...]:
        return tuple(Span(s["start"], s["end"]) for s in self.said(role))

    def cut(self, channel: int, start: float, end: float) -> np.ndarray:
        return self.samples[channel, round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]

    def sound(self, chunk: Chunk) -> np.ndarray:
        return np.concatenate([self.cut(chunk.channel, span.start, span.end) for span in chunk.sound])


def _read(path: Path) -> np.ndarray:
    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return np.ascontiguousarray(resample_poly(audio.T, SAMPLE_RATE // rate, 1, axis=1).astype(np.float32))


@pytest.fixture(scope="session")
def sample_call() -> Callable[[str], SampleCall]:
    """Load a sample call by the beginning of its name."""
    loaded: dict[str, SampleCall] = {}

    def load(prefix: str) -> SampleCall:
        if prefix not in loaded:
            folder = next(iter(sorted(FOLDER.glob(f"{prefix}*"))))
            submission = json.loads((folder / "submission.json").read_text())
            channels = [_read(folder / name) for name in submission["recordings"]]
            length = min(c.shape[1] for c in channels)
            expected = json.loads((folder / "expected.json").read_text())
            loaded[prefix] = SampleCall(folder.name, np.vstack([c[:, :length] for c in channels]), expected)
        return loaded[prefix]

    return load


@pytest.fixture(scope="session")
def chunks_of() -> Callable[..., tuple[Chunk, ...]]:
    """Chunks of one channel, cut at pauses of the known speech, so that speech detection plays no part."""

    def cut(speech: Sequence[Span], channel: int, seconds: float, max_seconds: float = 8.0) -> tuple[Chunk, ...]:
        spans: list[list[float]] = []
        for span in speech:
            start, end = max(0.0, span.start - 0.2), min(seconds, span.end + 0.3)
            if spans and end - spans[-1][0] <= max_seconds:
                spans[-1][1] = end
            else:
                spans.append([start if not spans else max(start, spans[-1][1]), end])
        return tuple(Chunk(channel, start, end) for start, end in spans)

    return cut


def plain(text: str) -> list[str]:
    return re.sub(r"[^\w' ]", " ", text.lower().replace("-", " ")).split()


@pytest.fixture(scope="session")
def words_wrong() -> Callable[[Sequence[dict[str, Any]], Sequence[ChunkText]], float]:
    """Word error rate, lower-cased and without punctuation, of what was heard in one channel."""
    import jiwer

    def rate(said: Sequence[dict[str, Any]], heard: Sequence[ChunkText]) -> float:
        reference = [w for s in sorted(said, key=lambda s: s["start"]) for w in plain(s["text"])]
        found = [w for text in heard for word in text.words for w in plain(word.text)]
        return float(jiwer.wer(" ".join(reference), " ".join(found)))

    return rate
