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

UNDATED = "infinity"  # sorts a task without a date last
MAX_TASKS_OF_CALL = 10_000
_EVIDENCE = TypeAdapter(Evidence)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Conditions on tasks; all must be true."""

    done: bool | None = None
    owner: str | None = None  # rep, customer, other, unknown
    owner_user_id: UUID | None = None
    kind: str | None = None  # commitment, request, follow-up, appointment
    due_from: date | None = None
    due_before: date | None = None
    team_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task with its call. `task_id` is stable when another analysis finds the task again."""

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
    database: Database, reader: Reader, filters: TaskFilter = EVERY_TASK, cursor: str | None = None, limit: int = 50
) -> Page[TaskLine]:
    """Return tasks of the present recordings of calls, the earliest due first. Raises `pages.InvalidCursor`."""
    place = Place.decode(cursor, filters, _due)
    of_task, of_call = _conditions(reader, filters)
    async with database.transaction(reader, snapshot=True) as connection:

        async def candidates(after: Place | None, count: int) -> list[Place]:
            rows = await connection.execute(_after(after).where(*of_task).limit(count))
            return [_place(row) for row in rows]

        async def kept(ids: list[int]) -> set[int]:
            rows = await connection.execute(_of(ids).where(*of_call))
            lines_by_row = {int(_place(row).row): _line(row) for row in rows}
            lines.update({row: line for row, line in lines_by_row.items() if _has_owner(line, filters)})
            return lines.keys() & set(ids)

        lines: dict[int, TaskLine] = {}
        rows_of_page, next_place = await gather(candidates, kept, place, limit)
    return Page(tuple(lines[row] for row in rows_of_page), None if next_place is None else next_place.encode(filters))


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
        corrections.c.user_id.label("corrected_agent"),
        *(task_marks.c[name] for name in ("done_at", "done_by")),
    )
    .join(calls, calls.c.id == tasks.c.call_pk)
    .join(transcripts, PRESENT)
    .outerjoin(corrections, corrections.c.call_pk == calls.c.id)
    .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
    .outerjoin(task_marks, sa.and_(task_marks.c.call_pk == tasks.c.call_pk, task_marks.c.task_id == TASK_ID))
)


def _after(place: Place | None) -> sa.Select[Any]:
    query = sa.select(tasks.c.call_pk, tasks.c.position, tasks.c.due_date).order_by(*_ORDER)
    if place is None:
        return query
    call_pk, position = divmod(int(place.row), MAX_TASKS_OF_CALL)
    here = (sa.cast(place.key, sa.Date), sa.cast(call_pk, sa.BigInteger), sa.cast(position, sa.Integer))
    return query.where(sa.tuple_(*_ORDER) > sa.tuple_(*here))


def _of(rows: list[int]) -> sa.Select[Any]:
    call_pks = sa.func.unnest(sa.cast([row // MAX_TASKS_OF_CALL for row in rows], ARRAY(sa.BigInteger)))
    chosen = sa.select(call_pks.label("call_pk")).distinct().subquery()
    return _TASKS.join(chosen, chosen.c.call_pk == tasks.c.call_pk)


def _conditions(
    reader: Reader, filters: TaskFilter
) -> tuple[list[sa.ColumnElement[bool]], list[sa.ColumnElement[bool]]]:
    """Return the conditions on tasks, which their index covers, and those on their calls.

    If users corrected the agent or the parties, owners are checked one by one (`_has_owner`).
    """
    of_task = [tasks.c.workspace_id == reader.workspace_id]
    if filters.kind is not None:
        of_task.append(tasks.c.kind == filters.kind)
    if filters.done is not None:
        of_task.append(tasks.c.done if filters.done else sa.not_(tasks.c.done))
    corrected = sa.select(corrections.c.call_pk)
    if filters.owner is not None:
        of_task.append(tasks.c.owner == filters.owner)
        if filters.owner in OTHER_PARTY:
            swapped = tasks.c.call_pk.in_(corrected.where(corrections.c.swapped))
            of_task[-1] = sa.or_(of_task[-1], sa.and_(tasks.c.owner == OTHER_PARTY[filters.owner], swapped))
    if filters.owner_user_id is not None:
        of_named_member = tasks.c.call_pk.in_(corrected.where(corrections.c.user_id == filters.owner_user_id))
        of_task.append(sa.or_(tasks.c.owner_user_id == str(filters.owner_user_id), of_named_member))
    if filters.due_from is not None:
        of_task += [filters.due_from <= _BY_DUE, tasks.c.due_date.is_not(None)]
    if filters.due_before is not None:
        of_task.append(filters.due_before > _BY_DUE)
    of_call = [calls.c.workspace_id == reader.workspace_id]
    if team_id := filters.team_id or reader.team_id:
        of_call.append(calls.c.team_id == team_id)
    return of_task, of_call


def _due(key: str) -> None:
    if key != UNDATED:
        date.fromisoformat(key)


def _place(row: Any) -> Place:
    key = UNDATED if row.due_date is None else row.due_date.isoformat()
    return Place(key, row.call_pk * MAX_TASKS_OF_CALL + row.position)


def _line(row: Any) -> TaskLine:
    fields = edits.fields_of(row.swapped, row.agent_set, row.corrected_agent, row.machine_agent)
    owner, owner_user_id = corrected_owner(row.owner, row.owner_user_id, fields)
    evidence = _EVIDENCE.validate_python(row.evidence)
    return read(TaskLine, row, evidence=evidence, owner=owner, owner_user_id=owner_user_id)


def _has_owner(line: TaskLine, filters: TaskFilter) -> bool:
    if filters.owner not in (None, line.owner):
        return False
    return filters.owner_user_id is None or line.owner_user_id == str(filters.owner_user_id)
