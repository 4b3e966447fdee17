"""The matrix of `channels.py`: calls as telephony systems record them, made from the sample calls' speech.

Every case knows what it is: its class, the layout that is right, the bleeds in it, when its second file begins.
"""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.audio.decode.decoder import Decoded, decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.decode.start_time import StartTime
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory

FOLDER = Path(__file__).parents[2] / "tests" / "fixtures" / "calls"
Sound = npt.NDArray[np.float64]  # full scale 32768

FITTED = ("01_invoice_stereo", "05_factura_stereo_es", "07_hold_stereo")  # thresholds were set on these
HELD_OUT = ("02_callback_stereo", "04_contract_two_files", "08_flite_voices_stereo")
CLEAN = ("mono", "identical", "dead", "distinct", "two files, nothing shared")
CODECS: dict[str, tuple[str, str, int, int]] = {  # name: (container, encoder, rate, bits a second)
    "mu-law": ("wav", "pcm_mulaw", 8000, 64000),
    "A-law": ("wav", "pcm_alaw", 8000, 64000),
    "AMR 12.2": ("amr", "libopencore_amrnb", 8000, 12200),
    "AMR 4.75": ("amr", "libopencore_amrnb", 8000, 4750),
    "Opus": ("ogg", "libopus", 16000, 16000),
    "MP3": ("mp3", "libmp3lame", 16000, 32000),
}


@dataclass(frozen=True, slots=True, eq=False)
class ChannelCase:
    """One call. `bleeds`: (source, level in dB). `offset`: seconds by which file 2 begins after file 1, if the
    sound shows it, and `drift` in ppm; `shared`: seconds that both channels contain."""

    name: str
    group: str
    kind: str
    files: tuple[Decoded, ...]
    bleeds: tuple[tuple[int, float], ...] = ()
    offset: float | None = None
    drift: float = 0.0
    shared: float = 0.0
    begun: float | None = None  # true start of file 2, if the sound shows only `offset`
    facts: dict[str, Any] = field(default_factory=dict)


@cache
def channels_of(name: str) -> Sound:
    """Return a sample call's channels, rep first, shape (2, n)."""
    submission = json.loads((FOLDER / name / "submission.json").read_text(encoding="utf-8"))
    rows = [
        row for file in submission["recordings"] for row in decode_file(FOLDER / name / file, DecodeOptions()).samples
    ]
    length = min(len(row) for row in rows)
    return np.stack([row[:length] for row in rows]).astype(np.float64)


def as_file(*rows: Sound, source_channels: int | None = None) -> Decoded:
    length = min(len(row) for row in rows)
    samples = np.clip(np.rint(np.stack([row[:length] for row in rows])), -32768, 32767).astype(np.int16)
    return Decoded(AudioInMemory(samples), SAMPLE_RATE, source_channels or len(rows), "pcm_s16le", "wav")


def through(row: Sound, codec: str | None) -> Sound:
    """Return a channel after a codec."""
    import av
    import soxr

    if codec is None:
        return row
    container, encoder, rate, bits = CODECS[codec]
    narrow = np.clip(soxr.resample(row, SAMPLE_RATE, rate), -32768, 32767).astype(np.int16)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream = output.add_stream(encoder, rate=rate, layout="mono")
        if encoder.startswith("lib"):
            stream.bit_rate = bits
        sample_format = stream.codec_context.format.name if stream.codec_context.format else "s16"
        resampler = av.AudioResampler(sample_format, "mono", rate, stream.codec_context.frame_size or 1024)
        frame = av.AudioFrame.from_ndarray(narrow[None], "s16", "mono")
        frame.sample_rate = rate
        for ready in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(stream.encode(ready))
        output.mux(stream.encode(None))
    buffer.seek(0)
    return np.asarray(decode_file(buffer, DecodeOptions()).samples[0], np.float64)


def db(level: float) -> float:
    return float(10 ** (level / 20))


