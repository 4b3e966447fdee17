"""The list of calls: filters in the URL, live, in pages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import groupby
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import HTMLResponse, Response

from db.core.pages import InvalidCursor
from db.search import call_list, saved_views
from db.search.call_list import CallFilter, CallLine
from db.search.semantic import OtherModel, closest_calls
from db.workspace import directory
from db.workspace.directory import DirectoryMember, Team
from pipeline.domain.call import CallState
from serve_app.console import labels, outcomes
from serve_app.console.site import NotUnderstood, Visit, etag_of
from serve_app.records.query_embedding import EmbedderNotReady, SwitchedOff

ROWS = 50
LIVE_SECONDS, QUIET_SECONDS = 2, 10  # between two looks, while calls are worked on and while none is
LONGEST = 200  # characters of a search
FIELDS = (
    *("q", "by", "who", "state", "direction", "tone", "language", "tasks", "team", "member", "from", "to"),
    *("answer", "score"),
)


async def home(visit: Visit) -> Response:
    return visit.go("/calls")


async def calls(visit: Visit) -> Response:
    """The page, or its list alone where a page that is open asks for it."""
    form = asked_for(visit.request.query_params)
    cursor = visit.request.query_params.get("cursor") or None
    try:
        wanted = filter_of(form, visit.wording.zone)
        page = await _listed(visit, form, wanted, cursor)
    except (ValueError, InvalidCursor):
        raise NotUnderstood from None
    asked = {name: value for name, value in form.items() if value}
    listed: dict[str, Any] = {
        "days": _grouped(form, page.items, visit.wording.zone),
        "trouble": page.trouble,
        "query": urlencode(asked),
        "asked": bool(asked),
        "still": bool(cursor) or _by_meaning(form),  # a look at other pages than the first, or a question asked again
        "cursor": cursor,
        "following": page.next and urlencode(asked | {"cursor": page.next}),
        "seconds": LIVE_SECONDS if any(_moves(line) for line in page.items) else QUIET_SECONDS,
        "searched": form["q"],
        "scored_by": wanted.scorecard,
        "submit_url": f"{visit.site.settings.base_url}/submit",
    }
    if visit.request.headers.get("hx-request") and not visit.request.headers.get("hx-history-restore-request"):
        return _part(visit, listed)
    teams = [] if visit.viewer.team_id else await directory.list_teams(visit.database, visit.viewer.workspace_id)
    members = await directory.list_members(visit.database, visit.viewer.workspace_id)
    members = [one for one in members if visit.viewer.team_id in (None, one.team_id) or one.team_id is None]
    answers, scores = await outcomes.choices(visit)
    chips = list(_chips(visit, form, teams, members, [*answers, *scores]))
    views = await saved_views.list_views(visit.database, visit.reader)
    view = next((one for one in views if one.query == listed["query"]), None)
    return visit.page(
        "calls.html",
        form=form,
        meaning=visit.site.questions.on,
        teams=teams,
        members=members,
        answers=answers,
        scores=scores,
        chips=chips,
        views=views,
        view=view,
        **listed,
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """A page of calls. `trouble`: why they could not be searched by meaning."""

    items: tuple[CallLine, ...]
    next: str | None
    trouble: str = ""


async def _listed(visit: Visit, form: Mapping[str, str], wanted: CallFilter, cursor: str | None) -> _Listed:
    """By words, or the calls whose passages are most like a question. Raises ValueError and `InvalidCursor`."""
    if not _by_meaning(form):
        page = await call_list.list_calls(visit.database, visit.reader, wanted, cursor, ROWS)
        return _Listed(page.items, page.next)
    if wanted.name is not None:
        return _Listed((), None, "Search by meaning takes no name; put it into the words.")
    try:
        model, vector = await visit.site.questions.vector(form["q"])
        return _Listed(await closest_calls(visit.database, visit.reader, vector, model, wanted, ROWS), None)
    except SwitchedOff:
        return _Listed((), None, "Search by meaning is switched off.")
    except OtherModel:
        return _Listed((), None, "Calls are being prepared for search by meaning, or an operator has to begin it.")
    except EmbedderNotReady:
        return _Listed((), None, "Search by meaning is not ready. Try again in a few seconds.")


def _by_meaning(form: Mapping[str, str]) -> bool:
    return form["by"] == "meaning" and bool(form["q"])


def _part(visit: Visit, listed: Mapping[str, Any]) -> Response:
    """The list, with a mark of its content: a look that finds nothing new costs the browser nothing."""
    body = bytes(visit.page("_calls.html", **listed).body).decode()
    etag = etag_of(body)
    return visit.unchanged(etag) or HTMLResponse(body, headers={"ETag": etag})


def asked_for(given: Mapping[str, str]) -> dict[str, str]:
    """The value of each field, empty where none was given."""
    return {name: given.get(name, "").strip()[:LONGEST] for name in FIELDS}


def filter_of(form: Mapping[str, str], zone: tzinfo) -> CallFilter:
    """What a form asks for; days are the viewer's. Raises ValueError."""
    if form["state"] and form["state"] not in labels.STATES:
        raise ValueError("no such state")
    last = _midnight(form["to"], zone)
    return CallFilter(
        states=(form["state"],) if form["state"] else (),
        started_from=_midnight(form["from"], zone),
        started_before=last and last + timedelta(days=1),
        outgoing={"out": True, "in": False}.get(form["direction"]),
        team_id=UUID(form["team"]) if form["team"] else None,
        user_id=UUID(form["member"]) if form["member"] else None,
        language=form["language"] or None,
        tone=form["tone"] or None,
        open_tasks=True if form["tasks"] == "open" else None,
        text=None if _by_meaning(form) else form["q"] or None,
        name=form["who"] or None,
        **outcomes.wanted(form),
    )


