"""Snapshots of Hugging Face repositories, from the cache if complete there, else downloaded.

A repository is "owner/name", or "owner/name@revision", which pins it to a commit.
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
ANSWER_TIMEOUT = 5.0  # seconds to wait for the first response of the hub

logger = logging.getLogger(__name__)


def pinned(repository: str) -> tuple[str, str | None]:
    """Return the name of a repository and its pinned revision, if any."""
    name, _, revision = repository.partition("@")
    return name, revision or None


def cached(repository: str, patterns: Sequence[str], required: Sequence[str]) -> Path | None:
    """Return the cached snapshot that has all `required` files, or None. Works offline."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    name, revision = pinned(repository)
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns), local_files_only=True))
    except (EntryNotFoundError, HfHubHTTPError, OSError, ValueError):
        return None
    return folder if all((folder / name).is_file() for name in required) else None


def download(repository: str, patterns: Sequence[str]) -> Path:
    """Download a snapshot. Raises the errors of huggingface_hub.

    Raises `TimeoutError` after `ANSWER_TIMEOUT` without a response: snapshot_download would wait without limit.
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
            "%s is not pinned: its owner may replace it. Use %s@%s to pin this download.", name, name, folder.name
        )
    return folder


def _probe(name: str, revision: str | None) -> None:
    """Request the metadata of a repository. Raises the errors of huggingface_hub.

    The deadline covers the whole request: a name lookup has no timeout, and each address of a host has its own.
    """
    from huggingface_hub import HfApi

    response: Future[object] = Future()

    def request() -> None:
        try:
            response.set_result(HfApi().repo_info(name, revision=revision, timeout=ANSWER_TIMEOUT))
        except Exception as error:
            response.set_exception(error)

    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(ANSWER_TIMEOUT)
    if thread.is_alive():
        raise TimeoutError(f"no response within {ANSWER_TIMEOUT:.0f} s")
    response.result()


def why(error: BaseException) -> str:
    """Return why the hub did not serve a repository, as a clause of a sentence."""
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    if any(isinstance(cause, GatedRepoError) for cause in chain):
        return "the hub requires an accepted license and a token"
    if any(isinstance(cause, RepositoryNotFoundError) for cause in chain):
        return "the hub has no such repository, or does not show it without a token"
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in chain):
        return "HF_HUB_OFFLINE is set"
    root = chain[-1]
    return f"the hub could not be reached ({type(root).__name__}: {str(root).splitlines()[0] if str(root) else ''})"


def _log_progress() -> type[Any]:
    """Return a tqdm class that logs a line every few seconds, because replicas have no terminal."""
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
