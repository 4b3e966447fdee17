"""Calibrations: reviewers answer the questions of a scorecard on the same calls, independently."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Scope
from db.core.rows import read
from db.core.tables import PRESENT, calibration_calls, calibration_reviews, calibrations, calls, findings, transcripts
from db.records.corrections import Editor, name_of
from db.records.workspace_answers import machine_answers, parse_answers
from db.workspace import questions
from db.workspace.admin_log import Actor, changing
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.calibration import Agreement, Answers, Disagreement, ReviewedCall, agreement_of
from pipeline.domain.overrides import NOT_APPLICABLE, anchor_of, refusal, shown_answer
from pipeline.domain.questions import Defined, Question, Scorecard

MAX_CALLS = 100  # of a calibration: every reviewer listens to all of them


@dataclass(frozen=True, slots=True)
class CalibrationReviewer:
    """A reviewer. `calls`: number of calls with answers; `handed_in_at`: None until then."""

    reviewer: str
    name: str
    calls: int
    handed_in_at: datetime | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """A version of a scorecard, and calls that reviewers answer it on. `closed_at` None: reviews are open."""

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
    """A call to review, with this reviewer's answers by key; None: the call does not say."""

    call_id: UUID
    answers: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class ReviewSheet:
    """The questions of a reviewer and their answers; without answers of other reviewers and of the machine."""

    calibration: Calibration
    scorecard: Scorecard
    questions: tuple[Question, ...]
    calls: tuple[CalibrationCall, ...]
    handed_in_at: datetime | None


@dataclass(frozen=True, slots=True)
class CalibrationAgreement:
    """Agreement of the submitted reviews of a calibration."""

    calibration: Calibration
    agreement: Agreement


class NoSuchCalibration(LookupError):
    """No calibration has this name or id."""


class CalibrationRefused(ValueError):
    """The state of the calibration does not allow this; the message says why and what to do."""


class CallsUnfit(CalibrationRefused):
    """Calls that a calibration cannot include."""


class AnswerUnfit(CalibrationRefused):
    """An invalid answer, or an answer to a question that is not on the scorecard."""


class NotInCalibration(LookupError):
    """The calibration does not include the call."""


async def create(
    database: Database,
    workspace_id: UUID,
    name: str,
    scorecard: str,
    call_ids: Sequence[UUID],
    by: Actor | None = None,
    calibration_id: UUID | None = None,
) -> Calibration:
    """Create a calibration of completed calls with the present scorecard; the machine's present answers are stored.

    `calibration_id`: the same in a repeated request, which then creates nothing. No other workspace may have it.

    Raises `CallsUnfit`, `CalibrationRefused` for a taken name, `questions.NoSuchQuestion` for an unknown scorecard.
    """
    unique_ids = list(dict.fromkeys(call_ids))
    if not 1 <= len(unique_ids) <= MAX_CALLS:
        raise CallsUnfit(f"A calibration has 1 to {MAX_CALLS} calls, not {len(unique_ids)}.")
    card, questions_of_card = await _scorecard(database, workspace_id, scorecard)
    async with changing(database, workspace_id, by) as change:
        is_same = sa.or_(calibrations.c.name == name, calibrations.c.id == calibration_id)
        for existing in await change.run(sa.select(calibrations).where(is_same)):
            if existing.id == calibration_id and (existing.name, existing.scorecard) == (name, scorecard):
                return await _one(change.connection, existing.id)
            raise CalibrationRefused(f"A calibration named {name!r} exists. Choose another name, or delete it.")
        pks = await _completed(change.connection, workspace_id, unique_ids)
        new_id = calibration_id or uuid4()
        versions = {item.key: item.version for item in (card, *questions_of_card)}
        values = {"id": new_id, "workspace_id": workspace_id, "name": name, "scorecard": card.key}
        await change.run(sa.insert(calibrations).values(**values, versions=versions, made_by=change.by.name))
        shared = {"calibration_id": new_id, "workspace_id": workspace_id}
        answers = [await _machine(change.connection, pk, questions_of_card) for pk in pks]
        rows = [shared | {"call_pk": pk, "position": at, "machine": answers[at]} for at, pk in enumerate(pks)]
        await change.connection.execute(sa.insert(calibration_calls), rows)
        await change.note("created", "calibration", new_id, name, f"{len(rows)} calls")
        return await _one(change.connection, new_id)


