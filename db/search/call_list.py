"""Lists of calls for people and programs that read: filtered, searched, in pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.identity import e164
from db.core.pages import Page, Place, aware, gather
from db.core.tables import (
    PRESENT,
    call_outcomes,
    call_search,
    calls,
    contacts,
    corrections,
    findings,
    members,
    tasks,
    transcripts,
    workspaces,
)
from db.records import corrections as edits
from db.records import views
from db.records.views import CallSummary
from db.search import full_text
from db.search import scores as outcomes
from db.search.full_text import Hit
from db.search.scores import FAILED, ScorecardScore
from pipeline.domain.call import CallState
from pipeline.domain.insight import Contact


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which calls: those for which all that is given holds."""

    states: tuple[str, ...] = ()  # of `CallState`; one of them
    started_from: datetime | None = None
    started_before: datetime | None = None
    updated_after: datetime | None = None  # the list is by time of change then, the oldest change first
    outgoing: bool | None = None
    team_id: UUID | None = None
    user_id: UUID | None = None  # the member, as people, the sender or the call said
    contact_id: UUID | None = None
    number: str | None = None  # either party's, in any writing
    language: str | None = None  # ISO 639-1
    tone: str | None = None  # overall: negative, neutral, positive
    open_tasks: bool | None = None  # with a task that is not done; False: without any
    text: str | None = None  # what was said: words, "a phrase", -without
    corrected: bool | None = None  # by people, ticks of tasks aside
    name: str | None = None  # names, companies, addresses, digits of numbers; one letter may be wrong
    question: str | None = None  # the key of a question or tracker that came to `answer`
    answer: str | None = None  # yes, no, a choice, said, not said
    scorecard: str | None = None  # the key of one that the call has a score by; what follows is of that score
    passed: bool | None = None
    auto_failed: bool | None = None
    score_from: float | None = None
    score_below: float | None = None


@dataclass(frozen=True, slots=True)
class CallLine:
    """One line of a list: a call with what people look for first."""

    call: CallSummary
    agent: str | None = None  # the member's name
    contact: Contact | None = None
    tone: str | None = None
    summary: str | None = None
    tasks: int = 0
    open_tasks: int = 0
    scores: tuple[ScorecardScore, ...] = ()  # by the workspace's scorecards
    hits: tuple[Hit, ...] = ()  # where `CallFilter.text` was said


EVERY_CALL = CallFilter()
COMPLETED = CallState.COMPLETED.value
_UNFINISHED = sa.literal_column(f"calls.state <> '{COMPLETED}'", sa.Boolean())  # as the partial index says it


async def list_calls(
    database: Database, reader: Reader, wanted: CallFilter = EVERY_CALL, cursor: str | None = None, limit: int = 50
) -> Page[CallLine]:
    """The calls that started last first; with `updated_after`, in the order in which they changed.

    Raises `reading.InvalidCursor`.
    """
    place = Place.decode(cursor, wanted, aware)
    async with database.transaction(reader, snapshot=True) as connection:
        page = await call_page(connection, reader, wanted, place, limit)
        following = None if page.next is None else page.next.encode(wanted)
        return Page(await lines(connection, page.items, wanted.text), following)


@dataclass(frozen=True, slots=True)
class CallPage:
    """Rows' ids of a page of calls, and the place that the next one begins behind."""

    items: tuple[int, ...]
    next: Place | None


async def call_page(
    connection: AsyncConnection, reader: Reader, wanted: CallFilter, place: Place | None, limit: int
) -> CallPage:
    """As `list_calls`, in a transaction of the reader."""
    plain, costly = _plain(reader, wanted), _costly(wanted)
    number = None if wanted.number is None else await _plain_number(connection, reader, wanted.number)
    if number is not None:
        costly.append(_has_number(number))
    times = (wanted.started_from, wanted.started_before)
    query = full_text.Query(wanted.text, wanted.name, wanted.language, *times, number, wanted.tone)
    if query.text is not None or query.name is not None or (query.tone is not None and wanted.updated_after is None):
        found, following = await full_text.matching(connection, query, [*plain, *costly], place, limit)
        return CallPage(tuple(found), following)
    if query.number is not None and wanted.updated_after is None:
        # Completed calls are found by their numbers; others, which are few or recent, are looked through.
        indexed = await full_text.matching(connection, query, [*plain, *costly], place, limit)
        others = await _walked(connection, wanted, [*plain, _UNFINISHED], costly, place, limit)
        return await _merged(connection, [indexed, others], limit)
    found, following = await _walked(connection, wanted, plain, costly, place, limit)
    return CallPage(tuple(found), following)


