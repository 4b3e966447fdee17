"""What two separate channels have in common: the bleed of one party into the other's line, and stretches that both
carry, such as an announcement before the parties speak or a conference bridge.

A shared stretch stays on one channel, or each of its sentences would be transcribed twice: on the louder channel, and
if both are alike on channel 1, the other party's line, where such sounds originate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.audio.channels import bleed, copied_channel
from pipeline.audio.channels.compare import MATCH, Match, Stretch, stretches
from pipeline.audio.channels.levels import Activity, in_band, padded
from pipeline.audio.channels.suppress import HOP, Path
from pipeline.domain.speech import REP, SAMPLE_RATE, Audio, Bleed

ALIKE_DB = 1.5  # within which a shared stretch is equally loud on both channels
FAINTER_DB = 12.0  # below the louder channel, matching sound is bleed and not shared
EXPLAINED_DB, EXPLAINED_SAMPLES = 3.0, 80  # max. difference between a stretch and a bleed that explains it
STEP = SAMPLE_RATE // 4  # step of the search for the ends of a stretch
PROBE = SAMPLE_RATE // 2  # compared in each step


@dataclass(frozen=True, slots=True)
class Overlap:
    """Detected bleeds, shared stretches, and the paths to suppress."""

    detected: tuple[bleed.DetectedBleed, ...]
    shared: tuple[Stretch, ...]
    paths: tuple[Path, ...]
    party: int | None = None  # the channel of one party, if the other channel is the mix of both

    @property
    def bleed(self) -> tuple[Bleed, ...]:
        return tuple(detected.bleed for detected in self.detected)

    def as_evidence(self) -> dict[str, float]:
        evidence = {"shared_seconds": sum(stretch.span.duration for stretch in self.shared)}
        for detected in self.detected:
            evidence[f"bleed_peak_{detected.bleed.source}"] = detected.peak
            evidence[f"bleed_windows_{detected.bleed.source}"] = float(detected.windows)
        return evidence

    def sentences(self) -> tuple[str, ...]:
        sentences = [
            f"Channel {bleed.source} bleeds into channel {1 - bleed.source} at {bleed.level_db:.0f} dB, "
            f"{bleed.delay * 1000:.0f} ms later; it is suppressed there."
            for bleed in self.bleed
        ]
        for channel in (0, 1):
            stretches = [stretch for stretch in self.shared if keeper(stretch) == channel]
            if stretches:
                seconds = sum(stretch.span.duration for stretch in stretches)
                sentences.append(f"{seconds:.0f} s are the same on both channels; kept on channel {channel}.")
        return tuple(sentences)


NOTHING = Overlap((), (), ())


def find(audio: Audio, activities: Sequence[Activity], match: Match, lag: int = bleed.LAG) -> Overlap:
    """Find what channels 0 and 1 have in common; `match` compares their windows, `lag` is the max. delay in samples."""
    if not (activities[0].live and activities[1].live):
        return NOTHING
    party = copied_channel.find(audio, activities, match)
    if party:
        return Overlap((party,), (), party.paths, party.bleed.source)
    runs = tuple(run for run in stretches(match.windows) if abs(run.gain_db) <= FAINTER_DB)
    bleeds, alone = _separated(audio, activities, runs, lag)
    shared = tuple(_widened(audio, run) for run in alone)
    paths = [path for detected in bleeds for path in detected.paths] + [_path(audio, stretch) for stretch in shared]
    return Overlap(bleeds, shared, tuple(paths))


def keeper(stretch: Stretch) -> int:
    return REP if stretch.gain_db < -ALIKE_DB else 1 - REP


def _separated(
    audio: Audio, activities: Sequence[Activity], runs: Sequence[Stretch], lag: int
) -> tuple[tuple[bleed.DetectedBleed, ...], list[Stretch]]:
    """Return the bleeds, and the runs of matching windows that no bleed explains: those are shared.

    Bleed also occurs outside the runs, or at several delays; sound in the runs alone is shared.
    """
    whole = bleed.find(audio, activities, lag=lag)
    if not runs:
        return whole, []
    outside = {detected.bleed.source: detected.bleed.level_db for detected in bleed.find(audio, activities, runs, lag)}
    steady = [
        detected
        for detected in whole
        if len(detected.paths) > 1
        or abs(outside.get(detected.bleed.source, float("inf")) - detected.bleed.level_db) <= EXPLAINED_DB
    ]
    alone = [run for run in runs if not any(_explains(detected, run) for detected in steady)]
    return (bleed.find(audio, activities, alone, lag) if alone else whole), alone


def _explains(detected: bleed.DetectedBleed, run: Stretch) -> bool:
    gain, shift = (run.gain_db, run.shift) if detected.bleed.source == 0 else (-run.gain_db, -run.shift)
    near = min(abs(shift - path.delay) for path in detected.paths)
    return abs(gain - detected.bleed.level_db) <= EXPLAINED_DB and near <= EXPLAINED_SAMPLES


def _path(audio: Audio, stretch: Stretch) -> Path:
    source = keeper(stretch)
    delay = round(stretch.shift if source == 0 else -stretch.shift)
    windows = [(first, first + SAMPLE_RATE) for first in range(stretch.first, stretch.last, SAMPLE_RATE)]
    transfer = bleed.transfer(audio, source, [delay] * len(windows), windows)
    return Path(source, 1 - source, delay, transfer, stretch.first, stretch.last)


def _widened(audio: Audio, run: Stretch) -> Stretch:
    """Extend a stretch while the sound stays the same, by max. 2 s on either side."""
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
