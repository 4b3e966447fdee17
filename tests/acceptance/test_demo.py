"""`switchboard demo` as a new user runs it: real voices, real weights, the whole service.

The limits are far from the measurements (`bench/README.md`): they only detect a broken service.
"""

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
PATIENCE = 600
# name -> share of words that may be wrong
CALLS = {"01_help_line": 0.25, "02_two_strangers": 0.25, "08_invoice": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def environment() -> dict[str, str]:
    checkpoints = {"SWITCHBOARD_CHECKPOINTS"}
    return {k: v for k, v in os.environ.items() if k in checkpoints or not k.startswith(("SWITCHBOARD_", "RAY_"))}


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """Return the report of `switchboard demo --json` on three calls."""
    done = subprocess.run(
        [sys.executable, "-m", "serve_app.cli", "demo", *CALLS, "--json", "--data-dir", str(folder)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def row(report: dict[str, Any], name: str) -> dict[str, Any]:
    (call,) = (call for call in report["calls"] if call["name"] == name)
    return dict(call)


@pytest.mark.parametrize("name, most_wrong", CALLS.items())
def test_a_call_is_completed_as_it_is(report: dict[str, Any], name: str, most_wrong: float) -> None:
    call = row(report, name)
    assert call["status"] == "completed"
    assert (call["layout"], call["language"]) == (call["layoutExpected"], call["languageExpected"])
    assert call["wordsWrong"] / call["wordsSaid"] <= most_wrong


def test_two_real_voices_in_one_channel_are_two_speakers(report: dict[str, Any]) -> None:
    assert row(report, "02_two_strangers")["speakers"] == 2


def test_tasks_that_a_rep_takes_on_are_found(report: dict[str, Any]) -> None:
    assert row(report, "08_invoice")["tasks"] >= 1


def test_prompts_and_hold_music_of_a_real_telephone_system_are_labelled(report: dict[str, Any]) -> None:
    system, caller = row(report, "01_help_line")["channels"]
    assert system["announcement"] > 25
    assert system["music"] > 11
    assert system["speech"] < 25
    assert "dtmf" in caller and "announcement" not in caller


def test_on_a_terminal_a_second_demo_keeps_running_with_the_same_calls_until_ctrl_c(
    report: dict[str, Any], folder: Path
) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "serve_app.cli", "demo", "02", "--data-dir", str(folder)]
        os.execve(sys.executable, command, environment())
    output, ends = "", time.monotonic() + PATIENCE
    while "Press Ctrl-C" not in output:
        assert time.monotonic() < ends, output
        output += os.read(terminal, 65536).decode(errors="replace")
    assert re.search(r"http://127\.0\.0\.1:\d+/console/\S+", output)
    with_folder = environment() | {"SWITCHBOARD_DATA_DIR": str(folder)}
    listed = [
        json.loads(
            subprocess.run(
                [sys.executable, "-m", "serve_app.cli", *command, "--json"],
                env=with_folder,
                capture_output=True,
                timeout=PATIENCE,
                check=True,
            ).stdout
        )
        for command in (("workspaces", "list"), ("calls", "list"))
    ]
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    workspaces, calls = listed
    assert [workspace["name"] for workspace in workspaces] == ["Demo"]
    assert {call["callId"] for call in calls} == {call["callId"] for call in report["calls"]}
