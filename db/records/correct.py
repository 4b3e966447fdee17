"""Edits by users: corrections, tags, comments, completed tasks. Each is one transaction that locks the call's row."""

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
from db.records import corrections
from db.records.corrections import CallEdit, EditedCall, Editor
from db.records.workspace_answers import machine_answers
from db.workspace import access_log
from db.workspace.questions import definition_of
from pipeline.domain.edits import EXACT, NOTES, OTHER_PARTY, Anchor, EditKind, EditState
from pipeline.domain.overrides import AnswerAnchor, anchor_of, refusal, shown_answer
from pipeline.domain.speech import text_of

MAX_EDITS = 2_000  # of a call, including undone ones


class EditRefused(Exception):
    """The edit is rejected."""


class NotFound(EditRefused):
    """No such call, edit or task is visible to this writer."""


class NoTranscript(EditRefused):
    """The call has no transcript of its present recording."""


class InvalidEdit(EditRefused):
    """The value of `field` is invalid."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class IdUsed(EditRefused):
    """Another edit of the call has this id."""


class EditLimitExceeded(EditRefused):
    """The call has `MAX_EDITS` edits."""


@dataclass(frozen=True, slots=True)
class Current:
    """The present value at the place of an edit: words and speaker of a turn, or the value of a field."""

    value: str | bool | None
    turn: int | None = None
    start: float | None = None
    end: float | None = None
    speaker: str | None = None


class EditConflict(EditRefused):
    """The present value is not the edit's `old`; None: there is none."""

    def __init__(self, current: Current | None) -> None:
        super().__init__("the value has changed in the meantime")
        self.current = current


@dataclass(frozen=True, slots=True)
class WantedEdit:
    """A requested edit. `turn`, `start`, `end`: of words or a turn, as displayed now."""

    kind: EditKind
    old: str | bool | None
    new: str | bool | None
    turn: int = -1
    start: float = 0.0
    end: float = 0.0
    edit_id: UUID | None = None
    question: str | None = None  # the key of the answered question
    comment: str | None = None


def tag_of(text: str) -> str:
    """Return a tag as it is stored and searched: lower case, with single spaces."""
    return " ".join(text.lower().split())


@dataclass(frozen=True, slots=True)
class EditResult:
    """An edit, and whether this request created it; False: an equal one exists."""

    edit: CallEdit
    created: bool


async def make(database: Database, writer: Reader, editor: Editor, call_id: UUID, edit: WantedEdit) -> EditResult:
    """Store an edit of a call. Raises a subclass of `EditRefused`; then nothing has changed."""
    return (await make_all(database, writer, editor, call_id, [edit]))[0]


async def make_all(
    database: Database, writer: Reader, editor: Editor, call_id: UUID, requested: list[WantedEdit]
) -> list[EditResult]:
    """Store several edits of a call, or none of them."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        results = [await _make(connection, call_pk, editor, edit) for edit in requested]
        if any(created for _, created in results):
            await _changed(connection, call_pk, editor)
        shown = {edit.edit_id: edit for edit in (await _edited(connection, call_pk)).edits}
        return [EditResult(shown[edit_id], created) for edit_id, created in results]


async def undo(database: Database, writer: Reader, editor: Editor, call_id: UUID, edit_id: UUID) -> CallEdit:
    """Undo an edit of any user; idempotent. Raises `NotFound`."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        query = sa.select(edits).where(edits.c.call_pk == call_pk, edits.c.edit_id == edit_id)
        row = (await connection.execute(query)).one_or_none()
        if row is None or row.kind not in corrections.SUPPORTED_KINDS:
            raise NotFound
        if await corrections.mark_undone(connection, call_pk, editor, edits.c.edit_id == edit_id):
            if row.kind == EditKind.TASK:
                await _unmark(connection, call_pk, row.task_id)
            await _changed(connection, call_pk, editor)
        edited = await _edited(connection, call_pk)
        return next(edit for edit in edited.edits if edit.edit_id == edit_id)