async def conditions(connection: AsyncConnection, reader: Reader, wanted: CallFilter) -> list[sa.ColumnElement[bool]]:
    """What holds for the calls of a filter, apart from words and names."""
    found = [*_plain(reader, wanted), *_costly(wanted)]
    if wanted.number is not None:
        found.append(_has_number(await _plain_number(connection, reader, wanted.number)))
    return found


async def _walked(
    connection: AsyncConnection,
    wanted: CallFilter,
    plain: Sequence[sa.ColumnElement[bool]],
    costly: Sequence[sa.ColumnElement[bool]],
    place: Place | None,
    limit: int,
) -> tuple[list[int], Place | None]:
    """Calls in the order of the list, found by walking an index."""

    async def candidates(behind: Place | None, count: int) -> list[Place]:
        rows = await connection.execute(_behind(wanted, behind).where(*plain).limit(count))
        return [Place(row.at.isoformat(), row.id) for row in rows]

    async def kept(call_pks: list[int]) -> set[int]:
        if not costly:
            return set(call_pks)
        query = sa.select(calls.c.id).where(calls.c.id.in_(call_pks), *costly)
        return set((await connection.execute(query)).scalars())

    return await gather(candidates, kept, place, limit)


async def _merged(connection: AsyncConnection, parts: Sequence[tuple[list[int], Place | None]], limit: int) -> CallPage:
    """One page of several lists by the start of their calls, no further than each of them was looked through."""
    ids = [call_pk for found, _ in parts for call_pk in found]
    starts = await connection.execute(sa.select(calls.c.start_time, calls.c.id).where(calls.c.id.in_(ids)))
    rows = sorted(((row.start_time, row.id) for row in starts), reverse=True)
    ends = [(following.at, int(following.row)) for _, following in parts if following is not None]
    seen = [row for row in rows if row >= max(ends)] if ends else rows
    page = seen[:limit]
    last = page[-1] if len(seen) > limit else max(ends, default=None)
    following = None if last is None else Place(last[0].isoformat(), last[1])
    return CallPage(tuple(call_pk for _, call_pk in page), following)


def _behind(wanted: CallFilter, place: Place | None) -> sa.Select[Any]:
    """Calls behind a place, in the order of the list."""
    by = calls.c.start_time if wanted.updated_after is None else calls.c.updated_at
    query, here = sa.select(calls.c.id, by.label("at")), sa.tuple_(by, calls.c.id)
    if wanted.updated_after is not None:
        query = query.order_by(by, calls.c.id)
        return query if place is None else query.where(here > sa.tuple_(place.at, place.row))
    query = query.order_by(by.desc(), calls.c.id.desc())
    return query if place is None else query.where(here < sa.tuple_(place.at, place.row))


def _plain(reader: Reader, wanted: CallFilter) -> list[sa.ColumnElement[bool]]:
    """Conditions on calls, which indexes know. The workspace is what they begin with; whose rows are seen at all, the
    policies say."""
    plain: dict[sa.ColumnElement[Any], Any] = {
        calls.c.workspace_id: reader.workspace_id,
        calls.c.team_id: wanted.team_id or reader.team_id,
        calls.c.outgoing: wanted.outgoing,
    }
    found = [column == value for column, value in plain.items() if value is not None]
    if wanted.states:
        found.append(calls.c.state.in_(wanted.states))
        if COMPLETED not in wanted.states:
            found.append(_UNFINISHED)
    if wanted.started_from is not None:
        found.append(calls.c.start_time >= wanted.started_from)
    if wanted.started_before is not None:
        found.append(calls.c.start_time < wanted.started_before)
    if wanted.updated_after is not None:
        found.append(calls.c.updated_at > wanted.updated_after)
    if wanted.user_id is not None:
        found.append(calls.c.id.in_(edits.calls_of_member(wanted.user_id)))
    if wanted.contact_id is not None:
        found.append(calls.c.id.in_(edits.calls_of_contact(wanted.contact_id)))
    if wanted.corrected is not None:
        found.append(calls.c.id.in_(edits.WITH_EDITS) if wanted.corrected else calls.c.id.not_in(edits.WITH_EDITS))
    return [*found, *outcome_conditions(reader.workspace_id, wanted)]


def _costly(wanted: CallFilter) -> list[sa.ColumnElement[bool]]:
    """Conditions on what calls gave, looked up for a few of them at a time."""
    found = []
    if wanted.language is not None:
        found.append(_has_transcript(transcripts.c.language == wanted.language))
    if wanted.tone is not None:
        of_tone = sa.select(1).where(call_search.c.call_pk == calls.c.id, call_search.c.tone == wanted.tone)
        found.append(sa.exists(of_tone.correlate(calls)))
    if wanted.open_tasks is not None:
        some = sa.and_(sa.exists(sa.select(1).where(OPEN_TASK).correlate(calls)), _has_transcript())
        found.append(some if wanted.open_tasks else sa.not_(some))
    return found


