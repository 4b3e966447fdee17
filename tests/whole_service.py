"""POST /submit and the read API on one loopback address, as behind the ingress, with PostgreSQL behind them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.routing import Mount

from db.core.database import Database
from pipeline.audio.decode.options import DecodeOptions
from pipeline.speakers.profile import Voices
from serve_app.answers.asking import AnsweringModel
from serve_app.api.app import build_api
from serve_app.api.options import ApiOptions
from serve_app.api.uploads import ReceiveOptions
from serve_app.experiments.configuration import check
from serve_app.http.options import LimitOptions
from serve_app.intake.store import open_store
from serve_app.intake.submit import build_api as build_intake
from serve_app.settings import Settings
from tests import serving

READS = ApiOptions(per_minute=1e9)
SUBMISSIONS = LimitOptions(per_minute=1e9)


def application(
    url: str,
    reads: ApiOptions = READS,
    submissions: LimitOptions = SUBMISSIONS,
    receive: ReceiveOptions | None = None,
    answering: AnsweringModel | None = None,
) -> Starlette:
    """Both applications in one."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        async with await Database.open(url, pool_size=reads.POOL_SIZE) as database:
            yield database

    check_run = partial(check, settings=Settings(api={"run_models": ["whisper-tiny.en"]}), over_http=True)
    room = {"voices": Voices(), "check_run": check_run, "receive": receive, "answering": answering}
    api = build_api(reads, DecodeOptions(), opened, **room)
    intake = build_intake(submissions, lambda: open_store(url, submissions.POOL_SIZE, backlog=submissions.backlog))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for app in (api, intake):
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    return Starlette(routes=[Mount("/api/v1", api), Mount("", intake)], lifespan=lifespan)


@contextmanager
def served(
    url: str,
    reads: ApiOptions = READS,
    submissions: LimitOptions = SUBMISSIONS,
    receive: ReceiveOptions | None = None,
    answering: AnsweringModel | None = None,
) -> Iterator[str]:
    """Yields the base URL."""
    app = application(url, reads, submissions, receive, answering)
    with serving.served(app) as base:
        yield base