@dataclass(frozen=True, slots=True)
class TaskMark:
    """Whether a task is done, since when, and by whom."""

    task_id: UUID
    done_at: datetime | None
    done_by: str | None


async def tick(database: Database, writer: Reader, editor: Editor, call_id: UUID, task_id: UUID) -> TaskMark:
    """Complete a task; idempotent. Raises `NotFound` if the call has no such task."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        query = sa.select(tasks.c.title, tasks.c.evidence).where(tasks.c.call_pk == call_pk, TASK_ID.in_([task_id]))
        if (await connection.execute(query)).first() is None or await _present_transcript(connection, call_pk) is None:
            raise NotFound
        name = await corrections.name_of(connection, editor)
        mark = insert(task_marks).values(call_pk=call_pk, task_id=task_id, done_by=name).on_conflict_do_nothing()
        if (await connection.execute(mark.returning(task_marks.c.task_id))).first() is not None:
            await _count(connection, call_pk)
            await corrections.insert_edit(connection, call_pk, editor, EditKind.TASK, False, True, task_id=task_id)
            await _changed(connection, call_pk, editor)
        marked = await connection.execute(sa.select(task_marks).where(*_mark(call_pk, task_id)))
        row = marked.one()
        return TaskMark(task_id, row.done_at, row.done_by)


async def untick(database: Database, writer: Reader, editor: Editor, call_id: UUID, task_id: UUID) -> TaskMark:
    """Reopen a task. Raises `NotFound` if the call neither has nor had such a task."""
    async with _locked(database, writer, call_id) as (connection, call_pk):
        ticked = await _unmark(connection, call_pk, task_id)
        if ticked:
            await corrections.mark_undone(connection, call_pk, editor, edits.c.task_id == task_id)
            await _changed(connection, call_pk, editor)
            return TaskMark(task_id, None, None)
        is_present = sa.select(1).where(tasks.c.call_pk == call_pk, TASK_ID.in_([task_id]))
        was_present = sa.select(1).where(edits.c.call_pk == call_pk, edits.c.task_id == task_id)
        if not await connection.scalar(sa.select(sa.or_(sa.exists(is_present), sa.exists(was_present)))):
            raise NotFound
        return TaskMark(task_id, None, None)


def _mark(call_pk: int, task_id: UUID) -> tuple[sa.ColumnElement[bool], ...]:
    return task_marks.c.call_pk == call_pk, task_marks.c.task_id == task_id


async def _unmark(connection: AsyncConnection, call_pk: int, task_id: UUID) -> int:
    return (await connection.execute(sa.delete(task_marks).where(*_mark(call_pk, task_id)))).rowcount


async def list_edits(database: Database, reader: Reader, call_id: UUID) -> tuple[CallEdit, ...]:
    """Return all edits of a call, undone ones too, in the order of their creation. Raises `NotFound`."""
    async with database.transaction(reader, snapshot=True) as connection:
        call_pk = await connection.scalar(sa.select(calls.c.id).where(calls.c.call_id == call_id))
        if call_pk is None:
            raise NotFound
        return (await _edited(connection, call_pk)).edits


@asynccontextmanager
async def _locked(database: Database, writer: Reader, call_id: UUID) -> AsyncIterator[tuple[AsyncConnection, int]]:
    """Open a transaction that locks the call, so that writers of one call take turns. Raises `NotFound`."""
    async with database.transaction(writer) as connection:
        query = sa.select(calls.c.id).where(calls.c.call_id == call_id).with_for_update(key_share=True)
        call_pk = await connection.scalar(query)
        if call_pk is None:
            raise NotFound
        yield connection, call_pk


async def _changed(connection: AsyncConnection, call_pk: int, editor: Editor) -> None:
    """Log the change, update the times of change for streams and lists, and apply the edits."""
    now = sa.func.greatest(sa.func.clock_timestamp(), calls.c.updated_at + sa.text("interval '1 us'"))
    changed = sa.update(calls).where(calls.c.id == call_pk).values(updated_at=now, edited_at=now)
    row = (await connection.execute(changed.returning(calls.c.workspace_id, calls.c.call_id))).one()
    who = (editor.key_id or editor.session_id, editor.name or "")
    await access_log.note_change(connection, row.workspace_id, row.call_id, "correction", *who)
    await corrections.follow(connection, call_pk)


async def _present_transcript(connection: AsyncConnection, call_pk: int) -> Any:
    return await connection.scalar(sa.select(calls.c.id).join(transcripts, PRESENT).where(calls.c.id == call_pk))


async def _edited(connection: AsyncConnection, call_pk: int) -> EditedCall:
    return await corrections.load(connection, call_pk, await corrections.machine_transcript(connection, call_pk))


async def _count(connection: AsyncConnection, call_pk: int) -> None:
    count = await connection.scalar(sa.select(sa.func.count()).where(edits.c.call_pk == call_pk))
    if (count or 0) >= MAX_EDITS:
        raise EditLimitExceeded


async def _make(connection: AsyncConnection, call_pk: int, editor: Editor, requested: WantedEdit) -> tuple[UUID, bool]:
    edited = await _edited(connection, call_pk)
    if (same := _same_id(edited, requested) or _same_tag(edited, requested)) is not None:
        return same, False
    try:
        machine_value, anchor = await _place(connection, call_pk, edited, requested)
    except EditConflict:
        if (same := _repeated(edited, editor, requested)) is not None:
            return same, False
        raise
    await _count(connection, call_pk)
    args = (requested.kind, machine_value, requested.new, anchor, requested.edit_id)
    return await corrections.insert_edit(connection, call_pk, editor, *args, comment=requested.comment), True


def _same_id(edited: EditedCall, requested: WantedEdit) -> UUID | None:
    """Return the edit with the id of this request. Raises `IdUsed` if it differs."""
    for edit in edited.edits:
        if requested.edit_id is not None and edit.edit_id == requested.edit_id:
            stored = (edit.kind, edit.person, edit.question, edit.comment)
            if stored != (requested.kind, requested.new, requested.question, requested.comment):
                raise IdUsed
            return edit.edit_id
    return None


def _same_tag(edited: EditedCall, requested: WantedEdit) -> UUID | None:
    for edit in edited.edits:
        is_same = edit.kind is requested.kind is EditKind.TAG and edit.person == requested.new
        if is_same and edit.state is EditState.APPLIED:
            return edit.edit_id
    return None


def _repeated(edited: EditedCall, editor: Editor, requested: WantedEdit) -> UUID | None:
    """Return the edit of an equal earlier request by the same writer, whose response may have been lost."""
    for edit in reversed(edited.edits):
        is_same_writer = (edit.key_id, edit.session_id) == (editor.key_id, editor.session_id)
        is_same_edit = (edit.kind, edit.person, edit.question) == (requested.kind, requested.new, requested.question)
        if edit.state is EditState.APPLIED and is_same_writer and is_same_edit:
            at_words = requested.kind in (EditKind.TEXT, EditKind.SPEAKER)
            if not at_words or (edit.turn == requested.turn and edit.start is not None and _is_at(edit, requested)):
                return edit.edit_id
    return None


def _is_at(edit: CallEdit, requested: WantedEdit) -> bool:
    return abs((edit.start or 0.0) - requested.start) <= EXACT and abs((edit.end or 0.0) - requested.end) <= EXACT


async def _place(
    connection: AsyncConnection, call_pk: int, edited: EditedCall, requested: WantedEdit
) -> tuple[str | bool | None, Anchor | AnswerAnchor | None]:
    """Return the machine's value and anchor of an edit. Raises `EditConflict`, `NoTranscript`, `InvalidEdit`."""
    if requested.kind in NOTES:
        return None, None
    if requested.kind is EditKind.ANSWER:
        return await _answer(connection, call_pk, edited, requested)
    if requested.kind is EditKind.AGENT:
        _guard(corrections.as_text(edited.agent), requested.old)
        await _require(connection, members.c.user_id, requested.new, "No such member is visible to this key.")
        return corrections.as_text(edited.machine_agent), None
    if requested.kind is EditKind.CONTACT:
        machine = await corrections.machine_contact(connection, call_pk)
        current = edited.contact_id if edited.contact_set else machine
        _guard(corrections.as_text(current), requested.old)
        await _require(connection, contacts.c.id, requested.new, "No such contact is visible to this key.")
        return corrections.as_text(machine), None
    if edited.corrected is None:
        raise NoTranscript
    if requested.kind is EditKind.ROLES:
        _guard(edited.swapped, requested.old)
        anchor = edited.corrected.roles_anchor()
        if anchor is None:
            raise InvalidEdit(
                "kind", "The parties of this call are not identified: assign the speaker of each turn instead."
            )
        return False, anchor
    return _in_turn(edited, requested)


