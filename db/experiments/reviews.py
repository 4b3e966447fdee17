"""Calibrations: reviewers answer the questions of a scorecard on the same calls, each for themselves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Scope
from db.core.rows import read
from db.core.tables import calibration_calls, calibration_reviews, calibrations, calls, findings, transcripts
from db.records.corrections import Editor, machine_answers, name_of, own_answers
from db.workspace import questions
from db.workspace.admin_log import Actor, changing
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.calibration import Agreement, Answers, Disagreement, ReviewedCall, agreement_of
from pipeline.domain.overrides import NOT_APPLICABLE, anchor_of, refusal, shown_answer
from pipeline.domain.questions import Defined, Question, Scorecard

MOST_CALLS = 100  # of a calibration: each is listened to by every reviewer


@dataclass(frozen=True, slots=True)
class CalibrationReviewer:
    """Somebody who reviews. `calls`: of how many something is answered; `handed_in_at`: None: not yet."""

    reviewer: str
    name: str
    calls: int
    handed_in_at: datetime | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """A scorecard, in a version, and calls that reviewers answer it on. `closed_at`: None: reviews are handed in."""

    calibration_id: UUID
    name: str
    scorecard: str  # its key
    version: int
    calls: int
    made_at: datetime
    made_by: str
    closed_at: datetime | None
    reviewers: tuple[CalibrationReviewer, ...]


@dataclass(frozen=True, slots=True)
class CalibrationCall:
    """A call to review, with what this reviewer answered: by key, None: nobody says it."""

    call_id: UUID
    answers: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class ReviewSheet:
    """What a reviewer has to answer, and has answered; nothing of the other reviewers and of the machine."""

    calibration: Calibration
    scorecard: Scorecard
    questions: tuple[Question, ...]
    calls: tuple[CalibrationCall, ...]
    handed_in_at: datetime | None


@dataclass(frozen=True, slots=True)
class CalibrationAgreement:
    """What came of a calibration, by the reviews that are handed in."""

    calibration: Calibration
    agreement: Agreement


class NoSuchCalibration(LookupError):
    """There is no calibration of that name or id."""


class CalibrationRefused(ValueError):
    """What cannot be done with a calibration as it is; the message says why and what to do."""


class CallsUnfit(CalibrationRefused):
    """Calls that no calibration can be of."""


class AnswerUnfit(CalibrationRefused):
    """An answer that the question does not have, or to a question that is not on the scorecard."""


class NotInCalibration(LookupError):
    """The calibration does not have the call."""


async def create(
    database: Database,
    workspace_id: UUID,
    name: str,
    scorecard: str,
    call_ids: Sequence[UUID],
    by: Actor | None = None,
    calibration_id: UUID | None = None,
) -> Calibration:
    """A calibration of completed calls by a scorecard as it is now; the machine's answers are kept as they are now.

    `calibration_id`: an id of the maker's; the same request sent again is answered with what it made. Raises
    `CallsUnfit`, `CalibrationRefused` where the name is taken, and `questions.NoSuchQuestion` for an unknown scorecard.
    """
    wanted = list(dict.fromkeys(call_ids))
    if not 1 <= len(wanted) <= MOST_CALLS:
        raise CallsUnfit(f"A calibration is of 1 to {MOST_CALLS} calls, and these are {len(wanted)}.")
    found = await questions.list_defined(database, workspace_id, workspace_id)
    defined: dict[str, Defined] = {one.key: one for one in map(questions.definition, found)}
    card = defined.get(scorecard)
    if not isinstance(card, Scorecard):
        raise questions.NoSuchQuestion(scorecard)
    asked = {one.question: defined[one.question] for one in card.items}
    versions = {key: one.version for key, one in {card.key: card, **asked}.items()}
    async with changing(database, workspace_id, by) as change:
        for there in await change.run(
            sa.select(calibrations).where(sa.or_(calibrations.c.name == name, calibrations.c.id == calibration_id))
        ):
            if there.id == calibration_id and (there.name, there.scorecard) == (name, scorecard):
                return await _one(change.connection, there.id)
            raise CalibrationRefused(f"There is a calibration {name!r}. Choose another name, or delete that one.")
        pks = await _completed(change.connection, workspace_id, wanted)
        values: dict[str, Any] = {"workspace_id": workspace_id, "name": name, "scorecard": card.key}
        values |= {"versions": versions, "made_by": change.by.name} | ({"id": calibration_id} if calibration_id else {})
        (made,) = await change.run(sa.insert(calibrations).values(**values).returning(calibrations.c.id))
        shared = {"calibration_id": made.id, "workspace_id": workspace_id}
        rows = [
            shared | {"call_pk": pk, "position": at, "machine": await _machine(change.connection, pk, asked.values())}
            for at, pk in enumerate(pks)
        ]
        await change.connection.execute(sa.insert(calibration_calls), rows)
        await change.note("created", "calibration", made.id, name, f"{len(rows)} calls")
        return await _one(change.connection, made.id)


async def list_calibrations(database: Database, scope: Scope) -> list[Calibration]:
    """All that the scope may see, the latest first."""
    async with database.transaction(scope, snapshot=True) as connection:
        query = sa.select(calibrations).order_by(calibrations.c.made_at.desc(), calibrations.c.id)
        return await _read(connection, (await connection.execute(query)).all())


async def sheet(database: Database, scope: Scope, editor: Editor, calibration_id: UUID) -> ReviewSheet:
    """What a reviewer has to answer, and has answered. Raises `NoSuchCalibration`."""
    async with database.transaction(scope, snapshot=True) as connection:
        return await _sheet(connection, editor, calibration_id)


async def answer(
    database: Database, scope: Scope, editor: Editor, calibration_id: UUID, call_id: UUID, answers: Answers
) -> CalibrationCall:
    """Keep a reviewer's answers of one call beside those given before; a key again replaces its answer.

    Raises `NoSuchCalibration`, `NotInCalibration`, `AnswerUnfit`, and `CalibrationRefused` once it is closed or handed
    in.
    """
    async with database.transaction(scope) as connection:
        held = await _hold(connection, calibration_id)
        own = await _sheet(connection, editor, calibration_id)
        _still_open(own)
        now = next((one.answers for one in own.calls if one.call_id == call_id), None)
        if now is None:
            raise NotInCalibration
        _check(own.questions, answers)
        told = {**now, **answers}
        values = {"name": await name_of(connection, editor), "answers": told}
        keys = {"calibration_id": calibration_id, "workspace_id": held.workspace_id, "reviewer": _id(editor)}
        pk = sa.select(calls.c.id).where(calls.c.call_id == call_id).scalar_subquery()
        await connection.execute(
            insert(calibration_reviews)
            .values(call_pk=pk, **keys, **values)
            .on_conflict_do_update(
                index_elements=["calibration_id", "call_pk", "reviewer"],
                set_=values | {"answered_at": sa.func.clock_timestamp()},
            )
        )
        return CalibrationCall(call_id, told)


async def hand_in(database: Database, scope: Scope, editor: Editor, calibration_id: UUID) -> ReviewSheet:
    """From now on a reviewer's answers stay, and the reviewer may see those of others. Handed in again: as it is.

    Raises `NoSuchCalibration`, and `CalibrationRefused` while something is not answered, or once it is closed.
    """
    async with database.transaction(scope) as connection:
        await _hold(connection, calibration_id)
        own = await _sheet(connection, editor, calibration_id)
        if own.handed_in_at is not None:
            return own
        _still_open(own)
        for one in own.calls:
            if left := [asked.key for asked in own.questions if asked.key not in one.answers]:
                raise CalibrationRefused(f"Call {one.call_id} is not answered yet: {', '.join(left)}.")
        await connection.execute(
            sa.update(calibration_reviews)
            .where(
                calibration_reviews.c.calibration_id == calibration_id, calibration_reviews.c.reviewer == _id(editor)
            )
            .values(handed_in_at=sa.func.clock_timestamp())
        )
        return await _sheet(connection, editor, calibration_id)


async def close(database: Database, workspace_id: UUID, calibration_id: UUID, by: Actor | None = None) -> Calibration:
    """Nothing more is handed in, and everybody may see what came of it; closed again: as it is. Raises
    `NoSuchCalibration`."""
    async with changing(database, workspace_id, by) as change:
        held = await _hold(change.connection, calibration_id)
        if held.closed_at is None:
            closed = sa.update(calibrations).where(calibrations.c.id == calibration_id)
            await change.run(closed.values(closed_at=sa.func.clock_timestamp()))
            await change.note("changed", "calibration", calibration_id, held.name, "closed")
        return await _one(change.connection, calibration_id)


async def delete(database: Database, workspace_id: UUID, calibration_id: UUID, by: Actor | None = None) -> Calibration:
    """Remove a calibration with its reviews; calls stay. Raises `NoSuchCalibration`."""
    async with changing(database, workspace_id, by) as change:
        await _hold(change.connection, calibration_id)
        gone = await _one(change.connection, calibration_id)
        await change.run(sa.delete(calibrations).where(calibrations.c.id == calibration_id))
        await change.note("removed", "calibration", calibration_id, gone.name)
        return gone


async def agreement(database: Database, scope: Scope, editor: Editor, calibration_id: UUID) -> CalibrationAgreement:
    """How far those agree who handed in. Raises `NoSuchCalibration`, and `CalibrationRefused` while it is open and
    this reviewer has not handed in."""
    async with database.transaction(scope, snapshot=True) as connection:
        own = await _sheet(connection, editor, calibration_id)
        if own.calibration.closed_at is None and own.handed_in_at is None:
            raise CalibrationRefused("Hand in your own answers first: those of others are shown then.")
        rows = (await connection.execute(_calls_of(calibration_id))).all()
        some = (calibration_reviews.c.calibration_id == calibration_id, calibration_reviews.c.handed_in_at.is_not(None))
        given: dict[int, dict[str, Answers]] = {row.call_pk: {} for row in rows}
        for row in await connection.execute(sa.select(calibration_reviews).where(*some)):
            given[row.call_pk][row.reviewer] = row.answers
    reviewed = [ReviewedCall(row.call_id, row.machine, given[row.call_pk]) for row in rows]
    names = {one.reviewer: one.name for one in own.calibration.reviewers if one.handed_in_at}
    return CalibrationAgreement(own.calibration, agreement_of(own.scorecard, own.questions, reviewed, names))


async def evidence_starts(
    database: Database, scope: Scope, found: Iterable[Disagreement]
) -> dict[tuple[UUID, str], float]:
    """Where, in seconds, the machine found its answer; by call and question, of those where it found one."""
    wanted = {(one.call_id, one.question) for one in found}
    of_calls = (findings.c.step == "questions", calls.c.call_id.in_({call_id for call_id, _ in wanted}))
    query = sa.select(calls.c.call_id, findings.c.value).join(calls, calls.c.id == findings.c.call_pk).where(*of_calls)
    starts: dict[tuple[UUID, str], float] = {}
    async with database.transaction(scope) as connection:
        for row in await connection.execute(query.order_by(findings.c.version)):
            own = own_answers(row.value).by_key()
            told = {(row.call_id, key): start for key, one in own.items() if (start := _start(one)) is not None}
            starts |= {place: start for place, start in told.items() if place in wanted}
    return starts


def _start(answer: QuestionAnswer | TrackerResult) -> float | None:
    if isinstance(answer, TrackerResult):
        return answer.matches[0].evidence.start if answer.matches else None
    return answer.evidence.start if answer.evidence else None


def _id(editor: Editor) -> str:
    """By which a reviewer is known: the key, whatever its name is."""
    return str(editor.key_id or editor.name)


def _still_open(own: ReviewSheet) -> None:
    """Raises `CalibrationRefused`."""
    if own.calibration.closed_at is not None:
        raise CalibrationRefused(f"The calibration {own.calibration.name!r} is closed. Make another one.")
    if own.handed_in_at is not None:
        raise CalibrationRefused("Your answers are handed in, and stay as they are.")


def _check(asked: Sequence[Question], answers: Answers) -> None:
    """Raises `AnswerUnfit`."""
    by_key = {one.key: one for one in asked}
    for key, told in answers.items():
        if key not in by_key:
            raise AnswerUnfit(f"{key}: not on the scorecard; its questions are {', '.join(by_key)}.")
        if (why := refusal(by_key[key].type, by_key[key], told)) is not None:
            raise AnswerUnfit(f"{key}: {told!r} cannot be the answer. {why}")


async def _completed(connection: AsyncConnection, workspace_id: UUID, wanted: Sequence[UUID]) -> list[int]:
    """The rows' ids, in order. Raises `CallsUnfit`."""
    present = sa.and_(transcripts.c.call_pk == calls.c.id, transcripts.c.job_id == calls.c.job_id)
    query = sa.select(calls.c.id, calls.c.call_id).join(transcripts, present)
    rows = await connection.execute(query.where(calls.c.workspace_id == workspace_id, calls.c.call_id.in_(wanted)))
    known = {row.call_id: row.id for row in rows}
    if missing := [str(one) for one in wanted if one not in known]:
        raise CallsUnfit(f"Not completed, or not of this workspace: {', '.join(missing[:5])}. Leave them out.")
    return [known[one] for one in wanted]


