"""Routes and handlers of calibrations: reviewers answer a scorecard on the same calls, each for themselves.

Making, closing and removing one takes the scope `admin`, reviewing `edit`, reading `read`. A reviewer is a key. A
calibration is of a workspace: keys of a team see none.
"""

from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from db.core.pages import Page
from db.experiments import reviews as calibrations
from db.experiments.reviews import Calibration, CalibrationAgreement, CalibrationCall, ReviewSheet
from db.records.corrections import Editor
from db.workspace.admin_log import NotAdmin
from db.workspace.questions import NoSuchQuestion
from serve_app.api.access import ReadRequest, json_answer
from serve_app.api.bodies import Id, Own, read_admin_body
from serve_app.api.errors import AdminBodyRefused, CalibrationRefusal, NoSuchCall, NoSuchObject
from serve_app.api.queries import NoQuery
from serve_app.api.routing import Route
from serve_app.api.writing import actor, answer_with, of_workspace
from serve_app.http.json_body import Body, Fault
from serve_app.http.problems import NotAuthenticated
from serve_app.records.question_files import Key

T = TypeVar("T")
Plain = ReadRequest[NoQuery]
ONE = "/calibrations/{calibration_id:uuid}"


class NewCalibration(Body):
    """A calibration: which calls are answered by which scorecard."""

    calibration_id: Id | None = Field(None, description=Own)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Letters, digits, dots, dashes, _.")
    scorecard: Key = Field(description="Its key; it is answered as it is now, whatever changes meanwhile.")
    call_ids: list[Id] = Field(min_length=1, max_length=calibrations.MAX_CALLS, description="Completed calls.")


class ReviewAnswers(Body):
    """A reviewer's answers of one call."""

    answers: dict[str, Annotated[str, Field(min_length=1, max_length=300)] | None] = Field(
        min_length=1,
        max_length=100,
        description="By the question's key; of trackers said; null: nobody says it; n/a: not applicable.",
    )


async def list_calibrations(reading: Plain) -> Response:
    found = await calibrations.list_calibrations(reading.database, reading.reader)
    return json_answer(reading, Page(tuple(found)))


async def show_calibration(reading: Plain) -> Response:
    own = calibrations.sheet(reading.database, reading.reader, _editor(reading), _id(reading))
    return json_answer(reading, await _done(own))


async def show_agreement(reading: Plain) -> Response:
    made = calibrations.agreement(reading.database, reading.reader, _editor(reading), _id(reading))
    found = await _done(made)
    await reading.note("record", [one.call_id for one in found.agreement.calls], "calibration")
    return json_answer(reading, found)


async def create_calibration(writing: Plain) -> Response:
    of_workspace(writing, "calibrations")
    body = await read_admin_body(writing.request, NewCalibration)
    home = writing.reader.workspace_id
    wanted = (home, body.name, body.scorecard, body.call_ids, actor(writing), body.calibration_id)
    try:
        return answer_with(await _done(calibrations.create(writing.database, *wanted)), 201)
    except NoSuchQuestion:
        raise AdminBodyRefused([Fault("/scorecard", "scorecard: the workspace has none of this key.")]) from None


async def review_call(writing: Plain) -> Response:
    body = await read_admin_body(writing.request, ReviewAnswers)
    call_id: UUID = writing.call_id
    who = (writing.reader, _editor(writing), _id(writing))
    return answer_with(await _done(calibrations.answer(writing.database, *who, call_id, body.answers)))


async def hand_in_review(writing: Plain) -> Response:
    own = calibrations.hand_in(writing.database, writing.reader, _editor(writing), _id(writing))
    return answer_with(await _done(own))


async def close_calibration(writing: Plain) -> Response:
    of_workspace(writing, "calibrations")
    home = writing.reader.workspace_id
    return answer_with(await _done(calibrations.close(writing.database, home, _id(writing), actor(writing))))


async def delete_calibration(writing: Plain) -> Response:
    of_workspace(writing, "calibrations")
    home = writing.reader.workspace_id
    return answer_with(await _done(calibrations.delete(writing.database, home, _id(writing), actor(writing))))


def _id(request: Plain) -> UUID:
    found: UUID = request.request.path_params["calibration_id"]
    return found


def _editor(request: ReadRequest[Any]) -> Editor:
    return Editor(request.sender.key_id)


async def _done(work: Awaitable[T]) -> T:
    """What was done, or the refusal that says why not."""
    try:
        return await work
    except NotAdmin:
        raise NotAuthenticated from None
    except calibrations.NoSuchCalibration:
        raise NoSuchObject from None
    except calibrations.NotInCalibration:
        raise NoSuchCall("The calibration does not have this call.") from None
    except calibrations.CallsUnfit as error:
        raise AdminBodyRefused([Fault("/callIds", str(error))]) from None
    except calibrations.AnswerUnfit as error:
        raise AdminBodyRefused([Fault("/answers", str(error))]) from None
    except calibrations.CalibrationRefused as error:
        raise CalibrationRefusal(str(error)) from None


ROUTES = (
    Route("/calibrations", list_calibrations, NoQuery, "Calibrations, the latest first", Page[Calibration]),
    Route(ONE, show_calibration, NoQuery, "What there is to answer, and what the key has answered", ReviewSheet),
    Route(
        f"{ONE}/agreement",
        show_agreement,
        NoQuery,
        "How far those agree who handed in: for keys that did, and for all once it is closed",
        CalibrationAgreement,
    ),
    Route(
        "/calibrations",
        create_calibration,
        NoQuery,
        "A new calibration of completed calls",
        Calibration,
        method="POST",
        body=NewCalibration,
        admin=True,
    ),
    Route(
        f"{ONE}/calls/{{call_id:uuid}}/answers",
        review_call,
        NoQuery,
        "Answer questions of a call; nobody else sees it yet",
        CalibrationCall,
        method="POST",
        body=ReviewAnswers,
    ),
    Route(f"{ONE}/hand-in", hand_in_review, NoQuery, "Hand in; the answers stay then", ReviewSheet, method="POST"),
    Route(f"{ONE}/close", close_calibration, NoQuery, "Take no more reviews", Calibration, method="POST", admin=True),
    Route(ONE, delete_calibration, NoQuery, "Remove it with its reviews", Calibration, method="DELETE", admin=True),
)
