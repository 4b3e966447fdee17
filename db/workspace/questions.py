"""Questions and scorecards of a workspace, in immutable versions: a change creates a new one."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import sqlalchemy as sa
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database, Scope
from db.core.tables import calls, questions, workspaces
from db.workspace.admin_log import Actor, Changing, changing
from pipeline.domain.questions import Defined, Question, Scorecard, faults_of

MAX_QUESTIONS = 100  # of a workspace, including trackers and scorecards
MAX_PHRASE_CHARACTERS = 200_000  # of a workspace, in all phrases
T = TypeVar("T")
log = logging.getLogger(__name__)


def _kind(definition: Any) -> str:
    type_ = definition.get("type") if isinstance(definition, Mapping) else definition.type
    return "scorecard" if type_ == "scorecard" else "question"


_DEFINED: TypeAdapter[Defined] = TypeAdapter(
    Annotated[Annotated[Question, Tag("question")] | Annotated[Scorecard, Tag("scorecard")], Discriminator(_kind)]
)


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A version of a question. `retired_at`: when it was replaced or removed; None: it is active."""

    question: Question
    made_at: datetime
    made_by: str
    retired_at: datetime | None
    retired_by: str | None


@dataclass(frozen=True, slots=True)
class StoredScorecard:
    """A version of a scorecard. `retired_at`: when it was replaced or removed; None: it is active."""

    scorecard: Scorecard
    made_at: datetime
    made_by: str
    retired_at: datetime | None
    retired_by: str | None


@dataclass(frozen=True, slots=True)
class QuestionChanges:
    """Result of setting questions and scorecards, by key."""

    made: tuple[str, ...]  # language: ok
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...] = ()


class NoSuchQuestion(LookupError):
    """The workspace has no question with this key."""


class ScorecardUnfit(ValueError):
    """A scorecard would refer to an inactive question, or to an outcome that the question lacks."""


class TooManyQuestions(ValueError):
    """The workspace would have more than `MAX_QUESTIONS` or `MAX_PHRASE_CHARACTERS`."""


async def list_questions(database: Database, scope: Scope, workspace_id: UUID) -> list[StoredQuestion]:
    """Return the active questions, in their order."""
    return list(only(StoredQuestion, await list_defined(database, scope, workspace_id)))


async def list_scorecards(database: Database, scope: Scope, workspace_id: UUID) -> list[StoredScorecard]:
    """Return the active scorecards, in their order."""
    return list(only(StoredScorecard, await list_defined(database, scope, workspace_id)))


async def list_defined(database: Database, scope: Scope, workspace_id: UUID) -> list[StoredQuestion | StoredScorecard]:
    """Return the active questions and scorecards, in their order."""
    now = sa.and_(questions.c.workspace_id == workspace_id, questions.c.retired_at.is_(None))
    query = sa.select(questions).where(now).order_by(questions.c.position, questions.c.key)
    return _stored(await database.rows(scope, query))


async def versions_of(database: Database, scope: Scope, workspace_id: UUID, key: str) -> list[StoredQuestion]:
    """Return all versions of a question, the latest first. Raises `NoSuchQuestion` if there are none."""
    return _require_kind(StoredQuestion, await defined_versions(database, scope, workspace_id, key), key)


async def scorecard_versions(database: Database, scope: Scope, workspace_id: UUID, key: str) -> list[StoredScorecard]:
    """Return all versions of a scorecard, the latest first. Raises `NoSuchQuestion` if there are none."""
    return _require_kind(StoredScorecard, await defined_versions(database, scope, workspace_id, key), key)


async def defined_versions(
    database: Database, scope: Scope, workspace_id: UUID, key: str
) -> list[StoredQuestion | StoredScorecard]:
    """Return all versions of the question or scorecard with the key, the latest first."""
    has_key = sa.and_(questions.c.workspace_id == workspace_id, questions.c.key == key)
    return _stored(await database.rows(scope, sa.select(questions).where(has_key).order_by(questions.c.version.desc())))


async def of_versions(database: Database, workspace_id: UUID, versions: Mapping[str, int]) -> tuple[Defined, ...]:
    """Return the questions and scorecards of these versions by key, in their order."""
    async with database.transaction(workspace_id) as connection:
        return await load_versions(connection, workspace_id, versions)