async def _machine(connection: AsyncConnection, call_pk: int, asked: Iterable[Any]) -> dict[str, str | None]:
    """The machine's answers to these questions; not those to other wordings, nor what it could not ask."""
    given = (await machine_answers(connection, call_pk)).by_key()
    wording = {one.key: (one.type, one.question) for one in asked}
    same = {key: one for key, one in given.items() if wording.get(key) == (anchor_of(one).type, anchor_of(one).wording)}
    told = {key: shown_answer(one) for key, one in same.items()}
    return {key: answer for key, answer in told.items() if answer != NOT_APPLICABLE}


async def _hold(connection: AsyncConnection, calibration_id: UUID) -> sa.Row[Any]:
    """Lock a calibration for this transaction. Raises `NoSuchCalibration`."""
    query = sa.select(calibrations).where(calibrations.c.id == calibration_id).with_for_update()
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NoSuchCalibration
    return row


async def _one(connection: AsyncConnection, calibration_id: UUID) -> Calibration:
    query = sa.select(calibrations).where(calibrations.c.id == calibration_id)
    found = await _read(connection, (await connection.execute(query)).all())
    if not found:
        raise NoSuchCalibration
    return found[0]


async def _read(connection: AsyncConnection, rows: Sequence[sa.Row[Any]]) -> list[Calibration]:
    ids = [row.id for row in rows]
    of_calls = sa.select(calibration_calls.c.calibration_id, sa.func.count().label("calls")).where(
        calibration_calls.c.calibration_id.in_(ids)
    )
    counted = {row.calibration_id: row.calls for row in await connection.execute(of_calls.group_by(sa.text("1")))}
    column = calibration_reviews.c
    figures = (
        *(column.calibration_id, column.reviewer, sa.func.max(column.name).label("name")),
        *(sa.func.count().label("calls"), sa.func.max(column.handed_in_at).label("handed_in_at")),
    )
    query = sa.select(*figures).where(column.calibration_id.in_(ids)).group_by(column.calibration_id, column.reviewer)
    people: dict[UUID, list[CalibrationReviewer]] = {one: [] for one in ids}
    for row in await connection.execute(query.order_by(sa.text("name"), column.reviewer)):
        people[row.calibration_id].append(read(CalibrationReviewer, row))
    return [
        read(
            Calibration,
            row,
            calibration_id=row.id,
            version=row.versions[row.scorecard],
            calls=counted.get(row.id, 0),
            reviewers=tuple(people[row.id]),
        )
        for row in rows
    ]


