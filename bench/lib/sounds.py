"""Generated telephone sounds other than speech: float32 at 8 kHz, shape (n,), peak below 1.

Tones and cadences as in ITU-T E.180 supplement 2 and national practice; fax tones as in ITU-T T.30 and V.21; keys as in
ITU-T Q.23. Everything follows the random generator that is passed in, so a seed reproduces the same sound.
"""

import io

import numpy as np
import numpy.typing as npt

RATE = 8000
Sound = npt.NDArray[np.float32]
Random = np.random.Generator

RINGING: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {  # frequencies; on, off, on, off ... in seconds
    "Germany": ((425,), (1.0, 4.0)),
    "France": ((440,), (1.5, 3.5)),
    "Spain": ((425,), (1.5, 3.0)),
    "Italy": ((425,), (1.0, 4.0)),
    "United Kingdom": ((400, 450), (0.4, 0.2, 0.4, 2.0)),
    "Australia": ((400, 425, 450), (0.4, 0.2, 0.4, 2.0)),
    "United States": ((440, 480), (2.0, 4.0)),
    "Japan": ((384, 400, 416), (1.0, 2.0)),  # 400 Hz in which 16 Hz beat
    "China": ((450,), (1.0, 4.0)),
    "India": ((375, 400, 425), (0.4, 0.2, 0.4, 2.0)),  # 400 Hz in which 25 Hz beat
    "Brazil": ((425,), (1.0, 4.0)),
    "Russia": ((425,), (0.8, 3.2)),
    "Hong Kong": ((440, 480), (0.4, 0.2, 0.4, 3.0)),
    "Sweden": ((425,), (1.0, 5.0)),
}
ENGAGED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "Germany": ((425,), (0.48, 0.48)),
    "France": ((440,), (0.5, 0.5)),
    "Spain": ((425,), (0.2, 0.2)),
    "United Kingdom": ((400,), (0.375, 0.375)),
    "United States": ((480, 620), (0.5, 0.5)),
    "United States, congestion": ((480, 620), (0.25, 0.25)),
    "Japan": ((400,), (0.5, 0.5)),
    "China": ((450,), (0.35, 0.35)),
}
ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477, 1633)
KEYS = ("123A", "456B", "789C", "*0#D")


