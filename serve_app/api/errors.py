"""Refusals of the API, beside those that it shares with Intake (`serve_app.http.problems`)."""

from typing import Any

from serve_app.http.problems import (
    BodyRefused,
    BodyTooLarge,
    BodyTooSlow,
    Broken,
    MediaTypeRefused,
    MethodNotAllowed,
    NoSuchRoute,
    NotAuthenticated,
    Refusal,
    ScopeMissing,
    TooManyRequests,
    Unavailable,
)


class InvalidQuery(BodyRefused):
    """The parameters of the request cannot be used; every fault is listed under errors."""

    status, kind, title = 400, "invalid-query", "The parameters cannot be used"


class EditBodyRefused(BodyRefused):
    """The body is not an edit; every fault is listed under errors."""

    status, kind, title = 400, "invalid-body", "The body is not an edit"


class AdminBodyRefused(BodyRefused):
    """The body cannot be used; every fault is listed under errors."""

    status, kind, title = 400, "invalid-body", "The body cannot be used"


class OutsideTeam(Refusal):
    """The API key is bound to a team; this takes one of the workspace."""

    status, kind, title = 403, "outside-team", "The key is bound to a team"


class NoSuchObject(Refusal):
    """There is no such team, member, contact, question or key that the API key may see. Check the id and the key."""

    status, kind, title = 404, "no-such-object", "There is no such thing"


class Taken(Refusal):
    """The id names something else already. Draw a new UUID, or change what is there."""

    status, kind, title = 409, "id-taken", "The id is taken"


class InUse(Refusal):
    """The team is in use. Remove what it has first."""

    status, kind, title = 409, "in-use", "It is in use"


class RunRefusal(Refusal):
    """The run is not such that this can be done with it; the detail says why, and what to do."""

    status, kind, title = 409, "run-refused", "Not with this run"


class OnScorecard(Refusal):
    """A scorecard has the question, or an outcome of it. Change the scorecard first."""

    status, kind, title = 409, "on-scorecard", "The question is on a scorecard"


class QuestionRefusal(Refusal):
    """The workspace asks as many questions as it may. Remove some first."""

    status, kind, title = 409, "too-many-questions", "There are too many questions"


class CalibrationRefusal(Refusal):
    """The calibration is not such that this can be done with it; the detail says why, and what to do."""

    status, kind, title = 409, "calibration-refused", "Not with this calibration"


class LastKey(Refusal):
    """It is the last key of the workspace with the scope admin. Create another one first; an operator can revoke it."""

    status, kind, title = 409, "last-admin-key", "The last key of an administrator stays"


class SomethingElse(Refusal):
    """Something else than `old` stands there by now; nothing was changed. Look at `current`, and send another edit."""

    status, kind, title = 409, "stale-edit", "Something else stands there now"

    def __init__(self, more: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.more = more or {}


class MeaningOff(Refusal):
    """Calls cannot be searched by meaning here: the operator sets SWITCHBOARD_EMBEDDING__ENGINE. Use `text`."""

    status, kind, title = 409, "search-by-meaning-off", "Search by meaning is not switched on"


class EditIdUsed(Refusal):
    """Another edit of this call has this editId. Draw a new UUID for each edit."""

    status, kind, title = 409, "edit-id-used", "The editId is used"


class TooManyEdits(Refusal):
    """The call has as many edits as are kept."""

    status, kind, title = 409, "too-many-edits", "The call has too many edits"


class NoSuchPath(NoSuchRoute):
    """There is nothing at this path. See openapi.json for what there is."""

    def __init__(self) -> None:
        super().__init__("There is nothing at this path; the paths are in openapi.json of the same folder.")


class NoSuchCall(Refusal):
    """No call of this id that the API key may read. Check the id, and whose key it is."""

    status, kind, title = 404, "no-such-call", "There is no such call"


class NotReady(Refusal):
    """The call has no transcript. It has one when its state is completed."""

    status, kind, title = 404, "not-there-yet", "The call does not have this"


class NotThisWay(MethodNotAllowed):
    """This path does not take this method; Allow says which it takes."""

    def __init__(self) -> None:
        Refusal.__init__(self, None, {"Allow": "GET, HEAD"})


class NoSuchRange(Refusal):
    """The recording has no such bytes. Its size is in Content-Range."""

    status, kind, title = 416, "no-such-range", "There are no such bytes"

    def __init__(self, size: int) -> None:
        super().__init__(None, {"Content-Range": f"bytes */{size}"})


class TooManyReads(TooManyRequests):
    """The API key has sent more requests than its limit allows; send this one again after Retry-After."""

    def __init__(self, headers: dict[str, str]) -> None:
        Refusal.__init__(self, None, headers)


class TooSlow(Refusal):
    """The query took too long. Ask for less: a shorter time range, or fewer filters at once."""

    status, kind, title = 503, "too-slow", "The query took too long"

    def __init__(self, retry_after: int) -> None:
        super().__init__(None, {"Retry-After": str(retry_after)})


class Busy(Unavailable):
    """This cannot be read at the moment; send the same request again after Retry-After."""

    title = "The service cannot read this now"

    def __init__(self, retry_after: int, detail: str | None = None) -> None:
        Refusal.__init__(self, detail, {"Retry-After": str(retry_after)})


REFUSALS: tuple[type[Refusal], ...] = (
    InvalidQuery,
    EditBodyRefused,
    AdminBodyRefused,
    NotAuthenticated,
    ScopeMissing,
    OutsideTeam,
    NoSuchPath,
    NoSuchObject,
    NoSuchCall,
    NotReady,
    NotThisWay,
    BodyTooSlow,
    MeaningOff,
    EditIdUsed,
    SomethingElse,
    TooManyEdits,
    Taken,
    InUse,
    LastKey,
    RunRefusal,
    OnScorecard,
    QuestionRefusal,
    CalibrationRefusal,
    BodyTooLarge,
    MediaTypeRefused,
    NoSuchRange,
    TooManyReads,
    Broken,
    TooSlow,
    Busy,
)
