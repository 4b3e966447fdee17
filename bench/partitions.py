"""What do partitions of many stored calls cost, and what do they give?

    python bench/partitions.py [--stored 10000000] [--calls-per-partition 1000000] [--rounds 7] [--json FILE]

Two databases on one server of its own, ten calls queued in each: one holds nothing else, the other `--stored` lean
calls (`scale.py`). In turns each has the statements of some calls run against it, and CPU time is counted, as in
`scale.py`: with plain tables, then after `switchboard partition`, which is timed, with a dozen partitions, with sixty.
At last a second partition is filled, and vacuumed beside the first one, each with 10,000 changed rows.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.scale import ScaleStand, back_ends, fill, say, stand, table
from db.core.database import OUTAGES, WORKSPACE_SETTING
from db.server import embedded, partitions

ROOMY = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}  # many rows are made
CHANGED = 10_000  # rows before a vacuum
SHOWN = ("submit", "claim", "whole call", "scaling look")


async def measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    ten = await stand(url, "ten", 10, 0, True)
    stored = await stand(url, "stored", 10, options.stored, True)
    own = url.replace("/switchboard?", "/stored?")
    stands = [ten, stored]
    try:
        costs = {"plain": await in_turns(stands, options)}
        done = partitions.partition(own, options.calls_per_partition, on_step=say)
        converted = [{"table": one.name, "seconds": one.seconds, "locked_seconds": one.locked_seconds} for one in done]
        costs["partitioned"] = await in_turns(stands, options)
        for count in (12, 60):
            until(own, count)
            costs[f"{count} partitions"] = await in_turns(stands, options)
        found = {"costs": costs, "converted": converted}
        return found | {"vacuum": vacuums(own, options), "largest_index": indexes(own)}
    finally:
        for one in stands:
            await one.database.close()


async def in_turns(stands: list[ScaleStand], options: argparse.Namespace) -> list[dict[str, Any]]:
    for one in stands:  # caches and plans
        await turn(one, 10)
        one.rounds.clear()
    for number in range(options.rounds):
        for one in stands:
            await turn(one, options.calls)
        say(f"round {number + 1} of {options.rounds}")
    rows = [row for row in table(stands, options.rounds, options.calls) if row["database"] == "stored"]
    for one in stands:
        one.rounds.clear()
    return rows


async def turn(one: ScaleStand, calls: int) -> None:
    """Again where the server gave us up: so it does if this process was stopped in the middle of a transaction."""
    while True:
        try:
            return await one.some_calls(calls)
        except OUTAGES:
            say("a turn was interrupted, and is taken again")
            one.rounds.pop()
            one.back_ends = await back_ends(one.database)


def until(url: str, count: int) -> None:
    """Make partitions until each table has `count` by range."""
    with psycopg.connect(url, autocommit=True) as admin:
        for one in partitions.look(url):
            for end in range(one.end, one.end + (count - one.partitions) * one.calls, one.calls):
                bounds = f"FOR VALUES FROM ({end}) TO ({end + one.calls})"
                values = (one.name, f"{one.name}_{end}", bounds, f"{one.name}_0")
                admin.execute("SELECT add_partition(%s::regclass, %s, %s, %s::regclass)", values)


def vacuums(url: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Fill the second partition of each table; seconds and CPU seconds of a vacuum of it, and of the first one."""
    one = partitions.look(url)[0]
    second = one.end - (one.partitions - 1) * one.calls
    found = []
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT set_config(%s, '*', false)", (WORKSPACE_SETTING,))
        admin.execute("SET session_replication_role = replica")
        admin.execute(f"ALTER TABLE calls ALTER id RESTART WITH {second}".encode())
        ((home, team),) = admin.execute("SELECT workspace_id, id FROM teams").fetchall()
        fill(admin, home, team, min(options.calls_per_partition, options.stored), True)
        admin.execute("VACUUM ANALYZE")
        for name in ("jobs", "stage_results"):
            for number in (0, second):
                place = sql.Identifier(f"{name}_{number}")
                change = (
                    "UPDATE {0} SET job_id = job_id" if name == "stage_results" else "UPDATE {0} SET crashes = crashes"
                )
                some = " WHERE ctid = ANY (ARRAY(SELECT ctid FROM {0} TABLESAMPLE SYSTEM (20) LIMIT {1}))"
                admin.execute(sql.SQL(change + some).format(place, sql.Literal(CHANGED)))
                admin.execute("CHECKPOINT")
                began, cpu = time.monotonic(), used(admin)
                admin.execute(sql.SQL("VACUUM (INDEX_CLEANUP ON) {}").format(place))
                took = {"seconds": round(time.monotonic() - began, 3), "cpu_seconds": round(used(admin) - cpu, 3)}
                ((rows,),) = admin.execute(sql.SQL("SELECT count(*) FROM {}").format(place)).fetchall()
                found.append({"partition": f"{name}_{number}", "rows": rows, **took})
    return found


def used(admin: "psycopg.Connection[Any]") -> float:
    return int(Path(f"/proc/{admin.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9


def indexes(url: str) -> list[dict[str, Any]]:
    """The largest index of each of the first two partitions."""
    query = """
        SELECT DISTINCT ON (i.indrelid) i.indrelid::regclass::text, i.indexrelid::regclass::text,
            pg_relation_size(i.indexrelid)
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relispartition AND c.reltuples > 0
        ORDER BY i.indrelid, 3 DESC
    """
    with psycopg.connect(url) as admin:
        return [{"partition": p, "index": i, "bytes": size} for p, i, size in admin.execute(query.encode())]


def report(found: dict[str, Any]) -> None:
    print(f"{'tables':<16}{'step':<14}{'PostgreSQL ms':>14}{'ratio':>8}{'this side ms':>14}{'ratio':>8}{'both':>8}")
    for tables, rows in found["costs"].items():
        for row in rows:
            if row["step"] in SHOWN:
                print(
                    f"{tables:<16}{row['step']:<14}{row['server_ms']:>14}{row['server_ratio']:>8}"
                    f"{row['client_ms']:>14}{row['client_ratio']:>8}{row['ratio']:>8}"
                )
    for one in found["converted"]:
        print(f"{one['table']}: converted in {one['seconds']:.1f} s, locked for {one['locked_seconds']:.3f} s")
    for one in found["vacuum"]:
        print(f"vacuum of {one['partition']}, {one['rows']} rows: {one['seconds']} s, {one['cpu_seconds']} s of CPU")
    for one in found["largest_index"]:
        print(f"largest index of {one['partition']}: {one['index']}, {one['bytes'] / 2**20:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=int, default=10_000_000, help="calls stored in the second database")
    parser.add_argument("--calls-per-partition", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each database")
    parser.add_argument("--calls", type=int, default=30, help="calls in one turn")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swb-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "state"
        url = embedded.start(folder, ROOMY)
        try:
            found = asyncio.run(measure(url, options))
        finally:
            embedded.stop(folder)
    report(found)
    if options.json:
        figures = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "stored": options.stored, **found}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
