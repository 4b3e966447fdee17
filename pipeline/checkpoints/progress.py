"""How a download shows where it stands: a bar on a terminal, a line every few seconds elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOG_EVERY = 5.0  # seconds between lines where there is no terminal

logger = logging.getLogger(__name__)
Say = Callable[[str], None]


def log(line: str) -> None:
    """Say a line as the service does: in its log."""
    logger.info("%s", line)


@contextmanager
def shown(title: str, total: int, say: Say = log) -> Iterator[Callable[[int], None]]:
    """Yield what is to be told the bytes that are here, of `total`."""
    if sys.stderr.isatty():
        with _bar(title, total) as tell:
            yield tell
        return
    say(f"Downloading {title}, {total / 1e6:.0f} MB ...")
    said = time.monotonic()

    def tell_lines(here: int) -> None:
        nonlocal said
        if time.monotonic() - said >= LOG_EVERY:
            said = time.monotonic()
            say(f"... {here / 1e6:.0f} of {total / 1e6:.0f} MB ({100 * here / total:.0f} %)")

    yield tell_lines


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total)
        yield lambda here: progress.update(task, completed=here)
