"""Exceptions of the client.

SwitchboardError
├── NotConfigured        no key, or no usable URL
├── ConnectionFailed     no response within the timeout, after all attempts
├── TransferCut          an export is incomplete; nothing was saved
├── UnexpectedAnswer     not a response of this API: a page of a proxy, a redirect, another version
├── WaitTimedOut         calls that did not end in time, in `pending`; also a TimeoutError
├── RunTimedOut          a run that did not end in time, in `run`; also a TimeoutError
├── ComparisonTimedOut   a comparison that was not measured in time; also a TimeoutError
├── CallFailed           the call failed; `record` has its record
└── Refusal              error of the service (RFC 9457); `status`, `kind`, `detail`, `faults`, `request_id`, `advice`
    ├── InvalidRequest   400
    ├── NotAuthenticated 401
    ├── NotAllowed       403
    ├── NotFound         404
    │   ├── NoSuchCall   not found, or not visible to this key
    │   └── NotReady     the call exists, but not the requested part
    ├── Conflict         409
    │   └── StaleEdit    `current` has the current value
    ├── Expired          410, deleted after its retention period
    ├── TooManyRequests  429, with `retry_after`
    │   └── BacklogFull
    ├── Unavailable      503, with `retry_after`
    │   ├── TooSlow      the query took too long
    │   └── NoModelAnswer  502, the language model gave no usable answer
    └── ServiceFailed    500
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar
from uuid import UUID

from switchboard.models import BodyFault, CallRecord, Current, Run, RunComparing

_URN = "urn:switchboard:problem:"


class SwitchboardError(Exception):
    """Base of all exceptions except those for invalid arguments."""


class NotConfigured(SwitchboardError):
    """The key or a valid URL is missing."""


class ConnectionFailed(SwitchboardError):
    """No response within the timeout."""


class TransferCut(SwitchboardError):
    """An export is incomplete; nothing was saved."""


class UnexpectedAnswer(SwitchboardError):
    """A response that is not from this API."""


class WaitTimedOut(SwitchboardError, TimeoutError):
    """Calls did not end in time; processing continues. `pending`: their ids."""

    def __init__(self, seconds: float, pending: Collection[UUID]) -> None:
        super().__init__(seconds, pending)
        self.pending = frozenset(pending)

    def __str__(self) -> str:
        first = ", ".join(sorted(map(str, self.pending))[:3])
        more = ", ..." if len(self.pending) > 3 else ""
        return f"{len(self.pending)} calls did not end within {self.args[0]:g} s: {first}{more}. Wait again, or longer."


class RunTimedOut(SwitchboardError, TimeoutError):
    """A run did not end in time; processing continues. `run`: its last state."""

    def __init__(self, seconds: float, run: Run) -> None:
        super().__init__(seconds, run)
        self.run = run

    def __str__(self) -> str:
        open_calls = self.run.waiting + self.run.running
        return (
            f"{open_calls} calls of run {self.run.name!r} did not end within {self.args[0]:g} s. Wait again, or longer."
        )


class ComparisonTimedOut(SwitchboardError, TimeoutError):
    """A comparison was not measured in time; it continues. `progress`: its last state."""

    def __init__(self, seconds: float, progress: RunComparing) -> None:
        super().__init__(seconds, progress)
        self.progress = progress

    def __str__(self) -> str:
        done = f"{self.progress.done} of {self.progress.all} calls"
        return f"The comparison was not measured within {self.args[0]:g} s ({done}). Retry, or wait longer."


class CallFailed(SwitchboardError):
    """The call failed. `record`: its record."""

    def __init__(self, record: CallRecord) -> None:
        super().__init__(record)
        self.record = record

    def __str__(self) -> str:
        failure = self.record.call.failure
        why = f"{failure.code}: {failure.message}" if failure else "unknown reason"
        return f"call {self.record.call.call_id} failed, {why}"


class Refusal(SwitchboardError):
    """An error of the service.

    `kind`: stable name; `detail`: sentence for people; `faults`: every fault of a body or of parameters;
    `retry_after`: seconds; `request_id`: id of the request in the log of the service.
    """

    advice: ClassVar[str] = ""  # what to do, if `detail` does not say it

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, problem, request_id, retry_after)
        self.status = status
        self.kind = str(problem.get("type", "")).removeprefix(_URN)
        self.detail = str(problem.get("detail") or problem.get("title") or "unknown reason")
        self.faults = [BodyFault.model_validate(fault) for fault in problem.get("errors") or ()]
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        parts = [f"{self.status} {self.kind}: {self.detail}", *(fault.detail for fault in self.faults), self.advice]
        parts.append(f"(request {self.request_id})" if self.request_id else "")
        return " ".join(part for part in parts if part)


class InvalidRequest(Refusal):
    """The parameters or the body are invalid; `faults` has every fault."""


class NotAuthenticated(Refusal):
    """Invalid API key."""

    advice = "Check the key and its URL; `switchboard keys create --workspace NAME --scope read` creates one."


class NotAllowed(Refusal):
    """The key lacks the required scope."""

    advice = "Create a key with the scope: `switchboard keys create --scope submit --scope read --scope edit`."


class NotFound(Refusal):
    """Not found, or not visible to this key."""


class NoSuchCall(NotFound):
    """Call, edit or task not found, or not visible to this key."""


class NotReady(NotFound):
    """The call exists, but not the requested part."""


class Expired(Refusal):
    """The requested part of the call was deleted after its retention period."""


class Conflict(Refusal):
    """The current state does not allow the operation."""


class StaleEdit(Conflict):
    """The call has changed in the meantime; nothing was changed.

    `current`: the current value; None: none, or the key lacks the scope `read`.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], *more: Any) -> None:
        super().__init__(status, problem, *more)
        current = problem.get("current")
        self.current = None if current is None else Current.model_validate(current)