async def _plain_number(connection: AsyncConnection, reader: Reader, number: str) -> str:
    """In E.164, or as it is: an extension."""
    country = await connection.scalar(
        sa.select(workspaces.c.default_country).where(workspaces.c.id == reader.workspace_id)
    )
    return e164(number, country) or number


def _has_number(number: str) -> sa.ColumnElement[bool]:
    places = ("from_e164", "to_e164", "from_number", "to_number")
    return sa.or_(*(calls.c[name] == number for name in places))


def _has_transcript(*more: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(1).where(PRESENT, *more).correlate(calls))


OPEN_TASK = sa.and_(tasks.c.call_pk == calls.c.id, sa.not_(tasks.c.done))


async def lines(connection: AsyncConnection, call_pks: Sequence[int], text: str | None = None) -> tuple[CallLine, ...]:
    """The lines of calls in the given order. `text`: what to point out of what was said."""
    if not call_pks:
        return ()
    shown = dict(zip(call_pks, await views.summaries(connection, call_pks), strict=True))
    heard = sa.and_(calls.c.id.in_(call_pks), _has_transcript())
    facts = {row.id: row for row in await connection.execute(_FACTS.where(heard))}
    hits = await full_text.hits(connection, list(facts), text) if text else {}
    scores = await outcomes.scores(connection, list(facts))
    return tuple(
        CallLine(shown[pk], **_facts(facts[pk]), scores=scores.get(pk, ()), hits=hits.get(pk, ()))
        if pk in facts
        else CallLine(shown[pk])
        for pk in call_pks
    )


def _facts(row: Any) -> dict[str, Any]:
    known = row.contact_id is not None
    contact = Contact(str(row.contact_id), row.contact, row.company, row.email, row.phone) if known else None
    names = ("agent", "tone", "summary", "tasks", "open_tasks")
    return {name: row._mapping[name] for name in names} | {"contact": contact}


def _of_call(kind: Any, *where: sa.ColumnElement[bool]) -> Any:
    return sa.select(kind).where(*where).correlate(calls).scalar_subquery()


_contact = (
    sa.select(contacts)
    .where(contacts.c.id.in_(edits.contact_ids(calls.c.id)))
    .order_by(contacts.c.name)
    .limit(1)
    .lateral("contact")
)
_FACTS = (
    sa.select(
        calls.c.id,
        call_search.c.tone,
        members.c.name.label("agent"),
        _contact.c.id.label("contact_id"),
        _contact.c.name.label("contact"),
        _contact.c.company,
        _contact.c.email,
        _contact.c.phone,
        _of_call(findings.c.value["text"].astext, findings.c.call_pk == calls.c.id, findings.c.step == "summary").label(
            "summary"
        ),
        _of_call(sa.func.count(), tasks.c.call_pk == calls.c.id).label("tasks"),
        _of_call(sa.func.count(), OPEN_TASK).label("open_tasks"),
    )
    .select_from(calls)
    .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    .outerjoin(members, sa.and_(members.c.workspace_id == calls.c.workspace_id, members.c.user_id == edits.AGENT))
    .outerjoin(_contact, sa.true())
)


def outcome_conditions(workspace_id: UUID, wanted: CallFilter) -> Iterator[sa.ColumnElement[bool]]:
    """What holds for calls that were answered, and scored, as is wanted."""
    column = call_outcomes.c
    if wanted.question is not None:
        yield _among(workspace_id, column.key == wanted.question, column.outcome == wanted.answer)
    if wanted.scorecard is not None:
        some = [column.key == wanted.scorecard, column.score.is_not(None)]
        if wanted.passed is not None:
            some.append(column.outcome == "passed" if wanted.passed else column.outcome.in_(FAILED))
        if wanted.auto_failed is not None:
            automatic = column.outcome == "auto-failed"
            some.append(automatic if wanted.auto_failed else sa.not_(automatic))
        if wanted.score_from is not None:
            some.append(column.score >= wanted.score_from)
        if wanted.score_below is not None:
            some.append(column.score < wanted.score_below)
        yield _among(workspace_id, *some)


def _among(workspace_id: UUID, *some: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Of the present recording: what another one gave is not shown."""
    found = sa.select(call_outcomes.c.call_pk).where(call_outcomes.c.workspace_id == workspace_id, *some)
    return sa.and_(calls.c.id.in_(found), sa.exists(sa.select(1).where(PRESENT).correlate(calls)))
