"""Tasks across calls, the earliest due first."""

from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.dialects.postgresql import ARRAY

from db.core.database import Database, Reader
from db.core.pages import Page, Place, gather
from db.core.rows import read
from db.core.tables import PRESENT, TASK_ID, call_search, calls, corrections, task_marks, tasks, transcripts
from db.records import corrections as edits
from pipeline.domain.edits import OTHER_PARTY, corrected_owner
from pipeline.domain.insight import Evidence

UNDATED = "infinity"  # a task without a date comes last
POSITIONS = 10_000  # more tasks than a call has
_EVIDENCE = TypeAdapter(Evidence)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks: those for which all that is given holds."""

    done: bool | None = None
    owner: str | None = None  # rep, customer, other, unknown
    owner_user_id: UUID | None = None
    kind: str | None = None  # commitment, request, follow-up, appointment
    due_from: date | None = None
    due_before: date | None = None
    team_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task with its call. `task_id` stays what it is when the call is analyzed again and finds it again."""

    task_id: UUID
    call_id: UUID
    team_id: UUID
    user_id: UUID | None  # of the call
    start_time: datetime  # of the call
    title: str
    owner: str
    kind: str
    owner_user_id: str | None
    beneficiary: str | None
    due_expression: str | None
    due_date: date | None
    due_time: time | None
    confidence: float
    evidence: Evidence
    done_at: datetime | None
    done_by: str | None


EVERY_TASK = TaskFilter()


async def list_tasks(
    database: Database, reader: Reader, wanted: TaskFilter = EVERY_TASK, cursor: str | None = None, limit: int = 50
) -> Page[TaskLine]:
    """Tasks of calls whose present recording they are from. Raises `reading.InvalidCursor`."""
    place = Place.decode(cursor, wanted, _due)
    of_task, of_call = _conditions(reader, wanted)
    async with database.transaction(reader, snapshot=True) as connection:

        async def candidates(behind: Place | None, count: int) -> list[Place]:
            rows = await connection.execute(_behind(behind).where(*of_task).limit(count))
            return [_place(row) for row in rows]

        async def kept(ids: list[int]) -> set[int]:
            rows = await connection.execute(_of(ids).where(*of_call))
            made = {int(_place(row).row): _line(row) for row in rows}
            lines.update({row: line for row, line in made.items() if _is_theirs(line, wanted)})
            return lines.keys() & set(ids)

        lines: dict[int, TaskLine] = {}
        found, following = await gather(candidates, kept, place, limit)
    return Page(tuple(lines[one] for one in found), None if following is None else following.encode(wanted))


_BY_DUE = sa.func.coalesce(tasks.c.due_date, sa.literal_column(f"'{UNDATED}'"))
_ORDER = (_BY_DUE, tasks.c.call_pk, tasks.c.position)
_TASKS = (
    sa.select(
        *tasks.c,
        TASK_ID.label("task_id"),
        *(calls.c[name] for name in ("call_id", "team_id", "start_time")),
        sa.case((corrections.c.agent_set, corrections.c.user_id), else_=calls.c.user_id).label("user_id"),
        sa.func.coalesce(calls.c.user_id, call_search.c.user_id).label("machine_agent"),
        corrections.c.swapped,
        corrections.c.agent_set,
        corrections.c.user_id.label("named"),
        *(task_marks.c[name] for name in ("done_at", "done_by")),
    )
    .join(calls, calls.c.id == tasks.c.call_pk)
    .join(transcripts, PRESENT)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
    .outerjoin(task_marks, sa.and_(task_marks.c.call_pk == tasks.c.call_pk, task_marks.c.task_id == TASK_ID))
)


def _behind(place: Place | None) -> sa.Select[Any]:
    """Tasks behind a place, the earliest due first."""
    query = sa.select(tasks.c.call_pk, tasks.c.position, tasks.c.due_date).order_by(*_ORDER)
    if place is None:
        return query
    call_pk, position = divmod(int(place.row), POSITIONS)
    here = (sa.cast(place.key, sa.Date), sa.cast(call_pk, sa.BigInteger), sa.cast(position, sa.Integer))
    return query.where(sa.tuple_(*_ORDER) > sa.tuple_(*here))


def _of(ids: list[int]) -> sa.Select[Any]:
    """These tasks."""
    numbers = sa.func.unnest(sa.cast([one // POSITIONS for one in ids], ARRAY(sa.BigInteger)))
    chosen = sa.select(numbers.label("call_pk")).distinct().subquery()
    return _TASKS.join(chosen, chosen.c.call_pk == tasks.c.call_pk)


def _conditions(
    reader: Reader, wanted: TaskFilter
) -> tuple[list[sa.ColumnElement[bool]], list[sa.ColumnElement[bool]]]:
    """Those on tasks, which the walk through their index knows, and those on what belongs to them.

    Where people said whose call or which party it is, owners are looked at one by one (`_is_theirs`).
    """
    found = [tasks.c.workspace_id == reader.workspace_id]
    if wanted.kind is not None:
        found.append(tasks.c.kind == wanted.kind)
    if wanted.done is not None:
        found.append(tasks.c.done if wanted.done else sa.not_(tasks.c.done))
    corrected = sa.select(corrections.c.call_pk)
    if wanted.owner is not None:
        found.append(tasks.c.owner == wanted.owner)
        if wanted.owner in OTHER_PARTY:
            swapped = tasks.c.call_pk.in_(corrected.where(corrections.c.swapped))
            found[-1] = sa.or_(found[-1], sa.and_(tasks.c.owner == OTHER_PARTY[wanted.owner], swapped))
    if wanted.owner_user_id is not None:
        named = tasks.c.call_pk.in_(corrected.where(corrections.c.user_id == wanted.owner_user_id))
        found.append(sa.or_(tasks.c.owner_user_id == str(wanted.owner_user_id), named))
    if wanted.due_from is not None:
        found += [wanted.due_from <= _BY_DUE, tasks.c.due_date.is_not(None)]
    if wanted.due_before is not None:
        found.append(wanted.due_before > _BY_DUE)
    of_call = [calls.c.workspace_id == reader.workspace_id]
    if team_id := wanted.team_id or reader.team_id:
        of_call.append(calls.c.team_id == team_id)
    return found, of_call


def _due(key: str) -> None:
    if key != UNDATED:
        date.fromisoformat(key)


def _place(row: Any) -> Place:
    key = UNDATED if row.due_date is None else row.due_date.isoformat()
    return Place(key, row.call_pk * POSITIONS + row.position)


def _line(row: Any) -> TaskLine:
    fields = edits.fields_of(row.swapped, row.agent_set, row.named, row.machine_agent)
    owner, owner_user_id = corrected_owner(row.owner, row.owner_user_id, fields)
    evidence = _EVIDENCE.validate_python(row.evidence)
    return read(TaskLine, row, evidence=evidence, owner=owner, owner_user_id=owner_user_id)


def _is_theirs(line: TaskLine, wanted: TaskFilter) -> bool:
    """Whether the owner is the one who was asked for, as people corrected it."""
    if wanted.owner not in (None, line.owner):
        return False
    return wanted.owner_user_id is None or line.owner_user_id == str(wanted.owner_user_id)