class TooManyRequests(Refusal):
    """The key exceeded its limit until the timeout."""

    advice = "Send fewer requests at a time, or use a longer timeout."


class BacklogFull(TooManyRequests):
    """The backlog of the workspace is full."""


class Unavailable(Refusal):
    """The service was unavailable until the timeout."""


class TooSlow(Unavailable):
    """The query took too long. It is not retried automatically."""


class NoModelAnswer(Unavailable):
    """The language model gave no usable answer in time. It is not asked again automatically, which costs."""


class ServiceFailed(Refusal):
    """The service failed to process the request; its log has the details."""

    advice = "Retry the request; if it fails again, report the request id."


KINDS: dict[str, type[Refusal]] = {
    "invalid-query": InvalidRequest,
    "invalid-body": InvalidRequest,
    "not-authenticated": NotAuthenticated,
    "scope-missing": NotAllowed,
    "wrong-team": NotAllowed,
    "outside-team": NotAllowed,
    "no-such-route": NotFound,
    "no-such-object": NotFound,
    "no-such-call": NoSuchCall,
    "no-such-upload": NotFound,
    "offset-mismatch": Conflict,
    "too-many-uploads": Conflict,
    "digest-mismatch": InvalidRequest,
    "not-a-recording": Refusal,
    "not-there-yet": NotReady,
    "expired": Expired,
    "method-not-allowed": Refusal,
    "body-too-slow": Refusal,
    "search-by-meaning-off": Conflict,
    "language-model-off": Conflict,
    "model-budget-spent": Conflict,
    "language-model-failed": NoModelAnswer,
    "edit-id-used": Conflict,
    "stale-edit": StaleEdit,
    "too-many-edits": Conflict,
    "nothing-to-retry": Conflict,
    "id-taken": Conflict,
    "in-use": Conflict,
    "on-legal-hold": Conflict,
    "calibration-refused": Conflict,
    "run-refused": Conflict,
    "on-scorecard": Conflict,
    "too-many-questions": Conflict,
    "last-admin-key": Conflict,
    "body-too-large": Refusal,
    "media-type-refused": Refusal,
    "no-such-range": Refusal,
    "too-many-requests": TooManyRequests,
    "backlog-full": BacklogFull,
    "internal": ServiceFailed,
    "too-slow": TooSlow,
    "unavailable": Unavailable,
}
_BY_STATUS = {
    400: InvalidRequest,
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Expired,
    429: TooManyRequests,
    500: ServiceFailed,
    503: Unavailable,
}


def refusal(status: int, problem: Mapping[str, Any], request_id: str | None, retry_after: float | None) -> Refusal:
    """Return the exception of a problem; for an unknown kind by its status."""
    kind = str(problem.get("type", "")).removeprefix(_URN)
    refusal_type = KINDS.get(kind) or _BY_STATUS.get(status, Refusal)
    return refusal_type(status, problem, request_id, retry_after)
