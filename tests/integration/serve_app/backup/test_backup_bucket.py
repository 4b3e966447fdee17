import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests import s3_server
from tests.paths import ROOT
from tests.postgres import World, fresh_database
from tests.s3_server import Bucket, Faults

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
SOUNDS = [bytes([n]) * (200_000 + n) for n in range(9)]
NAMES = [hashlib.sha256(sound).hexdigest() for sound in SOUNDS]
HELD = """
import fsspec, hashlib, json, sys
fs, root = fsspec.core.url_to_fs(sys.argv[1])
found = {fs.unstrip_protocol(path): hashlib.sha256(fs.cat_file(path)).hexdigest() for path in fs.find(root)}
print(json.dumps(found))
"""
HARM = """
import fsspec, sys
for uri, size in zip(sys.argv[1::2], sys.argv[2::2]):
    fs, path = fsspec.core.url_to_fs(uri)
    fs.pipe_file(path, b"?" * int(size)) if int(size) else fs.rm_file(path)
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with s3_server.bucket("here") as new_bucket:
        for sound, name in zip(SOUNDS, NAMES, strict=True):
            new_bucket.put(key(name), sound)
        yield new_bucket


@pytest.fixture
async def filled(world: World) -> World:
    """Nine calls whose recordings lie in the bucket."""
    for sound, name in zip(SOUNDS, NAMES, strict=True):
        world.call_id = uuid4()
        await world.submit(recording_url="https://pbx.example/a.wav")
        await world.execute(
            "INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)"
            " SELECT jobs.id, 0, call_pk, :uri, :sha256, :size FROM jobs JOIN calls ON calls.id = call_pk"
            " WHERE call_id = :call",
            uri=f"s3://here/{key(name)}", sha256=name, size=len(sound), call=world.call_id,
        )  # fmt: skip
    return world


@pytest.fixture
def empty(postgres_server: str) -> Iterator[str]:
    yield from fresh_database(postgres_server, "template0")


def key(name: str) -> str:
    return f"recordings/{name[:2]}/{name}"


def run(bucket: Bucket, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "AWS_"))}
    path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{bucket.environment['PYTHONPATH']}"}
    return subprocess.run(
        [sys.executable, *map(str, command)], env=environment | bucket.environment | path | more,
        text=True, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


def switchboard(bucket: Bucket, url: str, storage: str, *command: str | Path) -> Any:
    done = run(
        bucket, "-m", "serve_app.cli", *command, "--json",
        SWITCHBOARD_DATABASE_URL=url, SWITCHBOARD_STORAGE=storage, SWITCHBOARD_DATA_DIR="data",
        SWITCHBOARD_SECRETS_KEYS=KEY,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def held(bucket: Bucket, storage: str) -> dict[str, str]:
    """Return the current digests of a bucket's objects, by URI."""
    done = run(bucket, "-c", HELD, storage)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def stored(url: str) -> dict[str, str]:
    """Return the digests in a database, by URI."""
    with psycopg.connect(url, options="-c switchboard.workspace=*") as connection:
        return dict(connection.execute("SELECT uri, sha256 FROM recordings").fetchall())


def test_recordings_that_stay_in_their_bucket_are_found_by_the_restored_database(
    bucket: Bucket, filled: World, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = switchboard(bucket, filled.database.url, "s3://here/recordings", "backup", "create", tmp_path / "backups")
    assert not (tmp_path / "backups/recordings").exists()
    done = switchboard(bucket, empty, "s3://here/recordings", "restore", result["backup"])
    assert (done["recordingsCopied"], done["recordingsMoved"]) == (0, 0)
    assert stored(empty) == held(bucket, "s3://here/recordings")


def test_copied_recordings_come_back_into_another_bucket_to_the_digit(
    bucket: Bucket, filled: World, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the server is busy for a while, and an answer is cut: what is not whole is read again."""
    monkeypatch.chdir(tmp_path)
    bucket.faults(Faults(under="/here/", busy_seconds=3, cut=[f"/here/{key(NAMES[3])}"]))
    create = ("backup", "create", tmp_path / "backups", "--copy-recordings")
    result = switchboard(bucket, filled.database.url, "s3://here/recordings", *create)
    bucket.faults(Faults())
    verified = run(bucket, "-m", "serve_app.cli", "backup", "verify", result["backup"], SWITCHBOARD_SECRETS_KEYS=KEY)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    httpx.put(f"{bucket.url}/there").raise_for_status()
    done = switchboard(bucket, empty, "s3://there/recordings", "restore", result["backup"])
    assert (done["recordingsCopied"], done["recordingsMoved"]) == (9, 9)
    assert stored(empty) == held(bucket, "s3://there/recordings")
    assert sorted(stored(empty).values()) == sorted(NAMES)


def test_what_a_bucket_lost_since_the_backup_is_found_and_told_on_the_way_back(
    bucket: Bucket, filled: World, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = "s3://here/recordings"
    result = switchboard(bucket, filled.database.url, here, "backup", "create", tmp_path / "backups")

    def verified(*options: str) -> tuple[int, str]:
        command = ("-m", "serve_app.cli", "backup", "verify", result["backup"], *options)
        done = run(bucket, *command, COLUMNS="300", SWITCHBOARD_SECRETS_KEYS=KEY)
        return done.returncode, done.stderr

    assert verified() == (0, "")
    missing, damaged = (f"s3://here/{key(name)}" for name in NAMES[:2])
    assert run(bucket, "-c", HARM, missing, "0", damaged, str(len(SOUNDS[1]))).returncode == 0
    assert verified("--quick") == (1, f"{missing} is missing.\n")
    code, output = verified()
    assert code == 1 and sorted(output.splitlines()) == [f"{missing} is missing.", f"{damaged} is not what was stored."]
    done = switchboard(bucket, empty, here, "restore", result["backup"])
    assert (done["recordingsLost"], done["recordingsMoved"]) == (1, 0)
