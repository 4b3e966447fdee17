"""A snapshot of a Hugging Face repository, from the cache if it is whole there, else downloaded with progress shown.

A repository is "owner/name", or "owner/name@revision": a commit, at which it stays whatever its owner does later.
"""

import io
import logging
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

LOG_EVERY = 5.0  # seconds between lines where there is no terminal for a progress bar
ANSWER_TIMEOUT = 5.0  # seconds to wait for the hub's first answer

logger = logging.getLogger(__name__)


def pinned(repository: str) -> tuple[str, str | None]:
    """The repository's name, and the revision that it is pinned to, if it is."""
    name, _, revision = repository.partition("@")
    return name, revision or None


def cached(repository: str, patterns: Sequence[str], required: Sequence[str]) -> Path | None:
    """The cached snapshot that holds all `required` files, or None. Never touches the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    name, revision = pinned(repository)
    try:
        found = snapshot_download(name, revision=revision, allow_patterns=list(patterns), local_files_only=True)
        folder = Path(found)
    except (EntryNotFoundError, HfHubHTTPError, OSError, ValueError):
        return None
    return folder if all((folder / name).is_file() for name in required) else None


def download(repository: str, patterns: Sequence[str]) -> Path:
    """Download a snapshot; raises what huggingface_hub raises.

    Raises `TimeoutError` after `ANSWER_TIMEOUT` without an answer: snapshot_download would wait without limit.
    """
    from huggingface_hub import snapshot_download

    name, revision = pinned(repository)
    _probe(name, revision)
    logger.info("Downloading %s from the Hugging Face hub ...", repository)
    bar = {} if sys.stderr.isatty() else {"tqdm_class": _log_progress()}
    folder = Path(
        snapshot_download(name, revision=revision, allow_patterns=list(patterns), etag_timeout=ANSWER_TIMEOUT, **bar)
    )
    if revision is None:
        logger.warning(
            "%s is not pinned: its owner may replace it. %s@%s names what was downloaded.", name, name, folder.name
        )
    return folder


def _probe(name: str, revision: str | None) -> None:
    """Request the repository's facts; raises what huggingface_hub raises.

    The deadline covers the whole request: a name lookup has no timeout, and each address of a host has its own.
    """
    from huggingface_hub import HfApi

    answer: Future[object] = Future()

    def request() -> None:
        try:
            answer.set_result(HfApi().repo_info(name, revision=revision, timeout=ANSWER_TIMEOUT))
        except Exception as error:
            answer.set_exception(error)

    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(ANSWER_TIMEOUT)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT:.0f} s")
    answer.result()


def why(error: BaseException) -> str:
    """One clause for people: why the hub did not serve a repository."""
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    if any(isinstance(e, GatedRepoError) for e in chain):
        return "the hub requires an accepted license and a token"
    if any(isinstance(e, RepositoryNotFoundError) for e in chain):
        return "the hub has no such repository, or does not show it without a token"
    if any(isinstance(e, OfflineModeIsEnabled) for e in chain):
        return "HF_HUB_OFFLINE is set"
    root = chain[-1]
    return f"the hub could not be reached ({type(root).__name__}: {str(root).splitlines()[0] if str(root) else ''})"


def _log_progress() -> type[Any]:
    """A tqdm that writes a log line every few seconds: replicas have no terminal."""
    from huggingface_hub.utils import tqdm

    class LogProgress(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.update(disable=False, file=io.StringIO(), mininterval=LOG_EVERY)
            self._logged = time.monotonic()
            super().__init__(*args, **kwargs)

        def display(self, msg: str | None = None, pos: int | None = None) -> bool:
            due = time.monotonic() - self._logged >= LOG_EVERY
            if due and self.unit == "B" and self.total:
                self._logged = time.monotonic()
                megabytes = self.total / 1e6
                logger.info("... %.0f of %.0f MB (%.0f %%)", self.n / 1e6, megabytes, 100 * self.n / self.total)
            return True

    return LogProgress
