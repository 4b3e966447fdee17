"""Two services on one machine, each with a separate folder: start, stop and kill in every order, with a table of the
results (`pytest -m slow -s tests/acceptance/test_two_services.py`).

Ending one must not affect the other, must leave nothing of it behind, and must allow a restart.
"""

import itertools
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from db.server import embedded
from serve_app.service import children, run_folder
from tests.acceptance.conftest import free_port
from tests.acceptance.running import RunningService

ENDS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "kill -9": signal.SIGKILL}
GONE_SECONDS = 60.0  # a killed one's worker notices and ends what is left


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a service: `seconds` until nothing was left, else `strays` that still were."""

    code: int
    seconds: float
    strays: list[str]


@pytest.fixture(scope="module")
def pair() -> Iterator[list[RunningService]]:
    with tempfile.TemporaryDirectory(prefix="swb-two-", ignore_cleanup_errors=True) as folder:
        services = [RunningService("", Path(folder) / name, free_port()) for name in ("a", "b")]
        for service in services:
            service.folder.mkdir()
        yield services
        for service in services:
            if service.process is not None and service.process.poll() is None:
                service.stop()


def answers(service: RunningService) -> bool:
    try:
        url = f"http://127.0.0.1:{service.port}/submit"
        return httpx.post(url, json={}, timeout=10, trust_env=False).status_code == 401
    except httpx.HTTPError:
        return False


def start(service: RunningService) -> float:
    """Seconds until it answers; nothing is done where it runs."""
    if service.process is not None and service.process.poll() is None:
        return 0.0
    started = time.monotonic()
    service.start()
    return time.monotonic() - started


def left(service: RunningService, folder: str) -> set[psutil.Process]:
    server = embedded.postmaster(service.folder)
    return children.with_variable(run_folder.MARK, folder) | ({server} if server else set())


def end(service: RunningService, how: str) -> Ended:
    """End it, and wait until nothing of it is left, for `GONE_SECONDS`."""
    assert service.process is not None
    folder = _run_folder(service)
    struck = time.monotonic()
    os.kill(service.process.pid, ENDS[how])
    code = service.process.wait(120)
    while (strays := left(service, folder)) and time.monotonic() - struck < GONE_SECONDS:
        time.sleep(0.2)
    return Ended(code, time.monotonic() - struck, sorted(process.name() for process in strays))


def _run_folder(service: RunningService) -> str:
    (run,) = [run for run in run_folder.running() if run.facts.get("data_dir") == str(service.folder)]
    return str(run.path)


def told(what: str, ended: Ended, rest: str) -> None:
    strays = ", ".join(ended.strays) or "nothing"
    print(f"\n{what:<17} exit {ended.code:>2}, gone after {ended.seconds:4.1f} s, left: {strays}; {rest}", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize(("role", "how"), list(itertools.product(("older", "newer"), ENDS)))
def test_ending_one_leaves_the_other_alone_and_it_starts_again(pair: list[RunningService], role: str, how: str) -> None:
    """`pair`: the one that has run for longer comes first."""
    for service in pair:
        start(service)
    chosen = pair.pop(0 if role == "older" else 1)
    (other,) = pair
    ended = end(chosen, how)
    stays = answers(other)
    again = start(chosen)
    pair.append(chosen)
    told(f"{role} {how}", ended, f"other answers: {stays}; started again in {again:.0f} s")
    assert stays
    assert ended.strays == []
    assert ended.code == (-signal.SIGKILL if how == "kill -9" else 0)
    assert all(map(answers, pair))


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_both_end_at_once_and_start_at_once(pair: list[RunningService], how: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(start, pair))
        both = list(pool.map(lambda service: end(service, how), pair))
        took = list(pool.map(start, pair))
    for ended, seconds in zip(both, took, strict=True):
        told(f"both {how}", ended, f"started again at once in {seconds:.0f} s")
    assert [ended.strays for ended in both] == [[], []]
    assert all(map(answers, pair))
