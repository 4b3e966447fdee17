"""Does a restored backup equal the database, and how long do backup and restore take?

    python -m bench.restore [--calls 10000] [--texts 2000] [--recordings 1000] [--connections 2] [--json FILE]

The script creates completed calls as `bench.reading` does, some with recordings of 100 kB. Connections submit further
calls during the backup. The backup is then restored into another server. The report has:

- digests: how many tables of the restored database equal the backup's;
- RPO: seconds from the snapshot of the backup to the last submission accepted before its end, and how many were
  accepted in this time: the loss if a disaster happens at that moment. Add the time between backups;
- RTO: seconds from the start of the restore until the restored database accepts a submission.

The reference in the same run is a copy of the backup's bytes to the same disk, flushed.
"""

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa

from bench.reading import filled
from db.core.database import EVERY_WORKSPACE, Database
from db.intake.group_commit import GroupCommitter
from db.server import dump, embedded, migrate
from db.workspace import keys
from pipeline.domain.call import Sender, Submission
from pipeline.speakers.profile import Voices
from serve_app.backup.create import BackupSource, create
from serve_app.backup.manifest import Manifest
from serve_app.backup.progress import BackupProgress
from serve_app.backup.restore import RestoreTarget, restore
from serve_app.backup.verify import check, verify

RECORDING_BYTES = 100_000
LIMIT_SECONDS = 7200.0


async def with_recordings(database: Database, storage: Path, count: int) -> None:
    """Store files of random sound for the first calls, and rows that refer to them."""
    rows = []
    for number in range(1, count + 1):
        sound = number.to_bytes(8, "big") + os.urandom(RECORDING_BYTES - 8)
        name = hashlib.sha256(sound).hexdigest()
        path = storage / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sound)
        rows.append({"id": number, "uri": path.as_uri(), "sha256": name, "size": len(sound)})
    if rows:
        async with database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(
                sa.text(
                    "INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)"
                    " SELECT job_id, 0, id, :uri, :sha256, :size FROM calls WHERE id = :id AND job_id IS NOT NULL"
                ),
                rows,
            )


async def submitting(database: Database, sender: Sender, accepted: list[tuple[datetime, UUID]]) -> None:
    """Submit calls until canceled; record each accepted one with the server's time."""
    while True:
        call_id = uuid4()
        sent = Submission(call_id, "+49301", "+49302", datetime.now(UTC), f"https://pbx.example/{call_id}.wav")
        await GroupCommitter(database).submit(sender, sent, {"callId": str(call_id)})
        (at,) = await database.fetch_one("SELECT clock_timestamp()", ())
        accepted.append((at, call_id))


async def a_sender(database: Database, home: UUID, team: UUID) -> Sender:
    _, secret = await keys.create(database, home, team, ["submit"], "drill")
    sender = await keys.find(database, secret)
    assert sender is not None
    return sender


async def backed_up(
    url: str, arguments: argparse.Namespace, folder: Path
) -> tuple[Path, Manifest, list[tuple[datetime, UUID]], UUID, UUID]:
    """Create a backup while calls are submitted; return it with the accepted calls, workspace and team."""
    began = time.perf_counter()
    database, home, teams, _ = await filled(url, arguments)
    await with_recordings(database, folder / "recordings", arguments.recordings)
    sender = await a_sender(database, home, teams[0])
    print(f"{arguments.calls} calls in {time.perf_counter() - began:.0f} s")
    accepted: list[tuple[datetime, UUID]] = []
    senders = [asyncio.create_task(submitting(database, sender, accepted)) for _ in range(arguments.connections)]
    source = BackupSource(url, (folder / "recordings").as_uri(), folder / "handed-in")
    backup, manifest = await asyncio.to_thread(create, source, folder / "backups", BackupProgress(LIMIT_SECONDS))
    for task in senders:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await database.close()
    return backup, manifest, accepted, home, teams[0]


