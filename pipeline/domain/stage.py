from enum import StrEnum
from typing import Any

from pipeline.domain import speech
from pipeline.domain.insight import ModelTexts
from pipeline.domain.redaction import Originals


class Stage(StrEnum):
    """A stage of `pipeline.process`, in order of execution; its value is its name in the database.

    `result`: the type that the stage records; None if it records nothing. `display_name`: name for users.
    """

    result: Any
    display_name: str

    def __new__(cls, name: str, result: Any, display_name: str) -> "Stage":
        member = str.__new__(cls, name)
        member._value_, member.result, member.display_name = name, result, display_name
        return member

    FETCH = "fetch", tuple[speech.Recording, ...], "fetching"
    LEG = (
        "leg",
        speech.Recording,
        "fetching",
    )  # one of two recordings, while the other is awaited; recalled as a tuple of both
    AUDIO = "audio", speech.AudioAnalysis, "audio analysis"
    PROSODY = "prosody", speech.Prosody, "prosody"
    RECOGNITION = "asr", speech.Recognized, "recognition"
    ORIGINALS = "originals", Originals, "redaction"  # words that a policy seals
    REDACTION = "redaction", speech.Recognized, "redaction"  # instead of RECOGNITION where a policy applies
    DIARIZATION = "diarization", speech.Diarization, "diarization"
    RECLUSTERING = "reclustering", speech.Diarization, "reclustering"  # of mixed channels, by the voice of each piece
    VOICES = (
        "voices",
        tuple[tuple[speech.SpeakerSpan, ...], ...],
        "machine voices",
    )  # by channel; only where words suggest one
    VOICEPRINT = "voiceprint", speech.Voiceprint | None, "voiceprint"  # of the rep, where channels are separated
    SPEAKERS = "speakers", speech.Transcript, "speakers"
    ANSWERS = "answers", ModelTexts, "language model"  # where the engine of the analysis asks one
    ANALYSIS = "analysis", None, "analysis"

    @classmethod
    def display_name_of(cls, name: str) -> str:
        """Return the display name of a stored stage; unknown names are returned unchanged."""
        return next((stage.display_name for stage in cls if stage == name), name)


NOT_RECORDED = object()
"""What `Journal.recall` returns for a stage without a result: None is a result of some stages."""