def late(row: Sound, samples: int) -> Sound:
    """Shift a channel by samples (earlier if negative), at the same length."""
    moved = np.zeros_like(row)
    if samples >= 0:
        moved[samples:] = row[: len(row) - samples]
    else:
        moved[:samples] = row[-samples:]
    return moved


def over(row: Sound, level: float, delay: int, rng: np.random.Generator) -> Sound:
    """Return the bleed of a channel into the other: softer, later, and through a room or a hybrid of 4 ms."""
    response = rng.normal(0, 1, 64) * np.exp(-np.arange(64) / 12)
    response[0] += 2
    filtered = np.convolve(row, response)[: len(row)]
    return late(filtered * np.sqrt(np.mean(row**2) / np.mean(filtered**2)) * db(level), delay)


def noise(length: int, level: float, rng: np.random.Generator) -> Sound:
    return rng.normal(0, level, length)


def hum(length: int, level: float, frequency: float = 50) -> Sound:
    t = np.arange(length) / SAMPLE_RATE
    return level * (np.sin(2 * np.pi * frequency * t) + 0.3 * np.sin(6 * np.pi * frequency * t))


def ringing(seconds: float) -> Sound:
    """German ringback: 425 Hz, a second in five."""
    t = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return 6000 * np.sin(2 * np.pi * 425 * t) * (t % 5 < 1)


