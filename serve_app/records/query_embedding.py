import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline import embedding
from pipeline.embedding import EmbeddingOptions, Engine
from pipeline.errors import CallError

SECONDS = 5.0  # max. wait for a vector, including the first load, which continues in the background
LOAD_AGAIN_SECONDS = 20.0  # before a missing model is loaded again
THREADS = 2
log = logging.getLogger("ray.serve")


class SwitchedOff(Exception):
    """No embedding engine is configured."""


class EmbedderNotReady(Exception):
    """The engine has no model or did not respond in time; the message has the reason."""


class QueryEmbedder:
    """Embeds search queries. Create it in an event loop."""

    def __init__(self, options: EmbeddingOptions, store: Path | None) -> None:
        self._options, self._store = options, store
        self._threads = ThreadPoolExecutor(THREADS, "questions")
        self._loading: asyncio.Future[Engine] | None = None
        self._begun_at = 0.0

    @property
    def on(self) -> bool:
        """Whether an engine is configured."""
        return self._options.on

    def start(self) -> None:
        """Start loading the engine, if one is configured, without waiting."""
        if self.on:
            self._begun_at = time.monotonic()
            self._loading = asyncio.get_running_loop().run_in_executor(
                self._threads, embedding.load, self._options, self._store
            )
            self._loading.add_done_callback(_log_failure)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def vector(self, text: str) -> tuple[str, list[float]]:
        """Return the name of the model and the vector of a text. Raises `SwitchedOff` or `EmbedderNotReady`."""
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
                vectors = await loop.run_in_executor(self._threads, engine.query, text)
        except TimeoutError:
            raise EmbedderNotReady("The query could not be embedded in time. Retry.") from None
        except CallError as error:
            problem = "The model for search by meaning is not installed. Ask your administrator to install it."
            raise EmbedderNotReady(problem) from error
        return engine.name, [float(value) for value in vectors[0]]


def _log_failure(loading: "asyncio.Future[Engine]") -> None:
    if not loading.cancelled() and (error := loading.exception()) is not None:
        log.error("no model for search by meaning: %s", error)
