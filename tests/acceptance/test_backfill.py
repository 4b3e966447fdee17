"""`switchboard backfill` during a running service, on its Ray: killed half-way, run again, audited.

Each run starts a process for every core, with all models: `make notebooks` runs them.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

from tests import fixture_checkpoints
from tests.acceptance.running import RunningService

CLIPS = sorted(Path(__file__).parents[1].glob("fixtures/utterances/*.flac"))
BAD = "z/page.wav"
SECONDS = 420

pytestmark = pytest.mark.slow


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Three blocks of speech, and a file that is none."""
    folder = tmp_path / "recordings"
    for at in range(40):
        target = folder / f"{at % 7}/{at}.flac"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CLIPS[at % len(CLIPS)], target)
    (folder / BAD).parent.mkdir()
    (folder / BAD).write_text("<html>not found</html>")
    return folder


def start(
    service: RunningService, recordings: Path, output: Path, model: str = str(fixture_checkpoints.RECOGNITION)
) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "serve_app.cli", "backfill", str(recordings), "--out", str(output), "--json"],
        env=environment
        | {
            "SWITCHBOARD_DATA_DIR": str(service.folder),
            "SWITCHBOARD_ASR__MODEL": model,
            "HF_HUB_OFFLINE": "1",
            "SWITCHBOARD_DIARIZATION__PIPELINE": str(fixture_checkpoints.DIARIZATION),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(output: Path) -> list[dict[str, object]]:
    return ds.dataset(output, format="parquet").to_table().to_pylist() if output.is_dir() else []


def backfillers(service: RunningService) -> list[int]:
    assert service.process is not None
    return [
        process.pid
        for process in psutil.Process(service.process.pid).children(recursive=True)
        if "Backfiller" in " ".join(_command(process))
    ]


def _command(process: psutil.Process) -> list[str]:
    """Empty for one that has ended, perhaps just now."""
    with suppress(psutil.Error):
        return process.cmdline() or [process.name()]
    return []


def wait_until(condition, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.mark.timeout(1200)
def test_a_backfill_that_is_killed_half_way_loses_nothing_and_does_nothing_twice(service, recordings, tmp_path):
    output = tmp_path / "texts"
    first = start(service, recordings, output)
    wait_until(lambda: rows(output) or first.poll() is not None, SECONDS, "no part was written")
    assert first.poll() is None, first.communicate()[1][-3000:]
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = {row["path"]: row["done_at"] for row in rows(output)}
    assert 0 < len(before) < 41

    second = start(service, recordings, output)
    stdout, stderr = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, stderr[-3000:]
    progress = json.loads(stdout)
    assert "Joining Ray" in stderr
    done = rows(output)
    expected = {str(path.relative_to(recordings)) for path in recordings.rglob("*.*")}
    assert Counter(row["path"] for row in done) == Counter(expected)
    assert {row["path"]: row["done_at"] for row in done if row["path"] in before} == before
    assert progress["doneBefore"] + progress["done"] == progress["found"] == 41
    assert progress["left"] == 0 and progress["failed"] <= 1
    failed = {row["path"]: (row["code"], row["retryable"]) for row in done if row["status"] == "failed"}
    assert failed == {BAD: ("not_audio", False)}
    speech = next(row for row in done if row["status"] == "completed")
    turns = json.loads(speech["turns"])
    assert speech["text"] == "\n".join(" ".join(word["text"] for word in turn["words"]) for turn in turns)
    assert {finding["step"] for finding in json.loads(speech["findings"])} >= {"tone", "tasks", "statistics"}
    wait_until(lambda: not backfillers(service), 30, "actors outlive their run")


@pytest.mark.timeout(600)
def test_what_ends_a_backfill_on_its_nodes_is_said_and_not_what_ray_makes_of_it(service, recordings, tmp_path):
    """Ray Data wraps an actor's error twice, and only the text of the first one survives the way to the driver."""
    run = start(service, recordings, tmp_path / "texts", model="medium")
    _, stderr = run.communicate(timeout=SECONDS)
    assert run.returncode == 1
    assert "No speech recognition model 'medium'" in stderr
    assert "(checkpoint_missing)" in stderr
    assert "DataContext" not in stderr.splitlines()[-1]
