import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.core.pages import Page, Place, aware, gather
from db.core.rows import filter_by, has_number
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
from db.core.tables import edits as edit_rows
from db.records import views
from db.records.corrected_columns import AGENT, WITH_EDITS, calls_of_contact, calls_of_member, contact_ids
from db.records.views import CallSummary
from db.search import full_text
from db.search import trends as outcomes
from db.search.hits import Hit, Offload
from db.search.trends import FAILED, ScorecardScore
from pipeline.domain.call import CallState
from pipeline.domain.edits import EditKind
from pipeline.domain.insight import Contact
from pipeline.domain.telephone import e164

MAX_CALLS_WITH_HITS = 20  # on a page; an hour of talk takes 20 ms to search


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Conditions on calls; all must be true."""

    states: tuple[str, ...] = ()  # of `CallState`; one of them
    started_from: datetime | None = None
    started_before: datetime | None = None
    updated_after: datetime | None = None  # sorts the list by time of change, the oldest first
    outgoing: bool | None = None
    team_id: UUID | None = None
    user_id: UUID | None = None  # the member, by a user, the sender or the call
    contact_id: UUID | None = None
    number: str | None = None  # either party's, in any format
    language: str | None = None  # ISO 639-1
    tone: str | None = None  # overall: negative, neutral, positive
    open_tasks: bool | None = None  # with a task that is not done; False: without any
    text: str | None = None  # spoken: words, "a phrase", -without
    corrected: bool | None = None  # by users, apart from completed tasks
    tag: str | None = None  # as `correct.tag_of` returns it
    name: str | None = None  # names, companies, addresses, digits of numbers; one letter may be wrong
    question: str | None = None  # the key of a question or tracker with the result `answer`
    answer: str | None = None  # yes, no, a choice, said, not said
    scorecard: str | None = None  # the key of a scorecard of the call; the next fields are conditions on its score
    passed: bool | None = None
    auto_failed: bool | None = None
    score_from: float | None = None
    score_below: float | None = None
    oldest_first: bool = False  # sorts the list by start, the earliest first; not with `text` and `name`
    call_ids: tuple[UUID, ...] = ()  # one of these calls


@dataclass(frozen=True, slots=True)
class CallLine:
    """One row of a list: a call with its most wanted facts."""

    call: CallSummary
    agent: str | None = None  # the member's name
    contact: Contact | None = None
    tone: str | None = None
    summary: str | None = None
    tasks: int = 0
    open_tasks: int = 0
    tags: tuple[str, ...] = ()  # of users, the first one first
    actions: int = 0
    scores: tuple[ScorecardScore, ...] = ()  # by the workspace's scorecards
    hits: tuple[Hit, ...] = ()  # where `CallFilter.text` was said


EVERY_CALL = CallFilter()
COMPLETED = CallState.COMPLETED.value
_UNFINISHED = sa.literal_column(f"calls.state <> '{COMPLETED}'", sa.Boolean())  # as in the partial index


async def list_calls(
    database: Database,
    reader: Reader,
    filters: CallFilter = EVERY_CALL,
    cursor: str | None = None,
    limit: int = 50,
    offload: Offload = asyncio.to_thread,
) -> Page[CallLine]:
    """Return calls, the latest start first; with `updated_after`, in the order of their changes.

    With `text`, a page has at most `MAX_CALLS_WITH_HITS` calls, whose words `offload` finds. Raises `InvalidCursor`.
    """
    place = Place.decode(cursor, filters, aware)
    if filters.text is not None:
        limit = min(limit, MAX_CALLS_WITH_HITS)
    async with database.transaction(reader, snapshot=True) as connection:
        page = await call_page(connection, reader, filters, place, limit)
        next_cursor = None if page.next is None else page.next.encode(filters)
        items = await lines(connection, page.items)
    if filters.text is not None:
        hits = await full_text.hits(database, reader, page.items, filters.text, offload)
        items = tuple(replace(line, hits=hits.get(pk, ())) for pk, line in zip(page.items, items, strict=True))
    return Page(items, next_cursor)


async def latest_calls(
    database: Database, workspace_id: UUID | None = None, state: CallState | str | None = None, limit: int = 50
) -> tuple[CallLine, ...]:
    """Return calls of one or all workspaces, the latest change first."""
    query = filter_by(sa.select(calls.c.id), calls.c.workspace_id, workspace_id)
    query = query.order_by(calls.c.updated_at.desc(), calls.c.id.desc()).limit(limit)
    if state is not None:
        query = query.where(calls.c.state == str(state))
    async with database.transaction(workspace_id or EVERY_WORKSPACE, snapshot=True) as connection:
        return await lines(connection, (await connection.execute(query)).scalars().all())


async def count_calls(database: Database, reader: Reader, filters: CallFilter) -> int:
    """Return the number of calls that match a filter without `text` and `name`."""
    async with database.transaction(reader, snapshot=True) as connection:
        return await count(connection, reader, filters)


async def count(connection: AsyncConnection, reader: Reader, filters: CallFilter) -> int:
    """Return the same as `count_calls`, in a transaction of the reader."""
    matching = sa.select(sa.func.count()).select_from(calls).where(*await conditions(connection, reader, filters))
    return int((await connection.execute(matching)).scalar_one())


@dataclass(frozen=True, slots=True)
class CallPage:
    """Row ids of a page of calls, and the place after which the next page begins."""

    items: tuple[int, ...]
    next: Place | None


async def call_page(
    connection: AsyncConnection, reader: Reader, filters: CallFilter, place: Place | None, limit: int
) -> CallPage:
    """Return a page as `list_calls` does, in a transaction of the reader."""
    cheap, costly = _indexed_conditions(reader, filters), _result_conditions(filters)
    number = None if filters.number is None else await _normalized_number(connection, reader, filters.number)
    if number is not None:
        costly.append(has_number(number))
    times = (filters.started_from, filters.started_before)
    query = full_text.Query(filters.text, filters.name, filters.language, *times, number, filters.tone)
    latest_first = filters.updated_after is None and not filters.oldest_first
    if query.text is not None or query.name is not None or (query.tone is not None and latest_first):
        call_pks, next_place = await full_text.matching(connection, query, [*cheap, *costly], place, limit)
        return CallPage(tuple(call_pks), next_place)
    if query.number is not None and latest_first:
        # Completed calls are found by their numbers; the others, which are few or recent, are scanned.
        indexed = await full_text.matching(connection, query, [*cheap, *costly], place, limit)
        others = await _walk_index(connection, filters, [*cheap, _UNFINISHED], costly, place, limit)
        return await _merge(connection, [indexed, others], limit)
    call_pks, next_place = await _walk_index(connection, filters, cheap, costly, place, limit)
    return CallPage(tuple(call_pks), next_place)


async def conditions(connection: AsyncConnection, reader: Reader, filters: CallFilter) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of a filter, except words and names."""
    clauses = [*_indexed_conditions(reader, filters), *_result_conditions(filters)]
    if filters.number is not None:
        clauses.append(has_number(await _normalized_number(connection, reader, filters.number)))
    return clauses


