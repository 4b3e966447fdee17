"""Calls put together from recordings: what each party's line carries when, over G.711.

A recipe is `recipe.json` in a sample's folder: {"seconds": 60.0, "parts": [...]}. Each part has `channel` (0: the rep's
line, 1: the customer's), `at` (seconds) and one of
    "clip": a file beside the recipe, "prompt": "en/queue-youarenext", "music": "reno_project-system",
    "keys": "2" (touch tones), "ringback": "us" or "eu".
`level` is its loudness in dBFS (RMS of what is loud); `from` and `seconds` cut a piece of it.
"""

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from serve_app.demo.sounds import music_file, prompt_file

RATE = 8000  # Hz
LEVEL = -23.0  # dBFS of a part that names none
FLOOR = -62.0  # dBFS of each line's own noise
FRAME = RATE // 100  # samples of 10 ms
KEY_SECONDS, KEY_PAUSE = 0.12, 0.1
KEYS = {
    key: (low, high)
    for low, row in ((697, "123"), (770, "456"), (852, "789"), (941, "*0#"))
    for key, high in zip(row, (1209, 1336, 1477), strict=True)
}  # Hz, ITU-T Q.23
RINGS = {"us": ((440, 480), 2.0, 6.0), "eu": ((425,), 1.0, 5.0)}  # Hz, seconds on, seconds from ring to ring
MU = 255.0

Sound = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at `RATE`


def needs_sounds(recipe: Path) -> bool:
    """True where a recipe uses prompts or hold music that have to be fetched."""
    return any("prompt" in part or "music" in part for part in _read(recipe)["parts"])


def write(recipe: Path, sounds: Path | None, target: Path) -> None:
    """Compose the call of `recipe` as 16-bit WAV of two channels at `RATE`. `sounds`: what `sounds.fetch` returned."""
    channels = compose(_read(recipe), recipe.parent, sounds)
    target.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(target), "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.ascontiguousarray(channels.T).tobytes())


def compose(recipe: dict[str, Any], folder: Path, sounds: Path | None) -> npt.NDArray[np.int16]:
    """The call, shape (2, n): the same each time. Clips are read from `folder`."""
    length = round(recipe["seconds"] * RATE)
    rng = np.random.default_rng(0)
    lines = [noise(length, rng) * 10 ** (FLOOR / 20) for _ in range(2)]
    for part in recipe["parts"]:
        sound = level(cut(part, load(part, folder, sounds)), part.get("level", LEVEL))
        first = round(part["at"] * RATE)
        lines[part["channel"]][first : first + len(sound)] += sound[: max(0, length - first)]
    return np.stack([mulaw(line) for line in lines])


def load(part: dict[str, Any], folder: Path, sounds: Path | None) -> Sound:
    """The sound that a part of a recipe names."""
    if "keys" in part:
        return touch_tones(part["keys"])
    if "ringback" in part:
        return ringback(part["ringback"], part["seconds"])
    if "clip" in part:
        return decode(folder / part["clip"])
    if sounds is None:
        raise ValueError("this recipe needs fetched sounds")
    kind, find = next(pair for pair in FETCHED.items() if pair[0] in part)
    return decode(find(sounds, part[kind]))


FETCHED: dict[str, Callable[[Path, str], Path]] = {"prompt": prompt_file, "music": music_file}


def cut(part: dict[str, Any], sound: Sound) -> Sound:
    """`seconds` of it from second `from`."""
    first = round(part.get("from", 0.0) * RATE)
    last = first + round(part["seconds"] * RATE) if "seconds" in part else None
    return sound[first:last]


def decode(path: Path) -> Sound:
    """A recording as mono at `RATE`."""
    import av

    resampler = av.AudioResampler("flt", "mono", RATE)
    with av.open(str(path)) as container:
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
    frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


def level(sound: Sound, dbfs: float) -> Sound:
    """Scaled so that its 10 ms within 40 dB of the loudest have `dbfs` RMS."""
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    power = (frames**2).mean(axis=1)
    active = np.sqrt(power[power > power.max() * 1e-4].mean())
    return np.asarray(sound * (10 ** (dbfs / 20) / active), np.float32)


def noise(samples: int, rng: np.random.Generator) -> Sound:
    """Pink noise of RMS 1."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    shaped = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))), samples)
    return np.asarray(shaped / np.sqrt((shaped**2).mean()), np.float32)


def touch_tones(keys: str) -> Sound:
    """The keys one after another."""
    tones = [np.append(_sines(KEYS[key], KEY_SECONDS), np.zeros(round(KEY_PAUSE * RATE))) for key in keys]
    return np.asarray(np.concatenate(tones), np.float32)


def ringback(country: str, seconds: float) -> Sound:
    """What a caller hears while the far telephone rings."""
    frequencies, on, period = RINGS[country]
    times = np.arange(round(seconds * RATE)) / RATE
    return np.asarray(_sines(frequencies, seconds) * (times % period < on), np.float32)


def mulaw(sound: Sound) -> npt.NDArray[np.int16]:
    """What 8 bits of G.711 mu-law leave of it (continuous form of the curve)."""
    clipped = np.clip(sound, -1, 1)
    steps = np.round(np.sign(clipped) * np.log1p(MU * np.abs(clipped)) / np.log1p(MU) * 127) / 127
    return np.asarray(np.sign(steps) * np.expm1(np.abs(steps) * np.log1p(MU)) / MU * 32767).astype(np.int16)


def _sines(frequencies: tuple[int, ...], seconds: float) -> npt.NDArray[np.float64]:
    times = np.arange(round(seconds * RATE)) / RATE
    return np.asarray(sum(np.sin(2 * np.pi * frequency * times) for frequency in frequencies) / len(frequencies))


def _read(recipe: Path) -> dict[str, Any]:
    return dict(json.loads(recipe.read_text(encoding="utf-8")))
