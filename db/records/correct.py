"""People write: an edit is made or undone, a task is ticked off. Each is one transaction that holds the call's row."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Reader
from db.core.tables import PRESENT, TASK_ID, calls, contacts, edits, members, task_marks, tasks, transcripts
from db.records import corrections as edit_rows
from db.records.corrections import CallEdit, EditedCall, Editor
from db.workspace.questions import definition_of
from pipeline.domain.edits import EXACT, OTHER_PARTY, Anchor, EditKind, EditState
from pipeline.domain.overrides import AnswerAnchor, anchor_of, refusal, shown_answer
from pipeline.domain.speech import text_of

MOST_EDITS = 2_000  # of a call, undone ones too


class EditRefused(Exception):
    """The edit cannot be made."""


class NoSuch(EditRefused):
    """There is no such call, edit or task that this writer may see."""


class NoTranscript(EditRefused):
    """The call has no transcript of its present recording."""


class CannotBe(EditRefused):
    """`field` holds something that cannot be set."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class IdUsed(EditRefused):
    """Another edit of the call has this id."""


class TooMany(EditRefused):
    """The call has `MOST_EDITS`."""


@dataclass(frozen=True, slots=True)
class Current:
    """What stands where an edit was meant to be: words and speaker of a turn, or the value of a field."""

    value: str | bool | None
    turn: int | None = None
    start: float | None = None
    end: float | None = None
    speaker: str | None = None


class Stale(EditRefused):
    """Something else than `old` stands there by now; None: nothing."""

    def __init__(self, current: Current | None) -> None:
        super().__init__("something else stands there by now")
        self.current = current


@dataclass(frozen=True, slots=True)
class WantedEdit:
    """An edit as it was asked for. `turn`, `start`, `end`: of words or a turn, as they are shown now."""

    kind: EditKind
    old: str | bool | None
    new: str | bool | None
    turn: int = -1
    start: float = 0.0
    end: float = 0.0
    edit_id: UUID | None = None
    question: str | None = None  # the key of the one that is answered
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """An edit, and whether this request made it; False: an earlier one that was the same."""

    edit: CallEdit
    created: bool


async def make(database: Database, writer: Reader, editor: Editor, call_id: UUID, wanted: WantedEdit) -> Made:
    """Keep an edit of a call. Raises `EditRefused` of a kind; then nothing has changed."""
    return (await make_all(database, writer, editor, call_id, [wanted]))[0]


async def make_all(
    database: Database, writer: Reader, editor: Editor, call_id: UUID, wanted: list[WantedEdit]
) -> list[Made]:
    """Keep all of several edits of a call, or none of them."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        made = [await _make(connection, call_pk, editor, one) for one in wanted]
        if any(created for _, created in made):
            await _changed(connection, call_pk)
        shown = {one.edit_id: one for one in (await _edited(connection, call_pk)).edits}
        return [Made(shown[edit_id], created) for edit_id, created in made]


async def undo(database: Database, writer: Reader, editor: Editor, call_id: UUID, edit_id: UUID) -> CallEdit:
    """Take an edit back, no matter who made it; one that is taken back already stays so. Raises `NoSuch`."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        query = sa.select(edits).where(edits.c.call_pk == call_pk, edits.c.edit_id == edit_id)
        row = (await connection.execute(query)).one_or_none()
        if row is None or row.kind not in edit_rows.KNOWN:
            raise NoSuch
        if await edit_rows.mark_undone(connection, call_pk, editor, edits.c.edit_id == edit_id):
            if row.kind == EditKind.TASK:
                await _unmark(connection, call_pk, row.task_id)
            await _changed(connection, call_pk)
        found = await _edited(connection, call_pk)
        return next(one for one in found.edits if one.edit_id == edit_id)


@dataclass(frozen=True, slots=True)
class TaskMark:
    """Whether a task is done, since when, and who said so."""

    task_id: UUID
    done_at: datetime | None
    done_by: str | None


async def tick(database: Database, writer: Reader, editor: Editor, call_id: UUID, task_id: UUID) -> TaskMark:
    """Tick a task off; one that is stays as it is. Raises `NoSuch` where the call has no such task."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        query = sa.select(tasks.c.title, tasks.c.evidence).where(tasks.c.call_pk == call_pk, TASK_ID.in_([task_id]))
        if (await connection.execute(query)).first() is None or await _heard(connection, call_pk) is None:
            raise NoSuch
        name = await edit_rows.name_of(connection, editor)
        mark = insert(task_marks).values(call_pk=call_pk, task_id=task_id, done_by=name).on_conflict_do_nothing()
        if (await connection.execute(mark.returning(task_marks.c.task_id))).first() is not None:
            await _count(connection, call_pk)
            await edit_rows.insert_edit(connection, call_pk, editor, EditKind.TASK, False, True, task_id=task_id)
            await _changed(connection, call_pk)
        marked = await connection.execute(sa.select(task_marks).where(*_mark(call_pk, task_id)))
        row = marked.one()
        return TaskMark(task_id, row.done_at, row.done_by)


async def untick(database: Database, writer: Reader, editor: Editor, call_id: UUID, task_id: UUID) -> TaskMark:
    """Say that a task is to be done after all. Raises `NoSuch` where the call neither has nor had such a task."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        ticked = await _unmark(connection, call_pk, task_id)
        if ticked:
            await edit_rows.mark_undone(connection, call_pk, editor, edits.c.task_id == task_id)
            await _changed(connection, call_pk)
            return TaskMark(task_id, None, None)
        there = sa.select(1).where(tasks.c.call_pk == call_pk, TASK_ID.in_([task_id]))
        before = sa.select(1).where(edits.c.call_pk == call_pk, edits.c.task_id == task_id)
        if not await connection.scalar(sa.select(sa.or_(sa.exists(there), sa.exists(before)))):
            raise NoSuch
        return TaskMark(task_id, None, None)


