"""Users' corrections: stored next to the machine's values, undone, and applied when calls are read.

`edits` has the edits, `corrections` their result: `pipeline.domain.edits` is the rule.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.off_loop import off_loop, words_of
from db.core.tables import (
    PRESENT,
    api_keys,
    call_contacts,
    call_search,
    calls,
    contacts,
    corrections,
    edits,
    transcripts,
)
from db.records import write
from db.records.workspace_answers import WorkspaceAnswers, machine_answers
from db.secrets import call_keys
from db.secrets.call_keys import CallKeys
from pipeline.domain.call import FIELDS as CALL_FIELDS
from pipeline.domain.edits import (
    NOTES,
    Anchor,
    Corrected,
    Edit,
    EditKind,
    EditState,
    EditStatus,
    Fields,
    assigned,
    correct,
)
from pipeline.domain.overrides import AnswerAnchor, anchor_of
from pipeline.domain.speech import Transcript
from pipeline.domain.vocabulary import CallWarning
from pipeline.record_texts import warning_text

SUPPORTED_KINDS = frozenset(map(str, EditKind))  # a node of a later version may write others
_ANCHOR = TypeAdapter(Anchor)
_TRANSCRIPT = TypeAdapter(Transcript)


@dataclass(frozen=True, slots=True)
class Editor:
    """The writer: a key, a session, or a session that a key opened."""

    key_id: UUID | None
    session_id: UUID | None = None
    name: str | None = None  # None: the key's


@dataclass(frozen=True, slots=True)
class CallEdit:
    """An edit for display. `machine` is the machine's value at the time of the edit, `person` the user's: words, a
    speaker's label, whether the parties are swapped, an id, whether a task is done, an answer.

    `question`: the key of the question; `comment`: the reason for another answer. `turn`: its present position.
    `start`, `end`: seconds; `channel`: of the machine's layout.
    """

    edit_id: UUID
    kind: EditKind
    state: EditState
    machine: str | bool | None
    person: str | bool | None
    turn: int | None
    channel: int | None
    start: float | None
    end: float | None
    task_id: UUID | None
    made_at: datetime
    made_by: str
    key_id: UUID | None
    session_id: UUID | None
    undone_at: datetime | None
    undone_by: str | None
    question: str | None = None
    comment: str | None = None


@dataclass(frozen=True)
class EditedCall:
    """A call with its edits applied. `transcript` is None if it has none of its present recording."""

    edits: tuple[CallEdit, ...]
    standings: dict[UUID, EditStatus]
    corrected: Corrected | None
    agent_set: bool
    user_id: UUID | None  # with `agent_set`: the member chosen by a user
    contact_set: bool
    contact_id: UUID | None
    machine_agent: UUID | None
    overrides: Mapping[str, str | None] = field(default_factory=dict)  # users' answers, by the question's key
    has_unsupported: bool = False  # edits of kinds of a later version, which are kept but not applied here

    @property
    def transcript(self) -> Transcript | None:
        """The transcript with users' corrections."""
        if self.corrected is None:
            return None
        transcript = self.corrected.transcript
        return assigned(transcript, as_text(self.user_id)) if self.agent_set else transcript

    @property
    def swapped(self) -> bool:
        return self.corrected is not None and self.corrected.swapped

    @property
    def fields(self) -> Fields:
        """Corrections that apply to tasks and findings."""
        return fields_of(self.swapped, self.agent_set, self.user_id, self.machine_agent)

    @property
    def agent(self) -> UUID | None:
        """The agent after corrections."""
        return self.user_id if self.agent_set else self.machine_agent


def fields_of(swapped: bool | None, agent_set: bool | None, user_id: UUID | None, machine_agent: UUID | None) -> Fields:
    """Return the corrections of a whole call from rows of `corrections`, `calls` and `call_search`."""
    return Fields(bool(swapped), bool(agent_set), as_text(user_id), as_text(machine_agent))


def as_text(id_: UUID | None) -> str | None:
    return None if id_ is None else str(id_)


