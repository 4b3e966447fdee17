"""Speech for a voiceprint (enough clean speech of one voice), and issues that prevent its enrollment."""

from dataclasses import replace

from pipeline.domain.speech import CUSTOMER, REP, AudioAnalysis, Span, Voiceprint
from pipeline.speakers.seconds import machine_spans, without
from pipeline.voice.calibration import VoiceCalibration

QUALITY_ISSUES = {
    "little_speech": "too little clean speech of the rep",
    "several_voices": "its parts do not sound like one voice",
    "one_stretch": "too short to check that it is one voice",
    "bleed": "the customer is audible in the rep's channel",
    "not_calibrated": "no calibration for its embedding model",
}
"""Why a voiceprint is not enrolled, by name; `profile.OUTLIERS` has the reasons from comparing calls."""


APART_SECONDS = 0.25  # speech nearer than this to speech of the other party is excluded
MIN_STRETCH_SECONDS = 0.5  # shorter stretches of clean speech are excluded
MIN_SECONDS = 12.0  # of clean speech in a call, required for enrollment
MAX_BLEED_DB = -20.0  # of the customer into the rep's channel; with more a voiceprint is not enrolled


def clean_speech(analysis: AudioAnalysis) -> tuple[Span, ...]:
    """Return the spans in which only the rep speaks: no other party near, no machine. Empty for mixed channels.

    The customer's speech is excluded at the delay of the bleed as well, if there is bleed.
    """
    if not analysis.layout.kind.separated or len(analysis.speech) < 2:
        return ()
    late = max((bleed.delay for bleed in analysis.layout.bleed if bleed.source == CUSTOMER), default=0.0)
    taken = [
        Span(span.start - APART_SECONDS, span.end + APART_SECONDS + max(0.0, late))
        for span in analysis.speech[CUSTOMER]
    ]
    taken += machine_spans(analysis.labels)[REP] if len(analysis.labels) > REP else ()
    pieces = [piece for span in analysis.speech[REP] for piece in without(span, taken)]
    return tuple(piece for piece in pieces if piece.duration >= MIN_STRETCH_SECONDS)


def judged(
    voiceprint: Voiceprint | None,
    analysis: AudioAnalysis,
    calibration: VoiceCalibration | None,
) -> Voiceprint | None:
    """Return the print with its quality issues: too little speech, several voices, or bleed.

    A print whose embedder has no calibration gets that issue.
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
    if any(bleed.source == CUSTOMER and bleed.level_db > MAX_BLEED_DB for bleed in analysis.layout.bleed):
        issues.append("bleed")
    return replace(voiceprint, quality_issues=tuple(issues))
