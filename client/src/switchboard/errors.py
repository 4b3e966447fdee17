"""What the client raises.

SwitchboardError
├── NotConfigured        no key, or no usable URL
├── ConnectionFailed     no answer within the timeout, however often it was asked
├── TransferCut          an export ended before its end; nothing was kept of it
├── UnexpectedAnswer     not an answer of this API: a proxy's page, a redirect, another version
├── WaitTimedOut         calls that had not ended in time, in `pending`; a TimeoutError too
├── RunTimedOut          a run that had not ended in time, in `run`; a TimeoutError too
├── ComparisonTimedOut   a comparison that was not measured in time; a TimeoutError too
├── CallFailed           the call ended as failed, its record in `record`
└── Refusal              the service says no (RFC 9457); `status`, `kind`, `detail`, `faults`, `request_id`, `advice`
    ├── InvalidRequest   400
    ├── NotAuthenticated 401
    ├── NotAllowed       403
    ├── NotFound         404
    │   ├── NoSuchCall   unknown, or not for this key
    │   └── NotReady  the call is there, what was asked for of it is not
    ├── Conflict         409
    │   └── StaleEdit    what stands there now is in `current`
    ├── TooManyRequests  429, with `retry_after`
    │   └── BacklogFull
    ├── Unavailable      503, with `retry_after`
    │   └── TooSlow      the query asks for too much
    └── ServiceFailed    500
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar
from uuid import UUID

from switchboard.models import BodyFault, CallRecord, Current, Run, RunComparing

_URN = "urn:switchboard:problem:"


class SwitchboardError(Exception):
    """Everything that the client raises, except for wrong arguments."""


class NotConfigured(SwitchboardError):
    """There is no key, or no usable URL."""


class ConnectionFailed(SwitchboardError):
    """No answer came within the timeout."""


class TransferCut(SwitchboardError):
    """An export ended before its end; nothing was kept of it."""


class UnexpectedAnswer(SwitchboardError):
    """Something answered, but not with what this API answers."""


class WaitTimedOut(SwitchboardError, TimeoutError):
    """`pending`: the calls that had not ended in time. They are still worked on."""

    def __init__(self, seconds: float, pending: Collection[UUID]) -> None:
        super().__init__(seconds, pending)
        self.pending = frozenset(pending)

    def __str__(self) -> str:
        first = ", ".join(sorted(map(str, self.pending))[:3])
        more = ", ..." if len(self.pending) > 3 else ""
        return (
            f"{len(self.pending)} calls had not ended after {self.args[0]:g} s: {first}{more}. Wait again, or longer."
        )


class RunTimedOut(SwitchboardError, TimeoutError):
    """`run`: as it was when the time was over. It is still worked on."""

    def __init__(self, seconds: float, run: Run) -> None:
        super().__init__(seconds, run)
        self.run = run

    def __str__(self) -> str:
        left = self.run.waiting + self.run.running
        return f"{left} calls of run {self.run.name!r} were left after {self.args[0]:g} s. Wait again, or longer."


class ComparisonTimedOut(SwitchboardError, TimeoutError):
    """`progress`: how far it was when the time was over. It is still measured."""

    def __init__(self, seconds: float, progress: RunComparing) -> None:
        super().__init__(seconds, progress)
        self.progress = progress

    def __str__(self) -> str:
        done = f"{self.progress.done} of {self.progress.all} calls"
        return f"The comparison was not measured after {self.args[0]:g} s ({done}). Ask again, or wait longer."


class CallFailed(SwitchboardError):
    """The call ended as failed. `record` has all that is known of it."""

    def __init__(self, record: CallRecord) -> None:
        super().__init__(record)
        self.record = record

    def __str__(self) -> str:
        failure = self.record.call.failure
        why = f"{failure.code}: {failure.message}" if failure else "no reason is known"
        return f"call {self.record.call.call_id} failed, {why}"


class Refusal(SwitchboardError):
    """The service refuses the request.

    `kind` names the refusal and is stable; `detail` is a sentence for people; `faults` lists what is wrong with a body
    or parameters; `retry_after` is in seconds; `request_id` names the request in the service's log.
    """

    advice: ClassVar[str] = ""  # what to do, where the service's sentence does not say it

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
        self.detail = str(problem.get("detail") or problem.get("title") or "no reason was given")
        self.faults = [BodyFault.model_validate(one) for one in problem.get("errors") or ()]
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        parts = [f"{self.status} {self.kind}: {self.detail}", *(one.detail for one in self.faults), self.advice]
        parts.append(f"(request {self.request_id})" if self.request_id else "")
        return " ".join(part for part in parts if part)


class InvalidRequest(Refusal):
    """The parameters or the body cannot be used; `faults` has every fault."""


class NotAuthenticated(Refusal):
    """The key is not one that is in use."""

    advice = "Check the key and its URL; `switchboard keys create --workspace NAME --scope read` makes one."


class NotAllowed(Refusal):
    """The key is valid, and may not do this."""

    advice = "Keys are made with scopes: `switchboard keys create --scope submit --scope read --scope edit`."


class NotFound(Refusal):
    """There is no such thing, or the key may not see it."""


class NoSuchCall(NotFound):
    """No such call, edit or task that the key may see."""


class NotReady(NotFound):
    """The call is there, what was asked for of it is not."""


class Conflict(Refusal):
    """What is there does not allow it."""


class StaleEdit(Conflict):
    """Something else than what was corrected stands there by now; nothing was changed.

    `current`: what stands there; None: nothing, or the key may not read.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], *more: Any) -> None:
        super().__init__(status, problem, *more)
        told = problem.get("current")
        self.current = None if told is None else Current.model_validate(told)


class TooManyRequests(Refusal):
    """The key is over its limit, and was until the timeout."""

    advice = "Send fewer at once, or give the client a longer timeout."


class BacklogFull(TooManyRequests):
    """Too many calls of the workspace wait."""


class Unavailable(Refusal):
    """The service cannot answer now, and could not until the timeout."""


class TooSlow(Unavailable):
    """The query asks for too much. It is not sent again by itself."""


class ServiceFailed(Refusal):
    """The service failed on this request, which is kept in its log."""

    advice = "The same request may be sent again; if it fails again, report the request id."


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
    "not-there-yet": NotReady,
    "method-not-allowed": Refusal,
    "body-too-slow": Refusal,
    "search-by-meaning-off": Conflict,
    "edit-id-used": Conflict,
    "stale-edit": StaleEdit,
    "too-many-edits": Conflict,
    "id-taken": Conflict,
    "in-use": Conflict,
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
    429: TooManyRequests,
    500: ServiceFailed,
    503: Unavailable,
}


def refusal(status: int, problem: Mapping[str, Any], request_id: str | None, retry_after: float | None) -> Refusal:
    """The exception of a problem; of a kind that only a newer service knows, by its status."""
    kind = str(problem.get("type", "")).removeprefix(_URN)
    made = KINDS.get(kind) or _BY_STATUS.get(status, Refusal)
    return made(status, problem, request_id, retry_after)
