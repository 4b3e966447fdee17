"""`switchboard backfill` from a bucket to a bucket of a real S3 server that fails in every way that S3 knows."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fixture_checkpoints, s3_server
from tests.s3_server import Bucket, Faults

CLIPS = sorted(Path(__file__).parents[1].glob("fixtures/utterances/*.flac"))
SECONDS = 420
IN = "/calls/in/"
ALL, BLOCK = 20, 16
READ = """
import json, sys, pyarrow.dataset as ds, fsspec
fs, root = fsspec.core.url_to_fs("s3://calls/out")
paths = [path for path in fs.ls(root) if path.endswith(".parquet")]
columns = ["path", "status", "code", "error", "done_at"]
rows = ds.dataset(paths, format="parquet", filesystem=fs).to_table(columns=columns).to_pylist() if paths else []
json.dump(rows, sys.stdout, default=str)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * SECONDS)]


@pytest.fixture
def calls() -> Iterator[Bucket]:
    """Two blocks of recordings."""
    with s3_server.bucket("calls") as bucket:
        for at in range(ALL):
            bucket.put(f"in/{at:02}.flac", CLIPS[at % len(CLIPS)].read_bytes())
        yield bucket


def run(bucket: Bucket, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_", "AWS_"))
    }
    models = {
        "SWITCHBOARD_ASR__MODEL": str(fixture_checkpoints.RECOGNITION),
        "SWITCHBOARD_DIARIZATION__PIPELINE": str(fixture_checkpoints.DIARIZATION),
    }
    return subprocess.run(
        [sys.executable, *command], env=environment | models | bucket.environment | more, text=True,
        capture_output=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip


def backfill(bucket: Bucket, **more: str) -> subprocess.CompletedProcess[str]:
    where = ("s3://calls/in", "--out", "s3://calls/out", "--address", "local", "--json")
    return run(bucket, "-m", "serve_app.cli", "backfill", *where, **more)


def rows(bucket: Bucket) -> dict[str, dict[str, str]]:
    """Return the rows by path, without duplicates."""
    read = run(bucket, "-c", READ)
    assert read.returncode == 0, read.stderr
    listed = json.loads(read.stdout)
    assert Counter(row["path"] for row in listed).most_common(1)[0][1] == 1 if listed else True
    return {row["path"]: row for row in listed}


def test_what_a_bucket_does_for_a_moment_costs_no_recording_and_what_is_gone_is_a_row(calls):
    calls.faults(Faults(under=IN, busy_seconds=4, gone=[f"{IN}03.flac"], cut=[f"{IN}05.flac"]))
    done = backfill(calls)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["failed"] == 1
    by_path = rows(calls)
    assert len(by_path) == ALL
    failed = {path: row["code"] for path, row in by_path.items() if row["status"] == "failed"}
    assert failed == {"03.flac": "recording_gone"}
    assert calls.answered()[f"{IN}05.flac"] == 2  # cut, and read again


@pytest.mark.parametrize(
    ("down", "message", "advice"),
    [("denied", "PermissionError", "Check credentials"), ("busy", "OSError", "Check that it exists")],
)
def test_a_bucket_that_fails_for_good_ends_the_run_with_advice_and_the_next_run_does_the_rest(
    calls, down, message, advice
):
    calls.faults(Faults(under=IN, down_after=BLOCK + 2, down=down))
    ended = backfill(calls)
    assert ended.returncode == 1, ended.stderr[-3000:]
    report = " ".join(ended.stderr.split())
    assert message in report and advice in report, ended.stderr[-3000:]
    assert "Run the same command again" in report and "DataContext" not in report

    calls.faults(Faults())
    between = rows(calls)
    assert BLOCK <= len(between) < ALL
    assert not [row for row in between.values() if row["status"] == "failed"]
    done = backfill(calls)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert (report["doneBefore"], report["done"], report["failed"]) == (len(between), ALL - len(between), 0)
    after = rows(calls)
    assert len(after) == ALL
    assert {path: row["done_at"] for path, row in after.items() if path in between} == {
        path: row["done_at"] for path, row in between.items()
    }


def test_credentials_that_are_wrong_from_the_start_are_said_before_ray_is_started(calls):
    calls.faults(Faults(down_after=-1))
    refused = backfill(calls)
    assert refused.returncode == 2
    stderr = " ".join(refused.stderr.split())
    assert "s3://calls/in cannot be read (PermissionError" in stderr and "Check credentials" in stderr
    assert "Starting Ray" not in stderr