def level(sound: Sound, dbfs: float) -> Sound:
    """Scaled so that its loud parts (95th percentile of 20 ms frames) have `dbfs` RMS."""
    frames = sound[: len(sound) // 160 * 160].reshape(-1, 160)
    loud = float(np.percentile(np.sqrt(np.mean(frames**2, axis=1)), 95)) if len(frames) else 0.0
    return sound if loud == 0 else np.clip(sound * np.float32(10 ** (dbfs / 20) / loud), -0.99, 0.99)


def tones(frequencies: tuple[float, ...], seconds: float, rng: Random) -> Sound:
    """Sinusoids of like strength, together."""
    t = np.arange(round(seconds * RATE)) / RATE
    drift = 1 + rng.uniform(-0.008, 0.008)  # exchanges are allowed one per cent
    parts = [np.sin(2 * np.pi * f * drift * t + rng.uniform(0, 6.28)) for f in frequencies]
    return np.asarray(sum(parts) / len(parts), np.float32)


def cadence(frequencies: tuple[float, ...], beats: tuple[float, ...], seconds: float, rng: Random) -> Sound:
    """Tone and pause in turns until `seconds` are full."""
    pieces, filled, index = [], 0.0, 0
    while filled < seconds:
        length = beats[index % len(beats)]
        piece = tones(frequencies, length, rng) if index % 2 == 0 else np.zeros(round(length * RATE), np.float32)
        pieces.append(piece)
        filled, index = filled + length, index + 1
    return np.concatenate(pieces)[: round(seconds * RATE)]


def keys(digits: str, rng: Random, on: float = 0.08, off: float = 0.08) -> Sound:
    """DTMF: each digit `on` seconds long, `off` seconds after it, the upper tone up to 2 dB louder or 4 softer."""
    pieces: list[Sound] = []
    for digit in digits:
        row = next(i for i, names in enumerate(KEYS) if digit in names)
        high = COLUMNS[KEYS[row].index(digit)]
        twist = 10 ** (rng.uniform(-4, 2) / 20)
        t = np.arange(round(on * RATE)) / RATE
        pair = np.sin(2 * np.pi * ROWS[row] * t) + twist * np.sin(2 * np.pi * high * t)
        pieces += [np.asarray(pair / 2, np.float32), np.zeros(round(off * RATE), np.float32)]
    return np.concatenate(pieces)


def beep(rng: Random) -> Sound:
    return tones((rng.choice([440.0, 620.0, 800.0, 1000.0, 1400.0]),), rng.uniform(0.2, 1.0), rng)


def hum(seconds: float, rng: Random) -> Sound:
    t = np.arange(round(seconds * RATE)) / RATE
    base = rng.choice([50.0, 60.0])
    return np.asarray(sum(rng.uniform(0.1, 1) / k * np.sin(2 * np.pi * base * k * t) for k in range(1, 9)), np.float32)


def clicks(seconds: float, rng: Random) -> Sound:
    sound = np.zeros(round(seconds * RATE), np.float32)
    for at in rng.integers(0, max(1, len(sound) - 80), round(seconds * rng.uniform(1, 6))):
        sound[at : at + 60] += (rng.normal(0, 0.4, 60) * np.exp(-np.arange(60) / 12)).astype(np.float32)[
            : len(sound) - at
        ]
    return np.clip(sound, -0.99, 0.99)


def fax(seconds: float, rng: Random) -> Sound:
    """Calling tone, answer tone, V.21 flags, then something like V.29: 2400 baud on a carrier of 1700 Hz."""
    calling = np.concatenate([tones((1100,), 0.5, rng), np.zeros(3 * RATE, np.float32)])
    answer = np.concatenate([tones((2100,), 3.0, rng), np.zeros(600, np.float32)])
    bits = np.repeat(rng.integers(0, 2, round(300 * 1.5)), 27)[: round(1.5 * RATE)]
    flags = np.sin(np.cumsum(2 * np.pi * np.where(bits, 1650, 1850) / RATE)).astype(np.float32)
    symbols = (rng.choice([-3, -1, 1, 3], (2, 2400 * 4)) / 4)[:, np.arange(4 * RATE) * 2400 // RATE]
    t = np.arange(4 * RATE) / RATE
    page = symbols[0] * np.cos(2 * np.pi * 1700 * t) - symbols[1] * np.sin(2 * np.pi * 1700 * t)
    whole = np.concatenate([calling, answer, flags, page.astype(np.float32)])
    return np.resize(whole, round(seconds * RATE)).astype(np.float32)


def information_tone(rng: Random) -> Sound:
    """Three rising tones before "the number you have dialled": ITU-T E.180's special information tone."""
    return np.concatenate([tones((f,), 0.33, rng) for f in (950, 1400, 1800)])


def through(sound: Sound, codec: str) -> Sound:
    """Return the sound after a codec, at 8 kHz; codec delays remain."""
    if codec == "none":
        return sound
    import av

    name, container, rate, options = {
        "mulaw": ("pcm_mulaw", "wav", RATE, {}),
        "alaw": ("pcm_alaw", "wav", RATE, {}),
        "amr": ("libopencore_amrnb", "amr", RATE, {"b": "12200"}),
        "amr low": ("libopencore_amrnb", "amr", RATE, {"b": "5900"}),
        "g726": ("g726", "wav", RATE, {"b": "32000"}),
        "opus": ("libopus", "ogg", RATE, {"b": "12000"}),
    }[codec]
    buffer = io.BytesIO()
    pcm = (np.clip(sound, -1, 1) * 32767).astype(np.int16)
    with av.open(buffer, "w", format=container) as file:
        stream = file.add_stream(name, rate=rate, options=options)
        stream.layout = "mono"
        stream.bit_rate = int(options.get("b", "64000"))
        frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
        frame.rate = RATE
        for packet in stream.encode(frame):
            file.mux(packet)
        for packet in stream.encode(None):
            file.mux(packet)
    buffer.seek(0)
    with av.open(buffer) as file:
        resampler = av.AudioResampler("s16", "mono", RATE)
        pieces = [got.to_ndarray()[0] for frame in file.decode(audio=0) for got in resampler.resample(frame)]
        pieces += [got.to_ndarray()[0] for got in resampler.resample(None)]
    decoded = np.concatenate(pieces).astype(np.float32) / 32768
    return np.resize(np.concatenate([decoded, np.zeros(len(sound), np.float32)]), len(sound)).astype(np.float32)
