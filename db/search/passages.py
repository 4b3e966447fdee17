"""Passages of calls as vectors: which calls are due, and the stored vectors. `semantic.py` searches them.

`passage_model` holds the model in use; without a row nothing is due. `note_passages_due` (schema/functions) makes a
call due in the transaction that changes its words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.dialects.postgresql import insert

from db.core.database import EVERY_WORKSPACE, Database
from db.core.rows import from_now
from db.core.tables import call_passages, calls, corrections, passage_model, passages_due, transcripts
from db.records.corrected_columns import OF_TRANSCRIPT, STORED_TURNS, open_turns
from db.secrets import call_keys
from pipeline.domain.passages import Passage
from pipeline.domain.speech import Turn

BATCH = 5_000  # calls made due in one transaction
MAX_PAUSE_SECONDS = 3600.0  # until a failed call is retried

TURNS = TypeAdapter(tuple[Turn, ...])


@dataclass(frozen=True, slots=True)
class DueCall:
    """A call whose passages are to be embedded, claimed by one process."""

    call_pk: int
    workspace_id: UUID
    changed_at: datetime
    attempts: int  # including this one
    turns: tuple[Turn, ...]  # corrected; empty: the call has no transcript now


@dataclass(frozen=True, slots=True)
class IndexState:
    """Progress of the semantic index."""

    model: str | None  # None: not switched on
    due: int
    calls: int  # with passages of that model
    passages: int


async def switch_on(database: Database, model: str, replace: bool = False) -> str:
    """Start embedding passages; return the model in use: the former one, unless `replace`."""
    statement = insert(passage_model).values(id=1, model=model)
    same = {"model": model, "since": sa.func.now()}
    insert_only = statement.on_conflict_do_nothing()
    update = statement.on_conflict_do_update(index_elements=["id"], set_=same, where=passage_model.c.model != model)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(update if replace else insert_only)
        return str(await connection.scalar(sa.select(passage_model.c.model)))


async def switch_off(database: Database) -> int:
    """Delete all passages and create no more; return how many there were."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for table in (passage_model, passages_due):
            await connection.execute(sa.delete(table))
        return int((await connection.execute(sa.delete(call_passages))).rowcount)


async def state(database: Database) -> IndexState:
    """Return how many calls are due and done. Counts all of them."""
    model_in_use = sa.select(passage_model.c.model).scalar_subquery()
    columns = (sa.func.count(sa.distinct(call_passages.c.call_pk)), sa.func.count())
    async with database.transaction(EVERY_WORKSPACE) as connection:
        model = await connection.scalar(sa.select(passage_model.c.model))
        due = await connection.scalar(sa.select(sa.func.count()).select_from(passages_due))
        done = (await connection.execute(sa.select(*columns).where(call_passages.c.model == model_in_use))).one()
    return IndexState(model, due or 0, *done)


async def make_due(database: Database, after: int = 0, everything: bool = False) -> int | None:
    """Make the next stored calls due without passages of the model in use, those after the row id `after`.

    `everything`: also those with such passages. Returns the last row id examined, None at the end: it can be resumed.
    """
    done = sa.select(1).where(call_passages.c.call_pk == calls.c.id, call_passages.c.model == passage_model.c.model)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        rows = sa.select(calls.c.id).where(calls.c.id > after).order_by(calls.c.id).limit(BATCH)
        ids = list((await connection.execute(rows)).scalars())
        due_calls = (
            sa.select(calls.c.id, calls.c.workspace_id, sa.func.clock_timestamp(), sa.func.now())
            .join(transcripts, transcripts.c.call_pk == calls.c.id)
            .join(passage_model, sa.true())
            .where(calls.c.id.in_(ids), sa.true() if everything else ~sa.exists(done))
        )
        names = ["call_pk", "workspace_id", "changed_at", "not_before"]
        await connection.execute(insert(passages_due).from_select(names, due_calls).on_conflict_do_nothing())
    return ids[-1] if ids else None