async def _walk_index(
    connection: AsyncConnection,
    filters: CallFilter,
    plain: Sequence[sa.ColumnElement[bool]],
    costly: Sequence[sa.ColumnElement[bool]],
    place: Place | None,
    limit: int,
) -> tuple[list[int], Place | None]:

    async def candidates(after: Place | None, count: int) -> list[Place]:
        rows = await connection.execute(_after(filters, after).where(*plain).limit(count))
        return [Place(row.at.isoformat(), row.id) for row in rows]

    async def kept(call_pks: list[int]) -> set[int]:
        if not costly:
            return set(call_pks)
        query = sa.select(calls.c.id).where(calls.c.id.in_(call_pks), *costly)
        return set((await connection.execute(query)).scalars())

    return await gather(candidates, kept, place, limit)


async def _merge(connection: AsyncConnection, parts: Sequence[tuple[list[int], Place | None]], limit: int) -> CallPage:
    """Merge lists into one page by the start of their calls, up to the nearest end of any of them."""
    ids = [call_pk for call_pks, _ in parts for call_pk in call_pks]
    starts = await connection.execute(sa.select(calls.c.start_time, calls.c.id).where(calls.c.id.in_(ids)))
    rows = sorted(((row.start_time, row.id) for row in starts), reverse=True)
    ends = [(next_place.at, int(next_place.row)) for _, next_place in parts if next_place is not None]
    seen = [row for row in rows if row >= max(ends)] if ends else rows
    page = seen[:limit]
    last = page[-1] if len(seen) > limit else max(ends, default=None)
    next_place = None if last is None else Place(last[0].isoformat(), last[1])
    return CallPage(tuple(call_pk for _, call_pk in page), next_place)


