"""Fixed vocabularies of a call's record: names only, whose texts are written where they are shown."""

from enum import StrEnum


class ActionKind(StrEnum):
    """Kind of an action done during a call."""

    APPOINTMENT = "appointment"
    PAYMENT = "payment"
    TRANSFER = "transfer"
    REFUND = "refund"
    ORDER = "order"
    CHANGE = "change"
    RESET = "reset"
    CANCELLATION = "cancellation"


class CallOutcome(StrEnum):
    """What became of a call, as the finding "summary" says. Of several that words show, the first one counts."""

    VOICEMAIL = "voicemail"
    WRONG_NUMBER = "wrong_number"
    FOLLOW_UP = "follow_up"
    REFUSED = "refused"
    RESOLVED = "resolved"
    NO_SPEECH = "no_speech"


class NoticeState(StrEnum):
    """Whether the parties were told that the call is recorded, as the finding "recording_notice" says."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    COULD_NOT_LOOK = "could_not_look"


class NoSpeechReason(StrEnum):
    """Why no party says a word in a call."""

    NO_PARTY = "no_party"
    NO_VOICE = "no_voice"
    TOO_SHORT = "too_short"
    ALL_REJECTED = "all_rejected"
    NO_WORDS = "no_words"
    NO_WORDS_ON_ONE_CHANNEL = "no_words_on_one_channel"


class CallWarning(StrEnum):
    """What limits the results of a completed call."""

    RECORDING_MISSING = "recording_missing"
    RECORDING_NOT_FETCHED = "recording_not_fetched"
    RECORDING_FETCHED_AGAIN = "recording_fetched_again"
    EXTRA_CHANNELS = "extra_channels"
    CHANNELS_CHANGE = "channels_change"
    LATE_TRACK = "late_track"
    IMPLAUSIBLE_TIMESTAMPS = "implausible_timestamps"
    AUDIO_MISSING = "audio_missing"
    RECORDING_INCOMPLETE = "recording_incomplete"
    RECORDING_BREAKS_OFF = "recording_breaks_off"
    DAMAGED_PIECES = "damaged_pieces"
    RECORDING_TOO_SHORT = "recording_too_short"
    RECORDING_SHORTER_THAN_CALL = "recording_shorter_than_call"
    PROSODY_FAILED = "prosody_failed"
    MACHINES_BY_WORDS = "machines_by_words"
    REP_VOICE_NOT_COMPARED = "rep_voice_not_compared"
    WINDOWS_NOT_DECODED_AGAIN = "windows_not_decoded_again"
    NOT_REDACTED = "not_redacted"
    WORDS_NOT_MARKED = "words_not_marked"
    VOICES_NOT_MATCHED = "voices_not_matched"
    FINDINGS_BY_RULES = "findings_by_rules"
    REANALYSIS_FAILED = "reanalysis_failed"
    TASKS_NOT_STORED = "tasks_not_stored"
    FIELDS_REVERTED = "fields_reverted"
