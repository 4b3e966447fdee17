"""Telephone calls of a given length, made of the sample calls: as 8 kHz mu-law WAV, the parties apart or mixed.

Used by the benchmarks of speed. The parts of a call are whole sample calls, so its turns, pauses and overlaps are those
of a dialogue; each call begins with another sample, and they are a little louder or softer, so that no two are alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

SAMPLES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "calls"
PARTS = ("01_invoice_stereo", "02_callback_stereo", "07_hold_stereo", "08_flite_voices_stereo")  # English, separate
RATE = 8000

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LongCall:
    """`separate` has two channels, `mixed` one, `channels` are files of one channel each: the same sound."""

    seconds: float
    separate: Path
    mixed: Path
    channels: tuple[Path, Path]


def make(folder: Path, number: int, minutes: float | Sequence[float]) -> list[LongCall]:
    """`number` calls of `minutes` (one length for all, or lengths to take in turn), written into `folder`."""
    lengths = [minutes] if isinstance(minutes, int | float) else list(minutes)
    parts = [_read(name) for name in PARTS]
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder, i, _joined(parts, i, lengths[i % len(lengths)])) for i in range(number)]


def _read(name: str) -> Samples:
    sound, rate = soundfile.read(SAMPLES / name / "call.flac", dtype="float32", always_2d=True)
    if rate != RATE:
        raise SystemExit(f"{name} has {rate} Hz")
    return np.asarray(sound, np.float32)


def _joined(parts: Sequence[Samples], number: int, minutes: float) -> Samples:
    wanted, found, random = round(minutes * 60 * RATE), [], np.random.default_rng(number)
    while sum(map(len, found)) < wanted:
        found.append(parts[(number + len(found)) % len(parts)] * np.float32(random.uniform(0.7, 1.0)))
    return np.concatenate(found)[:wanted]


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
