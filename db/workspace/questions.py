"""What a workspace asks of its calls, and its scorecards, in versions: a change makes a new one, none is rewritten."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Scope
from db.core.tables import calls, questions, workspaces
from db.workspace.admin_log import Actor, Changing, changing
from pipeline.domain.questions import Defined, Question, Scorecard, faults_of

MOST_QUESTIONS = 100  # of a workspace, trackers and scorecards among them
T = TypeVar("T")
log = logging.getLogger(__name__)


def _kind(one: Any) -> str:
    told = one.get("type") if isinstance(one, Mapping) else one.type
    return "scorecard" if told == "scorecard" else "question"


_DEFINED: TypeAdapter[Defined] = TypeAdapter(
    Annotated[Annotated[Question, Tag("question")] | Annotated[Scorecard, Tag("scorecard")], Discriminator(_kind)]
)


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A version of a question. `retired_at`: when it was replaced or removed; None: it is asked now."""

    question: Question
    made_at: datetime
    made_by: str
    retired_at: datetime | None
    retired_by: str | None


@dataclass(frozen=True, slots=True)
class StoredScorecard:
    """A version of a scorecard. `retired_at`: when it was replaced or removed; None: calls are scored by it now."""

    scorecard: Scorecard
    made_at: datetime
    made_by: str
    retired_at: datetime | None
    retired_by: str | None


@dataclass(frozen=True, slots=True)
class QuestionChanges:
    """What came of setting questions and scorecards, by key."""

    made: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...] = ()


class NoSuchQuestion(LookupError):
    """The workspace asks no question of that key."""


class ScorecardUnfit(ValueError):
    """A scorecard would name a question that is not asked, or an outcome that it does not have."""


class TooManyQuestions(ValueError):
    """The workspace would have more than `MOST_QUESTIONS`."""


async def list_questions(database: Database, scope: Scope, workspace_id: UUID) -> list[StoredQuestion]:
    """The questions that are asked now, in their order."""
    return list(only(StoredQuestion, await list_defined(database, scope, workspace_id)))


async def list_scorecards(database: Database, scope: Scope, workspace_id: UUID) -> list[StoredScorecard]:
    """The scorecards by which calls are scored now, in their order."""
    return list(only(StoredScorecard, await list_defined(database, scope, workspace_id)))


async def list_defined(database: Database, scope: Scope, workspace_id: UUID) -> list[StoredQuestion | StoredScorecard]:
    """Questions and scorecards as they are now, in their order."""
    now = sa.and_(questions.c.workspace_id == workspace_id, questions.c.retired_at.is_(None))
    query = sa.select(questions).where(now).order_by(questions.c.position, questions.c.key)
    return _stored(await database.rows(scope, query))


async def versions_of(database: Database, scope: Scope, workspace_id: UUID, key: str) -> list[StoredQuestion]:
    """All versions of a question, the latest first. Raises `NoSuchQuestion` where there is none."""
    return _some(StoredQuestion, await defined_versions(database, scope, workspace_id, key), key)


async def scorecard_versions(database: Database, scope: Scope, workspace_id: UUID, key: str) -> list[StoredScorecard]:
    """All versions of a scorecard, the latest first. Raises `NoSuchQuestion` where there is none."""
    return _some(StoredScorecard, await defined_versions(database, scope, workspace_id, key), key)


async def defined_versions(
    database: Database, scope: Scope, workspace_id: UUID, key: str
) -> list[StoredQuestion | StoredScorecard]:
    """All versions of whatever has the key, the latest first."""
    own = sa.and_(questions.c.workspace_id == workspace_id, questions.c.key == key)
    return _stored(await database.rows(scope, sa.select(questions).where(own).order_by(questions.c.version.desc())))


async def of_versions(database: Database, workspace_id: UUID, wanted: Mapping[str, int]) -> tuple[Defined, ...]:
    """The questions and scorecards of these versions by key, in their order."""
    async with database.transaction(workspace_id) as connection:
        return await load_versions(connection, workspace_id, wanted)


async def load_versions(
    connection: AsyncConnection, workspace_id: UUID, wanted: Mapping[str, int]
) -> tuple[Defined, ...]:
    """The same within a transaction."""
    own = questions.c.workspace_id == workspace_id
    these = sa.tuple_(questions.c.key, questions.c.version).in_(list(wanted.items()))
    query = sa.select(questions).where(own, these).order_by(questions.c.position, questions.c.key)
    return tuple(map(definition, _stored(await connection.execute(query))))


async def definition_of(connection: AsyncConnection, call_pk: int, key: str, version: int) -> Question | None:
    """A version of a question of a call's workspace; None: there is none that can be read here."""
    own = sa.select(calls.c.workspace_id).where(calls.c.id == call_pk).scalar_subquery()
    these = (questions.c.workspace_id == own, questions.c.key == key, questions.c.version == version)
    held = await connection.scalar(sa.select(questions.c.definition).where(*these))
    return next(iter(only(Question, parsed([held] if held else []))), None)


