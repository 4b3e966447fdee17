"""The English sentences of a call's record; API, events, exports, CLI and console show them as stored."""

from collections.abc import Mapping, Sequence

from pipeline.domain.speech import LabelKind
from pipeline.domain.vocabulary import CallWarning, NoSpeechReason

WARNINGS: Mapping[CallWarning, str] = {
    CallWarning.RECORDING_MISSING: "One of the two recordings could not be fetched.",
    CallWarning.RECORDING_NOT_FETCHED: "One of the two recordings could not be fetched: {problem}",
    CallWarning.RECORDING_FETCHED_AGAIN: "The stored {recording} {flaw}; it was fetched again.",
    CallWarning.EXTRA_CHANNELS: "The recording has {channels} channels; only the first {used} are used.",
    CallWarning.CHANNELS_CHANGE: "The number of channels changes within the recording.",
    CallWarning.LATE_TRACK: "A track begins in the middle of the recording; it is ignored.",
    CallWarning.IMPLAUSIBLE_TIMESTAMPS: "{count} timestamps are implausible and were ignored.",
    CallWarning.AUDIO_MISSING: (
        "{seconds:.1f} s of audio are missing within the recording ({places}); silence replaces them."
    ),
    CallWarning.RECORDING_INCOMPLETE: (
        "The recording is incomplete: it declares {declared:.1f} s and has {seconds:.1f} s."
    ),
    CallWarning.RECORDING_BREAKS_OFF: "The recording is damaged: it ends after {seconds:.1f} s.",
    CallWarning.DAMAGED_PIECES: "{count} damaged pieces of the recording were skipped.",
    CallWarning.RECORDING_TOO_SHORT: "The recording is only {seconds:.2f} s long, too short to transcribe.",
    CallWarning.RECORDING_SHORTER_THAN_CALL: (
        "The recording has {seconds:.1f} s, and the call lasted {declared} s as submitted: check the phone system."
    ),
    CallWarning.PROSODY_FAILED: "The prosody of the voices could not be measured: {problem}",
    CallWarning.MACHINES_BY_WORDS: "Announcements were detected by their words alone: {problem}",
    CallWarning.REP_VOICE_NOT_COMPARED: "The voice of the rep was not compared: {problem}",
    CallWarning.WINDOWS_NOT_DECODED_AGAIN: (
        "{count} doubtful windows were not decoded again: the call has too many of them."
    ),
    CallWarning.NOT_REDACTED: "Personal data in the call is not redacted: {reason}",
    CallWarning.WORDS_NOT_MARKED: (
        "Words are not marked one by one as unsure: there is no calibration for {engine!r}."
    ),
    CallWarning.VOICES_NOT_MATCHED: "Voices are not matched: there is no calibration for {model!r}.",
    CallWarning.FINDINGS_BY_RULES: "The findings are by rules, not by the language model: {reason}.",
    CallWarning.REANALYSIS_FAILED: (
        "Reanalysis after a change of the call's data failed; the findings are from before it: {problem}"
    ),
    CallWarning.TASKS_NOT_STORED: "The tasks could not be stored: {count} invalid values.",
    CallWarning.FIELDS_REVERTED: (
        "The submission of {time} set {fields} back to an earlier value. If it was an older body that arrived late, "
        "resubmit the newest one."
    ),
}
NO_SPEECH: Mapping[NoSpeechReason, str] = {
    NoSpeechReason.NO_PARTY: "No party speaks.",
    NoSpeechReason.NO_VOICE: "No speech was found in {seconds:.1f} s of audio.",
    NoSpeechReason.TOO_SHORT: "Speech was detected, but no chunk was long enough to transcribe.",
    NoSpeechReason.ALL_REJECTED: "All recognized words were rejected as implausible: see the doubts.",
    NoSpeechReason.NO_WORDS: "Possible speech was detected, but no words were recognized.",
    NoSpeechReason.NO_WORDS_ON_ONE_CHANNEL: (
        "Possible speech was detected in the one channel that carries sound, but no words were recognized."
    ),
}
_NO_SPEECH_BUT_SOUNDS: Mapping[NoSpeechReason, str] = {
    NoSpeechReason.NO_PARTY: "No party speaks; the call contains only {sounds}.",
    NoSpeechReason.NO_VOICE: "No speech was found in {seconds:.1f} s of audio, only {sounds}.",
    NoSpeechReason.NO_WORDS: f"{NO_SPEECH[NoSpeechReason.NO_WORDS]} The call also contains {{sounds}}.",
    NoSpeechReason.NO_WORDS_ON_ONE_CHANNEL: (
        f"{NO_SPEECH[NoSpeechReason.NO_WORDS_ON_ONE_CHANNEL]} The call also contains {{sounds}}."
    ),
}
SOUNDS: Mapping[LabelKind, str] = {
    LabelKind.RINGBACK: "ringback",
    LabelKind.BUSY: "a busy tone",
    LabelKind.DTMF: "keys being pressed",
    LabelKind.MUSIC: "music",
    LabelKind.ANNOUNCEMENT: "an announcement",
    LabelKind.VOICEMAIL: "a voicemail greeting",
    LabelKind.BEEP: "a beep",
}


def warning_text(warning: CallWarning, **values: object) -> str:
    """Return the sentence of a warning. Raises `KeyError` without a value that it needs."""
    return WARNINGS[warning].format(**values)


def no_speech_text(reason: NoSpeechReason, seconds: float, sounds: Sequence[LabelKind]) -> str:
    """Return why a call of this length has no speech, and what it contains instead."""
    template = (_NO_SPEECH_BUT_SOUNDS.get(reason) if sounds else None) or NO_SPEECH[reason]
    return template.format(seconds=seconds, sounds=_listed([SOUNDS[kind] for kind in sounds]))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
