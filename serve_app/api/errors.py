from collections.abc import Callable
from typing import Any

from db.core.pages import InvalidCursor
from db.experiments import calibrations, runs
from db.records import correct, retention
from db.workspace import directory, legal_holds, questions, redaction_policies
from db.workspace.admin_log import NotAdmin, NotInDirectory
from pipeline.errors import UnknownTeam
from serve_app.http import problems
from serve_app.http.json_body import Fault
from serve_app.http.problems import (
    BacklogFull,
    BodyRefused,
    BodyTooLarge,
    BodyTooSlow,
    InternalError,
    MediaTypeRefused,
    NoSuchRoute,
    NotAuthenticated,
    Refusal,
    RetryLater,
    ScopeMissing,
    TooManyRequests,
    Unavailable,
    WrongTeam,
)


class InvalidQuery(BodyRefused):
    """The query parameters are invalid; errors lists every fault."""

    status, kind, title = 400, "invalid-query", "The query parameters are invalid"


class EditBodyRefused(BodyRefused):
    """The edit is invalid; errors lists every fault."""

    status, kind, title = 400, "invalid-body", "The edit is invalid"


class AdminBodyRefused(BodyRefused):
    """The request body is invalid; errors lists every fault."""

    status, kind, title = 400, "invalid-body", "The request body is invalid"


class OutsideTeam(Refusal):
    """The API key is limited to a team. Use a key of the workspace."""

    status, kind, title = 403, "outside-team", "The key is limited to a team"


class NoSuchObject(Refusal):
    """Object not found, or not visible to this key. Check the id and the key."""

    status, kind, title = 404, "no-such-object", "Object not found"


class IdTaken(Refusal):
    """The id belongs to another object. Use a new UUID, or change the existing object."""

    status, kind, title = 409, "id-taken", "The id is already in use"


class OnLegalHold(Refusal):
    """A legal hold forbids the deletion; the detail has its reason. Release it first."""

    status, kind, title = 409, "on-legal-hold", "On legal hold"


class InUse(Refusal):
    """The team is in use. Delete its contents first."""

    status, kind, title = 409, "in-use", "The object is in use"


class RunRefusal(Refusal):
    """The run does not allow this operation; the detail has the reason and what to do."""

    status, kind, title = 409, "run-refused", "The run does not allow this"


class OnScorecard(Refusal):
    """A scorecard uses the question or one of its outcomes. Change the scorecard first."""

    status, kind, title = 409, "on-scorecard", "A scorecard uses the question"


class QuestionRefusal(Refusal):
    """The workspace has the max. number of questions. Delete some first."""

    status, kind, title = 409, "too-many-questions", "Too many questions"


class CalibrationRefusal(Refusal):
    """The calibration does not allow this operation; the detail has the reason and what to do."""

    status, kind, title = 409, "calibration-refused", "The calibration does not allow this"


class LastKey(Refusal):
    """This is the last admin key of the workspace. Create another one first, and keep it with keepCreated=true."""

    status, kind, title = 409, "last-admin-key", "The last admin key cannot be revoked"