async def set_questions(
    database: Database,
    workspace_id: UUID,
    wanted: Sequence[Defined],
    by: Actor | None = None,
    only: bool = False,
) -> QuestionChanges:
    """Ask these from now on, beside the others; `only`: and no others. What is as it was stays the version it is.

    The caller has checked each. Raises `TooManyQuestions`, `ScorecardUnfit`, and NotInDirectory for an unknown
    workspace.
    """
    async with changing(database, workspace_id, by) as change:
        rows = await change.run(sa.select(questions).where(questions.c.workspace_id == workspace_id))
        latest = {row.key: row.version for row in sorted(rows, key=lambda row: row.version)}
        asked = {row.key: row for row in rows if row.retired_at is None}
        stays = {row.key: one for row in asked.values() for one in parsed([row.definition])}
        keys = [one.key for one in wanted]
        removed = tuple(key for key in asked if key not in keys) if only else ()
        if len({*asked, *keys} - {*removed}) > MOST_QUESTIONS:
            raise TooManyQuestions(f"A workspace asks at most {MOST_QUESTIONS} questions. Remove some first.")
        _check({key: one for key, one in stays.items() if key not in removed} | {one.key: one for one in wanted})
        place = max((row.position for row in rows), default=-1) + 1
        made: list[str] = []
        changed: list[str] = []
        unchanged: list[str] = []
        for at, question in enumerate(wanted):
            before, definition = asked.get(question.key), plain(question)
            position = at if only else before.position if before is not None else place + at
            if before is not None and before.definition == definition:
                unchanged.append(question.key)
                await _place(change, question.key, position)
                continue
            if before is not None:
                await _retire(change, question.key)
            version = latest.get(question.key, 0) + 1
            values = {"key": question.key, "version": version, "position": position, "definition": definition}
            await change.run(sa.insert(questions).values(workspace_id=workspace_id, made_by=change.by.name, **values))
            (made if before is None else changed).append(question.key)
            what = "created" if before is None else "changed"
            await change.note(what, _kind(question), question.key, question.key, f"version {version}")
        for key in removed:
            await _remove(change, key)
        return QuestionChanges(tuple(made), tuple(changed), tuple(unchanged), removed)


async def remove(database: Database, workspace_id: UUID, key: str, by: Actor | None = None) -> None:
    """Ask it no more, or score by it no more; what records have of it stays.

    Raises `NoSuchQuestion`, and `ScorecardUnfit` for a question that is on a scorecard.
    """
    async with changing(database, workspace_id, by) as change:
        await _remove(change, key)
        now = sa.and_(questions.c.workspace_id == workspace_id, questions.c.retired_at.is_(None))
        left = await change.run(sa.select(questions.c.definition).where(now))
        _check({one.key: one for one in parsed(row.definition for row in left)})


async def _remove(change: Changing, key: str) -> None:
    gone = await _retire(change, key)
    if gone is None:
        raise NoSuchQuestion(key)
    await change.note("removed", _kind(gone), key, key)


def _check(defined: Mapping[str, Defined]) -> None:
    """Raises `ScorecardUnfit`."""
    asked = {key: one for key, one in defined.items() if isinstance(one, Question)}
    for card in defined.values():
        for _, told in faults_of(card, asked) if isinstance(card, Scorecard) else ():
            raise ScorecardUnfit(f"Scorecard {card.key!r}, {told}")


def _current(change: Changing, key: str) -> sa.ColumnElement[bool]:
    own = sa.and_(questions.c.workspace_id == change.workspace_id, questions.c.key == key)
    return sa.and_(own, questions.c.retired_at.is_(None))


async def _retire(change: Changing, key: str) -> Mapping[str, Any] | None:
    """The definition that is no more; None: there was none."""
    ended = {"retired_at": sa.func.clock_timestamp(), "retired_by": change.by.name}
    gone = sa.update(questions).where(_current(change, key)).values(**ended).returning(questions.c.definition)
    rows = await change.run(gone)
    return rows[0].definition if rows else None


async def _place(change: Changing, key: str, position: int) -> None:
    await change.run(sa.update(questions).where(_current(change, key)).values(position=position))


def plain(defined: Defined) -> dict[str, Any]:
    """A definition as it is stored: without its version, in JSON's types."""
    found: dict[str, Any] = _DEFINED.dump_python(defined, mode="json")
    return {name: value for name, value in found.items() if name != "version"}


def asked_now() -> sa.ScalarSelect[Any]:
    """The questions and scorecards of the workspace of the row beside, as JSON, for `parsed`."""
    versioned = questions.c.definition.op("||")(sa.func.jsonb_build_object("version", questions.c.version))
    ordered = aggregate_order_by(versioned, questions.c.position, questions.c.key)
    query = sa.select(sa.func.jsonb_agg(ordered)).where(
        questions.c.workspace_id == workspaces.c.id, questions.c.retired_at.is_(None)
    )
    return query.correlate(workspaces).scalar_subquery()


def parsed(definitions: Iterable[Any]) -> tuple[Defined, ...]:
    """Definitions as they are stored; one that this version of the service cannot read is left out."""
    found = []
    for one in definitions:
        try:
            found.append(_DEFINED.validate_python(one))
        except ValidationError as error:
            log.warning("question %s cannot be read here: %d faults", one.get("key"), error.error_count())
    return tuple(found)


def only(kind: type[T], found: Iterable[object]) -> tuple[T, ...]:
    """Those of a kind."""
    return tuple(one for one in found if isinstance(one, kind))


def definition(stored: StoredQuestion | StoredScorecard) -> Defined:
    """What is stored, with its version."""
    return stored.question if isinstance(stored, StoredQuestion) else stored.scorecard


def _some(kind: type[T], found: Iterable[object], key: str) -> list[T]:
    """Raises `NoSuchQuestion` where there is none of the kind."""
    if not (some := list(only(kind, found))):
        raise NoSuchQuestion(key)
    return some


def _stored(rows: Iterable[sa.Row[Any]]) -> list[StoredQuestion | StoredScorecard]:
    found: list[StoredQuestion | StoredScorecard] = []
    for row in rows:
        when = (row.made_at, row.made_by, row.retired_at, row.retired_by)
        for one in parsed([row.definition]):
            if isinstance(one, Scorecard):
                found.append(StoredScorecard(replace(one, version=row.version), *when))
            else:
                found.append(StoredQuestion(replace(one, version=row.version), *when))
    return found
