"""What people correct: written beside what the machine said, undone, and applied where calls are read.

`edits` has what was said, `corrections` what it comes to: `pipeline.domain.edits` is the rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.tables import (
    PRESENT,
    api_keys,
    call_contacts,
    call_search,
    calls,
    contacts,
    corrections,
    edits,
    findings,
    members,
    transcripts,
)
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.edits import Anchor, Corrected, Edit, EditKind, EditState, EditStatus, Fields, assigned, correct
from pipeline.domain.overrides import AnswerAnchor, anchor_of, overridden
from pipeline.domain.scorecards import ScorecardResult, rescored
from pipeline.domain.speech import Transcript

KNOWN = frozenset(map(str, EditKind))  # what a node of a later version wrote may be of another kind
_ANCHOR = TypeAdapter(Anchor)
_TRANSCRIPT = TypeAdapter(Transcript)
_ANSWERS = TypeAdapter(tuple[QuestionAnswer, ...])
_TRACKERS = TypeAdapter(tuple[TrackerResult, ...])
_SCORECARDS = TypeAdapter(tuple[ScorecardResult, ...])


@dataclass(frozen=True, slots=True)
class OwnAnswers:
    """What a call says to its workspace's questions, and what that comes to."""

    answers: tuple[QuestionAnswer, ...] = ()
    trackers: tuple[TrackerResult, ...] = ()
    scorecards: tuple[ScorecardResult, ...] = ()

    def by_key(self) -> "dict[str, QuestionAnswer | TrackerResult]":
        """Answers and trackers."""
        found: dict[str, QuestionAnswer | TrackerResult] = {one.key: one for one in self.answers}
        return found | {one.key: one for one in self.trackers}

    def with_overrides(self, overrides: "Mapping[str, str | None]") -> "OwnAnswers":
        """The same as people said; the scores follow."""
        if not overrides:
            return self
        answers = tuple(overridden(one, overrides) for one in self.answers)
        trackers = tuple(overridden(one, overrides) for one in self.trackers)
        return OwnAnswers(answers, trackers, tuple(rescored(one, answers, trackers) for one in self.scorecards))


def own_answers(held: "Mapping[str, Any]") -> OwnAnswers:
    """As the step wrote them; none where another version wrote them otherwise: the finding has them."""

    def read(adapter: TypeAdapter[Any], name: str) -> Any:
        try:
            return adapter.validate_python(held.get(name, ()))
        except ValidationError:
            return ()

    return OwnAnswers(read(_ANSWERS, "answers"), read(_TRACKERS, "trackers"), read(_SCORECARDS, "scorecards"))


@dataclass(frozen=True, slots=True)
class Editor:
    """Who writes: a key, a session, or a session that a key opened."""

    key_id: UUID | None
    session_id: UUID | None = None
    name: str | None = None  # None: the key's


@dataclass(frozen=True, slots=True)
class CallEdit:
    """An edit as it may be shown. `machine` is what the machine had said when it was made, `person` what the person
    says instead: words, a speaker's label, whether the parties are swapped, an id, whether a task is done, an answer.

    `question`: the key of the question, `comment`: why it is answered otherwise. `turn`: where it stands now.
    `start`, `end`: seconds; `channel`: of the layout as the machine has it.
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
    """The edits of a call, applied. `transcript` is None where the call has none of its present recording."""

    edits: tuple[CallEdit, ...]
    standings: dict[UUID, EditStatus]
    corrected: Corrected | None
    agent_set: bool
    user_id: UUID | None  # with `agent_set`: the member whom a person named
    contact_set: bool
    contact_id: UUID | None
    machine_agent: UUID | None
    overrides: Mapping[str, str | None] = field(default_factory=dict)  # answers of people, by the question's key
    others: bool = False  # there are edits of kinds that a later version knows; they are kept, and not applied here

    @property
    def transcript(self) -> Transcript | None:
        """What was said, as people corrected it."""
        if self.corrected is None:
            return None
        made = self.corrected.transcript
        return assigned(made, as_text(self.user_id)) if self.agent_set else made

    @property
    def swapped(self) -> bool:
        """Whether the parties are."""
        return self.corrected is not None and self.corrected.swapped

    @property
    def fields(self) -> Fields:
        """For tasks and findings."""
        return fields_of(self.swapped, self.agent_set, self.user_id, self.machine_agent)

    @property
    def agent(self) -> UUID | None:
        """The member on our side, as it stands."""
        return self.user_id if self.agent_set else self.machine_agent


def fields_of(swapped: bool | None, agent_set: bool | None, user_id: UUID | None, machine_agent: UUID | None) -> Fields:
    """What rows of `corrections`, `calls` and `call_search` say of a call as a whole."""
    return Fields(bool(swapped), bool(agent_set), as_text(user_id), as_text(machine_agent))


def as_text(one: UUID | None) -> str | None:
    """An id as edits hold it."""
    return None if one is None else str(one)


async def load(connection: AsyncConnection, call_pk: int, transcript: Transcript | None) -> EditedCall:
    """The edits of a call, applied to the machine's transcript."""
    return (await load_all(connection, {call_pk: transcript}))[call_pk]


