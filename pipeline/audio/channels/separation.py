"""Assignment of parties to channels, decided from the samples: never from a flag or the number of channels.

Two channels are compared by windows. In each window with sound, the best match of one channel with the other is
searched over a small shift (`compare`). Channels carry the same audio if nearly all windows match *at the same gain*:
bleed of one party into the other's line matches as well, but with a gain that depends on who speaks. Bleed is removed
from channels that stay separate (`overlap`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline.audio.channels import copied_channel, offset, overlap, turn_alignment
from pipeline.audio.channels.align import Alignment, align
from pipeline.audio.channels.arrange import Arranged, ArrangedTrack
from pipeline.audio.channels.compare import Match, compare, complete, fuller
from pipeline.audio.channels.levels import FRAME, LIVE_SECONDS, Activity, activity
from pipeline.audio.decode.decoder import Decoded
from pipeline.audio.decode.start_time import StartTime
from pipeline.domain.speech import SAMPLE_RATE, Audio, Layout, LayoutKind

SAME_SHARE = 0.8  # min. share of matching windows of equal channels
APART_WINDOWS, APART_SHARE = 3, 0.04  # number and share of windows with different sounds from which the channels differ
APART_ALONE = 2  # windows, if one channel's sound is all in the other
TOGETHER = 0.005  # seconds; closer starts of two legs count as simultaneous
SWAPPED = "The channels are swapped by a setting of the team or its key."
TURN_SECONDS = 10.0  # a party on the line speaks about this often, if only a word


def separate(decoded: Sequence[Decoded], leg: int | None = None, swapped: bool = False) -> tuple[Audio, Layout]:
    """Return the channels to process (channel 0 is always the rep) and how they were separated.

    `decoded`: one or two files, the sender's line first. `leg`: which of two legs the only file is, if the other could
    not be fetched; it stays on its channel, and the other channel is a gap. `swapped`: the customer comes first. The
    audio is a view over the files' (`Arranged`) that suppresses bleed on reading. Raises `ValueError` for any other
    number of files, and the errors of reading them.
    """
    if len(decoded) == 2:
        audio, layout = _two_files(decoded[0], decoded[1])
    elif len(decoded) == 1:
        audio, layout = _one_file(decoded[0].audio, decoded[0].source_channels)
        if leg is not None and not layout.kind.separated:
            audio, layout = _one_leg(decoded[0], leg, swapped)
    else:
        raise ValueError(f"one or two files make a call, not {len(decoded)}")
    if swapped and layout.kind.separated:
        audio, layout = _swapped(audio, layout)
    choices = [file.choice for file in decoded if file.choice]
    return audio, replace(layout, reason=" ".join([*choices, layout.reason]))


def _one_file(sound: Audio, source_channels: int) -> tuple[Arranged, Layout]:
    rows = Arranged((sound,), tuple(ArrangedTrack(((0, row),)) for row in range(sound.channels)))
    if sound.channels == 1:
        reason = "The file has one channel." if source_channels == 1 else "One channel remains."
        return rows, Layout(LayoutKind.MONO, 1, source_channels, 1.0, {}, reason)
    activities = activity(rows, 0), activity(rows, 1)
    evidence = {f"heard_seconds_{at}": activities[at].seconds for at in (0, 1)}
    if not (activities[0].live and activities[1].live):
        audio, layout = _one_sided(rows, source_channels, activities, evidence)
    else:
        match = compare(rows, activities[0].frames | activities[1].frames)
        evidence |= as_evidence(match)
        if is_same(match) and complete(activities) and not _party_alone(rows, activities, match):
            audio, layout = _identical(rows, source_channels, activities, match, evidence)
        else:
            audio, layout = _apart(rows, source_channels, activities, match, evidence)
    return audio, layout


def _party_alone(rows: Arranged, activities: tuple[Activity, Activity], match: Match) -> bool:
    """Return whether one channel holds one party and the other both, though that party speaks nearly all the time."""
    return match.apart >= APART_ALONE and copied_channel.find(rows, activities, match) is not None


def _one_sided(
    rows: Arranged, source_channels: int, activities: tuple[Activity, Activity], evidence: dict[str, float]
) -> tuple[Arranged, Layout]:
    live = max((0, 1), key=lambda channel: (activities[channel].seconds, activities[channel].loudest, -channel))
    if activities[live].live:
        reason = f"Channel {1 - live} is silent: channel {live} is treated as a mixed recording."
    else:
        reason = "Both channels are silent."
    # The other party may not have spoken yet; that is less likely the longer this one speaks.
    confidence = 1 - 2.0 ** -(activities[live].seconds / TURN_SECONDS) if activities[live].live else 0.0
    return _only(rows, live), Layout(LayoutKind.ONE_SIDED, 1, source_channels, confidence, evidence, reason)


def _identical(
    rows: Arranged,
    source_channels: int,
    activities: tuple[Activity, Activity],
    match: Match,
    evidence: dict[str, float],
    what: str = "channels",
) -> tuple[Arranged, Layout]:
    reason = f"Both {what} carry the same audio: {match.share:.0%} of {len(match.windows)} windows match{_how(match)}."
    layout = Layout(LayoutKind.IDENTICAL, 1, source_channels, confidence(match), evidence, reason)
    return _only(rows, fuller(activities, match)), layout


def _apart(
    rows: Arranged,
    source_channels: int,
    activities: tuple[Activity, Activity],
    match: Match,
    evidence: dict[str, float],
) -> tuple[Arranged, Layout]:
    common = overlap.find(rows, activities, match)
    if common.party is not None:
        reason = f"Channel {common.party} carries one party, channel {1 - common.party} both."
    elif is_same(match):
        reason = "The two channels differ: much of the sound of one is missing from the other."
    else:
        reason = (
            f"The two channels differ: only {match.share:.0%} of {len(match.windows)} windows carry the same sound."
        )
    layout = Layout(
        LayoutKind.STEREO,
        2,
        source_channels,
        confidence(match),
        evidence | common.as_evidence(),
        " ".join((reason, *common.sentences())),
        common.bleed,
    )
    return replace(rows, paths=common.paths), layout


def _two_files(first: Decoded, second: Decoded) -> tuple[Arranged, Layout]:
    sounds = first.audio, second.audio
    source_channels = first.source_channels + second.source_channels
    legs = [Arranged(sounds, (_as_leg(sound, index),)) for index, sound in enumerate(sounds)]
    activities = [activity(leg, 0) for leg in legs]
    evidence = {f"heard_seconds_{at}": activities[at].seconds for at in (0, 1)}
    evidence |= {f"seconds_{channel}": leg.duration for channel, leg in enumerate(legs)}
    alignment = align(legs, activities)
    stamps = _stamps(first, second)
    if alignment.aligned:
        pair, alignment = _align_by_sound(legs, alignment)
        began = _aligned(alignment), 1.0
    else:
        guess = _guess(legs, (activities[0], activities[1]), stamps)
        pair = _align_pair(legs, replace(alignment, offset=guess.offset))
        evidence |= guess.as_evidence()
        began = guess.sentence, guess.confidence
    evidence = alignment.as_evidence() | evidence
    if pair.match.windows:
        evidence |= as_evidence(pair.match)
    if pair.same:
        audio, layout = _identical(pair.rows, source_channels, pair.activities, pair.match, evidence, "files")
        apart = f" {began[0]}" if abs(alignment.offset) >= TOGETHER else ""
        return audio, replace(layout, starts=pair.starts, reason=layout.reason + apart)
    if stamps:
        evidence["start_times_seconds"], evidence["start_times_within"] = turn_alignment.start_difference(stamps)
    if alignment.aligned and pair.common.party is None:
        late = offset.echo_delays(pair.common.detected)
        evidence |= late.as_evidence()
        began = " ".join(filter(None, (began[0], late.sentence()))), late.confidence
    certainty = min(confidence(pair.match) if pair.match.windows else 1.0, began[1])
    reason = " ".join(("One file per leg was sent.", began[0], *pair.common.sentences()))
    evidence |= pair.common.as_evidence()
    # A silent leg stays a leg: unlike a dead channel it was recorded for one party.
    kind, bleed = LayoutKind.TWO_FILES, pair.common.bleed
    layout = Layout(kind, 2, source_channels, certainty, evidence, reason, bleed, pair.starts)
    return replace(pair.rows, paths=pair.common.paths), layout


@dataclass(frozen=True, slots=True)
class _AlignedPair:
    """Two legs on one time line and their overlap; `same`: both carry the same audio."""

    rows: Arranged
    activities: tuple[Activity, Activity]
    match: Match
    same: bool
    common: overlap.Overlap

    @property
    def starts(self) -> tuple[float, ...]:
        return tuple(track.start / SAMPLE_RATE for track in self.rows.tracks)


def _align_pair(legs: Sequence[Arranged], alignment: Alignment) -> _AlignedPair:
    rows = _placed(legs, alignment)
    activities, match = (activity(rows, 0), activity(rows, 1)), Match((), 0.0)
    if activities[0].live and activities[1].live:
        match = compare(rows, (activities[0].frames | activities[1].frames) & _covered(rows, len(activities[0].frames)))
        if is_same(match) and complete(activities) and _holds_all(rows, activities, fuller(activities, match)):
            return _AlignedPair(rows, activities, match, True, overlap.NOTHING)
    # Legs that share no speech have no bleed; common music or tones match by chance.
    common = overlap.NOTHING if alignment.unrelated else overlap.find(rows, activities, match, offset.MAX_LAG)
    return _AlignedPair(rows, activities, match, False, common)


def _stamps(first: Decoded, second: Decoded) -> tuple[StartTime, StartTime] | None:
    """Return both start times if the files have them from the same kind of source."""
    if first.started is None or second.started is None or first.started.source != second.started.source:
        return None
    return first.started, second.started


def _guess(
    legs: Sequence[Arranged], activities: tuple[Activity, Activity], stamps: tuple[StartTime, StartTime] | None
) -> turn_alignment.TurnAlignment:
    seconds = legs[0].duration, legs[1].duration
    if stamps is None or not (activities[0].live and activities[1].live):
        return turn_alignment.align_by_turns(activities, seconds)
    return turn_alignment.align_by_start_times(activities, seconds, stamps)


def _align_by_sound(legs: Sequence[Arranged], alignment: Alignment) -> tuple[_AlignedPair, Alignment]:
    """Align the legs; if both parties are audible in the other leg, correct the offset that one of them gave."""
    pair = _align_pair(legs, alignment)
    late = offset.echo_delays(pair.common.detected)
    if pair.same or pair.common.party is not None or abs(late.correction) < offset.MIN_CORRECTION:
        return pair, alignment
    corrected = replace(alignment, offset=alignment.offset + late.correction)
    return _align_pair(legs, corrected), corrected


def _swapped(audio: Arranged, layout: Layout) -> tuple[Arranged, Layout]:
    """Put the rep's channel first; figures and sentences still refer to the channels of the files."""
    paths = tuple(replace(path, source=path.target, target=path.source) for path in audio.paths)
    return replace(audio, tracks=audio.tracks[::-1], paths=paths), replace(
        layout,
        bleed=tuple(replace(bleed, source=1 - bleed.source) for bleed in layout.bleed),
        starts=layout.starts[::-1],
        swapped=True,
        reason=f"{layout.reason} {SWAPPED}",
    )