async def accepts(url: str, home: UUID, team: UUID, after: list[UUID], before: list[UUID]) -> dict[str, int]:
    """Submit a call to the restored database; return how many earlier calls it contains."""
    async with await Database.open(url) as database:
        sender = await a_sender(database, home, team)
        sent = Submission(uuid4(), "+49301", "+49302", datetime.now(UTC), "https://pbx.example/after.wav")
        await GroupCommitter(database).submit(sender, sent, {})
        query = sa.text("SELECT count(*) FROM calls WHERE call_id = ANY (:ids)")
        async with database.transaction(EVERY_WORKSPACE) as connection:
            return {
                "before_there": (await connection.execute(query, {"ids": before})).scalar_one(),
                "after_there": (await connection.execute(query, {"ids": after})).scalar_one(),
            }


def copied(folder: Path, target: Path) -> float:
    """Return the seconds for a plain copy of the same bytes, flushed: the reference."""
    began = time.perf_counter()
    shutil.copytree(folder, target)
    for path in target.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - began


def drill(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    url = embedded.start(folder / "first", outlives=False)
    migrate.migrate(url)
    backup, manifest, accepted, home, team = asyncio.run(backed_up(url, arguments, folder))
    embedded.stop(folder / "first")
    reference = copied(folder / "backups", folder / "copy")
    began = time.perf_counter()
    verified = verify(backup, (), BackupProgress(LIMIT_SECONDS), unsigned=True)
    verify_seconds = time.perf_counter() - began
    accepted_after = [call_id for at, call_id in accepted if at > manifest.taken_at]
    accepted_before = [call_id for at, call_id in accepted if at <= manifest.taken_at]
    second = embedded.start(folder / "second", outlives=False)
    began = time.perf_counter()
    progress = BackupProgress(LIMIT_SECONDS)
    target = RestoreTarget(second, (folder / "restored").as_uri(), folder / "in", Voices())
    restored = restore(check(backup, (), progress, unsigned=True), target, progress)
    counts = asyncio.run(accepts(second, home, team, accepted_after, accepted_before))
    rto = time.perf_counter() - began
    with dump.snapshot(second) as after:
        restored_bytes = after.size
        whole = after.connection.execute("SELECT pg_database_size(current_database())").fetchone()
    embedded.stop(folder / "second")
    last = max((at for at, _ in accepted), default=manifest.taken_at)
    size = sum(content.bytes for content in manifest.files.values())
    return {
        "calls": arguments.calls,
        "recordings": manifest.recordings.count,
        "recordings_restored": restored.recordings,
        "flaws": list(verified.flaws),
        "tables_equal": len(manifest.tables),  # `restore` fails otherwise
        "table_bytes": manifest.database_bytes,
        "restored_table_bytes": restored_bytes,
        "restored_database_bytes": whole[0] if whole else 0,  # with indexes
        "backup_bytes": size,
        "backup_seconds": manifest.seconds,
        "verify_seconds": round(verify_seconds, 1),
        "copy_seconds": round(reference, 1),
        "rpo_seconds": round((last - manifest.taken_at).total_seconds(), 1),
        "accepted_after_the_moment": len(accepted_after),
        "of_these_restored": counts["after_there"],
        "accepted_before_the_moment": len(accepted_before),
        "of_those_restored": counts["before_there"],
        "restore_seconds": round(restored.seconds, 1),
        "rto_seconds": round(rto, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.restore", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000, help="completed calls")
    parser.add_argument("--teams", type=int, default=10, help="teams that have them")
    parser.add_argument("--texts", type=int, default=2_000, help="different talks")
    parser.add_argument("--recordings", type=int, default=1_000, help="calls that have a recording")
    parser.add_argument("--connections", type=int, default=2, help="that submit during the backup")
    parser.add_argument("--folder", type=Path, help="working folder (default: the temporary folder)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swb-restore-", dir=arguments.folder, ignore_cleanup_errors=True) as folder:
        results = drill(arguments, Path(folder))
    for name, value in results.items():
        print(f"{name.replace('_', ' '):28} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if results["flaws"] or results["of_those_restored"] != results["accepted_before_the_moment"]:
        sys.exit("The backup is incomplete.")


if __name__ == "__main__":
    main()