async def load_versions(
    connection: AsyncConnection, workspace_id: UUID, versions: Mapping[str, int]
) -> tuple[Defined, ...]:
    """Return them as `of_versions` does, in a transaction."""
    of_workspace = questions.c.workspace_id == workspace_id
    in_versions = sa.tuple_(questions.c.key, questions.c.version).in_(list(versions.items()))
    query = sa.select(questions).where(of_workspace, in_versions).order_by(questions.c.position, questions.c.key)
    return tuple(map(definition, _stored(await connection.execute(query))))


async def definition_of(connection: AsyncConnection, call_pk: int, key: str, version: int) -> Question | None:
    """Return a version of a question of a call's workspace; None if there is none that can be parsed here."""
    workspace_id = sa.select(calls.c.workspace_id).where(calls.c.id == call_pk).scalar_subquery()
    conditions = (questions.c.workspace_id == workspace_id, questions.c.key == key, questions.c.version == version)
    stored = await connection.scalar(sa.select(questions.c.definition).where(*conditions))
    return next(iter(only(Question, parsed([stored] if stored else []))), None)


async def set_questions(
    database: Database, workspace_id: UUID, definitions: Sequence[Defined], by: Actor | None = None, only: bool = False
) -> QuestionChanges:
    """Add or change questions; `only`: and remove all others. Unchanged ones keep their version.

    The caller has checked each. Raises `TooManyQuestions`, `ScorecardUnfit`, NotInDirectory (unknown workspace).
    """
    async with changing(database, workspace_id, by) as change:
        rows = await change.run(sa.select(questions).where(questions.c.workspace_id == workspace_id))
        latest = {row.key: row.version for row in sorted(rows, key=lambda row: row.version)}
        active = {row.key: row for row in rows if row.retired_at is None}
        current = {row.key: item for row in active.values() for item in parsed([row.definition])}
        keys = [item.key for item in definitions]
        removed = tuple(key for key in active if key not in keys) if only else ()
        if len({*active, *keys} - {*removed}) > MAX_QUESTIONS:
            raise TooManyQuestions(f"A workspace can have max. {MAX_QUESTIONS} questions. Remove some first.")
        planned = {key: item for key, item in current.items() if key not in removed}
        planned |= {item.key: item for item in definitions}
        _check(planned)
        if _phrase_characters(planned) > max(MAX_PHRASE_CHARACTERS, _phrase_characters(current)):
            raise TooManyQuestions(
                f"The phrases of a workspace can have max. {MAX_PHRASE_CHARACTERS} characters. Shorten or remove some."
            )
        next_position = max((row.position for row in rows), default=-1) + 1
        keys_by_action: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": []}
        for offset, question in enumerate(definitions):
            previous = active.get(question.key)
            position = offset if only else previous.position if previous is not None else next_position + offset
            action = await _set(change, question, previous, position, latest.get(question.key, 0) + 1)
            keys_by_action[action].append(question.key)
        for key in removed:
            await _remove(change, key)
        by_action = {action: tuple(changed_keys) for action, changed_keys in keys_by_action.items()}
        return QuestionChanges(by_action["created"], by_action["changed"], by_action["unchanged"], removed)


async def _set(
    change: Changing, question: Defined, previous: sa.Row[Any] | None, position: int, version: int
) -> Literal["created", "changed", "unchanged"]:
    values = {"key": question.key, "version": version, "position": position, "definition": plain(question)}
    if previous is not None and previous.definition == values["definition"]:
        update = sa.update(questions).where(_current(change, question.key))
        await change.run(update.values(position=position))
        return "unchanged"
    if previous is not None:
        await _retire(change, question.key)
    row = {"workspace_id": change.workspace_id, "made_by": change.by.name, **values}
    await change.run(sa.insert(questions).values(row))
    action: Literal["created", "changed"] = "created" if previous is None else "changed"
    await change.note(action, _kind(question), question.key, question.key, f"version {version}")
    return action


