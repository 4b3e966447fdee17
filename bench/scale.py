"""Does a call cost more with ten thousand queued calls or a million stored calls?

    python -m bench.scale [--queued 10000] [--stored 1000000] [--lean] [--rounds 7] [--calls 30] [--json FILE]

One PostgreSQL server has three databases: ten queued calls, many queued calls, and ten queued next to many stored. Each
in turn executes the statements of some calls as Intake and Conductor do: submit, claim, record every stage, complete.
The measure is CPU time of PostgreSQL's back ends (Linux, /proc) and of this process. Read the ratio to the database
with ten calls. The query of the scaling policies is measured separately, because it runs every two seconds and not with
each call.

`--lean` stores only the submission, the job and one result of a call, so that 10,000,000 calls fit on a disk.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from db.core.database import Database
from db.intake.group_commit import GroupCommitter
from db.queue import backlog, jobs
from db.queue import stage_results as results
from db.records import roster
from db.records.complete import complete as complete_call
from db.server import embedded, migrate
from db.workspace import directory, keys
from pipeline.domain.call import Sender, Submission
from pipeline.domain.insight import Finding
from pipeline.domain.speech import AudioAnalysis, Layout, LayoutKind, Recognized, Recording, Span, Transcript
from pipeline.domain.stage import Stage

STEPS = ("submit", "claim", "renew", "stage", "record", "complete")
LAYOUT = Layout(LayoutKind.STEREO, 2, 2, 1.0, {"correlation": 0.0}, "two channels that differ")
SPEECH = tuple(Span(float(at), at + 0.8) for at in range(200))
HEARD = AudioAnalysis(LAYOUT, 240.0, (SPEECH, SPEECH), ())
TRANSCRIPT = Transcript("en", 1.0, 240.0, (), (), LAYOUT, "bench")
FINDINGS = tuple(Finding(step, 1, {"text": "x" * 200}, (), 1.0) for step in ("summary", "statistics", "tone"))

CALLS = """
WITH made AS (
    INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, duration, recording_url,
        recording_identity, state, completed_at, analyzed_at, created_at, job_id)
    SELECT {workspace}, gen_random_uuid(), {team}, '+4930' || n, '+49409' || n, now() - n * interval '1 s', 240,
        'https://pbx.example.com/' || n || '.wav', 'https://pbx.example.com/' || n || '.wav', '{state}', now(), now(),
        now() - n * interval '1 s', gen_random_uuid()
    FROM generate_series({first}, {last}) AS n
    RETURNING id, job_id, created_at
)
INSERT INTO jobs (id, call_pk, kind, state, run, attempts, team_id, live, audio_seconds, created_at, not_before)
SELECT job_id, id, 'process', '{job}', {run}, {run}, {team}, false, 240, created_at, created_at FROM made;
"""
SUBMISSIONS = """
INSERT INTO submissions (call_pk, key_id, body, job_id)
SELECT id, gen_random_uuid(), '{{"callId": "x", "duration": 240}}', job_id FROM calls WHERE id > {after};
"""
RESULTS = """
INSERT INTO stage_results (call_pk, content_key, stage, job_id, result)
SELECT id, 'of 1 0:' || md5(id::text), stage, job_id, '{{"duration": 240}}'
FROM calls, unnest(ARRAY[{stages}]) AS stage WHERE id > {after};
"""
RECORDED = """
INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)
SELECT job_id, 0, id, 'file:///recordings/' || id, md5(id::text), 1000000 FROM calls WHERE id > {after};
INSERT INTO transcripts (call_pk, job_id, language, duration, engine, content)
SELECT id, job_id, 'en', 240, 'bench', '{{"turns": []}}' FROM calls WHERE id > {after};
INSERT INTO findings (call_pk, step, version, position, value)
SELECT id, 'summary', 1, 0, '{{"text": "x"}}' FROM calls WHERE id > {after};
INSERT INTO tasks (call_pk, position, title, owner, kind, confidence, evidence)
SELECT id, 0, 'Send the offer', 'rep', 'send', 0.9, '{{}}' FROM calls WHERE id > {after};
"""
AT_ONCE = 500_000  # calls stored in one go


@dataclass
class Cost:
    """CPU seconds of one step, a sum over `times` statements or transactions."""

    times: int = 0
    server: float = 0.0
    client: float = 0.0


@dataclass
class ScaleStand:
    """One database, and what was measured on it."""

    name: str
    database: Database
    sender: Sender
    back_ends: list[int]
    rounds: list[dict[str, Cost]] = field(default_factory=list)

    def server_seconds(self) -> float:
        """CPU time of our back ends: the first figure of schedstat, nanoseconds."""
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.back_ends) / 1e9

    @asynccontextmanager
    async def measured(self, step: str, times: int = 1) -> AsyncIterator[None]:
        cost = self.rounds[-1].setdefault(step, Cost())
        server, client = self.server_seconds(), time.process_time()
        yield
        cost.times += times
        cost.server += self.server_seconds() - server
        cost.client += time.process_time() - client

    async def one_call(self) -> None:
        data = Submission(uuid4(), "+49301", "+49402", datetime(2026, 1, 1, tzinfo=UTC), duration=240)
        address = f"https://pbx.example.com/{data.call_id}.wav"
        data = Submission(data.call_id, "+49301", "+49402", data.start_time, recording_url=address, duration=240)
        async with self.measured("submit"):
            await GroupCommitter(self.database).submit(self.sender, data, {"callId": str(data.call_id)})
        async with self.measured("claim to fetch"):
            (fetch,) = await jobs.claim_fetches(self.database, "bench:1:a", 1, 60.0, 32, 16)
        async with self.measured("fetched"):
            await jobs.fetched(self.database, fetch)
        async with self.measured("claim"):
            (lease,) = await jobs.claim(self.database, "bench:1:a", 1, 60.0)
        async with self.measured("renew", 3):
            await jobs.renew(self.database, [lease], 60.0)
            await jobs.workers(self.database)
            await roster.load(self.database, lease)
        recording = Recording(0, f"file:///{lease.call_pk}", f"{lease.call_pk:064x}", 1_000_000)
        stages: dict[Stage, Any] = {
            Stage.FETCH: (recording,),
            Stage.AUDIO: HEARD,
            Stage.RECOGNITION: Recognized((), "bench"),
            Stage.VOICEPRINT: None,
            Stage.SPEAKERS: TRANSCRIPT,
        }
        for stage, result in stages.items():
            async with self.measured("stage"):
                await jobs.stage(self.database, lease, stage)
            async with self.measured("record"):
                await results.record(self.database, lease, stage, result)
        async with self.measured("complete"):
            await complete_call(self.database, lease, TRANSCRIPT, FINDINGS, None)

    async def some_calls(self, count: int) -> None:
        self.rounds.append({})
        for _ in range(count):
            await self.one_call()
        async with self.measured("scaling look"):
            await backlog.backlog(self.database)


async def stand(url: str, name: str, queued: int, stored: int, lean: bool) -> ScaleStand:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    copy_url = url.replace("/switchboard?", f"/{name}?")
    migrate.migrate(copy_url)
    database = await Database.open(copy_url, pool_size=1, answer_seconds=None)
    home = await directory.create_workspace(database, "bench", default_country="DE")
    team = await directory.create_team(database, home.workspace_id, "bench")
    _, secret = await keys.create(database, home.workspace_id, team.team_id, {"submit"}, "bench")
    sender = await keys.find(database, secret)
    assert sender is not None
    with psycopg.connect(copy_url, autocommit=True) as admin:
        admin.execute("SET session_replication_role = replica")  # no triggers, no look at foreign keys: it is right
        admin.execute("SET synchronous_commit = off")
        fill(admin, home.workspace_id, team.team_id, stored, lean)
        say(f"{name}: {stored} calls stored, queueing {queued}")
        fill(admin, home.workspace_id, team.team_id, queued)
        admin.execute("VACUUM ANALYZE")
    return ScaleStand(name, database, sender, await back_ends(database))


def fill(admin: Any, workspace: UUID, team: UUID, count: int, lean: bool | None = None) -> None:
    """Make `count` calls: completed ones, `lean` or with all that is recorded of them; queued ones if it is None."""
    state = {"state": "transcribing", "job": "queued", "run": 0, "stages": ""}
    text = CALLS
    if lean is not None:
        stages = "'asr'" if lean else "'audio', 'asr', 'speakers'"
        state = {"state": "completed", "job": "done", "run": 1, "stages": stages}
        text += SUBMISSIONS + RESULTS + ("" if lean else RECORDED)
    for first in range(0, count, AT_ONCE):
        ((after,),) = admin.execute("SELECT coalesce(max(id), 0) FROM calls").fetchall()
        last = min(count, first + AT_ONCE)
        places = {"workspace": f"'{workspace}'", "team": f"'{team}'", "first": first + 1, "last": last, "after": after}
        admin.execute(text.format(**places, **state))
        if lean is not None:
            say(f"{last} of {count} calls stored")


async def back_ends(database: Database) -> list[int]:
    async with database.engine.connect() as connection:
        first = (await connection.exec_driver_sql("SELECT pg_backend_pid()")).scalar_one()
    return [first, (await database.fetch_one("SELECT pg_backend_pid()", ()))[0]]


async def measure(url: str, options: argparse.Namespace) -> list[ScaleStand]:
    sizes = {"ten": (10, 0), "queued": (options.queued, 0), "stored": (10, options.stored)}
    stands = [await stand(url, name, *size, options.lean) for name, size in sizes.items()]
    try:
        for stand in stands:  # caches and plans
            await stand.some_calls(10)
            stand.rounds.clear()
        for number in range(options.rounds):
            for stand in stands:
                await stand.some_calls(options.calls)
            say(f"round {number + 1} of {options.rounds}")
    finally:
        for stand in stands:
            await stand.database.close()
    return stands


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def milliseconds(stand: ScaleStand, number: int, step: str, calls: int) -> tuple[float, float]:
    """CPU of PostgreSQL and of this process in one round: by call, or by look for the scaling look."""
    costs = stand.rounds[number]
    chosen = [costs[name] for name in (STEPS if step == "whole call" else (step,))]
    by = calls if step != "scaling look" else 1
    return sum(cost.server for cost in chosen) * 1000 / by, sum(cost.client for cost in chosen) * 1000 / by


def table(stands: list[ScaleStand], rounds: int, calls: int) -> list[dict[str, Any]]:
    """Return by step the median over the rounds, and the median ratio to the first database of the round."""
    rows = []
    for step in (*STEPS, "whole call", "scaling look"):
        for stand in stands:
            pairs = [
                (milliseconds(stand, n, step, calls), milliseconds(stands[0], n, step, calls)) for n in range(rounds)
            ]
            row: dict[str, Any] = {"step": step, "database": stand.name}
            for place, side in enumerate(("server", "client")):
                row[f"{side}_ms"] = round(statistics.median(mine[place] for mine, _ in pairs), 3)
                row[f"{side}_ratio"] = round(statistics.median(mine[place] / ten[place] for mine, ten in pairs), 3)
            row["ratio"] = round(statistics.median(sum(mine) / sum(ten) for mine, ten in pairs), 3)
            rows.append(row)
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    print(f"{'step':<14}{'database':<10}{'PostgreSQL ms':>14}{'ratio':>8}{'this side ms':>14}{'ratio':>8}{'both':>8}")
    for row in rows:
        print(
            f"{row['step']:<14}{row['database']:<10}{row['server_ms']:>14}{row['server_ratio']:>8}"
            f"{row['client_ms']:>14}{row['client_ratio']:>8}{row['ratio']:>8}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queued", type=int, default=10_000, help="calls queued in the second database")
    parser.add_argument("--stored", type=int, default=1_000_000, help="calls stored in the third")
    parser.add_argument("--lean", action="store_true", help="only a submission, a job and a result of each stored call")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each database")
    parser.add_argument("--calls", type=int, default=30, help="calls in one turn")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swb-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "state"
        url = embedded.start(folder)
        try:
            stands = asyncio.run(measure(url, options))
        finally:
            embedded.stop(folder)
    rows = table(stands, options.rounds, options.calls)
    report(rows)
    if options.json:
        figures = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "queued": options.queued}
        figures |= {"stored": options.stored, "rounds": options.rounds, "calls": options.calls, "rows": rows}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
