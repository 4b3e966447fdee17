from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from db.core.database import Database, Reader
from db.experiments import gold_sets as gold
from db.experiments import runs
from db.experiments.runs import MAX_CALLS, RunRefused
from db.search.call_list import CallFilter, list_calls

PAGE = 200


@dataclass(frozen=True, slots=True)
class CallSelection:
    """Criteria that calls of a run must all meet; the latest `limit` calls."""

    call_ids: Sequence[UUID] = ()
    gold: tuple[str, int | None] | None = None  # name and version of a gold set; None: the latest
    started_from: datetime | None = None
    started_before: datetime | None = None
    team_id: UUID | None = None
    language: str | None = None
    limit: int | None = None


async def choose(database: Database, reader: Reader, selection: CallSelection) -> list[UUID]:
    """Return the ids of the selected completed calls. Raises `gold.NoSuchSet`, and `RunRefused` for too many calls."""
    listed = await _named(database, reader, selection)
    if listed is not None and not _narrowed(selection):
        return _limited(listed, selection.limit)
    among = None if listed is None else set(listed)
    chosen: list[UUID] = []
    filter_ = CallFilter(
        states=("completed",),
        team_id=selection.team_id,
        language=selection.language,
        started_from=selection.started_from,
        started_before=selection.started_before,
    )
    cursor = None
    while True:
        page = await list_calls(database, reader, filter_, cursor, PAGE)
        call_ids = [line.call.call_id for line in page.items]
        chosen += [call_id for call_id in call_ids if among is None or call_id in among]
        cursor = page.next
        if cursor is None or len(chosen) > (selection.limit or MAX_CALLS):
            return _limited(chosen, selection.limit)


async def _named(database: Database, reader: Reader, selection: CallSelection) -> list[UUID] | None:
    """Return the calls that are listed one by one, or by a gold set; None: all."""
    if selection.gold is None:
        return list(dict.fromkeys(selection.call_ids)) or None
    gold_set = await gold.find(database, reader.workspace_id, *selection.gold)
    of_set = await runs.calls_of_gold_set(database, reader, gold_set.set_id)
    return [call_id for call_id in of_set if not selection.call_ids or call_id in set(selection.call_ids)]


def _narrowed(selection: CallSelection) -> bool:
    return any((selection.started_from, selection.started_before, selection.team_id, selection.language))


def _limited(chosen: list[UUID], limit: int | None) -> list[UUID]:
    if limit is None and len(chosen) > MAX_CALLS:
        raise RunRefused(
            f"The selection has more than {MAX_CALLS} calls, the limit of a run. Narrow it, or set a limit."
        )
    return chosen[: min(limit or MAX_CALLS, MAX_CALLS)]