def music(seconds: float, rng: np.random.Generator) -> Sound:
    """Chords of decaying notes over a beat that repeats every eight seconds."""
    notes = 220 * 2 ** (rng.choice([0, 2, 4, 5, 7, 9, 11, 12], (16, 3)) / 12)
    t = np.arange(SAMPLE_RATE // 2) / SAMPLE_RATE
    bars = [
        sum(np.sin(2 * np.pi * f * k * t) / k for f in chord for k in (1, 2, 3)) * np.exp(-3 * t) for chord in notes
    ]
    loop = np.concatenate(bars) * 1800
    return np.resize(loop, round(seconds * SAMPLE_RATE))


def drifted(row: Sound, ppm: float) -> Sound:
    """Return a channel recorded by a clock that counts `ppm` too few samples per second."""
    positions = np.arange(int(len(row) / (1 + ppm * 1e-6))) * (1 + ppm * 1e-6)
    recorded: Sound = np.interp(positions, np.arange(len(row)), row)
    return recorded


def matrix(names: tuple[str, ...], seed: int, only: str = "") -> Iterator[ChannelCase]:
    """Yield all cases from the named sample calls; `only`: one class, by the name of its function."""
    for index, name in enumerate(names):
        call = channels_of(name)
        for number, make in enumerate(CLASSES):
            if not only or make.__name__ == f"_{only}":
                yield from make(name, call, np.random.default_rng([seed, index, number]))


def _any(rng: np.random.Generator) -> str | None:
    return [None, *CODECS][rng.integers(len(CODECS) + 1)]


def _mixed(call: Sound) -> Sound:
    mixed: Sound = call.sum(axis=0) * 0.7
    return mixed


def _mono(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    for codec in (None, "AMR 12.2"):
        yield ChannelCase(f"{name} {codec}", "mono", "mono", (as_file(through(_mixed(call), codec)),))


def _identical(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    mixed = _mixed(call)
    changes: dict[str, Callable[[Sound], Sound]] = {"copy": lambda x: x}
    changes |= {f"{gain} dB": partial(mul, db(gain)) for gain in (-3, -12, -30)}
    changes |= {f"{ms} ms": partial(late, samples=ms * 16) for ms in (-90, -5, 1, 40, 95)}
    changes |= {f"through {codec}": partial(through, codec=codec) for codec in CODECS}
    changes["inverted"] = lambda x: -x
    changes["inverted, -6 dB, 20 ms, A-law"] = lambda x: through(late(-x * db(-6), 320), "A-law")
    changes["noise"] = lambda x: x + noise(len(x), 200, rng)
    for what, change in changes.items():
        yield ChannelCase(f"{name} {what}", "identical", "identical", (as_file(mixed, change(mixed)),))
    both = through(mixed, "AMR 12.2"), through(mixed * db(-4), "AMR 4.75")
    yield ChannelCase(f"{name} two codecs", "identical", "identical", (as_file(*both),))
    later = np.concatenate([noise(3 * SAMPLE_RATE, 3, rng), mixed])
    yield ChannelCase(
        f"{name} as two files", "identical, two files", "identical", (as_file(mixed), as_file(later)), offset=-3.0
    )


def _dead(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    mixed = _mixed(call)
    clicks = np.where(rng.random(len(mixed)) < 2e-6, 20000.0, 0.0)
    length = len(mixed)
    kinds = {
        "zeros": mixed * 0,
        "an offset": mixed * 0 + 700,
        "soft hiss": noise(length, 20, rng),
        "loud hiss": noise(length, 500, rng),
        "hum": hum(length, 900),
        "60 Hz": hum(length, 3000, 60),
        "clicks": clicks,
        "dithered": noise(length, 0.6, rng),
        "A-law idle": through(noise(length, 8, rng), "A-law"),
    }
    for what, dead in kinds.items():
        live = int(rng.integers(2))
        rows = [dead, dead]
        rows[live] = through(mixed, _any(rng))
        yield ChannelCase(f"{name} {what}", "dead", "one_sided", (as_file(*rows),))


def _distinct(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    for codec in (None, *CODECS):
        gain = float(rng.choice([0, -6, -15, -25]))
        rows = [through(call[0], codec), through(call[1] * db(gain), codec)]
        yield ChannelCase(f"{name} {codec} {gain} dB", "distinct", "stereo", (as_file(*rows),))
    loud = noise(call.shape[1], 150, rng) + hum(call.shape[1], 300)
    yield ChannelCase(f"{name} same hum and hiss", "distinct", "stereo", (as_file(*(call + loud)),))
    yield ChannelCase(f"{name} of four channels", "distinct", "stereo", (as_file(*call, source_channels=4),))


def _bleeding(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    for level in (-3, -6, -10, -15, -20, -25, -30):
        for ways in (1, 2):
            for codec in (None, str(rng.choice(list(CODECS)))):
                delay = int(rng.choice([0, 5, 48, 400, 1600, 6400]))
                source = int(rng.integers(2))
                files = (bleeding(call, level, source, ways, delay, codec, rng),)
                sources = (source,) if ways == 1 else (0, 1)
                label = f"{name} {level} dB {ways} way(s) {delay} samples {codec}"
                yield ChannelCase(label, "bleed", "stereo", files, tuple((s, float(level)) for s in sources))


def bleeding(
    call: Sound, level: float, source: int, ways: int, delay: int, codec: str | None, rng: np.random.Generator
) -> Decoded:
    rows = [row.copy() for row in call]
    rows[1 - source] += over(call[source], level, delay, rng)
    if ways == 2:
        rows[source] += over(call[1 - source], level, delay, rng)
    return as_file(*(through(row, codec) for row in rows))


def _partial(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    for share in (0.2, 0.5, 0.85):
        seconds = min(60.0, call.shape[1] / SAMPLE_RATE * share / (1 - share))
        sounds = {
            "ringing": ringing(seconds),
            "music": music(seconds, rng),
            "announcement": _announcement(name, seconds),
        }
        for what, sound in sounds.items():
            gain = float(rng.choice([0, 0, -6, -10]))
            shared = sound * db(gain)
            rows = [np.concatenate(pair) for pair in ((sound, call[0]), (shared, call[1]))]
            codec = _any(rng)
            label = f"{name} {share:.0%} {what} {gain} dB {codec}"
            files = (as_file(*(through(row, codec) for row in rows)),)
            detectable = 0.0 if what == "ringing" else seconds
            yield ChannelCase(label, "partly identical", "stereo", files, shared=detectable)


def _announcement(name: str, seconds: float) -> Sound:
    other = "08_flite_voices_stereo" if not name.startswith("08") else "02_callback_stereo"
    return np.resize(channels_of(other).sum(axis=0), round(seconds * SAMPLE_RATE))


def _two_files(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    for offset in (0.0, 0.4, 3.7, 21.0, 58.0):
        for level, drift in ((-6, 0.0), (-15, 80.0), (-25, 0.0)):
            ways = int(rng.integers(1, 3))
            rows = [row.copy() for row in call]
            source = int(rng.integers(2))
            rows[1 - source] += over(call[source], level, 30, rng)
            if ways == 2:
                rows[source] += over(call[1 - source], level, 30, rng)
            sign = 1 if rng.integers(2) else -1
            begun = round(offset * SAMPLE_RATE)
            late_one = 1 if sign > 0 else 0
            if begun < call.shape[1] * 0.6:
                rows[late_one] = rows[late_one][begun:]
            else:  # both legs are whole, and the other one began that much before the call
                rows[1 - late_one] = np.concatenate([noise(begun, 20, rng), rows[1 - late_one]])
            rows[1] = drifted(rows[1], drift)
            legs = tuple(as_file(through(row, _any(rng))) for row in rows)
            sources = (source,) if ways == 1 else (0, 1)
            label = f"{name} {sign * offset} s {drift} ppm {level} dB {ways} way(s)"
            bleeds = tuple((s, float(level)) for s in sources)
            yield ChannelCase(label, "two files, bleed", "two_files", legs, bleeds, sign * offset, drift)


def _echoing(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    """Two files, each with the other party late in it: no one moment fits both, the middle of their delays is meant."""
    for level in (-6, -10, -18):
        for offset in (-9.0, -3.7, 0.4, 9.0):
            echoes = rng.uniform(0.03, 0.4, 2)
            rows = [
                row + over(other, level, round(late_by * SAMPLE_RATE), rng)
                for row, other, late_by in zip(call, call[::-1], echoes, strict=True)
            ]
            later = 1 if offset > 0 else 0
            rows[later] = rows[later][round(abs(offset) * SAMPLE_RATE) :]
            legs = tuple(as_file(through(row, _any(rng))) for row in rows)
            label = f"{name} {offset} s {level} dB, {echoes[0]:.2f} and {echoes[1]:.2f} s late"
            true_offset = offset + float(echoes[0] - echoes[1]) / 2
            bleeds = ((0, float(level)), (1, float(level)))
            yield ChannelCase(label, "two files, echo both ways", "two_files", legs, bleeds, true_offset, begun=offset)


def _answered(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    """Two files that carry nothing of each other, of which one begins when its party answered, or ends early."""
    for seconds in (2.0, 7.0, 15.0):
        for leg in (0, 1):
            for ended_early in (False, True):
                rows, cut = [row.copy() for row in call], round(seconds * SAMPLE_RATE)
                rows[leg] = rows[leg][:-cut] if ended_early else rows[leg][cut:]
                legs = tuple(as_file(through(row, _any(rng))) for row in rows)
                offset = None if ended_early else (seconds if leg else -seconds)
                label = f"{name} leg {leg}, {seconds} s {'too short' if ended_early else 'later'}"
                yield ChannelCase(label, "two files, nothing shared, begun apart", "two_files", legs, offset=offset)


def _stamped(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    """Two files that share nothing, neither begun nor ended together, which say when they began."""
    for within in (1.0, 0.001):
        for leg in (0, 1, 0, 1):
            cut, missing, began = rng.uniform(1, 20), rng.uniform(1, 10), 1.8e9 + rng.uniform(0, 100)
            rows = [row.copy() for row in call]
            rows[leg] = rows[leg][round(cut * SAMPLE_RATE) :]
            rows[1 - leg] = rows[1 - leg][: -round(missing * SAMPLE_RATE)]
            legs = tuple(
                replace(
                    as_file(through(row, _any(rng))),
                    started=StartTime((began + (cut if at == leg else 0.0)) // within * within, within, "date"),
                )
                for at, row in enumerate(rows)
            )
            label = f"{name} leg {leg} {cut:.1f} s later, {missing:.1f} s too short, to {within} s"
            offset = cut if leg else -cut
            yield ChannelCase(
                label, f"two files, nothing shared, start times to {within} s", "two_files", legs, offset=offset
            )


def _unrelated(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    group = "two files, nothing shared"
    for codec in (None, "mu-law", "AMR 12.2", "Opus"):
        legs = (as_file(through(call[0], codec)), as_file(through(call[1][: len(call[1]) * 3 // 4], _any(rng))))
        yield ChannelCase(f"{name} {codec}", group, "two_files", legs)
    tune = music(30, rng)
    played = _announcement(name, 12)
    waits = {
        "ringing in both": (ringing(20), ringing(27)),
        "the same music, begun apart": (tune, tune[5 * SAMPLE_RATE :]),
        "the same announcement, begun apart": (played, np.concatenate([ringing(9), played])),
    }
    for what, (first, second) in waits.items():
        legs = (as_file(np.concatenate([first, call[0]])), as_file(np.concatenate([second, call[1]])))
        yield ChannelCase(f"{name} {what}", group, "two_files", legs)
    yield ChannelCase(f"{name} silent leg", group, "two_files", (as_file(call[0]), as_file(call[1] * 0)))


def _far(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    """Copies that come much later: over trunks, satellites, and jitter buffers that stretch."""
    mixed = _mixed(call)
    for ms in (-350, -120, 150, 250, 400, 600):
        copy = through(late(mixed * db(float(rng.choice([0, -6, 3]))), ms * 16), _any(rng))
        yield ChannelCase(f"{name} {ms} ms", "identical, far", "identical", (as_file(mixed, copy),))
    for most in (200, 400):
        copy = through(_buffered(mixed, most * 16, rng), _any(rng))
        yield ChannelCase(f"{name} jitter buffer to {most} ms", "identical, far", "identical", (as_file(mixed, copy),))


def _buffered(row: Sound, max_delay: int, rng: np.random.Generator) -> Sound:
    """Return a channel behind a jitter buffer: its delay jumps every 5 to 12 s, up to 100 ms each, 0 to `max_delay`."""
    delayed, at, delay = np.zeros_like(row), 0, 0
    while at < len(row):
        last = at + round(rng.uniform(5, 12) * SAMPLE_RATE)
        delay = int(np.clip(delay + rng.integers(-1600, 1601), 0, max_delay))
        delayed[at:last] = late(row, delay)[at:last]
        at = last
    return delayed


def _contained(name: str, call: Sound, rng: np.random.Generator) -> Iterator[ChannelCase]:
    """One channel carries both parties, the other one of them."""
    for party in (0, 1):
        for level in (-3.0, 0.0, 3.0):
            for codec in (None, str(rng.choice(list(CODECS)))):
                delay = int(rng.choice([0, 0, 48, 640, 2400]))
                rows = [call[0], call[1]]
                rows[1 - party] = call[1 - party] + late(call[party] * db(level), delay)
                label = f"{name} party {party} at {level} dB, {delay} samples {codec}"
                files = (as_file(*(through(row, codec) for row in rows)),)
                yield ChannelCase(label, "both parties in one channel", "stereo", files, ((party, level),))


CLASSES = (
    _mono,
    _identical,
    _dead,
    _distinct,
    _bleeding,
    _partial,
    _two_files,
    _echoing,
    _unrelated,
    _answered,
    _stamped,
    _far,
    _contained,
)