async def load(connection: AsyncConnection, call_pk: int, transcript: Transcript | None) -> EditedCall:
    """Return a call with its edits applied to the machine's transcript."""
    return (await load_all(connection, {call_pk: transcript}))[call_pk]


@dataclass(frozen=True, slots=True)
class EditRows:
    """What the edits of a call are applied from, besides its transcript. Can be pickled."""

    rows: tuple[Any, ...] = ()  # of `edits`, in the order of their creation
    agent: UUID | None = None  # of the machine, or as submitted
    answers: WorkspaceAnswers = field(default_factory=WorkspaceAnswers)
    has_unsupported: bool = False

    def applied_to(self, transcript: Transcript | None) -> EditedCall:
        """Return the call with its edits; takes milliseconds for an hour of talk."""
        edited = _applied(self.rows, transcript, self.agent, self.answers)
        return replace(edited, has_unsupported=self.has_unsupported)


async def load_all(connection: AsyncConnection, machine: dict[int, Transcript | None]) -> dict[int, EditedCall]:
    """Return several calls as `load` does, by the row's id."""
    stored = await edit_rows(connection, list(machine))
    words = sum(map(words_of, machine.values()))
    return {pk: await off_loop(words, stored[pk].applied_to, transcript) for pk, transcript in machine.items()}


async def edit_rows(connection: AsyncConnection, call_pks: Sequence[int]) -> dict[int, EditRows]:
    """Return what the edits of calls are applied from, by the row's id."""
    stored_rows = await connection.execute(
        sa.select(edits).where(edits.c.call_pk.in_(call_pks)).order_by(edits.c.call_pk, edits.c.position)
    )
    of_call: dict[int, list[Any]] = {call_pk: [] for call_pk in call_pks}
    unsupported: set[int] = set()
    for row in stored_rows:
        if row.kind in SUPPORTED_KINDS:
            of_call[row.call_pk].append(row)
        elif row.undone_at is None:
            unsupported.add(row.call_pk)
    agents = await connection.execute(
        sa.select(calls.c.id, sa.func.coalesce(calls.c.user_id, call_search.c.user_id).label("agent"))
        .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
        .where(calls.c.id.in_(call_pks))
    )
    agent = {row.id: row.agent for row in agents}
    answered = [pk for pk, rows in of_call.items() if any(row.kind == EditKind.ANSWER for row in rows)]
    answers_of_call = {pk: await machine_answers(connection, pk) for pk in answered}
    return {
        pk: EditRows(tuple(rows), agent.get(pk), answers_of_call.get(pk, WorkspaceAnswers()), pk in unsupported)
        for pk, rows in of_call.items()
    }


def _answered(rows: Sequence[Any], answers: WorkspaceAnswers) -> tuple[dict[UUID, EditStatus], dict[str, str | None]]:
    """Return the states of edits of answers, and the effective answers."""
    anchors = {key: anchor_of(answer) for key, answer in answers.by_key().items()}
    standings: dict[UUID, EditStatus] = {}
    latest: dict[str, Any] = {}
    for row in rows:
        anchor = AnswerAnchor(**row.anchor)
        state = EditState.UNDONE if row.undone_at else EditState.APPLIED
        if state is EditState.APPLIED and anchors.get(anchor.question) != anchor:
            state = EditState.NOT_APPLIED
        if state is EditState.APPLIED:
            if (earlier := latest.get(anchor.question)) is not None:
                standings[earlier.edit_id] = EditStatus(EditState.SUPERSEDED)
            latest[anchor.question] = row
        standings[row.edit_id] = EditStatus(state)
    return standings, {key: row.after for key, row in latest.items()}


def _applied(
    rows: Sequence[Any], transcript: Transcript | None, agent: UUID | None, answers: WorkspaceAnswers
) -> EditedCall:
    applied_edits = [_edit(row) for row in rows if row.kind != EditKind.ANSWER]
    corrected = None if transcript is None else correct(transcript, applied_edits)
    standings = dict(corrected.standings) if corrected else {edit.edit_id: _without(edit) for edit in applied_edits}
    of_answers, overrides = _answered([row for row in rows if row.kind == EditKind.ANSWER], answers)
    standings |= of_answers
    latest = {row.kind: row for row in rows if row.undone_at is None}
    agent_edit, contact_edit = latest.get("agent"), latest.get("contact")
    return EditedCall(
        edits=tuple(_shown(row, standings[row.edit_id]) for row in rows),
        standings=standings,
        corrected=corrected,
        agent_set=agent_edit is not None,
        user_id=_id(agent_edit),
        contact_set=contact_edit is not None,
        contact_id=_id(contact_edit),
        machine_agent=agent,
        overrides=overrides,
    )


