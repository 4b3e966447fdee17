import json
from collections.abc import Iterable
from typing import Any

from serve_app.api import errors as api_errors
from serve_app.api.app import Route
from serve_app.http import problems
from serve_app.http.json_body import Fault
from serve_app.http.options import LimitOptions
from serve_app.http.problems import Refusal
from serve_app.intake.schemas import Problem
from serve_app.openapi.parts import REF, header, rates

_ADMIN_ERRORS = {
    api_errors.AdminBodyRefused,
    api_errors.OutsideTeam,
    api_errors.NoSuchObject,
    api_errors.IdTaken,
    api_errors.InUse,
    api_errors.LastKey,
    api_errors.RunRefusal,
    api_errors.QuestionRefusal,
}
_EDIT_ERRORS = {api_errors.EditBodyRefused, api_errors.EditConflict, api_errors.EditIdUsed}
_BODY_ERRORS = {
    *_EDIT_ERRORS,
    api_errors.AdminBodyRefused,
    problems.BodyTooSlow,
    problems.BodyTooLarge,
    problems.MediaTypeRefused,
}
UPLOADS = ("uploadRecording", "continueUpload")
_ONLY_OF: dict[type[Refusal], tuple[str, ...]] = {
    api_errors.NothingToRetry: ("retryCall",),
    api_errors.LanguageModelOff: ("askCalls",),
    api_errors.ModelBudgetSpent: ("askCalls",),
    api_errors.LanguageModelFailed: ("askCalls",),
    api_errors.OnLegalHold: ("deleteCall", "removeContact"),
    api_errors.NoSuchRange: ("playCall",),
    api_errors.NoSuchUpload: ("showUpload", "continueUpload", "cancelUpload"),
    api_errors.OffsetMismatch: ("continueUpload",),
    api_errors.TooManyUploads: UPLOADS,
    api_errors.DigestMismatch: UPLOADS,
    api_errors.NotRecording: UPLOADS,
    problems.BacklogFull: ("uploadRecording",),
    problems.WrongTeam: UPLOADS,
}
_OF_UPLOADS: dict[str, set[type[Refusal]]] = {
    name: {problems.BodyTooSlow, problems.BodyTooLarge, problems.MediaTypeRefused} for name in UPLOADS
}
_OF_UPLOADS["uploadRecording"].add(api_errors.AdminBodyRefused)  # a faulty form
_NOT_OF_ASK = set(api_errors.REFUSALS) - {
    *(api_errors.LanguageModelOff, api_errors.ModelBudgetSpent, api_errors.LanguageModelFailed),
    *(api_errors.InvalidQuery, api_errors.AdminBodyRefused, api_errors.NoSuchCall),
    *(problems.NotAuthenticated, problems.ScopeMissing, problems.InternalError, api_errors.TooManyReads),
    *(problems.BodyTooSlow, problems.BodyTooLarge, problems.MediaTypeRefused, api_errors.TooSlow, api_errors.Busy),
}
_LIMITED = {"Retry-After": "1", "RateLimit": '"key";r=0;t=1', "RateLimit-Policy": '"key";q=300;w=15'}
_SAMPLES: dict[type[Refusal], Refusal] = {
    problems.BodyRefused: problems.BodyRefused(
        [
            Fault("/startTime", "startTime is required."),
            Fault("", "Unknown field at position 3. Did you mean recordingUrl?"),
        ]
    ),
    problems.TooManyRequests: problems.TooManyRequests(1),
    problems.BacklogFull: problems.BacklogFull(LimitOptions.BACKLOG_RETRY_SECONDS),
    api_errors.InvalidQuery: api_errors.InvalidQuery(
        [Fault("/limit", "limit: Input should be less than or equal to 200.")]
    ),
    api_errors.EditBodyRefused: api_errors.EditBodyRefused([Fault("/new", "new: Field required.")]),
    api_errors.AdminBodyRefused: api_errors.AdminBodyRefused([Fault("/name", "name: Field required.")]),
    api_errors.EditConflict: api_errors.EditConflict(
        {"current": {"value": "invoices", "turn": 1, "start": 3.5, "end": 4.1, "speaker": "customer"}}
    ),
    api_errors.NoSuchRange: api_errors.NoSuchRange(4096),
    api_errors.TooManyReads: api_errors.TooManyReads(_LIMITED),
    api_errors.OffsetMismatch: api_errors.OffsetMismatch(1048576),
}


