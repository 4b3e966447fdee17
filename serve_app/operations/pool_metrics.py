"""How a process stands with PostgreSQL, as gauges."""

import asyncio

from db.core.database import Database
from serve_app.operations.metric_names import POSTGRES_CONNECTIONS, POSTGRES_WAITING

SECONDS = 10.0  # between two looks


async def tell_connections(database: Database, deployment: str) -> None:
    """Record the connections of a process, until canceled."""
    while True:
        pools = database.pools()
        for pool, state in pools.items():
            for name, count in (("used", state.used), ("idle", state.idle), ("limit", state.limit)):
                POSTGRES_CONNECTIONS.set(float(count), deployment=deployment, pool=pool, state=name)
        POSTGRES_WAITING.set(float(pools["statements"].waiting), deployment=deployment)
        await asyncio.sleep(SECONDS)