async def _scorecard(database: Database, workspace_id: UUID, key: str) -> tuple[Scorecard, list[Defined]]:
    definitions = await questions.list_defined(database, workspace_id, workspace_id)
    defined: dict[str, Defined] = {item.key: item for item in map(questions.definition, definitions)}
    card = defined.get(key)
    if not isinstance(card, Scorecard):
        raise questions.NoSuchQuestion(key)
    return card, [defined[item.question] for item in card.items]


async def list_calibrations(database: Database, scope: Scope) -> list[Calibration]:
    """Return all calibrations that the scope may see, the latest first."""
    async with database.transaction(scope, snapshot=True) as connection:
        query = sa.select(calibrations).order_by(calibrations.c.made_at.desc(), calibrations.c.id)
        return await _read(connection, (await connection.execute(query)).all())


async def sheet(database: Database, scope: Scope, editor: Editor, calibration_id: UUID) -> ReviewSheet:
    """Return a reviewer's sheet. Raises `NoSuchCalibration`."""
    async with database.transaction(scope, snapshot=True) as connection:
        return await _sheet(connection, editor, calibration_id)


async def answer(
    database: Database, scope: Scope, editor: Editor, calibration_id: UUID, call_id: UUID, answers: Answers
) -> CalibrationCall:
    """Store a reviewer's answers on one call in addition to earlier ones; a repeated key replaces its answer.

    Raises `NoSuchCalibration`, `NotInCalibration`, `AnswerUnfit`, `CalibrationRefused` if it is closed or submitted.
    """
    async with database.transaction(scope) as connection:
        calibration = await _hold(connection, calibration_id)
        review = await _sheet(connection, editor, calibration_id)
        _still_open(review)
        now = next((call.answers for call in review.calls if call.call_id == call_id), None)
        if now is None:
            raise NotInCalibration
        _check(review.questions, answers)
        merged = {**now, **answers}
        values = {"name": await name_of(connection, editor), "answers": merged}
        keys = {"calibration_id": calibration_id, "workspace_id": calibration.workspace_id, "reviewer": _id(editor)}
        pk = sa.select(calls.c.id).where(calls.c.call_id == call_id).scalar_subquery()
        await connection.execute(
            insert(calibration_reviews)
            .values(call_pk=pk, **keys, **values)
            .on_conflict_do_update(
                index_elements=["calibration_id", "call_pk", "reviewer"],
                set_=values | {"answered_at": sa.func.clock_timestamp()},
            )
        )
        return CalibrationCall(call_id, merged)


async def hand_in(database: Database, scope: Scope, editor: Editor, calibration_id: UUID) -> ReviewSheet:
    """Submit a reviewer's answers: they become final, and the reviewer may see those of others. Idempotent.

    Raises `NoSuchCalibration`, and `CalibrationRefused` while answers are missing, or once it is closed.
    """
    async with database.transaction(scope) as connection:
        await _hold(connection, calibration_id)
        review = await _sheet(connection, editor, calibration_id)
        if review.handed_in_at is not None:
            return review
        _still_open(review)
        for call in review.calls:
            if unanswered := [question.key for question in review.questions if question.key not in call.answers]:
                raise CalibrationRefused(f"Call {call.call_id} is not answered yet: {', '.join(unanswered)}.")
        await connection.execute(
            sa.update(calibration_reviews)
            .where(
                calibration_reviews.c.calibration_id == calibration_id, calibration_reviews.c.reviewer == _id(editor)
            )
            .values(handed_in_at=sa.func.clock_timestamp())
        )
        return await _sheet(connection, editor, calibration_id)


async def close(database: Database, workspace_id: UUID, calibration_id: UUID, by: Actor | None = None) -> Calibration:
    """Close a calibration to reviews, which shows everyone the agreement. Idempotent. Raises `NoSuchCalibration`."""
    async with changing(database, workspace_id, by) as change:
        calibration = await _hold(change.connection, calibration_id)
        if calibration.closed_at is None:
            update = sa.update(calibrations).where(calibrations.c.id == calibration_id)
            await change.run(update.values(closed_at=sa.func.clock_timestamp()))
            await change.note("changed", "calibration", calibration_id, calibration.name, "closed")
        return await _one(change.connection, calibration_id)


