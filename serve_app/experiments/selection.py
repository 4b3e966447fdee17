"""Which calls a run is of."""

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
class Wanted:
    """Calls for which all holds that is given; the latest ones first, `limit` of them."""

    call_ids: Sequence[UUID] = ()
    gold: tuple[str, int | None] | None = None  # name and version of a gold set; None: the latest
    started_from: datetime | None = None
    started_before: datetime | None = None
    team_id: UUID | None = None
    language: str | None = None
    limit: int | None = None


async def choose(database: Database, reader: Reader, wanted: Wanted) -> list[UUID]:
    """The callIds of completed calls that are wanted. Raises `RunRefused` where they are more than a run can have, and
    `gold.NoSuchSet`."""
    named = await _named(database, reader, wanted)
    if named is not None and not _narrowed(wanted):
        return _limited(named, wanted.limit)
    among = None if named is None else set(named)
    chosen: list[UUID] = []
    filter_ = CallFilter(
        states=("completed",),
        team_id=wanted.team_id,
        language=wanted.language,
        started_from=wanted.started_from,
        started_before=wanted.started_before,
    )
    cursor = None
    while True:
        page = await list_calls(database, reader, filter_, cursor, PAGE)
        found = [line.call.call_id for line in page.items]
        chosen += [one for one in found if among is None or one in among]
        cursor = page.next
        if cursor is None or len(chosen) > (wanted.limit or MAX_CALLS):
            return _limited(chosen, wanted.limit)


async def _named(database: Database, reader: Reader, wanted: Wanted) -> list[UUID] | None:
    """The calls that are named one by one, or by a set; None: all."""
    if wanted.gold is None:
        return list(dict.fromkeys(wanted.call_ids)) or None
    one = await gold.find(database, reader.workspace_id, *wanted.gold)
    of_set = await runs.calls_of_gold_set(database, reader, one.set_id)
    return [call_id for call_id in of_set if not wanted.call_ids or call_id in set(wanted.call_ids)]


def _narrowed(wanted: Wanted) -> bool:
    return any((wanted.started_from, wanted.started_before, wanted.team_id, wanted.language))


def _limited(chosen: list[UUID], limit: int | None) -> list[UUID]:
    if limit is None and len(chosen) > MAX_CALLS:
        raise RunRefused(
            f"These are more than {MAX_CALLS} calls, which is the most of a run. Narrow them, or set a limit."
        )
    return chosen[: min(limit or MAX_CALLS, MAX_CALLS)]