def _after(filters: CallFilter, place: Place | None) -> sa.Select[Any]:
    sort_key = calls.c.start_time if filters.updated_after is None else calls.c.updated_at
    query, position = sa.select(calls.c.id, sort_key.label("at")), sa.tuple_(sort_key, calls.c.id)
    if filters.updated_after is not None or filters.oldest_first:
        query = query.order_by(sort_key, calls.c.id)
        return query if place is None else query.where(position > sa.tuple_(place.at, place.row))
    query = query.order_by(sort_key.desc(), calls.c.id.desc())
    return query if place is None else query.where(position < sa.tuple_(place.at, place.row))


def _indexed_conditions(reader: Reader, filters: CallFilter) -> list[sa.ColumnElement[bool]]:
    """Return conditions that indexes cover. They begin with the workspace; policies limit the visible rows."""
    equalities: dict[sa.ColumnElement[Any], Any] = {
        calls.c.workspace_id: reader.workspace_id,
        calls.c.team_id: filters.team_id or reader.team_id,
        calls.c.outgoing: filters.outgoing,
    }
    clauses = [column == value for column, value in equalities.items() if value is not None]
    if filters.states:
        clauses.append(calls.c.state.in_(filters.states))
        if COMPLETED not in filters.states:
            clauses.append(_UNFINISHED)
    if filters.call_ids:
        clauses.append(calls.c.call_id.in_(filters.call_ids))
    if filters.started_from is not None:
        clauses.append(calls.c.start_time >= filters.started_from)
    if filters.started_before is not None:
        clauses.append(calls.c.start_time < filters.started_before)
    if filters.updated_after is not None:
        clauses.append(calls.c.updated_at > filters.updated_after)
    if filters.user_id is not None:
        clauses.append(calls.c.id.in_(calls_of_member(filters.user_id)))
    if filters.contact_id is not None:
        clauses.append(calls.c.id.in_(calls_of_contact(filters.contact_id)))
    if filters.corrected is not None:
        clauses.append(calls.c.id.in_(WITH_EDITS) if filters.corrected else calls.c.id.not_in(WITH_EDITS))
    if filters.tag is not None:
        tagged = sa.select(edit_rows.c.call_pk).where(*_TAGS, edit_rows.c.after == sa.literal(filters.tag, JSONB))
        clauses.append(calls.c.id.in_(tagged))
    return [*clauses, *outcome_conditions(reader.workspace_id, filters)]


def _result_conditions(filters: CallFilter) -> list[sa.ColumnElement[bool]]:
    """Return conditions on results of calls, which are checked for a few calls at a time."""
    clauses = []
    if filters.language is not None:
        clauses.append(_has_transcript(transcripts.c.language == filters.language))
    if filters.tone is not None:
        of_tone = sa.select(1).where(call_search.c.call_pk == calls.c.id, call_search.c.tone == filters.tone)
        clauses.append(sa.exists(of_tone.correlate(calls)))
    if filters.open_tasks is not None:
        has_open = sa.and_(sa.exists(sa.select(1).where(OPEN_TASK).correlate(calls)), _has_transcript())
        clauses.append(has_open if filters.open_tasks else sa.not_(has_open))
    return clauses


async def _normalized_number(connection: AsyncConnection, reader: Reader, number: str) -> str:
    country = await connection.scalar(
        sa.select(workspaces.c.default_country).where(workspaces.c.id == reader.workspace_id)
    )
    return e164(number, country) or number


def _has_transcript(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(1).where(PRESENT, *conditions).correlate(calls))