async def claim(database: Database, count: int, lease_seconds: float) -> list[DueCall]:
    """Claim up to `count` due calls for `lease_seconds`, the latest change first: users search for today's calls."""
    free = (
        sa.select(passages_due.c.call_pk)
        .where(passages_due.c.not_before <= sa.func.now())
        .order_by(passages_due.c.not_before.desc())
        .limit(count)
        .with_for_update(skip_locked=True)
        .cte("free")  # computed once, unlike a subquery, which would lock other rows each time
    )
    claimed = (
        sa.update(passages_due)
        .where(passages_due.c.call_pk == free.c.call_pk)
        .values(not_before=from_now(lease_seconds), attempts=passages_due.c.attempts + 1)
        .returning(passages_due)
    )
    async with database.transaction(EVERY_WORKSPACE) as connection:
        rows = (await connection.execute(claimed)).all()
        ids = [row.call_pk for row in rows]
        keys = call_keys.of(connection)
        stored = await connection.execute(turns_of(ids))
        turns_by_call = {row.call_pk: open_turns(keys, row.turns) for row in stored}
    return [
        DueCall(
            row.call_pk,
            row.workspace_id,
            row.changed_at,
            row.attempts,
            TURNS.validate_python(turns_by_call.get(row.call_pk, ())),
        )
        for row in rows
    ]


def turns_of(call_pks: Sequence[int], as_text: bool = False) -> sa.Select[tuple[int, Any]]:
    """Return the query of (call_pk, turns): `STORED_TURNS` of present recordings; `as_text`: not parsed."""
    turns: sa.ColumnElement[Any] = sa.cast(STORED_TURNS, sa.Text) if as_text else STORED_TURNS
    return (
        sa.select(transcripts.c.call_pk, turns.label("turns"))
        .join(calls, sa.and_(calls.c.id == transcripts.c.call_pk, calls.c.job_id == transcripts.c.job_id))
        .outerjoin(corrections, OF_TRANSCRIPT)
        .where(transcripts.c.call_pk.in_(call_pks))
    )


async def store(
    database: Database, due: DueCall, model: str, passages: Sequence[Passage], vectors: Sequence[Sequence[float]]
) -> bool:
    """Replace a call's passages and remove it from the list; return False if its words have changed, or it is erased.

    `vectors[i]` is the embedding of `passages[i]`.
    """
    async with database.transaction(EVERY_WORKSPACE) as connection:
        is_due = sa.and_(passages_due.c.call_pk == due.call_pk, passages_due.c.changed_at == due.changed_at)
        is_current_model = sa.exists(sa.select(1).where(passage_model.c.model == model))
        if not (await connection.execute(sa.delete(passages_due).where(is_due, is_current_model))).rowcount:
            return False
        await connection.execute(sa.delete(call_passages).where(call_passages.c.call_pk == due.call_pk))
        rows = [
            {
                "call_pk": due.call_pk,
                "number": number,
                "workspace_id": due.workspace_id,
                "model": model,
                "first_turn": passage.first_turn,
                "first_word": passage.first_word,
                "last_turn": passage.last_turn,
                "last_word": passage.last_word,
                "embedding": list(vector),
            }
            for number, (passage, vector) in enumerate(zip(passages, vectors, strict=True))
        ]
        if rows:
            await connection.execute(sa.insert(call_passages), rows)
    return True


async def postpone(database: Database, due: DueCall) -> None:
    """Return a claimed call that could not be embedded, with a growing delay of up to an hour."""
    later = from_now(min(MAX_PAUSE_SECONDS, 2.0 ** min(due.attempts, 12)))
    is_due = sa.and_(passages_due.c.call_pk == due.call_pk, passages_due.c.changed_at == due.changed_at)
    await database.change(EVERY_WORKSPACE, sa.update(passages_due).where(is_due).values(not_before=later))


async def release(database: Database, due: Sequence[DueCall]) -> None:
    """Return claimed calls at once."""
    is_due = passages_due.c.call_pk.in_([call.call_pk for call in due])
    await database.change(EVERY_WORKSPACE, sa.update(passages_due).where(is_due).values(not_before=sa.func.now()))
