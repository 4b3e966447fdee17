"""Routes and handlers of a workspace's own questions, trackers and scorecards.

Reading takes the scope `read`, changing takes `admin` and a key of the workspace: they are of all teams.
"""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, TypeVar
from uuid import UUID

from starlette.responses import Response

from db.core.database import Database, Reader
from db.core.pages import Page
from db.search import people_list
from db.search import scores as outcomes
from db.search.scores import ScoreWeek
from db.workspace import directory, questions
from db.workspace.admin_log import NotAdmin
from db.workspace.questions import StoredQuestion, StoredScorecard
from serve_app.api.access import ReadRequest, json_answer, tagged
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, NoSuchObject, OnScorecard, QuestionRefusal
from serve_app.api.queries import NoQuery, ScoreQuery
from serve_app.api.routing import Route
from serve_app.api.stream import csv_rows
from serve_app.api.writing import actor, answer_with, of_workspace
from serve_app.http.json_body import Fault
from serve_app.http.problems import NotAuthenticated
from serve_app.records.question_files import Definition, DefinitionRefused, ScorecardDefinition

Asking = ReadRequest[NoQuery]
ONE = "/questions/{question_key}"
CARD = "/scorecards/{scorecard_key}"


async def list_questions(reading: Asking) -> Response:
    found = await questions.list_questions(reading.database, reading.reader, reading.reader.workspace_id)
    return json_answer(reading, Page(tuple(found)))


async def show_question(reading: Asking) -> Response:
    return json_answer(reading, Page(tuple(await _versions(reading, "question_key", questions.versions_of))))


async def set_question(writing: Asking) -> Response:
    return await _set(writing, Definition)


async def remove_question(writing: Asking) -> Response:
    return await _remove(writing, "question_key", questions.versions_of)


async def list_scorecards(reading: Asking) -> Response:
    found = await questions.list_scorecards(reading.database, reading.reader, reading.reader.workspace_id)
    return json_answer(reading, Page(tuple(found)))


async def show_scorecard(reading: Asking) -> Response:
    return json_answer(reading, Page(tuple(await _versions(reading, "scorecard_key", questions.scorecard_versions))))


async def list_scores(reading: ReadRequest[ScoreQuery]) -> Response:
    """Of calls that are scored by a scorecard now, or were."""
    await _versions(reading, "scorecard_key", questions.scorecard_versions)
    query, key = reading.query, reading.request.path_params["scorecard_key"]
    zone = query.time_zone
    if zone is None:
        home = await directory.find_workspace(reading.database, reading.reader.workspace_id)
        zone = home.time_zone
    found = await outcomes.score_weeks(reading.database, reading.reader, zone, query.weeks, query.by, key)
    if query.format == "json":
        return json_answer(reading, Page(tuple(found)))
    names = dict.fromkeys(one.name for one in fields(ScoreWeek))
    body = csv_rows([names], header=True) + csv_rows([{name: getattr(one, name) for name in names} for one in found])
    disposition = {"Content-Disposition": f'attachment; filename="{key}.csv"'}
    return tagged(reading, body, "text/csv; charset=utf-8", disposition)


async def set_scorecard(writing: Asking) -> Response:
    return await _set(writing, ScorecardDefinition)


async def remove_scorecard(writing: Asking) -> Response:
    return await _remove(writing, "scorecard_key", questions.scorecard_versions)


async def _set(writing: Asking, kind: type[Definition] | type[ScorecardDefinition]) -> Response:
    of_workspace(writing, "questions")
    body: Definition | ScorecardDefinition = await read_admin_body(writing.request, kind)
    home = writing.reader.workspace_id
    try:
        made = body.domain(await _teams(writing))
    except DefinitionRefused as error:
        raise AdminBodyRefused([Fault("/teams", one) for one in error.faults]) from None
    try:
        changes = await questions.set_questions(writing.database, home, [made], actor(writing))
    except questions.TooManyQuestions as error:
        raise QuestionRefusal(str(error)) from None
    except questions.ScorecardUnfit as error:
        if kind is ScorecardDefinition:
            raise AdminBodyRefused([Fault("/items", str(error))]) from None
        raise OnScorecard(str(error)) from None
    except NotAdmin:
        raise NotAuthenticated from None
    (latest, *_) = await questions.defined_versions(writing.database, writing.reader, home, made.key)
    return answer_with(latest, 200 if changes.unchanged else 201)


async def _remove(writing: Asking, name: str, versions: "Versions[S]") -> Response:
    of_workspace(writing, "questions")
    await _versions(writing, name, versions)
    key = writing.request.path_params[name]
    try:
        await questions.remove(writing.database, writing.reader.workspace_id, key, actor(writing))
    except questions.NoSuchQuestion:
        raise NoSuchObject from None
    except questions.ScorecardUnfit as error:
        raise OnScorecard(str(error)) from None
    except NotAdmin:
        raise NotAuthenticated from None
    return answer_with((await _versions(writing, name, versions))[0])


S = TypeVar("S", StoredQuestion, StoredScorecard)
Versions = Callable[[Database, Reader, UUID, str], Awaitable[list[S]]]


async def _versions(reading: ReadRequest[Any], name: str, versions: Versions[S]) -> list[S]:
    key = reading.request.path_params[name]
    try:
        return await versions(reading.database, reading.reader, reading.reader.workspace_id, key)
    except questions.NoSuchQuestion:
        raise NoSuchObject from None


async def _teams(reading: Asking) -> dict[str, UUID]:
    found = await people_list.list_teams(reading.database, reading.reader)
    return {name: one.team_id for one in found for name in (one.name.casefold(), str(one.team_id))}


ROUTES = (
    Route("/questions", list_questions, NoQuery, "Questions and trackers that are asked now", Page[StoredQuestion]),
    Route(ONE, show_question, NoQuery, "All versions of a question, the latest first", Page[StoredQuestion]),
    Route(
        "/questions",
        set_question,
        NoQuery,
        "Ask a question, or ask it otherwise: a new version of its key",
        StoredQuestion,
        method="POST",
        body=Definition,
        admin=True,
    ),
    Route(ONE, remove_question, NoQuery, "Ask it no more; answers stay", StoredQuestion, method="DELETE", admin=True),
    Route("/scorecards", list_scorecards, NoQuery, "Scorecards by which calls are scored now", Page[StoredScorecard]),
    Route(CARD, show_scorecard, NoQuery, "All versions of a scorecard, the latest first", Page[StoredScorecard]),
    Route(
        CARD + "/scores",
        list_scores,
        ScoreQuery,
        "Scores by week of each team, or of each member",
        Page[ScoreWeek],
        media=("text/csv",),
    ),
    Route(
        "/scorecards",
        set_scorecard,
        NoQuery,
        "Score calls by a scorecard, or otherwise: a new version of its key",
        StoredScorecard,
        method="POST",
        body=ScorecardDefinition,
        admin=True,
    ),
    Route(
        CARD,
        remove_scorecard,
        NoQuery,
        "Score by it no more; scores stay",
        StoredScorecard,
        method="DELETE",
        admin=True,
    ),
)
