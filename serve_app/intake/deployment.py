import logging
import os
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI
from ray import serve

from pipeline.observability import logs, tracing
from serve_app.http.auth import SOURCE_HEADER
from serve_app.http.source import trust_proxies
from serve_app.settings import Settings


def has_custom_handler(record: logging.LogRecord) -> bool:
    """Return whether a line is Serve's access log of an accepted submission, which the store logs with more detail."""
    return getattr(record, "serve_access_log", False) and "/submit 202 " in record.getMessage()


class IntakeReplica:
    """A Serve replica of Intake, configured by the settings of its node."""

    def __serve_build_asgi_app__(self) -> FastAPI:
        from serve_app.intake.store import open_store
        from serve_app.intake.submit import SubmissionStore, build_api
        from serve_app.operations.cluster import Cluster
        from serve_app.operations.metric_names import SUBMISSIONS

        logs.install()
        logging.getLogger(logs.SERVE).addFilter(lambda record: not has_custom_handler(record))
        tracing.start("intake")
        settings = Settings()
        url, limits, urls = settings.require_database_url(), settings.limits, settings.url_sealer()

        def opened() -> AbstractAsyncContextManager[SubmissionStore]:
            return open_store(
                url,
                limits.POOL_SIZE,
                settings.signing_parameters,
                waiting=limits.PLACES.total,
                backlog=limits.backlog,
                urls=urls,
                cluster=Cluster().parts,
                storage=settings.storage_url,
            )

        count = lambda answer: SUBMISSIONS.inc(answer=answer)  # noqa: E731
        # Serve adds X-Request-Id to every response.
        api = build_api(limits, opened, stamp=False, source_header=SOURCE_HEADER, count=count)
        return trust_proxies(api, settings.http.trusted_proxies)

    async def check_health(self) -> None:
        """Pass if the event loop runs. An unreachable PostgreSQL does not fail the check."""

    async def pid(self) -> int:
        """Return the process id of this replica, for operators and fault tests."""
        return os.getpid()


Intake = serve.deployment(serve.ingress()(IntakeReplica), name="Intake")
