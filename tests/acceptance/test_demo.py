"""`switchboard demo` as a newcomer runs it: real voices, real weights, the whole service.

The bounds are far from the figures (`bench/README.md`): they tell a service that works from one that does not.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_app.demo import sounds

PATIENCE = 600
CALLS = {"02_two_strangers": 0.25, "08_invoice": 0.2}  # name -> share of words that may be wrong
WITH_SOUNDS = {"01_help_line": 0.25}


@pytest.fixture(scope="module")
def fetched_sounds() -> bool:
    """Whether the machine can fetch prompts and hold music: Debian and Ubuntu can."""
    try:
        return sounds.fetch().is_dir()
    except sounds.SoundsMissing:
        return False


@pytest.fixture(scope="module")
def report(fetched_sounds: bool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `switchboard demo --json` says of three calls (two without prompts)."""
    calls = [*CALLS, *(WITH_SOUNDS if fetched_sounds else ())]
    folder: Path = tmp_path_factory.mktemp("demo")
    kept = {"SWITCHBOARD_CHECKPOINTS"}
    environment = {k: v for k, v in os.environ.items() if k in kept or not k.startswith(("SWITCHBOARD_", "RAY_"))}
    done = subprocess.run(
        [sys.executable, "-m", "serve_app.cli", "demo", *calls, "--json", "--data-dir", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def row(report: dict[str, Any], name: str) -> dict[str, Any]:
    found = [call for call in report["calls"] if call["name"] == name]
    if not found:
        pytest.skip("Debian's Asterisk sounds cannot be fetched on this machine")
    return dict(found[0])


@pytest.mark.parametrize("name, most_wrong", [*CALLS.items(), *WITH_SOUNDS.items()])
def test_a_call_is_completed_as_it_is(report: dict[str, Any], name: str, most_wrong: float) -> None:
    call = row(report, name)
    assert call["state"] == "completed"
    assert (call["layout"], call["language"]) == (call["layoutExpected"], call["languageExpected"])
    assert call["wordsWrong"] / call["wordsSaid"] <= most_wrong


def test_two_real_voices_in_one_channel_are_two_speakers(report: dict[str, Any]) -> None:
    assert row(report, "02_two_strangers")["speakers"] == 2


def test_tasks_that_a_rep_takes_on_are_found(report: dict[str, Any]) -> None:
    assert row(report, "08_invoice")["tasks"] >= 1


def test_prompts_and_hold_music_of_a_real_telephone_system_are_labelled(report: dict[str, Any]) -> None:
    """The line of the telephone system holds 39 s of announcements and 16 s of music; the caller presses a key."""
    system, caller = row(report, "01_help_line")["channels"]
    assert system["announcement"] > 25
    assert system["music"] > 11
    assert system["speech"] < 25
    assert "dtmf" in caller and "announcement" not in caller
