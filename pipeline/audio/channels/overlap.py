"""What two separate channels have in common: the bleed of one party into the other's line, and stretches that
both carry, such as an announcement before the parties speak or a conference bridge.

A shared stretch is kept on one channel, or every line of it would be written twice: on the louder, and where both are
alike on channel 1, the other party's line, from where such sounds come.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.audio.channels import bleed, copied_channel
from pipeline.audio.channels.compare import MATCH, Match, Stretch, stretches
from pipeline.audio.channels.levels import Activity, in_band, padded
from pipeline.audio.channels.suppress import HOP, Path
from pipeline.domain.speech import REP, SAMPLE_RATE, Audio, Bleed

ALIKE_DB = 1.5  # within which a shared stretch is as loud on either channel
FAINTER_DB = 12.0  # below the louder channel, what matches is bleed and not shared
EXPLAINED_DB, EXPLAINED_SAMPLES = 3.0, 80  # how near a stretch may lie to a bleed to be a part of it
STEP = SAMPLE_RATE // 4  # by which the ends of a stretch are looked for
PROBE = SAMPLE_RATE // 2  # of which the sound is compared there


@dataclass(frozen=True, slots=True)
class Overlap:
    """Bleeds with the figures behind them, shared stretches with the channel that keeps them, and all their paths."""

    found: tuple[bleed.Found, ...]
    shared: tuple[Stretch, ...]
    paths: tuple[Path, ...]
    party: int | None = None  # the channel of the one party that the other channel, the mix of both, holds as well

    @property
    def bleed(self) -> tuple[Bleed, ...]:
        return tuple(one.bleed for one in self.found)

    def as_evidence(self) -> dict[str, float]:
        """The figures by name, as a layout keeps them."""
        evidence = {"shared_seconds": sum(stretch.span.duration for stretch in self.shared)}
        for one in self.found:
            evidence[f"bleed_peak_{one.bleed.source}"] = one.peak
            evidence[f"bleed_windows_{one.bleed.source}"] = float(one.windows)
        return evidence

    def sentences(self) -> tuple[str, ...]:
        """For people."""
        said = [
            f"Channel {one.source} bleeds into channel {1 - one.source} at {one.level_db:.0f} dB, "
            f"{one.delay * 1000:.0f} ms later; it is suppressed there."
            for one in self.bleed
        ]
        for channel in (0, 1):
            kept = [stretch for stretch in self.shared if keeper(stretch) == channel]
            if kept:
                seconds = sum(stretch.span.duration for stretch in kept)
                said.append(f"{seconds:.0f} s are the same on both channels and are kept on channel {channel}.")
        return tuple(said)


NOTHING = Overlap((), (), ())


def find(audio: Audio, heard: Sequence[Activity], match: Match, lag: int = bleed.LAG) -> Overlap:
    """What channels 0 and 1 have in common. `match`: their comparison in windows; `lag`: samples by which a bleed may
    come late."""
    if not (heard[0].live and heard[1].live):
        return NOTHING
    party = copied_channel.find(audio, heard, match)
    if party:
        return Overlap((party,), (), party.paths, party.bleed.source)
    runs = tuple(run for run in stretches(match.windows) if abs(run.gain_db) <= FAINTER_DB)
    found, alone = _separated(audio, heard, runs, lag)
    shared = tuple(_widened(audio, run) for run in alone)
    paths = [path for one in found for path in one.paths] + [_path(audio, stretch) for stretch in shared]
    return Overlap(found, shared, tuple(paths))


def keeper(stretch: Stretch) -> int:
    """The channel that keeps a shared stretch."""
    return REP if stretch.gain_db < -ALIKE_DB else 1 - REP


def _separated(
    audio: Audio, heard: Sequence[Activity], runs: Sequence[Stretch], lag: int
) -> tuple[tuple[bleed.Found, ...], list[Stretch]]:
    """The bleeds, and of the runs of matching windows those that are no part of one: they are shared.

    Bleed goes on outside the runs, or comes at several delays; what runs alone hold is shared.
    """
    whole = bleed.find(audio, heard, lag=lag)
    if not runs:
        return whole, []
    outside = {one.bleed.source: one.bleed.level_db for one in bleed.find(audio, heard, runs, lag)}
    known = [
        one
        for one in whole
        if len(one.paths) > 1 or abs(outside.get(one.bleed.source, float("inf")) - one.bleed.level_db) <= EXPLAINED_DB
    ]
    alone = [run for run in runs if not any(_explains(one, run) for one in known)]
    return (bleed.find(audio, heard, alone, lag) if alone else whole), alone


def _explains(found: bleed.Found, run: Stretch) -> bool:
    """Whether a run is as loud and as late as a bleed."""
    gain, shift = (run.gain_db, run.shift) if found.bleed.source == 0 else (-run.gain_db, -run.shift)
    near = min(abs(shift - path.delay) for path in found.paths)
    return abs(gain - found.bleed.level_db) <= EXPLAINED_DB and near <= EXPLAINED_SAMPLES


def _path(audio: Audio, stretch: Stretch) -> Path:
    source = keeper(stretch)
    delay = round(stretch.shift if source == 0 else -stretch.shift)
    windows = [(first, first + SAMPLE_RATE) for first in range(stretch.first, stretch.last, SAMPLE_RATE)]
    transfer = bleed.transfer(audio, source, [delay] * len(windows), windows)
    return Path(source, 1 - source, delay, transfer, stretch.first, stretch.last)


def _widened(audio: Audio, run: Stretch) -> Stretch:
    """A stretch to where the sound is no longer the same, at most a window's length on either side."""
    first, last = run.first, run.last
    while first > max(0, run.first - 2 * SAMPLE_RATE) and _alike(audio, run, first - PROBE, first):
        first -= STEP
    while last < min(audio.length, run.last + 2 * SAMPLE_RATE) and _alike(audio, run, last, last + PROBE):
        last += STEP
    return Stretch(max(0, first) // HOP * HOP, min(audio.length, last), run.gain_db, run.shift)


def _alike(audio: Audio, run: Stretch, first: int, last: int) -> bool:
    shift = round(run.shift)
    a = in_band(padded(audio, 0, first, last))
    b = in_band(padded(audio, 1, first + shift, last + shift))
    energy = float(np.sqrt((a @ a) * (b @ b)))
    return energy > 0 and abs(float(a @ b)) >= MATCH * energy