def _mark(call_pk: int, task_id: UUID) -> tuple[sa.ColumnElement[bool], ...]:
    return task_marks.c.call_pk == call_pk, task_marks.c.task_id == task_id


async def _unmark(connection: AsyncConnection, call_pk: int, task_id: UUID) -> int:
    return (await connection.execute(sa.delete(task_marks).where(*_mark(call_pk, task_id)))).rowcount


async def list_edits(database: Database, reader: Reader, call_id: UUID) -> tuple[CallEdit, ...]:
    """All edits of a call, undone ones too, in the order in which they were made. Raises `NoSuch`."""
    async with database.transaction(reader, snapshot=True) as connection:
        call_pk = await connection.scalar(sa.select(calls.c.id).where(calls.c.call_id == call_id))
        if call_pk is None:
            raise NoSuch
        return (await _edited(connection, call_pk)).edits


@asynccontextmanager
async def _locked(database: Database, writer: Reader, call_id: UUID) -> AsyncIterator[tuple[AsyncConnection, int]]:
    """A transaction that holds the call: writers of one call follow each other. Raises `NoSuch`."""
    async with database.transaction(writer) as connection:
        query = sa.select(calls.c.id).where(calls.c.call_id == call_id).with_for_update(key_share=True)
        call_pk = await connection.scalar(query)
        if call_pk is None:
            raise NoSuch
        yield connection, call_pk


async def _changed(connection: AsyncConnection, call_pk: int) -> None:
    """Tell streams and lists of changes, and write what the edits come to."""
    now = sa.func.greatest(sa.func.clock_timestamp(), calls.c.updated_at + sa.text("interval '1 us'"))
    await connection.execute(sa.update(calls).where(calls.c.id == call_pk).values(updated_at=now, edited_at=now))
    await edit_rows.follow(connection, call_pk)


async def _heard(connection: AsyncConnection, call_pk: int) -> Any:
    return await connection.scalar(sa.select(calls.c.id).join(transcripts, PRESENT).where(calls.c.id == call_pk))


async def _edited(connection: AsyncConnection, call_pk: int) -> EditedCall:
    return await edit_rows.load(connection, call_pk, await edit_rows.machine_transcript(connection, call_pk))


async def _count(connection: AsyncConnection, call_pk: int) -> None:
    """Raises `TooMany`."""
    count = await connection.scalar(sa.select(sa.func.count()).where(edits.c.call_pk == call_pk))
    if (count or 0) >= MOST_EDITS:
        raise TooMany


async def _make(connection: AsyncConnection, call_pk: int, editor: Editor, wanted: WantedEdit) -> tuple[UUID, bool]:
    found = await _edited(connection, call_pk)
    if (same := _same_id(found, wanted)) is not None:
        return same, False
    try:
        before, anchor = await _place(connection, call_pk, found, wanted)
    except Stale:
        if (same := _again(found, editor, wanted)) is not None:
            return same, False
        raise
    await _count(connection, call_pk)
    args = (wanted.kind, before, wanted.new, anchor, wanted.edit_id)
    return await edit_rows.insert_edit(connection, call_pk, editor, *args, comment=wanted.comment), True


def _same_id(found: EditedCall, wanted: WantedEdit) -> UUID | None:
    """The edit that this request made before, by its id. Raises `IdUsed`."""
    for one in found.edits:
        if wanted.edit_id is not None and one.edit_id == wanted.edit_id:
            if (one.kind, one.person, one.question) != (wanted.kind, wanted.new, wanted.question):
                raise IdUsed
            return one.edit_id
    return None


def _again(found: EditedCall, editor: Editor, wanted: WantedEdit) -> UUID | None:
    """The edit that the same writer made with the same request, whose answer may have been lost."""
    for one in reversed(found.edits):
        mine = (one.key_id, one.session_id) == (editor.key_id, editor.session_id)
        same = (one.kind, one.person, one.question) == (wanted.kind, wanted.new, wanted.question)
        if one.state is EditState.APPLIED and mine and same:
            at_words = wanted.kind in (EditKind.TEXT, EditKind.SPEAKER)
            if not at_words or (one.turn == wanted.turn and one.start is not None and _near(one, wanted)):
                return one.edit_id
    return None


