import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from serve_app.conductor.machine import BOOT_ID, is_dead, machine, worker_name


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a process of this machine, and its worker's name."""
    script = (
        "import sys; from serve_app.conductor.machine import worker_name; "
        "print(worker_name(), flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def test_a_worker_is_dead_when_its_process_has_ended_and_not_before(
    other: tuple[subprocess.Popen[str], str],
) -> None:
    process, name = other
    assert not is_dead(name)
    process.kill()
    process.wait()
    assert is_dead(name)


def test_a_process_that_ended_and_was_not_waited_for_is_dead(other: tuple[subprocess.Popen[str], str]) -> None:
    process, name = other
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(name)


def test_a_number_that_was_given_to_another_process_does_not_keep_its_worker_alive() -> None:
    host, process, token = worker_name().rsplit(":", 2)
    assert is_dead(f"{host}:{process.partition('@')[0]}@1:{token}")


def test_of_a_machine_that_has_the_same_host_name_and_namespace_nothing_is_known() -> None:
    """Cloud images share host names, and the first process namespace of every Linux has the same number."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    elsewhere = machine().replace(BOOT_ID.read_text().strip(), "7d1c2b9e-0f0e-4a55-9c38-2f4a6a1b9f10")
    assert elsewhere != machine()
    assert not is_dead(f"{elsewhere}:{ended.pid}@1:abcdef")


@pytest.mark.parametrize("name", ["", "w1", "elsewhere:1:dead", ":1@1:dead", "a:b:c:d", f"{machine()}:x@1:abcdef"])
def test_names_of_another_form_say_nothing(name: str) -> None:
    assert not is_dead(name)