async def remove(database: Database, workspace_id: UUID, key: str, by: Actor | None = None) -> None:
    """Remove a question or scorecard; its results in records stay.

    Raises `NoSuchQuestion`, and `ScorecardUnfit` for a question that is on a scorecard.
    """
    async with changing(database, workspace_id, by) as change:
        await _remove(change, key)
        now = sa.and_(questions.c.workspace_id == workspace_id, questions.c.retired_at.is_(None))
        remaining = await change.run(sa.select(questions.c.definition).where(now))
        _check({item.key: item for item in parsed(row.definition for row in remaining)})


async def _remove(change: Changing, key: str) -> None:
    former = await _retire(change, key)
    if former is None:
        raise NoSuchQuestion(key)
    await change.note("removed", _kind(former), key, key)


def _check(defined: Mapping[str, Defined]) -> None:
    questions_by_key = {key: item for key, item in defined.items() if isinstance(item, Question)}
    for card in defined.values():
        for _, fault in faults_of(card, questions_by_key) if isinstance(card, Scorecard) else ():
            raise ScorecardUnfit(f"Scorecard {card.key!r}, {fault}")


def _phrase_characters(defined: Mapping[str, Defined]) -> int:
    return sum(question.phrase_characters for question in only(Question, defined.values()))


def _current(change: Changing, key: str) -> sa.ColumnElement[bool]:
    has_key = sa.and_(questions.c.workspace_id == change.workspace_id, questions.c.key == key)
    return sa.and_(has_key, questions.c.retired_at.is_(None))


async def _retire(change: Changing, key: str) -> Mapping[str, Any] | None:
    values = {"retired_at": sa.func.clock_timestamp(), "retired_by": change.by.name}
    statement = sa.update(questions).where(_current(change, key)).values(**values).returning(questions.c.definition)
    rows = await change.run(statement)
    return rows[0].definition if rows else None


def plain(defined: Defined) -> dict[str, Any]:
    """Return a definition in its stored form: without its version, in JSON types."""
    dumped: dict[str, Any] = _DEFINED.dump_python(defined, mode="json")
    return {name: value for name, value in dumped.items() if name != "version"}


def active_questions() -> sa.ScalarSelect[Any]:
    """Return the query of the workspace's questions and scorecards as JSON, for `parsed`."""
    versioned = questions.c.definition.op("||")(sa.func.jsonb_build_object("version", questions.c.version))
    ordered = aggregate_order_by(versioned, questions.c.position, questions.c.key)
    query = sa.select(sa.func.jsonb_agg(ordered)).where(
        questions.c.workspace_id == workspaces.c.id, questions.c.retired_at.is_(None)
    )
    return query.correlate(workspaces).scalar_subquery()


def parsed(definitions: Iterable[Any]) -> tuple[Defined, ...]:
    """Parse stored definitions; those that this version cannot parse are left out."""
    parsed_definitions = []
    for stored in definitions:
        try:
            parsed_definitions.append(_DEFINED.validate_python(stored))
        except ValidationError as error:
            log.warning(
                "question %s cannot be parsed by this version: %d errors", stored.get("key"), error.error_count()
            )
    return tuple(parsed_definitions)


def only(kind: type[T], items: Iterable[object]) -> tuple[T, ...]:
    return tuple(item for item in items if isinstance(item, kind))


def definition(stored: StoredQuestion | StoredScorecard) -> Defined:
    """Return the stored question or scorecard with its version."""
    return stored.question if isinstance(stored, StoredQuestion) else stored.scorecard


def _require_kind(kind: type[T], items: Iterable[object], key: str) -> list[T]:
    if not (matches := list(only(kind, items))):
        raise NoSuchQuestion(key)
    return matches


def _stored(rows: Iterable[sa.Row[Any]]) -> list[StoredQuestion | StoredScorecard]:
    stored: list[StoredQuestion | StoredScorecard] = []
    for row in rows:
        history = (row.made_at, row.made_by, row.retired_at, row.retired_by)
        for definition in parsed([row.definition]):
            if isinstance(definition, Scorecard):
                stored.append(StoredScorecard(replace(definition, version=row.version), *history))
            else:
                stored.append(StoredQuestion(replace(definition, version=row.version), *history))
    return stored