async def delete(database: Database, workspace_id: UUID, calibration_id: UUID, by: Actor | None = None) -> Calibration:
    """Delete a calibration with its reviews; calls stay. Raises `NoSuchCalibration`."""
    async with changing(database, workspace_id, by) as change:
        await _hold(change.connection, calibration_id)
        removed = await _one(change.connection, calibration_id)
        await change.run(sa.delete(calibrations).where(calibrations.c.id == calibration_id))
        await change.note("removed", "calibration", calibration_id, removed.name)
        return removed


async def agreement(database: Database, scope: Scope, editor: Editor, calibration_id: UUID) -> CalibrationAgreement:
    """Return the agreement of the submitted reviews.

    Raises `NoSuchCalibration`, and `CalibrationRefused` while it is open and this reviewer has not submitted.
    """
    async with database.transaction(scope, snapshot=True) as connection:
        review = await _sheet(connection, editor, calibration_id)
        if review.calibration.closed_at is None and review.handed_in_at is None:
            raise CalibrationRefused("Submit your answers first to see those of others.")
        rows = (await connection.execute(_calls_of(calibration_id))).all()
        handed_in = (
            calibration_reviews.c.calibration_id == calibration_id,
            calibration_reviews.c.handed_in_at.is_not(None),
        )
        answers_by_call: dict[int, dict[str, Answers]] = {row.call_pk: {} for row in rows}
        for row in await connection.execute(sa.select(calibration_reviews).where(*handed_in)):
            answers_by_call[row.call_pk][row.reviewer] = row.answers
    reviewed = [ReviewedCall(row.call_id, row.machine, answers_by_call[row.call_pk]) for row in rows]
    names = {reviewer.reviewer: reviewer.name for reviewer in review.calibration.reviewers if reviewer.handed_in_at}
    return CalibrationAgreement(review.calibration, agreement_of(review.scorecard, review.questions, reviewed, names))


async def evidence_starts(
    database: Database, scope: Scope, disagreements: Iterable[Disagreement]
) -> dict[tuple[UUID, str], float]:
    """Return the time in seconds of the machine's evidence by call and question, for answers with evidence."""
    pairs = {(item.call_id, item.question) for item in disagreements}
    of_calls = (findings.c.step == "questions", calls.c.call_id.in_({call_id for call_id, _ in pairs}))
    query = sa.select(calls.c.call_id, findings.c.value).join(calls, calls.c.id == findings.c.call_pk).where(*of_calls)
    starts: dict[tuple[UUID, str], float] = {}
    async with database.transaction(scope) as connection:
        for row in await connection.execute(query.order_by(findings.c.version)):
            answers = parse_answers(row.value).by_key()
            starts_of_call = {
                (row.call_id, key): start for key, answer in answers.items() if (start := _start(answer)) is not None
            }
            starts |= {place: start for place, start in starts_of_call.items() if place in pairs}
    return starts


def _start(answer: QuestionAnswer | TrackerResult) -> float | None:
    if isinstance(answer, TrackerResult):
        return answer.matches[0].evidence.start if answer.matches else None
    return answer.evidence.start if answer.evidence else None


def _id(editor: Editor) -> str:
    """Return the id of a reviewer: the key's, independent of its name."""
    return str(editor.key_id or editor.name)


def _still_open(sheet: ReviewSheet) -> None:
    if sheet.calibration.closed_at is not None:
        raise CalibrationRefused(f"The calibration {sheet.calibration.name!r} is closed. Create a new one.")
    if sheet.handed_in_at is not None:
        raise CalibrationRefused("Your answers are submitted and final.")


def _check(questions: Sequence[Question], answers: Answers) -> None:
    by_key = {question.key: question for question in questions}
    for key, answer in answers.items():
        if key not in by_key:
            raise AnswerUnfit(f"{key}: not on the scorecard; its questions are {', '.join(by_key)}.")
        if (problem := refusal(by_key[key].type, by_key[key], answer)) is not None:
            raise AnswerUnfit(f"{key}: {answer!r} is not a valid answer. {problem}")


