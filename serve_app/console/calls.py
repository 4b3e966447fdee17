from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import groupby
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from starlette.responses import Response

from db.queue import backlog
from db.records.correct import tag_of
from db.search import call_list, saved_views
from db.search.call_list import CallFilter, CallLine
from db.search.saved_views import NameTaken, TooManyViews
from db.search.semantic import OtherModel, closest_calls
from db.workspace import directory
from db.workspace.directory import DirectoryMember, Team
from pipeline.domain.call import CallState
from serve_app.console import labels, outcomes, sentences
from serve_app.console.site import NotAllowed, NotFound, NotUnderstood, Visit, read_form
from serve_app.operations.estimates import Estimate
from serve_app.records.query_embedding import EmbedderNotReady, SwitchedOff

ROWS = 50
BOOLEANS = {"true": True, "false": False}
LIVE_SECONDS, QUIET_SECONDS = 2, 10  # between polls, while calls are processed and while none are
MAX_FILTER_LENGTH = 200  # characters of a search
FIELDS = (
    *("text", "by", "name", "status", "outgoing", "tone", "language", "openTasks", "teamId", "userId", "from", "to"),
    *("answer", "score", "tag"),
)


async def home(visit: Visit) -> Response:
    return visit.go("/calls")


async def calls(visit: Visit) -> Response:
    """Render the page, or only its list for polling."""
    form = asked_for(visit.request.query_params)
    try:
        call_filter = filter_of(form, visit.wording.zone)
        page = await _listed(visit, form, call_filter, visit.request.query_params.get("cursor") or None)
    except ValueError:  # also of the cursor
        raise NotUnderstood from None
    listed = _shown_list(visit, form, page) | {"scored_by": call_filter.scorecard}
    if visit.request.headers.get("hx-request") and not visit.request.headers.get("hx-history-restore-request"):
        return visit.part("_calls.html", **listed)
    return visit.page("calls.html", **await _filters(visit, form, listed["query"]), **listed)


def _shown_list(visit: Visit, form: dict[str, str], page: "_Listed") -> dict[str, Any]:
    asked = {name: value for name, value in form.items() if value}
    cursor = visit.request.query_params.get("cursor") or None
    return {
        "days": _grouped(form, page.items, visit.wording.zone),
        "trouble": page.problem,
        "query": urlencode(asked),
        "asked": bool(asked),
        "still": bool(cursor) or _by_meaning(form),  # no polling on later pages and for searches by meaning
        "cursor": cursor,
        "following": page.next and urlencode(asked | {"cursor": page.next}),
        "seconds": LIVE_SECONDS if any(_moves(line) for line in page.items) else QUIET_SECONDS,
        "searched": form["text"],
        "submit_url": f"{visit.site.settings.base_url}/submit",
    }


async def _filters(visit: Visit, form: dict[str, str], query: str) -> dict[str, Any]:
    """Return what the form of filters shows. `query`: of the current filters."""
    teams = [] if visit.viewer.team_id else await directory.list_teams(visit.database, visit.home)
    members = await visit.members()
    answers, scores = await outcomes.choices(visit)
    views = await saved_views.list_views(visit.database, visit.reader)
    return {
        "form": form,
        "meaning": visit.site.tools.questions.on,
        "teams": teams,
        "members": members,
        "answers": answers,
        "scores": scores,
        "chips": list(_chips(visit, form, teams, members, [*answers, *scores])),
        "views": views,
        "view": next((saved for saved in views if saved.query == query), None),
    }


@dataclass(frozen=True, slots=True)
class _Listed:
    """A page of calls. `problem`: why a search by meaning is not possible."""

    items: tuple[CallLine, ...]
    next: str | None
    problem: str = ""


async def _listed(visit: Visit, form: Mapping[str, str], call_filter: CallFilter, cursor: str | None) -> _Listed:
    """List calls by words, or by similarity of passages to a question. Raises ValueError, `InvalidCursor`."""
    run = visit.site.tools.worker.run
    if not _by_meaning(form):
        page = await call_list.list_calls(visit.database, visit.reader, call_filter, cursor, ROWS, run)
        return _Listed(page.items, page.next)
    if call_filter.name is not None:
        return _Listed((), None, "A search by meaning cannot be combined with a name. Add the name to the search text.")
    try:
        model, vector = await visit.site.tools.questions.vector(form["text"])
        return _Listed(await closest_calls(visit.database, visit.reader, vector, model, call_filter, ROWS, run), None)
    except SwitchedOff:
        return _Listed((), None, "Search by meaning is turned off.")
    except OtherModel:
        return _Listed(
            (), None, "The index for search by meaning is not ready. Contact your administrator if this persists."
        )
    except EmbedderNotReady:
        return _Listed((), None, "Search by meaning is starting. Try again in a few seconds.")


def _by_meaning(form: Mapping[str, str]) -> bool:
    return form["by"] == "meaning" and bool(form["text"])


