from enum import StrEnum


class RetentionKind(StrEnum):
    """What has a retention period. `CALLS`: erasure of the whole call."""

    RECORDINGS = "recordings"
    TRANSCRIPTS = "transcripts"  # with findings, corrections and everything else that quotes the talk
    VOICEPRINTS = "voiceprints"
    SUBMISSIONS = "submissions"
    EVENTS = "events"
    ACCESS_LOG = "access_log"
    CALLS = "calls"