def _edit(row: Any) -> Edit:
    anchor = None if row.anchor is None else _ANCHOR.validate_python(row.anchor)
    return Edit(row.edit_id, EditKind(row.kind), row.before, row.after, anchor, row.undone_at is not None, row.task_id)


def _without(edit: Edit) -> EditStatus:
    if edit.undone:
        return EditStatus(EditState.UNDONE)
    whole = edit.kind in (EditKind.AGENT, EditKind.CONTACT, *NOTES)
    return EditStatus(EditState.APPLIED if whole else EditState.NOT_APPLIED)


def _id(row: Any) -> UUID | None:
    return UUID(row.after) if row is not None and row.after else None


def _shown(row: Any, standing: EditStatus) -> CallEdit:
    anchor = row.anchor or {}
    copied = ("edit_id", "task_id", "made_at", "made_by", "key_id", "session_id", "undone_at", "undone_by", "comment")
    return CallEdit(
        kind=EditKind(row.kind),
        state=standing.state,
        machine=row.before,
        person=row.after,
        turn=standing.turn,
        channel=anchor.get("channel"),
        start=anchor.get("start"),
        end=anchor.get("end"),
        question=anchor.get("question"),
        **{name: getattr(row, name) for name in copied},
    )


async def insert_edit(
    connection: AsyncConnection,
    call_pk: int,
    editor: Editor,
    kind: EditKind,
    before: Any,
    after: Any,
    anchor: Anchor | AnswerAnchor | None = None,
    edit_id: UUID | None = None,
    task_id: UUID | None = None,
    comment: str | None = None,
) -> UUID:
    edit_id = edit_id or uuid4()
    values = {
        "call_pk": call_pk,
        "edit_id": edit_id,
        "kind": str(kind),
        "anchor": sa.null() if anchor is None else anchor,
        "task_id": task_id,
        "before": before,
        "after": after,
        "comment": comment,
        "made_by": await name_of(connection, editor),
        "key_id": editor.key_id,
        "session_id": editor.session_id,
    }
    await connection.execute(sa.insert(edits).values(**values))
    return edit_id


async def name_of(connection: AsyncConnection, editor: Editor) -> str:
    """Return a writer's name: the session's, or the key's."""
    if editor.name is not None:
        return editor.name
    name = await connection.scalar(sa.select(api_keys.c.name).where(api_keys.c.id == editor.key_id))
    return str(name or "")


async def mark_undone(
    connection: AsyncConnection, call_pk: int, editor: Editor, *conditions: sa.ColumnElement[bool]
) -> int:
    """Undo active edits of a call; return how many."""
    values = {
        "undone_at": sa.func.clock_timestamp(),
        "undone_by": await name_of(connection, editor),
        "undone_key_id": editor.key_id,
        "undone_session_id": editor.session_id,
    }
    live = (edits.c.call_pk == call_pk, edits.c.undone_at.is_(None))
    return (await connection.execute(sa.update(edits).where(*live, *conditions).values(values))).rowcount


async def machine_transcript(connection: AsyncConnection, call_pk: int) -> Transcript | None:
    """Return the machine's transcript of the call's present recording."""
    stored = call_keys.readable(transcripts.c.content, transcripts.c.call_pk)
    query = sa.select(stored).select_from(transcripts).join(calls, PRESENT).where(calls.c.id == call_pk)
    return await asyncio.to_thread(_opened, call_keys.of(connection), await connection.scalar(query))


def _opened(keys: CallKeys, stored: Any) -> Transcript | None:
    content = keys.open(stored)
    return None if content is None else _TRANSCRIPT.validate_python(content)