def asked_for(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each filter; empty if missing."""
    return {name: parameters.get(name, "").strip()[:MAX_FILTER_LENGTH] for name in FIELDS}


def filter_of(form: Mapping[str, str], zone: tzinfo) -> CallFilter:
    """Build the filter; days are in the viewer's time zone. Raises ValueError."""
    if form["status"] and form["status"] not in labels.STATES:
        raise ValueError("unknown status")
    last = _midnight(form["to"], zone)
    return CallFilter(
        states=(form["status"],) if form["status"] else (),
        started_from=_midnight(form["from"], zone),
        started_before=last and last + timedelta(days=1),
        outgoing=BOOLEANS.get(form["outgoing"]),
        team_id=UUID(form["teamId"]) if form["teamId"] else None,
        user_id=UUID(form["userId"]) if form["userId"] else None,
        language=form["language"] or None,
        tone=form["tone"] or None,
        tag=tag_of(form["tag"]) or None,
        open_tasks=BOOLEANS.get(form["openTasks"]),
        text=None if _by_meaning(form) else form["text"] or None,
        name=form["name"] or None,
        **outcomes.filter_fields(form),
    )


def _midnight(day: str, zone: tzinfo) -> datetime | None:
    return datetime.combine(date.fromisoformat(day), time(), zone) if day else None


@dataclass(frozen=True, slots=True)
class Day:
    """Calls that started on one day in the viewer's time zone. `day` is None if calls are not ordered by start."""

    day: date | None
    lines: tuple[CallLine, ...]


def days_of(lines: tuple[CallLine, ...], zone: tzinfo) -> Iterator[Day]:
    for day, group in groupby(lines, key=lambda line: line.call.start_time.astimezone(zone).date()):
        yield Day(day, tuple(group))


def _grouped(form: Mapping[str, str], lines: tuple[CallLine, ...], zone: tzinfo) -> list[Day]:
    """Group lines by day; results of a search by meaning stay in one group, the most similar first."""
    if _by_meaning(form):
        return [Day(None, lines)] if lines else []
    return list(days_of(lines, zone))


def _moves(line: CallLine) -> bool:
    call = line.call
    waits = call.next_try is not None and call.next_try > datetime.now(UTC) + timedelta(minutes=1)
    return call.state == CallState.TRANSCRIBING and not waits


@dataclass(frozen=True, slots=True)
class Chip:
    """An active filter, and the query without it."""

    label: str
    value: str
    without: str


def _chips(
    visit: Visit,
    form: Mapping[str, str],
    teams: list[Team],
    members: list[DirectoryMember],
    groups: list[outcomes.Group],
) -> Iterator[Chip]:
    say = visit.wording.say
    names_by_field = {
        "status": labels.STATES,
        "tone": labels.TONES,
        "outgoing": labels.DIRECTIONS,
        "openTasks": labels.OPEN_TASKS,
    }
    names = {"teamId": {str(team.team_id): team.name for team in teams}}
    names["userId"] = {str(member.user_id): member.name for member in members}
    choices = {value: f"{heading}: {name}" for heading, some in groups for value, name in some}
    names |= {"answer": choices, "score": choices}
    for field, label in CHIPS.items():
        if value := form[field]:
            shown = (
                say(names_by_field[field].get(value, value))
                if field in names_by_field
                else names.get(field, {}).get(value, value)
            )
            others = {name: other for name, other in form.items() if other and name != field}
            yield Chip(say(label), shown, urlencode(others))


CHIPS = {
    "status": "Status",
    "outgoing": "Direction",
    "tone": "Sentiment",
    "language": "Language",
    "openTasks": "Tasks",
    "teamId": "Team",
    "userId": "Member",
    "from": "From",
    "to": "To",
    "answer": "Answer",
    "score": "Score",
    "tag": "Tag",
}


async def queue(visit: Visit) -> Response:
    """Render the queue; the page polls."""
    teams = await backlog.team_queues(visit.database, visit.reader)
    downloading = sum(team.fetching for team in teams)
    busy = any(team.queued or team.running for team in teams)
    seconds = await drain_seconds(visit) if busy else None
    shown: dict[str, Any] = {"teams": teams, "downloading": downloading, "busy": busy, "seconds": seconds}
    if not visit.request.headers.get("hx-request"):
        return visit.page("queue.html", **shown)
    return visit.part("_queue.html", **shown)


async def drain_seconds(visit: Visit) -> float:
    """Estimate the seconds until the queue is empty, other workspaces included, since they share the engines."""
    return Estimate(await backlog.backlog(visit.database), visit.site.settings.scaling.assumed_rtfx).drain_time()


async def save_view(visit: Visit) -> Response:
    """Save filters as a view; a view with the same name is overwritten."""
    form = await _form(visit)
    fields = asked_for(dict(parse_qsl(form.get("query", ""))))
    try:
        filter_of(fields, visit.wording.zone)
    except ValueError:
        raise NotUnderstood from None
    query = urlencode({name: value for name, value in fields.items() if value})
    if not query:
        raise NotUnderstood
    try:
        await saved_views.save(visit.database, visit.reader, form.get("name", ""), query)
    except TooManyViews:
        return visit.problem(sentences.TOO_MANY_VIEWS, 409)
    except ValueError:
        return visit.problem(sentences.VIEW_UNNAMED, 400)
    return visit.go(f"/calls?{query}")


async def change_view(visit: Visit) -> Response:
    """Rename or delete a view."""
    form = await _form(visit)
    action, view_id = form.get("action"), visit.id()
    try:
        if action == "rename":
            done = await saved_views.rename(visit.database, visit.reader, view_id, form.get("name", ""))
        elif action == "delete":
            done = await saved_views.remove(visit.database, visit.reader, view_id)
        else:
            raise NotUnderstood
    except NameTaken:
        return visit.problem(sentences.VIEW_NAME_TAKEN, 409)
    except ValueError:
        return visit.problem(sentences.VIEW_UNNAMED, 400)
    if not done:
        raise NotFound
    return visit.go("/calls")


async def _form(visit: Visit) -> dict[str, str]:
    if not visit.viewer.may_edit:
        raise NotAllowed
    return await read_form(visit.request)