class EditConflict(Refusal):
    """The current value differs from `old`; nothing was changed. Check `current` and send another edit."""

    status, kind, title = 409, "stale-edit", "The call has changed in the meantime"

    def __init__(self, more: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.more = more or {}


class MeaningOff(Refusal):
    """Search by meaning is switched off: the operator has to set SWITCHBOARD_EMBEDDING__ENGINE. Use `text`."""

    status, kind, title = 409, "search-by-meaning-off", "Search by meaning is switched off"


class LanguageModelOff(Refusal):
    """No language model is configured: the operator has to set SWITCHBOARD_ANALYSIS__ENGINE=llm, and
    SWITCHBOARD_ANALYSIS__BASE_URL and SWITCHBOARD_ANALYSIS__MODEL to the model."""

    status, kind, title = 409, "language-model-off", "No language model is configured"


class ModelBudgetSpent(Refusal):
    """The budget of the workspace for the language model is used up for today (UTC). Ask tomorrow, or ask the operator
    to raise it with `switchboard workspaces budget`."""

    status, kind, title = 409, "model-budget-spent", "The budget for the language model is used up"


class LanguageModelFailed(Refusal):
    """The language model gave no usable answer in time; the detail has the reason. Retry later."""

    status, kind, title = 502, "language-model-failed", "The language model failed"


class EditIdUsed(Refusal):
    """Another edit of this call has this editId. Use a new UUID for each edit."""

    status, kind, title = 409, "edit-id-used", "The editId is already in use"


class TooManyEdits(Refusal):
    """The call has the max. number of edits."""

    status, kind, title = 409, "too-many-edits", "Too many edits"


class NoSuchPath(NoSuchRoute):
    """Path not found. The paths are in openapi.json."""

    def __init__(self) -> None:
        super().__init__("Path not found. The paths are in /api/v1/openapi.json.")


class NoSuchCall(Refusal):
    """Call not found, or not visible to this key. Check the id and the key."""

    status, kind, title = 404, "no-such-call", "Call not found"


class NotReady(Refusal):
    """The call has no transcript yet. It is available when the status is completed."""

    status, kind, title = 404, "not-there-yet", "Not available yet"


class NothingToRetry(Refusal):
    """The processing of the call has not failed and does not wait for a retry."""

    status, kind, title = 409, "nothing-to-retry", "Nothing to retry"


class Expired(Refusal):
    """Retention has deleted this part of the call. Its other parts remain."""

    status, kind, title = 410, "expired", "Deleted after its retention period"


class NoSuchUpload(Refusal):
    """Upload not found, or removed. Create another one."""

    status, kind, title = 404, "no-such-upload", "Upload not found"


class OffsetMismatch(Refusal):
    """Other bytes have arrived than Upload-Offset says. Continue from the Upload-Offset of this response."""

    status, kind, title = 409, "offset-mismatch", "The offset is another one"

    def __init__(self, offset: int) -> None:
        super().__init__(None, {"Upload-Offset": str(offset)})


class TooManyUploads(Refusal):
    """The call or the upload has the max. number of uploads or parts."""

    status, kind, title = 409, "too-many-uploads", "Too many uploads"


class DigestMismatch(Refusal):
    """The received bytes have another SHA-256 than declared; they were discarded. Send them again."""

    status, kind, title = 400, "digest-mismatch", "The digest does not match"


class NotRecording(Refusal):
    """The body is certainly not audio. Send the file of the recording."""

    status, kind, title = 415, "not-a-recording", "The body is no recording"


class MethodNotAllowed(problems.MethodNotAllowed):
    """The path does not support this method; see Allow."""

    def __init__(self) -> None:
        Refusal.__init__(self, None, {"Allow": "GET, HEAD"})


class NoSuchRange(Refusal):
    """The range is outside the recording; Content-Range has its size."""

    status, kind, title = 416, "no-such-range", "Range not satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(None, {"Content-Range": f"bytes */{size}"})


class TooManyReads(TooManyRequests):
    """The API key exceeded its request limit. Retry after Retry-After."""

    def __init__(self, headers: dict[str, str]) -> None:
        Refusal.__init__(self, None, headers)


class TooSlow(RetryLater):
    """The query took too long. Use a shorter time range or fewer filters."""

    status, kind, title = 503, "too-slow", "The query took too long"


class Busy(Unavailable):
    """The data cannot be read now. Retry after Retry-After."""


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
    Expired,
    MethodNotAllowed,
    BodyTooSlow,
    MeaningOff,
    LanguageModelOff,
    ModelBudgetSpent,
    LanguageModelFailed,
    EditIdUsed,
    EditConflict,
    TooManyEdits,
    IdTaken,
    NothingToRetry,
    OnLegalHold,
    InUse,
    LastKey,
    RunRefusal,
    OnScorecard,
    QuestionRefusal,
    CalibrationRefusal,
    BodyTooLarge,
    MediaTypeRefused,
    NoSuchRange,
    NoSuchUpload,
    OffsetMismatch,
    TooManyUploads,
    DigestMismatch,
    NotRecording,
    BacklogFull,
    WrongTeam,
    TooManyReads,
    InternalError,
    TooSlow,
    Busy,
)


def _invalid_cursor(error: Exception) -> Refusal:
    return InvalidQuery([Fault("/cursor", f"cursor is {error}. Omit it to start from the first page.")])


def _no_such_team(_: Exception) -> Refusal:
    return AdminBodyRefused([Fault("/teamId", "teamId is not a team of this workspace.")])


# What each error of `db` becomes, unless the handler responds otherwise; a subclass is before its base.
REFUSED: dict[type[Exception], Callable[[Any], Refusal]] = {
    InvalidCursor: _invalid_cursor,
    NotAdmin: lambda _: NotAuthenticated(),
    UnknownTeam: _no_such_team,
    directory.NoSuchTeam: _no_such_team,
    directory.UnreadableNumber: lambda error: AdminBodyRefused([Fault("/phone", f"phone: {error}.")]),
    NotInDirectory: lambda _: NoSuchObject(),
    redaction_policies.PolicyRefused: lambda error: AdminBodyRefused([Fault("", str(error))]),
    retention.PeriodRefused: lambda error: AdminBodyRefused([Fault("/teamId", f"teamId: {error}.")]),
    legal_holds.HoldRefused: lambda error: AdminBodyRefused([Fault("/subject", f"subject: {error}.")]),
    legal_holds.OnHold: lambda error: OnLegalHold(f"{error}. Release it first."),
    questions.NoSuchQuestion: lambda _: NoSuchObject(),
    questions.ScorecardUnfit: lambda error: OnScorecard(str(error)),
    questions.TooManyQuestions: lambda error: QuestionRefusal(str(error)),
    runs.NoSuchRun: lambda _: NoSuchObject(),
    runs.RunRefused: lambda error: RunRefusal(str(error)),
    calibrations.NoSuchCalibration: lambda _: NoSuchObject(),
    calibrations.NotInCalibration: lambda _: NoSuchCall("The call is not part of the calibration."),
    calibrations.CallsUnfit: lambda error: AdminBodyRefused([Fault("/callIds", str(error))]),
    calibrations.AnswerUnfit: lambda error: AdminBodyRefused([Fault("/answers", str(error))]),
    calibrations.CalibrationRefused: lambda error: CalibrationRefusal(str(error)),
    correct.NotFound: lambda _: NoSuchCall("Call, edit or task not found, or not visible to this key."),
    correct.NoTranscript: lambda _: NotReady(),
    correct.InvalidEdit: lambda error: EditBodyRefused([Fault(f"/{error.field}", str(error))]),
    correct.IdUsed: lambda _: EditIdUsed(),
    correct.EditLimitExceeded: lambda _: TooManyEdits(f"The call has the max. number of edits ({correct.MAX_EDITS})."),
}


def refusal_of(error: Exception) -> Refusal:
    return next(refuse(error) for kind, refuse in REFUSED.items() if isinstance(error, kind))
