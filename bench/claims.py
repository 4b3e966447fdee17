"""Does claiming a job get slower while somebody holds a snapshot: a backup, a long query, a forgotten console?

    python bench/claims.py [--finished 100000] [--jobs 8000] [--at-once 16] [--teams 1] [--idle-teams 0] [--json FILE]

Row versions that a snapshot may still see cannot be removed, so an index is full of entries that lead nowhere. Beside
finished jobs a queue is worked off, claim by claim, each claimed job finished at once; the reference, in the same run,
is the same queue without a snapshot. Milliseconds are of PostgreSQL's processor (Linux, /proc/PID/schedstat), so that
others on the machine do not count: means of the first and the last twentieth of the claims.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
import sqlalchemy as sa

from db import directory, embedded, jobs, migrate
from db.database import EVERY_WORKSPACE, Database

CALLS = """
    WITH made AS (
        INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, duration, state)
        SELECT :workspace, gen_random_uuid(), (CAST(:teams AS uuid[]))[1 + n % cardinality(CAST(:teams AS uuid[]))],
            '1', '2', now(), 60, 'transcribing'
        FROM generate_series(1, :count) AS n RETURNING id
    )
    INSERT INTO jobs (call_pk, kind, state, created_at, not_before)
    SELECT id, 'process', :state, at, at
    FROM (
        SELECT id, now() - make_interval(secs => 0.01 * (:count - row_number() OVER (ORDER BY id))) AS at FROM made
    ) AS placed
"""
FINISH = "UPDATE jobs SET state = 'done', finished_at = now(), lease_until = NULL WHERE id = ANY (CAST(:ids AS uuid[]))"


async def filled(url: str, given: argparse.Namespace) -> Database:
    """A database with finished jobs and a queue."""
    database = await Database.open(url, answer_seconds=None)  # filling takes as long as it takes
    home = await directory.create_workspace(database, "bench")
    teams = [
        (await directory.create_team(database, home.workspace_id, f"team {n}")).team_id for n in range(given.teams)
    ]
    for n in range(given.idle_teams):
        await directory.create_team(database, home.workspace_id, f"idle {n}")
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for state, count in (("done", given.finished), ("queued", given.jobs)):
            values = {"workspace": home.workspace_id, "teams": teams, "state": state, "count": count}
            await connection.execute(sa.text(CALLS), values)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL ROLE NONE"))
        await connection.execute(sa.text("ANALYZE"))
    return database


async def backends(database: Database) -> list[Path]:
    """Where the kernel tells how long PostgreSQL's processes for this database have worked."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        found = await connection.execute(sa.text("SELECT pid FROM pg_stat_activity WHERE datname = current_database()"))
        return [Path(f"/proc/{pid}/schedstat") for pid in found.scalars()]


async def worked_off(database: Database, at_once: int) -> list[float]:
    """Seconds of PostgreSQL's processor for each claim until nothing is left."""
    took: list[float] = []
    files = await backends(database)
    while True:
        before = sum(int(file.read_text().split()[0]) for file in files if file.exists())
        leases = await jobs.claim(database, "bench", at_once, 600)
        if not leases:
            return took
        took.append((sum(int(file.read_text().split()[0]) for file in files if file.exists()) - before) / 1e9)
        async with database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text(FINISH), {"ids": [lease.job.job_id for lease in leases]})


async def measured(url: str, given: argparse.Namespace, snapshot: bool) -> dict[str, Any]:
    database = await filled(url, given)
    with psycopg.connect(url) as reader:
        if snapshot:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM workspaces")
        took = await worked_off(database, given.at_once)
    await database.close()
    part = max(1, len(took) // 20)
    first, last = (1000 * statistics.fmean(some) for some in (took[:part], took[-part:]))
    row = {"snapshot": snapshot, "claims": len(took), "first_ms": round(first, 2), "last_ms": round(last, 2)}
    return row | {"last_to_first": round(last / first, 2), "all_seconds": round(sum(took), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", type=int, default=100_000, help="finished jobs beside the queue")
    parser.add_argument("--jobs", type=int, default=8000, help="queued jobs")
    parser.add_argument("--at-once", type=int, default=16, help="jobs that one claim may take")
    parser.add_argument("--teams", type=int, default=1, help="teams with jobs in the queue")
    parser.add_argument("--idle-teams", type=int, default=0, help="teams without any")
    parser.add_argument("--json", type=Path, help="write the rows here")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="swb-claims-"))
    try:
        server = embedded.start(folder)
        rows = []
        for number, snapshot in enumerate((False, True)):
            with psycopg.connect(server.replace("/switchboard?", "/postgres?"), autocommit=True) as admin:
                admin.execute(f"CREATE DATABASE claims_{number}".encode())
            url = server.replace("/switchboard?", f"/claims_{number}?")
            migrate.migrate(url)
            rows.append(asyncio.run(measured(url, given, snapshot)))
            held = "a snapshot is held" if snapshot else "no snapshot is held"
            print(
                "{claims} claims: first {first_ms} ms, last {last_ms} ms ({last_to_first} times)".format(**rows[-1]),
                held,
            )
        plain, held_up = rows
        print(f"the last claims take {held_up['last_ms'] / plain['last_ms']:.2f} times as long beside a snapshot")
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
