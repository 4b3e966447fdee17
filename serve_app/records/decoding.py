"""What people hear and see of recordings: a channel as WAV, and waveforms. Both run in a process of `Decoders`.

The process imports this module alone: imports that decoding does not need would make the first listener wait.
"""

import wave
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.audio.analyze import load
from pipeline.audio.channels.arrange import Arranged
from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import decode
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import CUSTOMER, REP, SAMPLE_RATE, Audio, Layout, LayoutKind, Recording

BLOCK = 60 * SAMPLE_RATE  # samples written at once
CHANNELS = {"rep": REP, "customer": CUSTOMER}
SLICES_PER_SECOND, MAX_SLICES = 20, 24_000  # of a waveform; the maximum is reached at 20 minutes
BLOCK_SECONDS = 10  # of a waveform, read at once

Peaks = npt.NDArray[np.uint8]
Span = tuple[float, float]
"""Start and end in seconds of the call."""


def write_channel(
    recordings: Sequence[Recording],
    layout: Layout,
    channel: str,
    spans: Sequence[Span],
    folder: Path,
    options: DecodeOptions,
) -> Path:
    """Decode recordings into `folder`; return a WAV file in it with a channel ("mixed", "rep", "customer").

    `spans`: only these stretches; empty: everything. Raises as `decode`, and OSError.
    """
    sources = [decode(recording, options, folder.as_uri()).audio for recording in recordings]
    path = folder / "sound.wav"
    _write(path, _tracks(recordings, sources, layout, channel), spans)
    return path


def compute_waveform(
    recordings: Sequence[Recording], files: int | None, swapped: bool, folder: str, options: DecodeOptions
) -> tuple[Peaks, float]:
    """Decode recordings, aligned as their transcript is; return the peak of each slice and the duration in seconds.

    `files`: how many the call has; `folder`: fsspec address of a folder for decoded sound. Crosstalk between channels
    is kept: users see what was recorded. Raises as `analyze.load`, and OSError.
    """
    loaded = load(recordings, options, files, folder, swapped=swapped)
    try:
        audio = replace(loaded.audio, paths=()) if isinstance(loaded.audio, Arranged) else loaded.audio
        return peaks_of(audio), audio.duration
    finally:
        if loaded.folder:
            sound.discard(loaded.folder)


def peaks_of(audio: Audio) -> Peaks:
    """Return peaks, uint8 of shape (channels, slices); 255 is full scale."""
    count = min(MAX_SLICES, max(1, int(audio.duration * SLICES_PER_SECOND)))
    size = max(1, -(-audio.length // count))  # samples per slice
    block = max(1, BLOCK_SECONDS * SAMPLE_RATE // size) * size
    blocks: list[Peaks] = [np.zeros((audio.channels, 0), np.uint8)]
    for first in range(0, audio.length, block):
        last = min(first + block, audio.length)
        samples = np.stack([audio.read(channel, first, last) for channel in range(audio.channels)])
        padded = np.pad(np.abs(samples.astype(np.int32)), ((0, 0), (0, -samples.shape[1] % size)))
        highest = padded.reshape(audio.channels, -1, size).max(axis=2)
        blocks.append((highest >> 7).clip(0, 255).astype(np.uint8))
    return np.concatenate(blocks, axis=1)


@dataclass(frozen=True, slots=True)
class _Track:
    """A channel of a source that begins at sample `start` of the call."""

    audio: Audio
    channel: int
    start: int = 0

    def read(self, first: int, last: int) -> npt.NDArray[np.int32]:
        """Return samples of the call; silence outside of the track."""
        samples = np.zeros(last - first, np.int32)
        begin, end = max(first, self.start), min(last, self.start + self.audio.length)
        if begin < end:
            samples[begin - first : end - first] = self.audio.read(self.channel, begin - self.start, end - self.start)
        return samples

    @property
    def end(self) -> int:
        return self.start + self.audio.length


def _tracks(recordings: Sequence[Recording], sources: Sequence[Audio], layout: Layout, channel: str) -> list[_Track]:
    """Return the tracks of a channel: those of the party if the layout separates parties, else all."""
    lines: dict[int, list[_Track]] = {REP: [], CUSTOMER: []}
    if layout.kind is LayoutKind.TWO_FILES:
        for recording, audio in zip(recordings, sources, strict=True):
            party = _party(recording.channel, layout)
            start = round(layout.starts[party] * SAMPLE_RATE) if layout.starts else 0
            lines[party] += [_Track(audio, row, start) for row in range(audio.channels)]
    else:
        for audio in sources:
            for row in range(audio.channels):
                lines[_party(row, layout)].append(_Track(audio, row))
    separate = channel in CHANNELS and layout.kind.separated
    return lines[CHANNELS[channel]] if separate else [*lines[REP], *lines[CUSTOMER]]


def _party(line: int, layout: Layout) -> int:
    return 1 - line if layout.swapped else line


def _write(path: Path, tracks: list[_Track], spans: Sequence[Span]) -> None:
    """Write a mono WAV of the mean of the tracks, which cannot clip."""
    length = max((track.end for track in tracks), default=0)  # a line that was never fetched is empty
    within = [(round(start * SAMPLE_RATE), min(round(end * SAMPLE_RATE), length)) for start, end in spans]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        for begin, end in within or [(0, length)]:
            for first in range(begin, end, BLOCK):
                last = min(first + BLOCK, end)
                summed = np.sum([track.read(first, last) for track in tracks], axis=0) // max(1, len(tracks))
                file.writeframes(np.clip(summed, -32768, 32767).astype("<i2").tobytes())