def _calls_of(calibration_id: UUID) -> sa.Select[Any]:
    query = sa.select(calibration_calls, calls.c.call_id).join(calls, calls.c.id == calibration_calls.c.call_pk)
    return query.where(calibration_calls.c.calibration_id == calibration_id).order_by(calibration_calls.c.position)


async def _sheet(connection: AsyncConnection, editor: Editor, calibration_id: UUID) -> ReviewSheet:
    one = await _one(connection, calibration_id)
    row = (await connection.execute(sa.select(calibrations).where(calibrations.c.id == calibration_id))).one()
    card, asked = await _defined(connection, row)
    reviews = sa.select(calibration_reviews).where(
        calibration_reviews.c.calibration_id == calibration_id, calibration_reviews.c.reviewer == _id(editor)
    )
    own: Mapping[int, Any] = {found.call_pk: found for found in await connection.execute(reviews)}
    found = (await connection.execute(_calls_of(calibration_id))).all()
    given = tuple(CalibrationCall(x.call_id, dict(own[x.call_pk].answers) if x.call_pk in own else {}) for x in found)
    handed_in = next((review.handed_in_at for review in own.values()), None)
    return ReviewSheet(one, card, asked, given, handed_in)


async def _defined(connection: AsyncConnection, row: sa.Row[Any]) -> tuple[Scorecard, tuple[Question, ...]]:
    """The scorecard and its questions as they were when the calibration was made, in the scorecard's order."""
    found = await questions.load_versions(connection, row.workspace_id, row.versions)
    (card,) = questions.only(Scorecard, found)
    by_key = {one.key: one for one in questions.only(Question, found)}
    return card, tuple(by_key[item.question] for item in card.items)