OPEN_TASK = sa.and_(tasks.c.call_pk == calls.c.id, sa.not_(tasks.c.done))


async def lines(connection: AsyncConnection, call_pks: Sequence[int]) -> tuple[CallLine, ...]:
    """Return the rows of calls in the given order, without hits."""
    if not call_pks:
        return ()
    summaries = dict(zip(call_pks, await views.summaries(connection, call_pks), strict=True))
    has_transcript = sa.and_(calls.c.id.in_(call_pks), _has_transcript())
    facts = {row.id: row for row in await connection.execute(_FACTS.where(has_transcript))}
    scores = await outcomes.scores(connection, list(facts))
    tags = await _tags(connection, call_pks)
    return tuple(
        CallLine(summaries[pk], **_facts(facts[pk]), tags=tags.get(pk, ()), scores=scores.get(pk, ()))
        if pk in facts
        else CallLine(summaries[pk], tags=tags.get(pk, ()))
        for pk in call_pks
    )


_TAGS = (edit_rows.c.kind == EditKind.TAG, edit_rows.c.undone_at.is_(None))


async def _tags(connection: AsyncConnection, call_pks: Sequence[int]) -> dict[int, tuple[str, ...]]:
    query = sa.select(edit_rows.c.call_pk, edit_rows.c.after).where(edit_rows.c.call_pk.in_(call_pks), *_TAGS)
    tags: dict[int, tuple[str, ...]] = {}
    for call_pk, tag in await connection.execute(query.order_by(edit_rows.c.position)):
        tags[call_pk] = (*tags.get(call_pk, ()), tag)
    return tags


def _facts(row: Any) -> dict[str, Any]:
    has_contact = row.contact_id is not None
    contact = Contact(str(row.contact_id), row.contact, row.company, row.email, row.phone) if has_contact else None
    names = ("agent", "tone", "summary", "tasks", "open_tasks", "actions")
    return {name: row._mapping[name] for name in names} | {"contact": contact}


def _of_call(kind: Any, *where: sa.ColumnElement[bool]) -> Any:
    return sa.select(kind).where(*where).correlate(calls).scalar_subquery()


_contact = (
    sa.select(contacts)
    .where(contacts.c.id.in_(contact_ids(calls.c.id)))
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
        sa.func.coalesce(
            _of_call(
                sa.func.jsonb_array_length(findings.c.value["actions"]),
                findings.c.call_pk == calls.c.id,
                findings.c.step == "actions",
                sa.func.jsonb_typeof(findings.c.value["actions"]) == "array",
            ),
            0,
        ).label("actions"),
    )
    .select_from(calls)
    .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    .outerjoin(members, sa.and_(members.c.workspace_id == calls.c.workspace_id, members.c.user_id == AGENT))
    .outerjoin(_contact, sa.true())
)


def outcome_conditions(workspace_id: UUID, filters: CallFilter) -> Iterator[sa.ColumnElement[bool]]:
    column = call_outcomes.c
    if filters.question is not None:
        yield _has_outcome(workspace_id, column.key == filters.question, column.outcome == filters.answer)
    if filters.scorecard is not None:
        conditions = [column.key == filters.scorecard, column.score.is_not(None)]
        if filters.passed is not None:
            conditions.append(column.outcome == "passed" if filters.passed else column.outcome.in_(FAILED))
        if filters.auto_failed is not None:
            automatic = column.outcome == "auto-failed"
            conditions.append(automatic if filters.auto_failed else sa.not_(automatic))
        if filters.score_from is not None:
            conditions.append(column.score >= filters.score_from)
        if filters.score_below is not None:
            conditions.append(column.score < filters.score_below)
        yield _has_outcome(workspace_id, *conditions)


def _has_outcome(workspace_id: UUID, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition on outcomes of the present recording; those of another recording do not count."""
    call_pks = sa.select(call_outcomes.c.call_pk).where(call_outcomes.c.workspace_id == workspace_id, *conditions)
    return sa.and_(calls.c.id.in_(call_pks), sa.exists(sa.select(1).where(PRESENT).correlate(calls)))
