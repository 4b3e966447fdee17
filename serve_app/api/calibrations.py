"""Calibrations: several reviewers answer a scorecard on the same calls, independently.

Creating, closing and deleting require the scope `admin`, reviewing `edit`, reading `read`. A reviewer is a key.
Calibrations belong to the workspace: keys of a team cannot read them.
"""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from db.core.identity import new_id
from db.core.pages import Page
from db.experiments import calibrations
from db.experiments.calibrations import Calibration, CalibrationAgreement, CalibrationCall, ReviewSheet
from db.workspace.questions import NoSuchQuestion
from serve_app.api.access import ApiRequest, Route, admin_route, answer_with, json_answer
from serve_app.api.bodies import Id, IdempotencyKey, read_admin_body
from serve_app.api.errors import AdminBodyRefused
from serve_app.api.queries import NoQuery
from serve_app.http.json_body import Body, Fault
from serve_app.records.question_files import Key

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
    return json_answer(
        reading, await calibrations.sheet(reading.database, reading.reader, reading.editor, _id(reading))
    )


async def show_agreement(reading: Plain) -> Response:
    result = await calibrations.agreement(reading.database, reading.reader, reading.editor, _id(reading))
    await reading.note("record", [call.call_id for call in result.agreement.calls], "calibration")
    return json_answer(reading, result)


async def create_calibration(writing: Plain) -> Response:
    writing.require_workspace_key("calibrations")
    body = await read_admin_body(writing.request, NewCalibration)
    calibration_id = new_id(writing.home, body.idempotency_key)
    fields = (writing.home, body.name, body.scorecard, body.call_ids, writing.actor, calibration_id)
    try:
        return answer_with(await calibrations.create(writing.database, *fields), 201)
    except NoSuchQuestion:
        raise AdminBodyRefused(
            [Fault("/scorecard", "scorecard: the workspace has no scorecard with this key.")]
        ) from None


async def review_call(writing: Plain) -> Response:
    body = await read_admin_body(writing.request, ReviewAnswers)
    who = (writing.reader, writing.editor, _id(writing))
    return answer_with(await calibrations.answer(writing.database, *who, writing.call_id, body.answers))


async def hand_in_review(writing: Plain) -> Response:
    return answer_with(await calibrations.hand_in(writing.database, writing.reader, writing.editor, _id(writing)))


async def close_calibration(writing: Plain) -> Response:
    writing.require_workspace_key("calibrations")
    return answer_with(await calibrations.close(writing.database, writing.home, _id(writing), writing.actor))


async def delete_calibration(writing: Plain) -> Response:
    writing.require_workspace_key("calibrations")
    return answer_with(await calibrations.delete(writing.database, writing.home, _id(writing), writing.actor))


def _id(request: Plain) -> UUID:
    calibration_id: UUID = request.request.path_params["calibration_id"]
    return calibration_id


ROUTES = (
    Route("/calibrations", list_calibrations, "List calibrations, the latest first", Page[Calibration]),
    Route(CALIBRATION, show_calibration, "Show the review sheet with the answers of this key", ReviewSheet),
    Route(
        f"{CALIBRATION}/agreement",
        show_agreement,
        "Show the agreement of reviewers, after submitting or once the calibration is closed",
        CalibrationAgreement,
    ),
    admin_route(
        "POST",
        "/calibrations",
        create_calibration,
        "Create a calibration of completed calls",
        Calibration,
        NewCalibration,
    ),
    Route(
        f"{CALIBRATION}/calls/{{call_id:uuid}}/answers",
        review_call,
        "Answer questions of a call; other reviewers cannot see it yet",
        CalibrationCall,
        method="POST",
        body=ReviewAnswers,
    ),
    Route(
        f"{CALIBRATION}/hand-in",
        hand_in_review,
        "Submit the review; answers cannot be changed afterwards",
        ReviewSheet,
        method="POST",
    ),
    admin_route("POST", f"{CALIBRATION}/close", close_calibration, "Close a calibration", Calibration),
    admin_route("DELETE", CALIBRATION, delete_calibration, "Delete a calibration with its reviews", Calibration),
)