async def _answer(
    connection: AsyncConnection, call_pk: int, edited: EditedCall, requested: WantedEdit
) -> tuple[str | None, AnswerAnchor]:
    """Return the machine's answer, and the question. Raises `EditConflict`, `InvalidEdit`."""
    if not await _present_transcript(connection, call_pk):
        raise NoTranscript
    answers = await machine_answers(connection, call_pk)
    machine = answers.by_key().get(requested.question or "")
    if machine is None:
        raise InvalidEdit("question", "The call has no answer to this question.")
    _guard(shown_answer(answers.with_overrides(edited.overrides).by_key()[machine.key]), requested.old)
    anchor, new = anchor_of(machine), None if requested.new is None else str(requested.new)
    question = await definition_of(connection, call_pk, machine.key, machine.version)
    if (problem := refusal(anchor.type, question, new)) is not None:
        raise InvalidEdit("new", problem)
    return shown_answer(machine), anchor


def _guard(current: str | bool | None, old: str | bool | None) -> None:
    if current != old:
        raise EditConflict(Current(current))


async def _require(connection: AsyncConnection, column: Any, value: Any, sentence: str) -> None:
    if value is not None and await connection.scalar(sa.select(column).where(column == UUID(value))) is None:
        raise InvalidEdit("new", sentence)