async def _completed(connection: AsyncConnection, workspace_id: UUID, call_ids: Sequence[UUID]) -> list[int]:
    query = sa.select(calls.c.id, calls.c.call_id).join(transcripts, PRESENT)
    rows = await connection.execute(query.where(calls.c.workspace_id == workspace_id, calls.c.call_id.in_(call_ids)))
    pk_by_call_id = {row.call_id: row.id for row in rows}
    if missing := [str(call_id) for call_id in call_ids if call_id not in pk_by_call_id]:
        raise CallsUnfit(f"Not completed, or not of this workspace: {', '.join(missing[:5])}. Leave them out.")
    return [pk_by_call_id[call_id] for call_id in call_ids]


async def _machine(connection: AsyncConnection, call_pk: int, questions: Iterable[Any]) -> dict[str, str | None]:
    """Return the machine's applicable answers to these questions with the same wording."""
    all_answers = (await machine_answers(connection, call_pk)).by_key()
    wording = {question.key: (question.type, question.question) for question in questions}
    anchors = {key: anchor_of(answer) for key, answer in all_answers.items()}
    same = {key for key, anchor in anchors.items() if wording.get(key) == (anchor.type, anchor.wording)}
    shown = {key: shown_answer(answer) for key, answer in all_answers.items() if key in same}
    return {key: answer for key, answer in shown.items() if answer != NOT_APPLICABLE}


async def _hold(connection: AsyncConnection, calibration_id: UUID) -> sa.Row[Any]:
    query = sa.select(calibrations).where(calibrations.c.id == calibration_id).with_for_update()
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NoSuchCalibration
    return row


async def _one(connection: AsyncConnection, calibration_id: UUID) -> Calibration:
    query = sa.select(calibrations).where(calibrations.c.id == calibration_id)
    for calibration in await _read(connection, (await connection.execute(query)).all()):
        return calibration
    raise NoSuchCalibration


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
    reviewers: dict[UUID, list[CalibrationReviewer]] = {calibration_id: [] for calibration_id in ids}
    for row in await connection.execute(query.order_by(sa.text("name"), column.reviewer)):
        reviewers[row.calibration_id].append(read(CalibrationReviewer, row))
    return [
        read(
            Calibration,
            row,
            calibration_id=row.id,
            version=row.versions[row.scorecard],
            calls=counted.get(row.id, 0),
            reviewers=tuple(reviewers[row.id]),
        )
        for row in rows
    ]


def _calls_of(calibration_id: UUID) -> sa.Select[Any]:
    query = sa.select(calibration_calls, calls.c.call_id).join(calls, calls.c.id == calibration_calls.c.call_pk)
    return query.where(calibration_calls.c.calibration_id == calibration_id).order_by(calibration_calls.c.position)


async def _sheet(connection: AsyncConnection, editor: Editor, calibration_id: UUID) -> ReviewSheet:
    calibration = await _one(connection, calibration_id)
    row = (await connection.execute(sa.select(calibrations).where(calibrations.c.id == calibration_id))).one()
    card, questions = await _defined(connection, row)
    reviews = sa.select(calibration_reviews).where(
        calibration_reviews.c.calibration_id == calibration_id, calibration_reviews.c.reviewer == _id(editor)
    )
    reviews_by_call: Mapping[int, Any] = {rows.call_pk: rows for rows in await connection.execute(reviews)}
    rows = (await connection.execute(_calls_of(calibration_id))).all()
    review_calls = tuple(
        CalibrationCall(
            call.call_id, dict(reviews_by_call[call.call_pk].answers) if call.call_pk in reviews_by_call else {}
        )
        for call in rows
    )
    handed_in = next((review.handed_in_at for review in reviews_by_call.values()), None)
    return ReviewSheet(calibration, card, questions, review_calls, handed_in)


async def _defined(connection: AsyncConnection, row: sa.Row[Any]) -> tuple[Scorecard, tuple[Question, ...]]:
    """Return the scorecard and its questions in the calibration's versions, in the scorecard's order."""
    definitions = await questions.load_versions(connection, row.workspace_id, row.versions)
    (card,) = questions.only(Scorecard, definitions)
    by_key = {question.key: question for question in questions.only(Question, definitions)}
    return card, tuple(by_key[item.question] for item in card.items)
