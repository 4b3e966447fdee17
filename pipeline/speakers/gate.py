"""What a voiceprint may be made of (enough clean speech of one voice), and what keeps it from being enrolled."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.domain.speech import CUSTOMER, REP, AudioAnalysis, Span, Voiceprint
from pipeline.speakers.seconds import Labels, machine_spans, without
from pipeline.voice.calibration import VoiceCalibration

QUALITY_ISSUES = {
    "little_speech": "too little clean speech of the rep",
    "several_voices": "its stretches do not sound like one voice",
    "one_stretch": "too short to tell whether it is one voice",
    "bleed": "the customer is heard in the rep's channel",
    "not_calibrated": "there is no calibration for its embedder",
}
"""Why a voiceprint is not enrolled, by name; what `profile.py` finds by comparing calls is in its `OUTLIERS`."""


APART_SECONDS = 0.25  # speech nearer than this to speech of the other party is left out
SHORTEST_SECONDS = 0.5  # shorter stretches of clean speech are left out
MIN_SECONDS = 12.0  # of clean speech in a call, below which its voiceprint is not enrolled
MAX_BLEED_DB = -20.0  # of the customer into the rep's channel, above which a voiceprint is not enrolled


def clean_speech(analysis: AudioAnalysis) -> tuple[Span, ...]:
    """Where the rep speaks alone: no speech of the other party near it, no machine. Empty for mixed channels.

    The customer's speech is taken out at the delay of the bleed as well, where there is bleed.
    """
    if not analysis.layout.kind.separated or len(analysis.speech) < 2:
        return ()
    late = max((one.delay for one in analysis.layout.bleed if one.source == CUSTOMER), default=0.0)
    taken = [
        Span(one.start - APART_SECONDS, one.end + APART_SECONDS + max(0.0, late)) for one in analysis.speech[CUSTOMER]
    ]
    taken += _machines(analysis.labels)
    pieces = [piece for span in analysis.speech[REP] for piece in without(span, taken)]
    return tuple(piece for piece in pieces if piece.duration >= SHORTEST_SECONDS)


def judged(
    voiceprint: Voiceprint | None,
    analysis: AudioAnalysis,
    calibration: VoiceCalibration | None,
) -> Voiceprint | None:
    """The print with its quality issues: what it was made of must be enough, one voice, and nobody else's.

    One whose embedder has no calibration cannot be judged, and says so.
    """
    if voiceprint is None:
        return None
    issues = []
    if voiceprint.speech_seconds < MIN_SECONDS:
        issues.append("little_speech")
    elif voiceprint.agreement is None:
        issues.append("one_stretch")
    if calibration is None:
        issues.append("not_calibrated")
    elif voiceprint.agreement is not None and voiceprint.agreement < calibration.agreement:
        issues.append("several_voices")
    if any(one.source == CUSTOMER and one.level_db > MAX_BLEED_DB for one in analysis.layout.bleed):
        issues.append("bleed")
    return replace(voiceprint, quality_issues=tuple(issues))


def _machines(labels: Labels) -> Sequence[Span]:
    return machine_spans(labels)[REP] if len(labels) > REP else ()