async def load_all(connection: AsyncConnection, machine: dict[int, Transcript | None]) -> dict[int, EditedCall]:
    """The same of several calls, by the row's id."""
    rows = await connection.execute(
        sa.select(edits).where(edits.c.call_pk.in_(machine)).order_by(edits.c.call_pk, edits.c.position)
    )
    of_call: dict[int, list[Any]] = {call_pk: [] for call_pk in machine}
    unknown: set[int] = set()
    for row in rows:
        if row.kind in KNOWN:
            of_call[row.call_pk].append(row)
        elif row.undone_at is None:
            unknown.add(row.call_pk)
    agents = await connection.execute(
        sa.select(calls.c.id, sa.func.coalesce(calls.c.user_id, call_search.c.user_id).label("agent"))
        .outerjoin(call_search, call_search.c.call_pk == calls.c.id)
        .where(calls.c.id.in_(machine))
    )
    agent = {row.id: row.agent for row in agents}
    answered = [pk for pk, made in of_call.items() if any(row.kind == EditKind.ANSWER for row in made)]
    own = {pk: await machine_answers(connection, pk) for pk in answered}
    return {
        pk: replace(_applied(of_call[pk], transcript, agent.get(pk), own.get(pk, OwnAnswers())), others=pk in unknown)
        for pk, transcript in machine.items()
    }


async def machine_answers(connection: AsyncConnection, call_pk: int) -> OwnAnswers:
    """What the machine found to the questions of the workspace."""
    query = sa.select(findings.c.value).where(findings.c.call_pk == call_pk, findings.c.step == "questions")
    return own_answers(await connection.scalar(query.order_by(findings.c.version.desc()).limit(1)) or {})


def _answered(rows: Sequence[Any], own: OwnAnswers) -> tuple[dict[UUID, EditStatus], dict[str, str | None]]:
    """What became of edits of answers, and the answers that count."""
    asked = {key: anchor_of(one) for key, one in own.by_key().items()}
    standings: dict[UUID, EditStatus] = {}
    latest: dict[str, Any] = {}
    for row in rows:
        anchor = AnswerAnchor(**row.anchor)
        state = EditState.UNDONE if row.undone_at else EditState.APPLIED
        if state is EditState.APPLIED and asked.get(anchor.question) != anchor:
            state = EditState.NOT_APPLIED
        if state is EditState.APPLIED:
            if (earlier := latest.get(anchor.question)) is not None:
                standings[earlier.edit_id] = EditStatus(EditState.SUPERSEDED)
            latest[anchor.question] = row
        standings[row.edit_id] = EditStatus(state)
    return standings, {key: row.after for key, row in latest.items()}


