"""Routes and handlers of a workspace's own questions and trackers.

Reading takes the scope `read`, changing takes `admin` and a key of the workspace: they are of all teams.
"""

from collections.abc import Mapping
from uuid import UUID

from starlette.responses import Response

from db import people_list, questions
from db.admin_log import NotAdmin
from db.questions import StoredQuestion
from db.reading import Page
from serve_app.api.access import Handler, ReadRequest, json_answer, to_json
from serve_app.api.administration import actor
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, NoSuchObject, OutsideTeam, QuestionRefusal
from serve_app.api.queries import NoQuery
from serve_app.api.routing import Route
from serve_app.definitions import Definition, DefinitionRefused
from serve_app.intake.errors import NotAuthenticated
from serve_app.intake.wire import Fault

Asking = ReadRequest[NoQuery]
ONE = "/questions/{question_key}"

ROUTES = (
    Route("/questions", "listQuestions", NoQuery, "Questions and trackers that are asked now", Page[StoredQuestion]),
    Route(ONE, "showQuestion", NoQuery, "All versions of a question, the latest first", Page[StoredQuestion]),
    Route(
        "/questions",
        "setQuestion",
        NoQuery,
        "Ask a question, or ask it otherwise: a new version of its key",
        StoredQuestion,
        method="POST",
        body=Definition,
        admin=True,
    ),
    Route(ONE, "removeQuestion", NoQuery, "Ask it no more; answers stay", StoredQuestion, method="DELETE", admin=True),
)


async def list_questions(reading: Asking) -> Response:
    found = await questions.list_questions(reading.database, reading.reader, reading.reader.workspace_id)
    return json_answer(reading, Page(tuple(found)))


async def show_question(reading: Asking) -> Response:
    return json_answer(reading, Page(tuple(await _versions(reading))))


async def set_question(writing: Asking) -> Response:
    _of_workspace(writing)
    body = await read_admin_body(writing.request, Definition)
    home = writing.reader.workspace_id
    try:
        question = body.domain(await _teams(writing))
    except DefinitionRefused as error:
        raise AdminBodyRefused([Fault("/teams", one) for one in error.faults]) from None
    try:
        changes = await questions.set_questions(writing.database, home, [question], actor(writing))
    except questions.TooManyQuestions as error:
        raise QuestionRefusal(str(error)) from None
    except NotAdmin:
        raise NotAuthenticated from None
    (latest, *_) = await questions.versions_of(writing.database, writing.reader, home, question.key)
    return _written(latest, 200 if changes.unchanged else 201)


async def remove_question(writing: Asking) -> Response:
    _of_workspace(writing)
    (latest, *_) = await _versions(writing)
    try:
        await questions.remove(writing.database, writing.reader.workspace_id, latest.question.key, actor(writing))
    except questions.NoSuchQuestion:
        raise NoSuchObject from None
    except NotAdmin:
        raise NotAuthenticated from None
    return _written((await _versions(writing))[0])


HANDLERS: Mapping[str, Handler] = {
    "listQuestions": list_questions,
    "showQuestion": show_question,
    "setQuestion": set_question,
    "removeQuestion": remove_question,
}


async def _versions(reading: Asking) -> list[StoredQuestion]:
    key = reading.request.path_params["question_key"]
    try:
        return await questions.versions_of(reading.database, reading.reader, reading.reader.workspace_id, key)
    except questions.NoSuchQuestion:
        raise NoSuchObject from None


async def _teams(reading: Asking) -> dict[str, UUID]:
    found = await people_list.list_teams(reading.database, reading.reader)
    return {name: one.team_id for one in found for name in (one.name.casefold(), str(one.team_id))}


def _of_workspace(writing: Asking) -> None:
    if writing.sender.team_id is not None:
        raise OutsideTeam("The API key is bound to a team; questions take one of the workspace.")


def _written(made: StoredQuestion, status: int = 200) -> Response:
    return Response(to_json(made), status, media_type="application/json")
