"""Language model usage of a workspace by UTC day, and its daily limits.

A request is counted before it is sent, at its maximum cost, and corrected after its response. So the counts of
Conductors add up and include running requests, and a request whose process dies stays counted at its expected cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.tables import model_usage, workspaces
from db.workspace import directory
from db.workspace.admin_log import NotInDirectory

_TODAY = sa.cast(sa.func.timezone("UTC", sa.func.clock_timestamp()), sa.Date)
_LIMIT_COLUMNS = {
    "requests": workspaces.c.model_requests_per_day,
    "tokens": workspaces.c.model_tokens_per_day,
    "cost": workspaces.c.model_cost_per_day,
}
"""Columns of a workspace's limits."""


@dataclass(frozen=True, slots=True)
class ModelBudget:
    """Daily limits of a workspace; None: no limit."""

    requests: int | None = None  # to the endpoint, including retries
    tokens: int | None = None  # of requests and responses
    cost: float | None = None  # in the currency of the service's prices


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """A workspace's usage in a day (UTC), and its limits. `reached`: those that stop further requests.

    `estimated`: requests with estimated tokens: without a response, or with one that reports no usage.
    """

    day: date
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float
    estimated: int
    budget: ModelBudget
    reached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelTokens:
    """Actual or expected cost of a request. `cost`: at present prices."""

    prompt: int
    completion: int
    cost: float


class ModelBudgetReached(Exception):
    """A limit of the day is reached."""

    def __init__(self, limit: str, amount: float, day: date) -> None:
        """`limit`: requests, tokens or cost."""
        super().__init__(f"the limit of {amount:,g} ({limit}) for {day} is reached")
        self.limit, self.amount, self.day = limit, amount, day


async def reserve(database: Database, workspace_id: UUID, expected: ModelTokens) -> date:
    """Count a request before it is sent, at its expected cost; return the day that it counts for.

    Raises `ModelBudgetReached` if a limit is reached: only the last request may exceed it.
    """
    insertion = insert(model_usage).values(workspace_id=workspace_id, day=_TODAY)
    upsert = insertion.on_conflict_do_update(
        index_elements=["workspace_id", "day"], set_={"requests": model_usage.c.requests}
    )
    async with database.transaction(workspace_id) as connection:
        row = (await connection.execute(upsert.returning(model_usage))).one()  # locks it
        usage = _usage(row, await _budget(connection, workspace_id))
        if usage.reached:
            limit = usage.reached[0]
            raise ModelBudgetReached(limit, getattr(usage.budget, limit), usage.day)
        await connection.execute(_add(workspace_id, usage.day, expected, requests=1, estimated=1))
        return usage.day


async def settle(
    database: Database, workspace_id: UUID, day: date, expected: ModelTokens, used: ModelTokens, estimated: bool
) -> None:
    """Replace the expected cost of a request of `reserve` by the actual one."""
    difference = ModelTokens(
        used.prompt - expected.prompt, used.completion - expected.completion, used.cost - expected.cost
    )
    await database.change(
        workspace_id, _add(workspace_id, day, difference, requests=0, estimated=0 if estimated else -1)
    )


async def usage_today(database: Database, workspace_id: UUID) -> ModelUsage:
    """Return a workspace's usage of today. Raises NotInDirectory."""
    query = sa.select(model_usage).where(model_usage.c.workspace_id == workspace_id, model_usage.c.day == _TODAY)
    async with database.transaction(workspace_id) as connection:
        budget = await _budget(connection, workspace_id)
        row = (await connection.execute(query)).one_or_none()
        if row is not None:
            return _usage(row, budget)
        day = (await connection.execute(sa.select(_TODAY))).scalar_one()
    usage = ModelUsage(day, 0, 0, 0, 0.0, 0, budget)
    return _with_reached(usage)


async def set_budget(database: Database, workspace_id: UUID, limits: Mapping[str, float | None]) -> ModelUsage:
    """Change the given limits (requests, tokens, cost; None: no limit) at once. Raises NotInDirectory."""
    values: dict[str, Any] = {_LIMIT_COLUMNS[limit].name: amount for limit, amount in limits.items()}
    await directory.set_columns(database, workspace_id, **values)
    return await usage_today(database, workspace_id)


async def _budget(connection: AsyncConnection, workspace_id: UUID) -> ModelBudget:
    query = sa.select(*(column.label(name) for name, column in _LIMIT_COLUMNS.items()))
    row = (await connection.execute(query.where(workspaces.c.id == workspace_id))).one_or_none()
    if row is None:
        raise NotInDirectory(f"no workspace {workspace_id}")
    return ModelBudget(**row._mapping)


def _usage(row: sa.Row[Any], budget: ModelBudget) -> ModelUsage:
    counts = {name: value for name, value in row._mapping.items() if name != "workspace_id"}
    return _with_reached(ModelUsage(**counts, budget=budget))


def _with_reached(usage: ModelUsage) -> ModelUsage:
    used = {"requests": usage.requests, "tokens": usage.prompt_tokens + usage.completion_tokens, "cost": usage.cost}
    limits = {name: getattr(usage.budget, name) for name in used}
    reached = tuple(name for name, limit in limits.items() if limit is not None and used[name] >= limit)
    return replace(usage, reached=reached)


def _add(workspace_id: UUID, day: date, tokens: ModelTokens, requests: int, estimated: int) -> sa.Update:
    is_day = (model_usage.c.workspace_id == workspace_id, model_usage.c.day == day)
    added = {
        "requests": requests,
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "cost": tokens.cost,
        "estimated": estimated,
    }
    return (
        sa.update(model_usage)
        .where(*is_day)
        .values({name: model_usage.c[name] + amount for name, amount in added.items()})
    )