def _applied(rows: Sequence[Any], transcript: Transcript | None, agent: UUID | None, own: OwnAnswers) -> EditedCall:
    made = [_edit(row) for row in rows if row.kind != EditKind.ANSWER]
    corrected = None if transcript is None else correct(transcript, made)
    standings = dict(corrected.standings) if corrected else {one.edit_id: _without(one) for one in made}
    of_answers, overrides = _answered([row for row in rows if row.kind == EditKind.ANSWER], own)
    standings |= of_answers
    latest = {row.kind: row for row in rows if row.undone_at is None}
    named, linked = latest.get("agent"), latest.get("contact")
    return EditedCall(
        edits=tuple(_shown(row, standings[row.edit_id]) for row in rows),
        standings=standings,
        corrected=corrected,
        agent_set=named is not None,
        user_id=_id(named),
        contact_set=linked is not None,
        contact_id=_id(linked),
        machine_agent=agent,
        overrides=overrides,
    )


def _edit(row: Any) -> Edit:
    anchor = None if row.anchor is None else _ANCHOR.validate_python(row.anchor)
    return Edit(row.edit_id, EditKind(row.kind), row.before, row.after, anchor, row.undone_at is not None, row.task_id)


def _without(edit: Edit) -> EditStatus:
    """What becomes of an edit of a call that has no transcript now."""
    if edit.undone:
        return EditStatus(EditState.UNDONE)
    whole = edit.kind in (EditKind.AGENT, EditKind.CONTACT)
    return EditStatus(EditState.APPLIED if whole else EditState.NOT_APPLIED)


def _id(row: Any) -> UUID | None:
    return UUID(row.after) if row is not None and row.after else None


def _shown(row: Any, standing: EditStatus) -> CallEdit:
    anchor = row.anchor or {}
    same = ("edit_id", "task_id", "made_at", "made_by", "key_id", "session_id", "undone_at", "undone_by", "comment")
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
        **{name: getattr(row, name) for name in same},
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
    """Keep an edit; returns its id."""
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
    """What a writer is called: as the session is, or the key."""
    if editor.name is not None:
        return editor.name
    found = await connection.scalar(sa.select(api_keys.c.name).where(api_keys.c.id == editor.key_id))
    return str(found or "")


async def mark_undone(connection: AsyncConnection, call_pk: int, editor: Editor, *which: sa.ColumnElement[bool]) -> int:
    """Undo edits of a call that are not yet; returns how many."""
    values = {
        "undone_at": sa.func.clock_timestamp(),
        "undone_by": await name_of(connection, editor),
        "undone_key_id": editor.key_id,
        "undone_session_id": editor.session_id,
    }
    live = (edits.c.call_pk == call_pk, edits.c.undone_at.is_(None))
    return (await connection.execute(sa.update(edits).where(*live, *which).values(values))).rowcount


async def machine_transcript(connection: AsyncConnection, call_pk: int) -> Transcript | None:
    """What the machine heard in the call's present recording."""
    query = sa.select(transcripts.c.content).join(calls, PRESENT).where(calls.c.id == call_pk)
    content = await connection.scalar(query)
    return None if content is None else _TRANSCRIPT.validate_python(content)


async def machine_contact(connection: AsyncConnection, call_pk: int) -> UUID | None:
    """The contact that the analysis linked."""
    query = sa.select(contacts.c.id).join(call_contacts, call_contacts.c.contact_id == contacts.c.id)
    found: UUID | None = await connection.scalar(
        query.where(call_contacts.c.call_pk == call_pk).order_by(contacts.c.name).limit(1)
    )
    return found


async def follow(connection: AsyncConnection, call_pk: int, reindex: bool = True) -> None:
    """Write what the edits of a call come to, as its transcript is now: in the transaction that changes either.

    `reindex`: what it is found by, too; `calls.complete` does so anyway.
    """
    if not await connection.scalar(sa.select(sa.exists().where(edits.c.call_pk == call_pk))):
        return
    found = await load(connection, call_pk, await machine_transcript(connection, call_pk))
    live = [one for one in found.edits if one.state is not EditState.UNDONE]
    if live or found.others:
        await _write(connection, call_pk, found, sum(one.kind is not EditKind.TASK for one in live))
    else:
        await connection.execute(sa.delete(corrections).where(corrections.c.call_pk == call_pk))
    if reindex:
        # Names of members of other teams are found by as well, whichever team's key wrote; nothing of it is told.
        await connection.execute(sa.text("SELECT set_config('switchboard.team', '', true)"))
        await connection.execute(sa.select(sa.func.index_call(call_pk)))


