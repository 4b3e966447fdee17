"""Api: the Serve deployment that results are read from. A thin wrapper around `serve_app.api.app`."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from ray import serve

from db.core.database import Database
from pipeline.observability import logs
from serve_app.http.proxy import SOURCE_HEADER
from serve_app.operations.database_metrics import report_connections
from serve_app.settings import Settings

PATH = "/api/v1"  # below base_url


class ApiReplica:
    """Builds the API in the replica, from the settings of its own node."""

    def __serve_build_asgi_app__(self) -> FastAPI:
        from serve_app.api.app import build_api
        from serve_app.experiments.configuration import check

        logs.install()
        settings = Settings()
        url = settings.require_database_url()

        @asynccontextmanager
        async def opened() -> AsyncIterator[Database]:
            async with await Database.open(url, pool_size=settings.api.POOL_SIZE) as database:
                telling = asyncio.create_task(report_connections(database, "Api"))
                try:
                    yield database
                finally:
                    telling.cancel()

        header = SOURCE_HEADER if os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") == "1" else None
        # Serve stamps X-Request-Id on every answer itself.
        return build_api(
            settings.api,
            settings.decode,
            opened,
            stamp=False,
            source_header=header,
            embedding=settings.embedding,
            store=settings.checkpoints,
            check_run=partial(check, settings=settings, over_http=True),
        )

    async def check_health(self) -> None:
        """Reached through the replica's event loop: a stuck loop fails it. PostgreSQL away is no fault of ours."""

    async def pid(self) -> int:
        """The process that runs this replica, for operators and fault tests."""
        return os.getpid()


Api = serve.deployment(serve.ingress()(ApiReplica), name="Api")
