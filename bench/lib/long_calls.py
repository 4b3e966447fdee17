"""Telephone calls of a given length, made of the sample calls: as 8 kHz mu-law WAV, the parties apart or mixed.

Used by the benchmarks of speed. The parts of a call are whole sample calls, so its turns, pauses and overlaps are those
of a dialogue; each call begins with another sample, and they are a little louder or softer, so that no two are alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from serve_app.demo.samples import load_samples

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "calls"
PARTS = ("01_invoice_stereo", "02_callback_stereo", "07_hold_stereo", "08_flite_voices_stereo")  # English, separate
REAL_PARTS = ("01_help_line", "04_two_files", "07_interview")
RATE = 8000

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LongCall:
    """`separate` has two channels, `mixed` one, `channels` are files of one channel each: the same sound."""

    seconds: float
    separate: Path
    mixed: Path
    channels: tuple[Path, Path]


def make(
    folder: Path, number: int, minutes: float | Sequence[float], parts: Sequence[Samples] | None = None
) -> list[LongCall]:
    """`number` calls of `minutes` (one length for all, or lengths to take in turn), written into `folder`.

    `parts`: what they are made of, each of shape (n, 2); synthetic voices if None.
    """
    lengths = [minutes] if isinstance(minutes, int | float) else list(minutes)
    parts = parts or [_read(name) for name in PARTS]
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder, i, _joined(parts, i, lengths[i % len(lengths)])) for i in range(number)]


def real_parts() -> list[Samples]:
    """Return the demo's calls of real English voices with a channel for each, shape (n, 2)."""
    files = [sample.recordings for sample in load_samples() if sample.name in REAL_PARTS]
    return [_together([soundfile.read(file, dtype="float32", always_2d=True) for file in each]) for each in files]


def _together(channels: Sequence[tuple[Any, int]]) -> Samples:
    if {rate for _, rate in channels} != {RATE}:
        raise SystemExit(f"not all samples have {RATE} Hz")
    shortest = min(len(sound) for sound, _ in channels)
    return np.concatenate([sound[:shortest] for sound, _ in channels], axis=1, dtype=np.float32)


def _read(name: str) -> Samples:
    sound, rate = soundfile.read(SAMPLES / name / "call.flac", dtype="float32", always_2d=True)
    if rate != RATE:
        raise SystemExit(f"{name} has {rate} Hz")
    return np.asarray(sound, np.float32)


def _joined(parts: Sequence[Samples], number: int, minutes: float) -> Samples:
    length, pieces, random = round(minutes * 60 * RATE), list[Samples](), np.random.default_rng(number)
    while sum(map(len, pieces)) < length:
        pieces.append(parts[(number + len(pieces)) % len(parts)] * np.float32(random.uniform(0.7, 1.0)))
    return np.concatenate(pieces)[:length]


def _write(folder: Path, number: int, sound: Samples) -> LongCall:
    def wav(name: str, samples: Samples) -> Path:
        path = folder / f"{number:04d}_{name}.wav"
        soundfile.write(path, samples, RATE, subtype="ULAW")
        return path

    return LongCall(
        len(sound) / RATE,
        wav("separate", sound),
        wav("mixed", sound.mean(axis=1)),
        (wav("first", sound[:, 0]), wav("second", sound[:, 1])),
    )