def _one_leg(file: Decoded, leg: int, swapped: bool) -> tuple[Arranged, Layout]:
    """Return the layout of a leg whose other file could not be fetched: it still holds one party."""
    tracks = [ArrangedTrack(()), ArrangedTrack(())]
    tracks[leg] = _as_leg(file.audio, 0)
    whose, missing = ("the rep's", "the customer's") if (leg == 0) != swapped else ("the customer's", "the rep's")
    fetched = f"only file {leg + 1} could be fetched: it is {whose} line"
    reason = f"One file per leg was sent; {fetched}, and {missing} is missing."
    layout = Layout(LayoutKind.TWO_FILES, 2, file.source_channels, 1.0, {}, reason, starts=(0.0, 0.0))
    return Arranged((file.audio,), tuple(tracks)), layout


def _covered(rows: Arranged, count: int) -> npt.NDArray[np.bool_]:
    (first, last), (begin, end) = rows.extent(0), rows.extent(1)
    covered = np.zeros(count, np.bool_)
    covered[max(first, begin) // FRAME : min(last, end) // FRAME] = True
    return covered


def _holds_all(rows: Arranged, activities: tuple[Activity, Activity], channel: int) -> bool:
    """Return whether the other file has no sound before `channel` begins or after it ends."""
    first, last = rows.extent(channel)
    other = activities[1 - channel].frames
    outside = int(other[: first // FRAME].sum() + other[-(-last // FRAME) :].sum())
    return outside * FRAME / SAMPLE_RATE < LIVE_SECONDS


def _as_leg(sound: Audio, source: int) -> ArrangedTrack:
    """Return a file's channel as a leg: its live one, or the sum of both if they differ."""
    audio, layout = _one_file(sound, sound.channels)
    if layout.channels == 1:
        return ArrangedTrack(tuple((source, row) for _, row in audio.tracks[0].rows))
    return ArrangedTrack(tuple((source, row) for row in range(sound.channels)))


def _placed(legs: Sequence[Arranged], alignment: Alignment) -> Arranged:
    offset = round(alignment.offset * SAMPLE_RATE)
    pace = 1 / (1 + alignment.drift)
    first = replace(legs[0].tracks[0], start=max(0, -offset))
    second = replace(legs[1].tracks[0], start=max(0, offset), pace=pace)
    return Arranged(legs[0].sources, (first, second))


def _aligned(alignment: Alignment) -> str:
    if abs(alignment.offset) < TOGETHER:
        begun = "They began together"
    else:
        later = "second" if alignment.offset > 0 else "first"
        begun = f"The {later} began {abs(alignment.offset):.2f} s later"
    drift = f", and their clocks differ by {abs(alignment.drift) * 1e6:.0f} ppm" if alignment.drift else ""
    return f"{begun}{drift}: {alignment.agreeing} windows of sound in both files agree."


def _only(rows: Arranged, channel: int) -> Arranged:
    return replace(rows, tracks=(rows.tracks[channel],))


def is_same(match: Match) -> bool:
    """Return whether nearly all windows match, and hardly any hold different sounds."""
    different = match.apart >= APART_WINDOWS and match.apart >= APART_SHARE * len(match.windows)
    return match.share >= SAME_SHARE and not different


def confidence(match: Match) -> float:
    """Return the probability, given the windows, that the call's true share of matching windows is on the decided side.

    Each window counts as an independent trial, the prior is Jeffreys's (Beta(0.5, 0.5)); 0.5 without windows.
    """
    from scipy.special import betainc

    windows = len(match.windows)
    matching = match.share * windows
    below = float(betainc(matching + 0.5, windows - matching + 0.5, SAME_SHARE)) if windows else 0.5
    if is_same(match):
        return 1 - below
    # If windows with different sounds decide, the probability is about them.
    apart = 1 - float(betainc(match.apart + 0.5, windows - match.apart + 0.5, APART_SHARE)) if windows else 0.5
    return max(below, apart)


def as_evidence(match: Match) -> dict[str, float]:
    return {
        "windows": float(len(match.windows)),
        "same_share": match.share,
        "apart_windows": float(match.apart),
        "correlation": match.correlation,
        "gain_db": match.gain_db,
        "shift_ms": match.shift * 1000 / SAMPLE_RATE,
        "polarity": float(match.polarity),
    }


def _how(match: Match) -> str:
    parts = []
    if match.polarity < 0:
        parts.append("polarity inverted")
    if abs(match.gain_db) >= 1:
        parts.append(f"{abs(match.gain_db):.0f} dB apart")
    if abs(match.shift) >= 1:
        parts.append(f"{abs(match.shift) * 1000 / SAMPLE_RATE:.1f} ms apart")
    return f" ({', '.join(parts)})" if parts else ""
