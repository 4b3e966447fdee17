"""Which jobs wait or run: found by the partial indexes of `jobs`, however many others have ended.

PostgreSQL takes a partial index where a condition implies its predicate. `state IN ('fetching', 'queued', 'running')`
implies that of none, so every job ever stored would be read; of what the indexes say, joined by OR, it reads each.
"""

from typing import Literal

import sqlalchemy as sa

LiveState = Literal["fetching", "queued", "running"]
LIVE_STATES: tuple[LiveState, ...] = ("fetching", "queued", "running")
WAITING: tuple[LiveState, ...] = ("fetching", "queued")

_PREDICATES: dict[LiveState, tuple[str, ...]] = {
    "fetching": (
        "{0}state = 'fetching' AND {0}lease_until IS NULL",
        "{0}state = 'fetching' AND {0}lease_until IS NOT NULL",
    ),
    "queued": ("{0}state = 'queued'",),
    "running": ("{0}state = 'running'",),
}


def in_states(states: tuple[LiveState, ...] = LIVE_STATES, table: str = "jobs") -> sa.ColumnElement[bool]:
    """The condition that a job of `table` (its name or alias) is in one of the states."""
    predicates = [one.format(f"{table}.") for state in states for one in _PREDICATES[state]]
    return sa.literal_column(f"({' OR '.join(predicates)})", sa.Boolean)
