"""Everything that can go wrong with a call, as a tree of classes.

A caller acts on the class alone: `retryable` says whether trying again later can help, `code` is stored with a
failed call. Facts travel as attributes set after construction through `with_facts`, so that every error survives
pickling between processes.
"""

import re
from typing import Any, ClassVar, Self


class CallError(Exception):
    """A call could not be processed."""

    code: ClassVar[str] = "call_error"  # part of the API: the name of a class in snake case, unless the class sets it
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.code = cls.__dict__.get("code") or re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()

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


class RecordingNotReady(RecordingError):  # 404, 401, 403, 409, 425, 429: the sender may still be publishing it
    """The sender's server does not serve the recording yet."""

    retryable = True


class CredentialsRefused(RecordingNotReady):  # 401 to the credentials of the workspace
    """The sender's server refuses the credentials that are stored for it."""


class RecordingUnreachable(RecordingError):  # timeout, refused, 5xx, connection lost
    """The sender's server could not be reached, or the connection was lost."""

    retryable = True


class RecordingTooSlow(RecordingUnreachable):  # a body below the minimum speed
    """The sender's server sends the recording too slowly."""


class RecordingGone(RecordingError):  # 410
    """The sender's server reports that the recording is permanently gone."""


class AddressForbidden(RecordingError):  # SSRF guard, scheme, port
    """The recording's address is not one this service may fetch from."""


class RedirectInsecure(AddressForbidden):
    """The recording's address redirects from https to http."""


class TooManyRedirects(RecordingError):
    """The recording's address redirects too many times."""


class RecordingTooLarge(RecordingError):  # in bytes, samples or decoded sound
    """The recording is larger than the limit."""


class RecordingTooLong(RecordingError):
    """The recording is longer than the limit."""


class RecordingEmpty(RecordingError):
    """The recording has no bytes, or a header without samples."""


class RecordingTruncated(RecordingError):  # the body ended before its declared length
    """The recording ended before its declared length."""

    retryable = True


class RecordingEncoded(RecordingError):
    """The recording came in a compression that was not requested."""


class NotAudio(RecordingError):  # HTML, text, or nothing that a decoder understands
    """The file is not audio that can be decoded."""


class DecoderFailed(RecordingError):  # it crashes it, or needs more memory or work than its size explains
    """The recording makes the decoder fail."""


class EngineError(CallError):
    """A recognition or diarization engine failed on this call."""

    retryable = True


class EngineLost(EngineError):
    """The process of an engine died while it worked on this call."""


class TimedOut(EngineError):
    """A stage took longer than the length of the audio explains."""


class EngineUnavailable(EngineError):
    """An engine of the service has no model yet."""

    retryable = True


class CheckpointMissing(EngineError):
    """A model is neither at the given path, nor in the cache, nor on the hub."""

    retryable = False


class CheckpointDamaged(EngineError):
    """A model's files are not what its checksums or its manifest say; it is not loaded."""

    retryable = False


class DeviceUnavailable(EngineError):
    """The machine has a GPU, and the engine cannot compute on it."""

    retryable = False


class CouldNotRedact(CallError):
    """The policy of redaction could not be applied to the call, so nothing of it is stored."""


class StorageError(CallError):
    """The service's own recording storage failed."""

    retryable = True


class SubmissionError(CallError):
    """The submission cannot be accepted."""


class UnknownTeam(SubmissionError):
    """The team is not one of this workspace."""


class CallOfOtherTeam(SubmissionError):
    """The call belongs to another team."""


class KeyRevoked(SubmissionError):
    """The API key was revoked."""


class StateUnavailable(SubmissionError):
    """The state store cannot accept the call at the moment."""

    retryable = True


class NotFetched(CallError):
    """The recordings are not in the store, and this attempt is not one that fetches."""

    retryable = True


class LeaseLost(CallError):
    """The job was taken over or superseded; its former holder must stop and may write nothing."""


class WorkerLost(CallError):
    """The process that worked on this call died every time the call was claimed."""


class RunNotReproducible(CallError):
    """A run cannot continue: its configuration, or what it was to be applied to, is no longer available."""
