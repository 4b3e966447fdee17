"""Everything that can go wrong with a call, as a tree.

CallError
├── RecordingError                      the recording itself
│   ├── RecordingNotReady       retry   404, 401, 403, 409, 425, 429: the sender may still be publishing it
│   │   └── CredentialsRefused  retry   401 to the credentials that the workspace has for this server
│   ├── RecordingUnreachable    retry   timeout, refused, 5xx, connection lost
│   │   └── RecordingTooSlow    retry   a body below the minimum speed
│   ├── RecordingGone                   410
│   ├── AddressForbidden                not an address we fetch from (SSRF guard, scheme, port)
│   │   └── RedirectInsecure            from https to http
│   ├── TooManyRedirects
│   ├── RecordingTooLarge               more bytes, samples or decoded sound than the limits
│   ├── RecordingTooLong
│   ├── RecordingEmpty                  zero bytes
│   ├── RecordingTruncated      retry   the body ended before its declared length
│   ├── RecordingEncoded                compressed in a way that was not requested
│   ├── NotAudio                        HTML, text, or nothing that a decoder understands
│   └── DecoderFailed                   it crashes the decoder, or needs more memory or work than its size explains
├── EngineError                 retry   recognition or diarization failed on this input
│   ├── EngineLost              retry   its process died
│   ├── TimedOut                retry   a stage took longer than the length of the audio explains
│   ├── EngineUnavailable       retry   the engine has no model: its operator has to bring it
│   ├── CheckpointMissing               neither the hub nor the cache nor the path has the model
│   ├── CheckpointDamaged               a model's files are not what its checksums say
│   └── DeviceUnavailable               there is a GPU, and the engine cannot use it
├── StorageError                retry   our own storage cannot be written or read
├── SubmissionError                     a submission that cannot be accepted
│   ├── UnknownTeam                     teamId names no team of the workspace
│   ├── CallOfOtherTeam                 a team-scoped key names another team's call
│   ├── KeyRevoked                      the key was revoked
│   └── StateUnavailable        retry   PostgreSQL cannot store the call now
├── NotFetched                  retry   the recordings are to be fetched first, or again
├── LeaseLost                           another worker has the job, or it was superseded: nothing may be written
└── WorkerLost                          the job's worker died each time the job was claimed

A caller acts on the class alone: `retryable` says whether trying again later can help, `code` is stored with a
failed call. Facts travel as attributes set after construction through `with_facts`, so that every error survives
pickling between processes.
"""

from typing import Any, ClassVar, Self


class CallError(Exception):
    """A call could not be processed."""

    code: ClassVar[str] = "call_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.facts: dict[str, Any] = {}

    def with_facts(self, **facts: Any) -> Self:
        """Attach facts (never a secret or a signed URL) and return the error."""
        self.facts.update(facts)
        return self

    @property
    def message(self) -> str:
        return str(self.args[0])


def public_message(error: BaseException) -> str:
    """Return the text about a failure for records and events: the message of a `CallError`, else the class alone.

    The text of other exceptions may contain addresses, secrets or words of the call: it belongs in the log.
    """
    return error.message if isinstance(error, CallError) else f"unexpected {type(error).__name__}."


class RecordingError(CallError):
    """The recording cannot be used."""

    code = "recording_error"


class RecordingNotReady(RecordingError):
    """The sender's server does not serve the recording yet."""

    code = "recording_not_ready"
    retryable = True


class CredentialsRefused(RecordingNotReady):
    """The sender's server refuses the credentials that are stored for it."""

    code = "credentials_refused"


class RecordingUnreachable(RecordingError):
    """The sender's server could not be reached, or the connection was lost."""

    code = "recording_unreachable"
    retryable = True


class RecordingTooSlow(RecordingUnreachable):
    """The sender's server sends the recording too slowly."""

    code = "recording_too_slow"


class RecordingGone(RecordingError):
    """The sender's server reports that the recording is permanently gone."""

    code = "recording_gone"


class AddressForbidden(RecordingError):
    """The recording's address is not one this service may fetch from."""

    code = "address_forbidden"


class RedirectInsecure(AddressForbidden):
    """The recording's address redirects from https to http."""

    code = "redirect_insecure"


class TooManyRedirects(RecordingError):
    """The recording's address redirects too many times."""

    code = "too_many_redirects"


class RecordingTooLarge(RecordingError):
    """The recording is larger than the limit."""

    code = "recording_too_large"


class RecordingTooLong(RecordingError):
    """The recording is longer than the limit."""

    code = "recording_too_long"


class RecordingEmpty(RecordingError):
    """The recording has no bytes."""

    code = "recording_empty"


class RecordingTruncated(RecordingError):
    """The recording ended before its declared length."""

    code = "recording_truncated"
    retryable = True


class RecordingEncoded(RecordingError):
    """The recording came in a compression that was not requested."""

    code = "recording_encoded"


class NotAudio(RecordingError):
    """The file is not audio that can be decoded."""

    code = "not_audio"


class DecoderFailed(RecordingError):
    """The recording makes the decoder fail."""

    code = "decoder_failed"


class EngineError(CallError):
    """A recognition or diarization engine failed on this call."""

    code = "engine_error"
    retryable = True


class EngineLost(EngineError):
    """The process of an engine died while it worked on this call."""

    code = "engine_lost"


class TimedOut(EngineError):
    """A stage took longer than the length of the audio explains."""

    code = "timed_out"


class EngineUnavailable(EngineError):
    """An engine of the service has no model yet."""

    code = "engine_unavailable"
    retryable = True


class CheckpointMissing(EngineError):
    """A model is neither at the given path, nor in the cache, nor on the hub."""

    code = "checkpoint_missing"
    retryable = False


class CheckpointDamaged(EngineError):
    """A model's files are not what its checksums or its manifest say; it is not loaded."""

    code = "checkpoint_damaged"
    retryable = False


class DeviceUnavailable(EngineError):
    """The machine has a GPU, and the engine cannot compute on it."""

    code = "device_unavailable"
    retryable = False


class StorageError(CallError):
    """The service's own recording storage failed."""

    code = "storage_error"
    retryable = True


class SubmissionError(CallError):
    """The submission cannot be accepted."""

    code = "submission_error"


class UnknownTeam(SubmissionError):
    """The team is not one of this workspace."""

    code = "unknown_team"


class CallOfOtherTeam(SubmissionError):
    """The call belongs to another team."""

    code = "call_of_other_team"


class KeyRevoked(SubmissionError):
    """The API key was revoked."""

    code = "key_revoked"


class StateUnavailable(SubmissionError):
    """The state store cannot accept the call at the moment."""

    code = "state_unavailable"
    retryable = True


class NotFetched(CallError):
    """The recordings are not in the store, and this attempt is not one that fetches."""

    code = "not_fetched"
    retryable = True


class LeaseLost(CallError):
    """The job was taken over or superseded; its former holder must stop and may write nothing."""

    code = "lease_lost"


class WorkerLost(CallError):
    """The process that worked on this call died every time the call was claimed."""

    code = "worker_lost"


class RunNotReproducible(CallError):
    """A run cannot continue: its configuration, or what it was to be applied to, is no longer available."""

    code = "run_not_reproducible"