async def _write(connection: AsyncConnection, call_pk: int, found: EditedCall, count: int) -> None:
    corrected = found.corrected
    changed = corrected is not None and corrected.transcript.turns != corrected.machine.turns
    known = sa.select(contacts.c.id).where(contacts.c.id == found.contact_id)
    written_at = sa.select(transcripts.c.written_at).where(transcripts.c.call_pk == call_pk).scalar_subquery()
    values = {
        "edits": count,
        "agent_set": found.agent_set,
        "user_id": found.user_id,
        "contact_set": found.contact_set,
        "contact_id": await connection.scalar(known) if found.contact_id else None,
        "swapped": found.swapped,
        "turns": corrected.transcript.turns if corrected and changed else sa.null(),
        "written_at": written_at if changed else None,
        "answers": sa.null(),
    }
    if found.overrides:
        values["answers"] = (await machine_answers(connection, call_pk)).with_overrides(found.overrides)
    workspace = sa.select(calls.c.workspace_id).where(calls.c.id == call_pk).scalar_subquery()
    await connection.execute(
        insert(corrections)
        .values(call_pk=call_pk, workspace_id=workspace, **values)
        .on_conflict_do_update(index_elements=["call_pk"], set_=values)
    )


# Conditions and columns for lists.

AGENT: sa.ColumnElement[Any] = sa.case(
    (corrections.c.agent_set, corrections.c.user_id), else_=sa.func.coalesce(calls.c.user_id, call_search.c.user_id)
)
"""The member of a call, as it stands; `corrections` and `call_search` are joined."""

EDITS = edits
WITH_EDITS = sa.select(corrections.c.call_pk).where(corrections.c.edits > 0)


def calls_of_member(user_id: UUID) -> Any:
    """Rows' ids of a member's calls, as the sender or the call said unless a person did."""
    corrected = sa.select(corrections.c.call_pk).where(corrections.c.agent_set)
    by_call = sa.select(call_search.c.call_pk).where(
        call_search.c.user_id == user_id, call_search.c.call_pk.not_in(corrected)
    )
    said = sa.select(calls.c.id).where(calls.c.user_id == user_id, calls.c.id.not_in(corrected)).correlate(None)
    named = sa.select(corrections.c.call_pk).where(corrections.c.agent_set, corrections.c.user_id == user_id)
    return sa.union_all(said, by_call, named)


def calls_of_contact(contact_id: Any) -> Any:
    """Rows' ids of the calls with a contact, as the analysis linked it unless a person did."""
    corrected = sa.select(corrections.c.call_pk).where(corrections.c.contact_set)
    linked = sa.select(call_contacts.c.call_pk).where(
        call_contacts.c.contact_id == contact_id, call_contacts.c.call_pk.not_in(corrected)
    )
    named = sa.select(corrections.c.call_pk).where(corrections.c.contact_id == contact_id, corrections.c.contact_set)
    return sa.union_all(linked.correlate(contacts), named.correlate(contacts))


def contact_ids(call_pk: Any) -> Any:
    """The ids of a call's contacts, as they stand; to be correlated."""
    mine = sa.and_(corrections.c.call_pk == call_pk, corrections.c.contact_set)
    other = sa.exists(sa.select(1).where(mine).correlate(calls))
    linked = sa.select(call_contacts.c.contact_id).where(call_contacts.c.call_pk == call_pk, sa.not_(other))
    named = sa.select(corrections.c.contact_id).where(mine)
    return sa.union_all(linked.correlate(calls), named.correlate(calls))


async def member_name(connection: AsyncConnection, workspace_id: UUID, user_id: UUID | None) -> str | None:
    """What a member is called; None: nobody, or not in the directory."""
    if user_id is None:
        return None
    query = sa.select(members.c.name).where(members.c.workspace_id == workspace_id, members.c.user_id == user_id)
    found: str | None = await connection.scalar(query)
    return found
