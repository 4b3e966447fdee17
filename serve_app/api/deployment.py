import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI
from ray import serve

from db.core.database import Database
from pipeline.observability import logs
from serve_app.http.auth import SOURCE_HEADER
from serve_app.http.source import trust_proxies
from serve_app.operations.database_metrics import report_connections
from serve_app.settings import Settings

if TYPE_CHECKING:
    from serve_app.api.uploads import ReceiveOptions

PATH = "/api/v1"  # below base_url


def _receive_options(settings: Settings) -> "ReceiveOptions":
    from serve_app.api.uploads import ReceiveOptions

    urls, limits = settings.url_sealer(), settings.limits
    return ReceiveOptions(settings.storage_url, settings.fetch, urls, settings.signing_parameters, limits.backlog)


class ApiReplica:
    """A Serve replica of the API, configured by the settings of its node."""

    def __serve_build_asgi_app__(self) -> FastAPI:
        from serve_app.answers.asking import AnsweringModel
        from serve_app.api.app import build_api
        from serve_app.experiments.configuration import check
        from serve_app.webhooks.post import Poster

        logs.install()
        settings = Settings()
        url = settings.require_database_url()
        process = settings.process_options()
        process.claim_scratch()

        @asynccontextmanager
        async def opened() -> AsyncIterator[Database]:
            pool_size, call_keys = settings.api.POOL_SIZE, settings.call_keys()
            async with await Database.open(url, pool_size=pool_size, call_keys=call_keys) as database:
                reporting = asyncio.create_task(report_connections(database, "Api"))
                try:
                    yield database
                finally:
                    reporting.cancel()

        # Serve adds X-Request-Id to every response.
        api = build_api(
            settings.api,
            settings.decode,
            opened,
            stamp=False,
            source_header=SOURCE_HEADER,
            embedding=settings.embedding,
            store=settings.checkpoints,
            check_run=partial(check, settings=settings, over_http=True),
            scratch_root=process.scratch_folder,
            voices=settings.voices(),
            poster=Poster(settings.webhooks, settings.fetch.ca_file),
            sealer=settings.sealer(),
            receive=_receive_options(settings),
            answering=AnsweringModel(settings.analysis, settings.processing.model_prices),
        )
        return trust_proxies(api, settings.http.trusted_proxies)

    async def check_health(self) -> None:
        """Pass if the event loop runs. An unreachable PostgreSQL does not fail the check."""

    async def pid(self) -> int:
        """Return the process id of this replica, for operators and fault tests."""
        return os.getpid()


Api = serve.deployment(serve.ingress()(ApiReplica), name="Api")
