"""A view over one or two decoded files: which row is which channel, its start, pace, and bleed to suppress.

Everything is computed on reading and nothing is cached: any range gives the same samples as the whole.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio.channels.levels import padded
from pipeline.audio.channels.suppress import BLOCK, Floats, Path, suppress
from pipeline.audio.decode.sound import in_all
from pipeline.domain.speech import SAMPLE_RATE, Audio, Span

Samples = npt.NDArray[np.int16]
SCALE = np.float32(32768)


@dataclass(frozen=True, slots=True)
class ArrangedTrack:
    """One channel of the call: the sum of `rows`, each (index of the source, its channel); without rows it is a gap.

    Sample n of the call is at (n - start) * pace of the rows; outside the rows there is silence.
    """

    rows: tuple[tuple[int, int], ...]
    start: int = 0
    pace: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Arranged(Audio):
    """The channels of a call. `paths` are the bleeds to suppress when a channel is read."""

    sources: tuple[Audio, ...]
    tracks: tuple[ArrangedTrack, ...]
    paths: tuple[Path, ...] = ()

    @property
    def channels(self) -> int:
        return len(self.tracks)

    @property
    def length(self) -> int:
        return max(self.extent(channel)[1] for channel in range(self.channels))

    @property
    def samples(self) -> Samples:
        """All samples, shape (channels, n): for tests and notebooks."""
        return np.stack([self.read(channel, 0, self.length) for channel in range(self.channels)])

    def read(self, channel: int, first: int, last: int) -> Samples:
        """See `Audio.read`. With bleed to suppress, whole blocks of 2 s are computed and cut."""
        first, last = max(0, first), min(self.length, last)
        if last <= first:
            return np.zeros(0, np.int16)
        if not any(path.target == channel for path in self.paths):
            return self._plain(channel, first, last)
        begin, end = first // BLOCK, (last - 1) // BLOCK + 1
        blocks = [suppress(self._floats, channel, block, self.paths) for block in range(begin, end)]
        whole = _as_int16(np.concatenate(blocks) * SCALE)
        return whole[first - begin * BLOCK : last - begin * BLOCK]

    def _floats(self, channel: int, first: int, last: int) -> Floats:
        return self._plain(channel, first, last).astype(np.float32) / SCALE

    def _plain(self, channel: int, first: int, last: int) -> Samples:
        """Return samples before suppression; silence outside the call."""
        track = self.tracks[channel]
        if not track.rows:
            return np.zeros(last - first, np.int16)
        if track.pace == 1.0:
            rows = [padded(self.sources[i], row, first - track.start, last - track.start) for i, row in track.rows]
            return rows[0] if len(rows) == 1 else _as_int16(np.sum(rows, axis=0, dtype=np.int32))
        positions = (np.arange(first, last) - track.start) * track.pace
        whole = np.floor(positions).astype(np.int64)
        begin = int(whole[0]) - 1
        rows = [padded(self.sources[i], row, begin, int(whole[-1]) + 3) for i, row in track.rows]
        return _as_int16(_between(np.sum(rows, axis=0, dtype=np.float64), whole - begin, positions - whole))

    def gaps(self, channel: int) -> tuple[Span, ...]:
        track = self.tracks[channel]
        if not track.rows:
            return (Span(0.0, self.duration),)
        start, pace = track.start / SAMPLE_RATE, track.pace
        missing = in_all([self.sources[source].gaps(row) for source, row in track.rows])
        return tuple(Span(start + gap.start / pace, start + gap.end / pace) for gap in missing)

    def extent(self, channel: int) -> tuple[int, int]:
        """Return the samples (first, last exclusive) of the call that a channel's source covers."""
        track = self.tracks[channel]
        return track.start, track.start + self._samples_of(track)

    def _samples_of(self, track: ArrangedTrack) -> int:
        longest = max((self.sources[source].length for source, _ in track.rows), default=0)
        return longest if track.pace == 1.0 else int(longest / track.pace)


def _between(
    samples: npt.NDArray[np.float64], whole: npt.NDArray[np.int64], part: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Interpolate at `whole` + `part` (0..1) by Lagrange's cubic through four samples: max. -0.5 dB at 3.4 kHz."""
    before, here, after, second_after = (samples[whole + step] for step in (-1, 0, 1, 2))
    value: npt.NDArray[np.float64] = (
        -before * part * (part - 1) * (part - 2) / 6
        + here * (part + 1) * (part - 1) * (part - 2) / 2
        - after * (part + 1) * part * (part - 2) / 2
        + second_after * (part + 1) * part * (part - 1) / 6
    )
    return value


def _as_int16(values: npt.NDArray[np.generic]) -> Samples:
    rounded: Samples = np.clip(np.rint(values), -32768, 32767).astype(np.int16)
    return rounded