async def machine_contact(connection: AsyncConnection, call_pk: int) -> UUID | None:
    """Return the contact that the analysis linked."""
    query = sa.select(contacts.c.id).join(call_contacts, call_contacts.c.contact_id == contacts.c.id)
    contact_id: UUID | None = await connection.scalar(
        query.where(call_contacts.c.call_pk == call_pk).order_by(contacts.c.name).limit(1)
    )
    return contact_id


async def follow(connection: AsyncConnection, call_pk: int, reindex: bool = True) -> None:
    """Store the result of a call's edits on its present transcript, in the transaction that changes either.

    `reindex`: also update the search index; `complete` does so anyway.
    """
    if not await connection.scalar(sa.select(sa.exists().where(edits.c.call_pk == call_pk))):
        return
    machine = await machine_transcript(connection, call_pk)
    edited = await load(connection, call_pk, machine)
    live = [edit for edit in edited.edits if edit.state is not EditState.UNDONE]
    if live or edited.has_unsupported:
        await _write(connection, call_pk, edited, sum(edit.kind not in (EditKind.TASK, *NOTES) for edit in live))
    else:
        await connection.execute(sa.delete(corrections).where(corrections.c.call_pk == call_pk))
    if reindex:
        await write.give_talk(connection, call_pk, machine)
        # The index includes names of members of other teams, whichever team's key wrote; it reveals none of them.
        await connection.execute(sa.text("SELECT set_config('switchboard.team', '', true)"))
        await connection.execute(sa.select(sa.func.index_call(call_pk)))


async def _write(connection: AsyncConnection, call_pk: int, edited: EditedCall, count: int) -> None:
    corrected = edited.corrected
    changed = corrected is not None and corrected.transcript.turns != corrected.machine.turns
    existing = sa.select(contacts.c.id).where(contacts.c.id == edited.contact_id)
    written_at = sa.select(transcripts.c.written_at).where(transcripts.c.call_pk == call_pk).scalar_subquery()
    values = {
        "edits": count,
        "agent_set": edited.agent_set,
        "user_id": edited.user_id,
        "contact_set": edited.contact_set,
        "contact_id": await connection.scalar(existing) if edited.contact_id else None,
        "swapped": edited.swapped,
        "turns": corrected.transcript.turns if corrected and changed else sa.null(),
        "written_at": written_at if changed else None,
        "answers": sa.null(),
    }
    if edited.overrides:
        values["answers"] = (await machine_answers(connection, call_pk)).with_overrides(edited.overrides)
    workspace = sa.select(calls.c.workspace_id).where(calls.c.id == call_pk).scalar_subquery()
    await connection.execute(
        insert(corrections)
        .values(call_pk=call_pk, workspace_id=workspace, **values)
        .on_conflict_do_update(index_elements=["call_pk"], set_=values)
    )


_BODY_FIELDS = tuple(to_camel(name.removesuffix("_number")) for name in CALL_FIELDS if name != "call_id")


def reversion_warnings(submitted: Iterable[tuple[datetime, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Return a warning for each submission that reverted fields to an earlier value, which they still have.

    `submitted`: the time and body of each submission, in order. Submissions apply in order of arrival, so a late older
    body overwrites newer values. The warnings contain no values: addresses may be signed.
    """
    reverted: dict[str, datetime | None] = {}
    values_of_field: dict[str, list[Any]] = {}
    for at, body in submitted:
        for name in _BODY_FIELDS:
            value = body.get(name)
            earlier = values_of_field.setdefault(name, [])
            if value is None or (earlier and earlier[-1] == value):
                continue  # absent or unchanged
            reverted[name] = at if value in earlier else None
            earlier.append(value)
    moments: dict[datetime, list[str]] = {}
    for name, moment in reverted.items():
        if moment is not None:
            moments.setdefault(moment, []).append(name)
    return tuple(_reversion_warning(at, fields) for at, fields in sorted(moments.items()))


def _reversion_warning(at: datetime, fields: list[str]) -> str:
    when = at.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")
    return warning_text(CallWarning.FIELDS_REVERTED, time=when, fields=", ".join(fields))
