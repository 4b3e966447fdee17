"""Console: the Serve deployment of the pages. A thin wrapper around `serve_app.console.app`."""

import os

from fastapi import FastAPI
from ray import serve

from pipeline.observability import logs
from serve_app.http.proxy import SOURCE_HEADER
from serve_app.settings import Settings


class ConsoleReplica:
    """Builds the pages in the replica, from the settings of its own node."""

    def __serve_build_asgi_app__(self) -> FastAPI:
        from serve_app.console.app import build_console

        logs.install()
        behind_haproxy = os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") == "1"
        return build_console(Settings(), SOURCE_HEADER if behind_haproxy else None)

    async def check_health(self) -> None:
        """Reached through the replica's event loop: a stuck loop fails it. PostgreSQL away is no fault of ours."""

    async def pid(self) -> int:
        """The process that runs this replica, for operators and fault tests."""
        return os.getpid()


Console = serve.deployment(serve.ingress()(ConsoleReplica), name="Console")