def by_status(kinds: Iterable[type[Refusal]]) -> dict[str, list[type[Refusal]]]:
    by_status: dict[str, list[type[Refusal]]] = {}
    for kind in kinds:
        by_status.setdefault(str(kind.status), []).append(kind)
    return dict(sorted(by_status.items()))


def refused(kinds: list[type[Refusal]]) -> dict[str, Any]:
    samples = {kind.kind: _sample(kind) for kind in kinds}
    headers = {name: header() for sample in samples.values() for name in sample.headers}
    if problems.TooManyRequests in kinds:
        headers |= rates()
    return {
        "description": " ".join(sample.detail for sample in samples.values()),
        "headers": {"X-Request-Id": header("Id of the request in the log of the service."), **headers},
        "content": {
            problems.PROBLEM: {
                "schema": {"$ref": REF.format(model=Problem.__name__)},
                "examples": {
                    name: {"value": json.loads(bytes(problems.answer(sample).body))} for name, sample in samples.items()
                },
            }
        },
    }


def _sample(kind: type[Refusal]) -> Refusal:
    if kind.status == 503:
        unavailable: Refusal = kind(LimitOptions.RETRY_AFTER_SECONDS)  # type: ignore[arg-type]
        return unavailable
    return _SAMPLES.get(kind) or kind()


def refusals(route: Route, described: dict[str, Any]) -> dict[str, Any]:
    """Return references by status to refusals, each described once in `described`."""
    left_out = _NOT_OF_ASK if route.name == "askCalls" else _left_out(route)
    references = {}
    for status, kinds in by_status(kind for kind in api_errors.REFUSALS if kind not in left_out).items():
        name = "_or_".join(kind.__name__ for kind in kinds)
        described.setdefault(name, refused(kinds))
        references[status] = {"$ref": f"#/components/responses/{name}"}
    return references


def _left_out(route: Route) -> set[type[Refusal]]:
    left_out: set[type[Refusal]] = set()
    if "call_id" not in route.path:
        left_out |= {api_errors.NoSuchCall, api_errors.NotReady}
    of_calibrations = route.path.startswith("/calibrations")
    if not of_calibrations:
        left_out.add(api_errors.CalibrationRefusal)
    if not route.admin:
        left_out |= _ADMIN_ERRORS
        if "run_id" in route.path:
            left_out.remove(api_errors.NoSuchObject)
        if route.name == "compareRun":
            left_out.remove(api_errors.RunRefusal)
        if of_calibrations:
            left_out -= {api_errors.NoSuchObject, api_errors.AdminBodyRefused}
            left_out |= {*_EDIT_ERRORS, api_errors.TooManyEdits, api_errors.NotReady}
    else:
        left_out |= {*_EDIT_ERRORS, api_errors.TooManyEdits}
    if route.path.startswith("/views"):
        left_out -= {api_errors.NoSuchObject, api_errors.AdminBodyRefused}
        left_out |= {*_EDIT_ERRORS, api_errors.TooManyEdits}
    left_out |= {kind for kind, names in _ONLY_OF.items() if route.name not in names}
    if "/transcript." not in route.path and route.name not in ("playCall", "showWaveform"):
        left_out.add(api_errors.Expired)
    if route.body is None:
        left_out |= _BODY_ERRORS
    left_out -= _OF_UPLOADS.get(route.name, set())
    if route.method == "GET":
        left_out.add(api_errors.TooManyEdits)
    return left_out
