import os

from fastapi import FastAPI
from ray import serve

from pipeline.observability import logs
from serve_app.http.auth import SOURCE_HEADER
from serve_app.http.source import trust_proxies
from serve_app.settings import Settings


class ConsoleReplica:
    """Builds the application in the replica, from the settings of the replica's node."""

    def __serve_build_asgi_app__(self) -> FastAPI:
        from serve_app.console.app import build_console

        logs.install()
        settings = Settings()
        return trust_proxies(build_console(settings, SOURCE_HEADER), settings.http.trusted_proxies)

    async def check_health(self) -> None:
        """Pass if the event loop runs. An unavailable PostgreSQL does not make the replica unhealthy."""

    async def pid(self) -> int:
        """Return the id of the replica's process, for operators and fault tests."""
        return os.getpid()


Console = serve.deployment(serve.ingress()(ConsoleReplica), name="Console")
