"""What asking a language model has cost a workspace, by UTC day, and how much of it there may be in one.

A request is counted before it is sent, by what it costs at most, and corrected when its answer is there. So Conductors
count together, requests under way are part of the count, and one whose process dies stays counted as it was expected.
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
_COLUMNS = {
    "requests": workspaces.c.model_requests_per_day,
    "tokens": workspaces.c.model_tokens_per_day,
    "cost": workspaces.c.model_cost_per_day,
}
"""The limits of a workspace."""


@dataclass(frozen=True, slots=True)
class ModelBudget:
    """The most that a workspace may use in a day; None: no limit."""

    requests: int | None = None  # to the endpoint, repeated ones included
    tokens: int | None = None  # of requests and answers
    cost: float | None = None  # in the currency of the service's prices


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What a workspace has used in a day (UTC), and may. `reached`: which limits; the model is asked nothing more then.

    `estimated`: requests whose tokens are estimates: the answer is not there, or says nothing of its usage.
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
    """What a request costs, or is expected to cost. `cost`: at the prices of now."""

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
    """Count a request that is about to be sent, by what is expected; returns the day that it counts for.

    Raises `ModelBudgetReached` where what is counted has reached a limit: the last request that fits may go beyond it,
    and no other one beside it.
    """
    touched = insert(model_usage).values(workspace_id=workspace_id, day=_TODAY)
    held = touched.on_conflict_do_update(
        index_elements=["workspace_id", "day"], set_={"requests": model_usage.c.requests}
    )
    async with database.transaction(workspace_id) as connection:
        row = (await connection.execute(held.returning(model_usage))).one()  # locks it
        usage = _usage(row, await _budget(connection, workspace_id))
        if usage.reached:
            limit = usage.reached[0]
            raise ModelBudgetReached(limit, getattr(usage.budget, limit), usage.day)
        await connection.execute(_add(workspace_id, usage.day, expected, requests=1, estimated=1))
        return usage.day


async def settle(
    database: Database, workspace_id: UUID, day: date, expected: ModelTokens, used: ModelTokens, estimated: bool
) -> None:
    """Count what a request of `reserve` used in the place of what was expected."""
    more = ModelTokens(used.prompt - expected.prompt, used.completion - expected.completion, used.cost - expected.cost)
    async with database.transaction(workspace_id) as connection:
        await connection.execute(_add(workspace_id, day, more, requests=0, estimated=0 if estimated else -1))


async def of_today(database: Database, workspace_id: UUID) -> ModelUsage:
    """What a workspace has used today. Raises NotInDirectory."""
    query = sa.select(model_usage).where(model_usage.c.workspace_id == workspace_id, model_usage.c.day == _TODAY)
    async with database.transaction(workspace_id) as connection:
        budget = await _budget(connection, workspace_id)
        row = (await connection.execute(query)).one_or_none()
        if row is not None:
            return _usage(row, budget)
        day = (await connection.execute(sa.select(_TODAY))).scalar_one()
    nothing = ModelUsage(day, 0, 0, 0, 0.0, 0, budget)
    return _with_reached(nothing)


async def set_budget(database: Database, workspace_id: UUID, limits: Mapping[str, float | None]) -> ModelUsage:
    """Change the limits that are given (requests, tokens, cost; None: no limit), at once. Raises NotInDirectory."""
    values: dict[str, Any] = {_COLUMNS[limit].name: amount for limit, amount in limits.items()}
    await directory.set_columns(database, workspace_id, **values)
    return await of_today(database, workspace_id)


async def _budget(connection: AsyncConnection, workspace_id: UUID) -> ModelBudget:
    query = sa.select(*(column.label(name) for name, column in _COLUMNS.items()))
    row = (await connection.execute(query.where(workspaces.c.id == workspace_id))).one_or_none()
    if row is None:
        raise NotInDirectory(f"there is no workspace {workspace_id}")
    return ModelBudget(**row._mapping)


def _usage(row: sa.Row[Any], budget: ModelBudget) -> ModelUsage:
    counted = {name: value for name, value in row._mapping.items() if name != "workspace_id"}
    return _with_reached(ModelUsage(**counted, budget=budget))


def _with_reached(usage: ModelUsage) -> ModelUsage:
    used = {
        "requests": usage.requests,
        "tokens": usage.prompt_tokens + usage.completion_tokens,
        "cost": usage.cost,
    }
    limits = {name: getattr(usage.budget, name) for name in used}
    reached = tuple(name for name, limit in limits.items() if limit is not None and used[name] >= limit)
    return replace(usage, reached=reached)


def _add(workspace_id: UUID, day: date, more: ModelTokens, requests: int, estimated: int) -> sa.Update:
    one = (model_usage.c.workspace_id == workspace_id, model_usage.c.day == day)
    added = {
        "requests": requests,
        "prompt_tokens": more.prompt,
        "completion_tokens": more.completion,
        "cost": more.cost,
        "estimated": estimated,
    }
    return sa.update(model_usage).where(*one).values({name: model_usage.c[name] + by for name, by in added.items()})