def _in_turn(edited: EditedCall, requested: WantedEdit) -> tuple[str, Anchor]:
    """Return the machine's value and anchor of words, or of a whole turn and its speaker."""
    corrected = edited.corrected
    assert corrected is not None
    words = corrected.words_at(requested.turn, requested.start, requested.end)
    turns = corrected.transcript.turns
    if words is None:
        raise EditConflict(_current_at(edited, requested))
    turn = turns[requested.turn]
    words_of_edit = turn.words[words[0] : words[1] + 1]
    current = Current(
        text_of(words_of_edit), requested.turn, words_of_edit[0].start, words_of_edit[-1].end, turn.speaker
    )
    if requested.kind is EditKind.TEXT:
        if str(current.value).split() != str(requested.old).split():
            raise EditConflict(current)
        anchor = corrected.text_anchor(requested.turn, *words)
        return anchor.text, anchor
    if turn.speaker != requested.old or len(words_of_edit) != len(turn.words):
        raise EditConflict(Current(turn.speaker, requested.turn, turn.words[0].start, turn.words[-1].end, turn.speaker))
    labels = {speaker.label for speaker in corrected.transcript.speakers}
    if requested.new not in labels and requested.new not in OTHER_PARTY:
        raise InvalidEdit("new", f"The speaker must be one of: {', '.join(sorted(labels | OTHER_PARTY.keys()))}.")
    return corrected.machine.turns[requested.turn].speaker, corrected.turn_anchor(requested.turn)


def _current_at(edited: EditedCall, requested: WantedEdit) -> Current | None:
    """Return the whole words of the turn that overlap the seconds of an edit."""
    corrected = edited.corrected
    if corrected is None or not 0 <= requested.turn < len(corrected.transcript.turns):
        return None
    turn = corrected.transcript.turns[requested.turn]
    words = [word for word in turn.words if word.start < requested.end and word.end > requested.start]
    if not words:
        return None
    return Current(text_of(words), requested.turn, words[0].start, words[-1].end, turn.speaker)
