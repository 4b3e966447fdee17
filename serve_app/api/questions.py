"""Questions, trackers and scorecards of a workspace.

Reads need the scope `read`; writes need `admin` and a key of the workspace, since they apply to all teams.
"""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, TypeVar
from uuid import UUID

from starlette.responses import Response

from db.core.database import Database, Reader
from db.core.pages import Page
from db.search import people_list
from db.search import trends as outcomes
from db.search.trends import ScoreWeek
from db.workspace import directory, questions
from db.workspace.questions import StoredQuestion, StoredScorecard
from serve_app.api.access import ApiRequest, Route, admin_route, answer_with, json_answer, tagged
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused
from serve_app.api.export_rows import csv_table
from serve_app.api.queries import NoQuery, ScoreQuery
from serve_app.http.json_body import Fault
from serve_app.records.question_files import Definition, DefinitionRefused, ScorecardDefinition

Asking = ApiRequest[NoQuery]
QUESTION = "/questions/{question_key}"
SCORECARD = "/scorecards/{scorecard_key}"


async def list_questions(reading: Asking) -> Response:
    items = await questions.list_questions(reading.database, reading.reader, reading.home)
    return json_answer(reading, Page(tuple(items)))


async def show_question(reading: Asking) -> Response:
    return json_answer(reading, Page(tuple(await _versions(reading, "question_key", questions.versions_of))))


async def set_question(writing: Asking) -> Response:
    return await _set(writing, Definition)


async def remove_question(writing: Asking) -> Response:
    return await _remove(writing, "question_key", questions.versions_of)


async def list_scorecards(reading: Asking) -> Response:
    items = await questions.list_scorecards(reading.database, reading.reader, reading.home)
    return json_answer(reading, Page(tuple(items)))


async def show_scorecard(reading: Asking) -> Response:
    return json_answer(reading, Page(tuple(await _versions(reading, "scorecard_key", questions.scorecard_versions))))


async def list_scores(reading: ApiRequest[ScoreQuery]) -> Response:
    """List weekly scores of a current or deleted scorecard."""
    await _versions(reading, "scorecard_key", questions.scorecard_versions)
    query, key = reading.query, reading.request.path_params["scorecard_key"]
    zone = query.time_zone
    if zone is None:
        home = await directory.find_workspace(reading.database, reading.home)
        zone = home.time_zone
    weeks = await outcomes.score_weeks(reading.database, reading.reader, zone, query.weeks, query.by, key)
    if query.format == "json":
        return json_answer(reading, Page(tuple(weeks)))
    names = dict.fromkeys(field.name for field in fields(ScoreWeek))
    body = csv_table(names, ([getattr(week, name) for name in names] for week in weeks))
    disposition = {"Content-Disposition": f'attachment; filename="{key}.csv"'}
    return tagged(reading, body, "text/csv; charset=utf-8", disposition)


async def set_scorecard(writing: Asking) -> Response:
    return await _set(writing, ScorecardDefinition)


async def remove_scorecard(writing: Asking) -> Response:
    return await _remove(writing, "scorecard_key", questions.scorecard_versions)


async def _set(writing: Asking, kind: type[Definition] | type[ScorecardDefinition]) -> Response:
    writing.require_workspace_key("questions")
    body: Definition | ScorecardDefinition = await read_admin_body(writing.request, kind)
    try:
        definition = body.domain(await _teams(writing))
    except DefinitionRefused as error:
        raise AdminBodyRefused([Fault("/teams", fault) for fault in error.faults]) from None
    try:
        changes = await questions.set_questions(writing.database, writing.home, [definition], writing.actor)
    except questions.ScorecardUnfit as error:
        if kind is not ScorecardDefinition:
            raise
        raise AdminBodyRefused([Fault("/items", str(error))]) from None
    (latest, *_) = await questions.defined_versions(writing.database, writing.reader, writing.home, definition.key)
    return answer_with(latest, 200 if changes.unchanged else 201)


async def _remove(writing: Asking, name: str, versions: "Versions[S]") -> Response:
    writing.require_workspace_key("questions")
    await _versions(writing, name, versions)
    await questions.remove(writing.database, writing.home, writing.request.path_params[name], writing.actor)
    return answer_with((await _versions(writing, name, versions))[0])


S = TypeVar("S", StoredQuestion, StoredScorecard)
Versions = Callable[[Database, Reader, UUID, str], Awaitable[list[S]]]


async def _versions(reading: ApiRequest[Any], name: str, versions: Versions[S]) -> list[S]:
    return await versions(reading.database, reading.reader, reading.home, reading.request.path_params[name])


async def _teams(reading: Asking) -> dict[str, UUID]:
    teams = await people_list.list_teams(reading.database, reading.reader)
    return {name: team.team_id for team in teams for name in (team.name.casefold(), str(team.team_id))}


ROUTES = (
    Route("/questions", list_questions, "List current questions and trackers", Page[StoredQuestion]),
    Route(QUESTION, show_question, "List versions of a question, the latest first", Page[StoredQuestion]),
    admin_route(
        "POST", "/questions", set_question, "Create or update a question (new version)", StoredQuestion, Definition
    ),
    admin_route("DELETE", QUESTION, remove_question, "Delete a question; existing answers are kept", StoredQuestion),
    Route("/scorecards", list_scorecards, "List current scorecards", Page[StoredScorecard]),
    Route(SCORECARD, show_scorecard, "List versions of a scorecard, the latest first", Page[StoredScorecard]),
    Route(
        SCORECARD + "/scores",
        list_scores,
        "List weekly scores by team or member",
        Page[ScoreWeek],
        ScoreQuery,
        media=("text/csv",),
    ),
    admin_route(
        "POST",
        "/scorecards",
        set_scorecard,
        "Create or update a scorecard (new version)",
        StoredScorecard,
        ScorecardDefinition,
    ),
    admin_route("DELETE", SCORECARD, remove_scorecard, "Delete a scorecard; existing scores are kept", StoredScorecard),
)
