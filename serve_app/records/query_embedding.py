"""Questions of people as vectors, in a replica that reads: the engine is loaded once, beside its requests."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline import embedding
from pipeline.embedding import EmbeddingOptions, Engine
from pipeline.errors import CallError

SECONDS = 5.0  # for a question, a first load included; that goes on behind it
LOAD_AGAIN_SECONDS = 20.0  # after which a model that was missing is looked for again
THREADS = 2
log = logging.getLogger("ray.serve")


class SwitchedOff(Exception):
    """No embedding engine is named in the settings."""


class EmbedderNotReady(Exception):
    """The engine has no model, or did not answer in time; the message says which."""


class Questions:
    """Embeds questions; made where there is an event loop."""

    def __init__(self, options: EmbeddingOptions, store: Path | None) -> None:
        self._options, self._store = options, store
        self._threads = ThreadPoolExecutor(THREADS, "questions")
        self._loading: asyncio.Future[Engine] | None = None
        self._begun_at = 0.0

    @property
    def on(self) -> bool:
        """Whether there is an engine to ask."""
        return self._options.on

    def start(self) -> None:
        """Begin to load the engine, if one is named; returns at once."""
        if self.on:
            self._begun_at = time.monotonic()
            self._loading = asyncio.get_running_loop().run_in_executor(
                self._threads, embedding.load, self._options, self._store
            )
            self._loading.add_done_callback(_tell)

    def close(self) -> None:
        """Take no more questions."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def vector(self, text: str) -> tuple[str, list[float]]:
        """The model's name and the vector of a question. Raises `SwitchedOff` or `EmbedderNotReady`."""
        if not self.on:
            raise SwitchedOff
        failed = self._loading is not None and self._loading.done() and self._loading.exception() is not None
        if self._loading is None or (failed and time.monotonic() - self._begun_at > LOAD_AGAIN_SECONDS):
            self.start()
        assert self._loading is not None
        try:
            async with asyncio.timeout(SECONDS):
                engine = await asyncio.shield(self._loading)
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(self._threads, engine.query, text)
        except TimeoutError:
            raise EmbedderNotReady("The question could not be understood in time.") from None
        except CallError as error:
            problem = "The service has no model for search by meaning. Its operator has to bring it."
            raise EmbedderNotReady(problem) from error
        return engine.name, [float(value) for value in found[0]]


def _tell(loading: "asyncio.Future[Engine]") -> None:
    if not loading.cancelled() and (error := loading.exception()) is not None:
        log.error("no model for search by meaning: %s", error)
