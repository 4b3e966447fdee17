"""Calibrations: several reviewers answer a scorecard on the same calls, independently.

Creating, closing and deleting require the scope `admin`, reviewing `edit`, reading `read`. A reviewer is a key.
Calibrations belong to the workspace: keys of a team cannot read them.
"""

from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from db.core.identity import new_id
from db.core.pages import Page
from db.experiments import calibrations
from db.experiments.calibrations import Calibration, CalibrationAgreement, CalibrationCall, ReviewSheet
from db.records.corrections import Editor
from db.workspace.admin_log import NotAdmin
from db.workspace.questions import NoSuchQuestion
from serve_app.api.access import ApiRequest, Route, answer_with, json_answer
from serve_app.api.bodies import Id, IdempotencyKey, read_admin_body
from serve_app.api.errors import AdminBodyRefused, CalibrationRefusal, NoSuchCall, NoSuchObject
from serve_app.api.queries import NoQuery
from serve_app.http.json_body import Body, Fault
from serve_app.http.problems import NotAuthenticated
from serve_app.records.question_files import Key

T = TypeVar("T")
Plain = ApiRequest[NoQuery]
CALIBRATION = "/calibrations/{calibration_id:uuid}"


class NewCalibration(Body):
    """A calibration: its calls and scorecard."""

    idempotency_key: IdempotencyKey = None
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Letters, digits, dots, dashes, _.")
    scorecard: Key = Field(description="Key of the scorecard; its current version is used.")
    call_ids: list[Id] = Field(min_length=1, max_length=calibrations.MAX_CALLS, description="Completed calls.")


class ReviewAnswers(Body):
    """Answers of a reviewer for a call."""

    answers: dict[str, Annotated[str, Field(min_length=1, max_length=300)] | None] = Field(
        min_length=1,
        max_length=100,
        description="By key of the question; said for trackers; null: not said; n/a: not applicable.",
    )


async def list_calibrations(reading: Plain) -> Response:
    items = await calibrations.list_calibrations(reading.database, reading.reader)
    return json_answer(reading, Page(tuple(items)))


async def show_calibration(reading: Plain) -> Response:
    sheet = calibrations.sheet(reading.database, reading.reader, _editor(reading), _id(reading))
    return json_answer(reading, await _or_refuse(sheet))


async def show_agreement(reading: Plain) -> Response:
    work = calibrations.agreement(reading.database, reading.reader, _editor(reading), _id(reading))
    result = await _or_refuse(work)
    await reading.note("record", [call.call_id for call in result.agreement.calls], "calibration")
    return json_answer(reading, result)


async def create_calibration(writing: Plain) -> Response:
    writing.require_workspace_key("calibrations")
    body = await read_admin_body(writing.request, NewCalibration)
    home = writing.reader.workspace_id
    calibration_id = new_id(home, body.idempotency_key)
    fields = (home, body.name, body.scorecard, body.call_ids, writing.actor, calibration_id)
    try:
        return answer_with(await _or_refuse(calibrations.create(writing.database, *fields)), 201)
    except NoSuchQuestion:
        raise AdminBodyRefused(
            [Fault("/scorecard", "scorecard: the workspace has no scorecard with this key.")]
        ) from None


async def review_call(writing: Plain) -> Response:
    body = await read_admin_body(writing.request, ReviewAnswers)
    call_id: UUID = writing.call_id
    who = (writing.reader, _editor(writing), _id(writing))
    return answer_with(await _or_refuse(calibrations.answer(writing.database, *who, call_id, body.answers)))


async def hand_in_review(writing: Plain) -> Response:
    sheet = calibrations.hand_in(writing.database, writing.reader, _editor(writing), _id(writing))
    return answer_with(await _or_refuse(sheet))


async def close_calibration(writing: Plain) -> Response:
    writing.require_workspace_key("calibrations")
    home = writing.reader.workspace_id
    return answer_with(await _or_refuse(calibrations.close(writing.database, home, _id(writing), writing.actor)))


async def delete_calibration(writing: Plain) -> Response:
    writing.require_workspace_key("calibrations")
    home = writing.reader.workspace_id
    return answer_with(await _or_refuse(calibrations.delete(writing.database, home, _id(writing), writing.actor)))


def _id(request: Plain) -> UUID:
    calibration_id: UUID = request.request.path_params["calibration_id"]
    return calibration_id


def _editor(request: ApiRequest[Any]) -> Editor:
    return Editor(request.sender.key_id)


async def _or_refuse(work: Awaitable[T]) -> T:
    try:
        return await work
    except NotAdmin:
        raise NotAuthenticated from None
    except calibrations.NoSuchCalibration:
        raise NoSuchObject from None
    except calibrations.NotInCalibration:
        raise NoSuchCall("The call is not part of the calibration.") from None
    except calibrations.CallsUnfit as error:
        raise AdminBodyRefused([Fault("/callIds", str(error))]) from None
    except calibrations.AnswerUnfit as error:
        raise AdminBodyRefused([Fault("/answers", str(error))]) from None
    except calibrations.CalibrationRefused as error:
        raise CalibrationRefusal(str(error)) from None


ROUTES = (
    Route("/calibrations", list_calibrations, NoQuery, "List calibrations, the latest first", Page[Calibration]),
    Route(CALIBRATION, show_calibration, NoQuery, "Show the review sheet with the answers of this key", ReviewSheet),
    Route(
        f"{CALIBRATION}/agreement",
        show_agreement,
        NoQuery,
        "Show the agreement of reviewers, after submitting or once the calibration is closed",
        CalibrationAgreement,
    ),
    Route(
        "/calibrations",
        create_calibration,
        NoQuery,
        "Create a calibration of completed calls",
        Calibration,
        method="POST",
        body=NewCalibration,
        admin=True,
    ),
    Route(
        f"{CALIBRATION}/calls/{{call_id:uuid}}/answers",
        review_call,
        NoQuery,
        "Answer questions of a call; other reviewers cannot see it yet",
        CalibrationCall,
        method="POST",
        body=ReviewAnswers,
    ),
    Route(
        f"{CALIBRATION}/hand-in",
        hand_in_review,
        NoQuery,
        "Submit the review; answers cannot be changed afterwards",
        ReviewSheet,
        method="POST",
    ),
    Route(
        f"{CALIBRATION}/close",
        close_calibration,
        NoQuery,
        "Close a calibration",
        Calibration,
        method="POST",
        admin=True,
    ),
    Route(
        CALIBRATION,
        delete_calibration,
        NoQuery,
        "Delete a calibration with its reviews",
        Calibration,
        method="DELETE",
        admin=True,
    ),
)