def _near(one: CallEdit, wanted: WantedEdit) -> bool:
    return abs((one.start or 0.0) - wanted.start) <= EXACT and abs((one.end or 0.0) - wanted.end) <= EXACT


async def _place(
    connection: AsyncConnection, call_pk: int, found: EditedCall, wanted: WantedEdit
) -> tuple[str | bool | None, Anchor | AnswerAnchor | None]:
    """The machine's value and words that an edit is against. Raises `Stale`, `NoTranscript`, `CannotBe`."""
    if wanted.kind is EditKind.ANSWER:
        return await _answer(connection, call_pk, found, wanted)
    if wanted.kind is EditKind.AGENT:
        _guard(edit_rows.as_text(found.agent), wanted.old)
        await _known(connection, members.c.user_id, wanted.new, "There is no such member that this key may see.")
        return edit_rows.as_text(found.machine_agent), None
    if wanted.kind is EditKind.CONTACT:
        machine = await edit_rows.machine_contact(connection, call_pk)
        now = found.contact_id if found.contact_set else machine
        _guard(edit_rows.as_text(now), wanted.old)
        await _known(connection, contacts.c.id, wanted.new, "There is no such contact that this key may see.")
        return edit_rows.as_text(machine), None
    if found.corrected is None:
        raise NoTranscript
    if wanted.kind is EditKind.ROLES:
        _guard(found.swapped, wanted.old)
        anchor = found.corrected.roles_anchor()
        if anchor is None:
            raise CannotBe("kind", "Neither party of this call is known: say who spoke turn by turn.")
        return False, anchor
    return _in_turn(found, wanted)


async def _answer(
    connection: AsyncConnection, call_pk: int, found: EditedCall, wanted: WantedEdit
) -> tuple[str | None, AnswerAnchor]:
    """The machine's answer, and the question. Raises `Stale`, `CannotBe`."""
    if not await _heard(connection, call_pk):
        raise NoTranscript
    own = await edit_rows.machine_answers(connection, call_pk)
    machine = own.by_key().get(wanted.question or "")
    if machine is None:
        raise CannotBe("question", "The call was not asked this question.")
    _guard(shown_answer(own.with_overrides(found.overrides).by_key()[machine.key]), wanted.old)
    anchor, new = anchor_of(machine), None if wanted.new is None else str(wanted.new)
    asked = await definition_of(connection, call_pk, machine.key, machine.version)
    if (why := refusal(anchor.type, asked, new)) is not None:
        raise CannotBe("new", why)
    return shown_answer(machine), anchor


def _guard(now: str | bool | None, old: str | bool | None) -> None:
    if now != old:
        raise Stale(Current(now))


async def _known(connection: AsyncConnection, column: Any, value: Any, sentence: str) -> None:
    if value is not None and await connection.scalar(sa.select(column).where(column == UUID(value))) is None:
        raise CannotBe("new", sentence)


def _in_turn(found: EditedCall, wanted: WantedEdit) -> tuple[str, Anchor]:
    """Of words, or of a whole turn and its speaker."""
    corrected = found.corrected
    assert corrected is not None
    words = corrected.words_at(wanted.turn, wanted.start, wanted.end)
    turns = corrected.transcript.turns
    if words is None:
        raise Stale(_standing_at(found, wanted))
    turn = turns[wanted.turn]
    said = turn.words[words[0] : words[1] + 1]
    here = Current(text_of(said), wanted.turn, said[0].start, said[-1].end, turn.speaker)
    if wanted.kind is EditKind.TEXT:
        if str(here.value).split() != str(wanted.old).split():
            raise Stale(here)
        anchor = corrected.text_anchor(wanted.turn, *words)
        return anchor.text, anchor
    if turn.speaker != wanted.old or len(said) != len(turn.words):
        raise Stale(Current(turn.speaker, wanted.turn, turn.words[0].start, turn.words[-1].end, turn.speaker))
    labels = {one.label for one in corrected.transcript.speakers}
    if wanted.new not in labels and wanted.new not in OTHER_PARTY:
        raise CannotBe("new", f"A turn is said by one of: {', '.join(sorted(labels | OTHER_PARTY.keys()))}.")
    return corrected.machine.turns[wanted.turn].speaker, corrected.turn_anchor(wanted.turn)


def _standing_at(found: EditedCall, wanted: WantedEdit) -> Current | None:
    """The words of the turn that touch the seconds of an edit, in whole."""
    corrected = found.corrected
    if corrected is None or not 0 <= wanted.turn < len(corrected.transcript.turns):
        return None
    turn = corrected.transcript.turns[wanted.turn]
    said = [word for word in turn.words if word.start < wanted.end and word.end > wanted.start]
    if not said:
        return None
    return Current(text_of(said), wanted.turn, said[0].start, said[-1].end, turn.speaker)