def _midnight(day: str, zone: tzinfo) -> datetime | None:
    return datetime.combine(date.fromisoformat(day), time(), zone) if day else None


@dataclass(frozen=True, slots=True)
class Day:
    """Calls that started on one day of the viewer's; None: calls in another order than by their start."""

    day: date | None
    lines: tuple[CallLine, ...]


def days_of(lines: tuple[CallLine, ...], zone: tzinfo) -> Iterator[Day]:
    """In the order of the lines."""
    for day, own in groupby(lines, key=lambda line: line.call.start_time.astimezone(zone).date()):
        yield Day(day, tuple(own))


def _grouped(form: Mapping[str, str], lines: tuple[CallLine, ...], zone: tzinfo) -> list[Day]:
    """By day; what is most like a question comes first, whatever its day."""
    if _by_meaning(form):
        return [Day(None, lines)] if lines else []
    return list(days_of(lines, zone))


def _moves(line: CallLine) -> bool:
    """Whether a call may change within seconds."""
    call = line.call
    waits = call.next_try is not None and call.next_try > datetime.now(UTC) + timedelta(minutes=1)
    return call.state == CallState.TRANSCRIBING and not waits


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is on, and the query without it."""

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
    known = {
        "state": labels.STATES,
        "tone": labels.TONES,
        "direction": {"in": "Incoming", "out": "Outgoing"},
        "tasks": {"open": "Open"},
    }
    names = {"team": {str(one.team_id): one.name for one in teams}}
    names["member"] = {str(one.user_id): one.name for one in members}
    told = {value: f"{heading}: {name}" for heading, some in groups for value, name in some}
    names |= {"answer": told, "score": told}
    for field, label in CHIPS.items():
        if value := form[field]:
            shown = say(known[field].get(value, value)) if field in known else names.get(field, {}).get(value, value)
            others = {name: other for name, other in form.items() if other and name != field}
            yield Chip(say(label), shown, urlencode(others))


CHIPS = {
    "state": "State",
    "direction": "Direction",
    "tone": "Tone",
    "language": "Language",
    "tasks": "Tasks",
    "team": "Team",
    "member": "Member",
    "from": "From",
    "to": "To",
    "answer": "Answer",
    "score": "Score",
}
