"""What a voiceprint may be made of, and what keeps one from teaching: clean speech of one voice, and enough of it."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import CUSTOMER, REP, Heard, Span, Voiceprint
from pipeline.speakers.seconds import Labels, machine_spans, without
from pipeline.voice_calibration import VoiceCalibration

FLAWS = {
    "little_speech": "too little clean speech of the rep",
    "several_voices": "its stretches do not sound like one voice",
    "one_stretch": "too short to tell whether it is one voice",
    "bleed": "the customer is heard in the rep's channel",
    "not_calibrated": "there is no calibration for its embedder",
}
"""Why a voiceprint does not teach, by name; what `profile.py` finds by comparing calls is in its `MISFITS`."""


class PrintOptions(BaseModel):
    """From what speech of the rep's channel a voiceprint is made, and when it is good enough to be learnt from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    apart_seconds: float = Field(
        0.25, ge=0, le=5, description="Speech nearer than this to speech of the other party is left out of a print."
    )
    shortest_seconds: float = Field(0.5, gt=0, le=10, description="Shorter stretches of clean speech are left out.")
    min_seconds: float = Field(
        12.0, ge=1, le=600, description="Clean speech of a call below which its print does not teach."
    )
    agreement: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Least cosine of a stretch to the others, else voices are several; left out: the calibration's.",
    )
    max_bleed_db: float = Field(
        -20.0, le=0, description="Bleed of the customer into the rep's channel above this keeps a print from teaching."
    )


def clean_speech(heard: Heard, options: PrintOptions | None = None) -> tuple[Span, ...]:
    """Where the rep speaks alone: no speech of the other party near it, no machine. Empty for mixed channels.

    The customer's speech is taken out at the delay of the bleed as well, where there is bleed.
    """
    options = options or PrintOptions()
    if not heard.layout.kind.separated or len(heard.speech) < 2:
        return ()
    late = max((one.delay for one in heard.layout.bleed if one.source == CUSTOMER), default=0.0)
    apart = options.apart_seconds
    taken = [Span(one.start - apart, one.end + apart + max(0.0, late)) for one in heard.speech[CUSTOMER]]
    taken += _machines(heard.labels)
    pieces = [piece for span in heard.speech[REP] for piece in without(span, taken)]
    return tuple(piece for piece in pieces if piece.duration >= options.shortest_seconds)


def judged(
    voiceprint: Voiceprint | None,
    heard: Heard,
    calibration: VoiceCalibration | None,
    options: PrintOptions | None = None,
) -> Voiceprint | None:
    """The print with its flaws: what it was made of must be enough, one voice, and nobody else's.

    One whose embedder has no calibration cannot be judged, and says so.
    """
    if voiceprint is None:
        return None
    options = options or PrintOptions()
    flaws = []
    if voiceprint.speech_seconds < options.min_seconds:
        flaws.append("little_speech")
    elif voiceprint.agreement is None:
        flaws.append("one_stretch")
    if calibration is None:
        flaws.append("not_calibrated")
    elif voiceprint.agreement is not None:
        least = calibration.agreement if options.agreement is None else options.agreement
        if voiceprint.agreement < least:
            flaws.append("several_voices")
    if any(one.source == CUSTOMER and one.level_db > options.max_bleed_db for one in heard.layout.bleed):
        flaws.append("bleed")
    return replace(voiceprint, flaws=tuple(flaws))


def _machines(labels: Labels) -> Sequence[Span]:
    return machine_spans(labels)[REP] if len(labels) > REP else ()
