"""Kills and other faults of every kind, and their duration.

Faults other than kills: a process is frozen (SIGSTOP) for longer than a lease, a Conductor loses the database silently,
and the worker node's clock is ten minutes off.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.chaos.ledger import ACCEPTED, Ledger
from tests.chaos.stand import Onlooker, Stand
from tests.chaos.wire import WAYS

SHARES = {  # how often each kind comes, in parts; what takes long to come back comes seldom
    "task": 36,
    "intake": 28,
    "standby": 8,
    "cut": 48,
    "backend": 36,
    "proxy": 15,
    "controller": 10,
    "conductor": 18,
    "transcriber": 9,
    "diarizer": 6,
    "postgres": 8,
    "node": 5,
    "head": 2,
    "freeze_conductor": 10,
    "freeze_engine": 8,
    "freeze_task": 8,
    "partition": 14,
    "clock": 5,
}
AT_ONCE = {"task": 2, "cut": 3, "backend": 2}  # recoveries of a kind under way at once; of the others one: what is down
# already cannot be killed, and what is killed faster than it starts proves only that
ALONE = ("head", "node", "clock")  # begin when nothing else is under way, and end before anything else begins
ENGINE_STAGES = {"transcriber": "asr", "diarizer": "diarization"}
MAX_RECOVERY_SECONDS = 240.0  # limit for a recovery
NODE_AWAY = 4.0  # seconds until a lost node is replaced
# Seconds, with a lease of 10: during the longest one Serve replaces the replica.
FROZEN = (12.0, 14.0, 18.0, 45.0)
SILENT = (1.0, 3.0, 14.0, 20.0)

Witness = Callable[[], Awaitable[str]]  # sends a call that needs both engines, and returns its callId
Hit = dict[Any, tuple[int, str]]  # run and worker of jobs, by id


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill or another fault. `recovered`: seconds from its beginning until its victim resumed; None: not within
    `MAX_RECOVERY_SECONDS`.
    """

    kind: str
    at: float
    what: str
    recovered: float | None
    calls_hit: int


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault as it begins. `hit`: the jobs it hit, None for all that were running; `back`: ends when what was frozen
    or cut off is at work again."""

    at: float
    what: str
    hit: Hit | None = None
    back: Awaitable[object] | None = None
    stage: str = ""  # that the jobs wait for, if they wait for an engine


def schedule(count: int, rng: random.Random, kinds: Sequence[str] = tuple(SHARES)) -> list[str]:
    """Kinds in random order, to be taken from the end: first one of each, then by their shares."""
    each = list(kinds)
    rng.shuffle(each)
    return [*rng.choices(kinds, [SHARES[kind] for kind in kinds], k=max(0, count - len(kinds))), *each]


class Killer:
    """Kills processes and observes the recovery. Several recoveries may run at once."""

    def __init__(self, stand: Stand, onlooker: Onlooker, ledger: Ledger, witness: Witness, rng: random.Random) -> None:
        self._stand, self._onlooker, self._ledger, self._witness, self._rng = stand, onlooker, ledger, witness, rng
        self.kills: list[Kill] = []
        self.skipped = 0
        self.struck = 0  # what is still being watched included
        self._watching: set[asyncio.Task[None]] = set()
        self._under_way: Counter[str] = Counter()
        self.probing = 0  # how many recoveries wait for a 202

    async def strike(self, kind: str) -> None:
        """One kill; returns when the next may follow."""
        if kind in ALONE:
            await self.settle()
        before = await self._running()
        struck = await getattr(self, f"_{kind}", lambda: self._process(kind))()
        if struck is None:
            self.skipped += 1
            return
        self.struck += 1
        self._under_way[kind] += 1
        task = asyncio.create_task(self._watch(kind, struck, before if struck.hit is None else struck.hit))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        if kind in ALONE:
            await task

    def busy(self, kind: str) -> bool:
        """Return whether another kill of this kind has to wait."""
        return self._under_way[kind] >= AT_ONCE.get(kind, 1)

    async def settle(self) -> None:
        """Wait until every recovery under way has ended."""
        while self._watching:
            await asyncio.wait(self._watching)

    # How each kind is struck; None where there is nothing to strike just now

    async def _process(self, kind: str) -> Struck | None:
        if kind == "task":
            await self._wait(lambda: self._stand.pids("task"), 10)
        at = time.time()
        pid = self._stand.kill_one(kind, self._rng)
        return None if pid is None else Struck(at, f"pid {pid}")

    async def _conductor(self) -> Struck | None:
        struck = await self._process("conductor")
        return struck and replace(struck, hit=await self._held_by(int(struck.what.split()[1])))

    async def _transcriber(self) -> Struck | None:
        return await self._engine("transcriber")

    async def _diarizer(self) -> Struck | None:
        return await self._engine("diarizer")

    async def _engine(self, kind: str) -> Struck | None:
        hit = await self._at_an_engine()
        at = time.time()
        pid = self._stand.kill_one(kind, self._rng)
        return None if pid is None else Struck(at, f"pid {pid}", hit, stage=ENGINE_STAGES[kind])

    async def _at_an_engine(self) -> Hit:
        """Kill an engine in the middle of a call."""
        call_id = await self._witness()
        query = """SELECT jobs.id FROM jobs JOIN calls ON calls.id = jobs.call_pk
            WHERE calls.call_id = %(call)s AND jobs.state = 'running' AND jobs.stage IN ('asr', 'diarization')"""
        deadline = time.monotonic() + 30
        while not (rows := await self._onlooker.rows(query, call=call_id)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.sleep(self._rng.uniform(0, 0.3))
        return {row["id"]: (0, "") for row in rows}

    async def _freeze_conductor(self) -> Struck | None:
        pid, hit = await self._busy_conductor()
        return None if pid is None else self._frozen("conductor", pid, hit)

    async def _freeze_engine(self) -> Struck | None:
        kind = self._rng.choice(sorted(ENGINE_STAGES))
        hit = await self._at_an_engine()
        alive = self._stand.pids(kind)
        if not alive:
            return None
        return replace(self._frozen(kind, self._rng.choice(alive), hit), stage=ENGINE_STAGES[kind])

    async def _freeze_task(self) -> Struck | None:
        await self._wait(lambda: self._stand.pids("task"), 10)
        alive = self._stand.pids("task")
        return self._frozen("task", self._rng.choice(alive), None) if alive else None

    def _frozen(self, kind: str, pid: int, hit: Hit | None) -> Struck:
        """SIGSTOP, and SIGCONT after a while."""
        at, seconds = time.time(), self._rng.choice(FROZEN)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

        async def thaw() -> None:
            await asyncio.sleep(seconds)
            woken = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            if kind == "conductor":
                await self._at_work_again(pid, woken)

        return Struck(at, f"{kind} {pid} for {seconds:g} s", hit, asyncio.create_task(thaw()))

    async def _partition(self) -> Struck | None:
        """Cut one Conductor off from the database, without affecting others."""
        pid, hit = await self._busy_conductor()
        if pid is None:
            return None
        at, seconds, acknowledging = time.time(), self._rng.choice(SILENT), self._rng.random() < 0.25
        self._stand.wire.silence([pid], acknowledging)

        async def heal() -> None:
            await asyncio.sleep(seconds)
            healed = time.monotonic()
            self._stand.wire.heal()
            await self._at_work_again(pid, healed)

        what = f"conductor {pid} for {seconds:g} s" + (", packets acknowledged" if acknowledging else "")
        return Struck(at, what, hit, asyncio.create_task(heal()))

    async def _busy_conductor(self) -> tuple[int | None, Hit]:
        """Return a Conductor with work, and its jobs."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for pid in self._rng.sample(alive := self._stand.pids("conductor"), len(alive)):
                if hit := await self._held_by(pid):
                    return pid, hit
            await asyncio.sleep(0.1)
        return None, {}

    async def _at_work_again(self, pid: int, since: float) -> None:
        """Return whether the database responds to it again, or it was replaced."""
        alive = lambda: pid in self._stand.pids("conductor")  # noqa: E731
        await self._wait(lambda: self._stand.wire.answers(pid, since) or not alive(), MAX_RECOVERY_SECONDS)

    async def _postgres(self) -> Struck:
        at = time.time()
        pid = self._stand.kill_postgres()
        await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0, 14.0)))  # the last one: longer than a lease
        await self._stand.start_postgres()
        return Struck(at, f"postmaster {pid}")

    async def _head(self) -> Struck:
        at = time.time()
        count = self._stand.kill_service()
        await self._stand.start_service()
        await self._stand.wait_for_engines()
        return Struck(at, f"{count} processes")

    async def _node(self) -> Struck:
        at = time.time()
        killed = await self._stand.lose_node()
        await asyncio.sleep(NODE_AWAY)
        await self._stand.add_node()
        return Struck(at, f"{killed} processes")

    async def _clock(self) -> Struck:
        """Worker nodes have a clock that is ten minutes ahead; from now on one that is ten minutes behind, or back.

        A Conductor is moved there, if none comes by itself: it is what decides about moments.
        """
        self._stand.skew *= -1
        struck = await self._node()
        for _ in range(6):
            if self._stand.pids("conductor", on_worker_node=True):
                break
            self._stand.kill_one("conductor", self._rng)
            await asyncio.sleep(1)
            await self._wait(lambda: len(self._stand.pids("conductor")) >= 2, 60)
        there = [
            kind for kind in ("conductor", "intake", *ENGINE_STAGES) if self._stand.pids(kind, on_worker_node=True)
        ]
        await self._witness()
        return replace(struck, what=f"{self._stand.skew:+d} s on the node of {', '.join(there) or 'tasks alone'}")

    async def _cut(self) -> Struck | None:
        way = self._rng.choice(WAYS)
        before = self._stand.wire.cuts.total()
        self._stand.wire.arm(way)
        await self._wait(lambda: self._stand.wire.cuts.total() > before, 15)
        self._stand.wire.disarm()
        if self._stand.wire.cuts.total() == before:
            return None
        return Struck(self._stand.wire.last_cut, f"{way} the commit")

    async def _backend(self) -> Struck | None:
        at = time.time()
        query = """SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'switchboard' ORDER BY random() LIMIT 2"""
        ended = await self._onlooker.rows(query)
        return Struck(at, f"{len(ended)} connections") if ended else None

    # When it is over

    async def _watch(self, kind: str, struck: Struck, hit: Hit) -> None:
        at = struck.at
        felt: list[Awaitable[object]] = [struck.back] if struck.back else []
        if struck.stage:
            felt.append(self._wait_async(lambda: self._heard(struck.stage, at, list(hit))))
        elif kind not in ("intake", "standby", "proxy", "controller"):
            felt.append(self._wait_async(lambda: self._moved(at, hit)))
        if kind in ("intake", "standby", "proxy", "cut", "backend", "postgres", *ALONE):
            felt.append(self._accepting(at))
        if kind in (*ENGINE_STAGES, "controller", "conductor", "intake"):
            felt.append(self._wait(lambda: len(self._stand.pids(kind)) >= _wanted(kind), MAX_RECOVERY_SECONDS))
        try:
            async with asyncio.timeout(MAX_RECOVERY_SECONDS):
                await asyncio.gather(*felt)
            took: float | None = time.time() - at
        except TimeoutError:
            took = None
        self._under_way[kind] -= 1
        self.kills.append(Kill(kind, at, struck.what, None if took is None else round(took, 2), len(hit)))

    async def _accepting(self, at: float) -> None:
        """Wait for the first 202 of a request sent after the kill."""
        self.probing += 1
        try:
            await self._wait(lambda: any(attempt.sent_at > at for attempt in self._accepted()), MAX_RECOVERY_SECONDS)
        finally:
            self.probing -= 1

    def _accepted(self) -> list[Any]:
        return [attempt for attempt in self._ledger.attempts[-200:] if attempt.status == ACCEPTED]

    async def _moved(self, at: float, hit: Hit) -> bool:
        """Return whether every affected job has resumed: a stage recorded, claimed again, ended or requeued."""
        if not hit:
            return True
        query = """SELECT jobs.id, run, state, EXISTS (
                SELECT FROM stage_results WHERE job_id = jobs.id AND recorded_at > to_timestamp(%(at)s)
            ) OR EXISTS (SELECT FROM recordings WHERE job_id = jobs.id AND fetched_at > to_timestamp(%(at)s)) AS got_on
            FROM jobs WHERE jobs.id = ANY(%(ids)s)"""
        rows = await self._onlooker.rows(query, at=at, ids=list(hit))
        return all(row["state"] != "running" or row["got_on"] or row["run"] > hit[row["id"]][0] for row in rows)

    async def _heard(self, stage: str, at: float, ids: list[Any]) -> bool:
        query = """SELECT jobs.id FROM jobs WHERE jobs.id = ANY(%(ids)s) AND (state <> 'running' OR EXISTS (
            SELECT FROM stage_results WHERE job_id = jobs.id AND stage = %(stage)s))"""
        return len(await self._onlooker.rows(query, ids=ids, stage=stage)) == len(ids)

    async def _held_by(self, pid: int) -> Hit:
        """Return the jobs of a Conductor by worker name: machine, process id and start, and a number."""
        running = await self._running()
        return {job: run for job, run in running.items() if re.search(rf":{pid}@\d+:\w+$", run[1])}

    async def _running(self) -> Hit:
        rows = await self._onlooker.rows("SELECT id, run, coalesce(worker, '') AS w FROM jobs WHERE state = 'running'")
        return {row["id"]: (row["run"], row["w"]) for row in rows}

    async def _wait(self, condition: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    async def _wait_async(self, condition: Callable[[], Awaitable[bool]]) -> None:
        while not await condition():
            await asyncio.sleep(0.1)


def _wanted(kind: str) -> int:
    return 2 if kind in ("intake", "conductor") else 1


def table(kills: Sequence[Kill]) -> str:
    """Kills by kind: how many, how many calls each hit, seconds until it was over."""
    by_kind: dict[str, list[Kill]] = defaultdict(list)
    for kill in kills:
        by_kind[kill.kind].append(kill)
    lines = [f"{'kind':<18}{'kills':>6}{'calls hit':>11}{'median s':>10}{'worst s':>9}{'not within':>12}"]
    for kind in SHARES:
        if of_kind := by_kind.get(kind):
            took = [kill.recovered for kill in of_kind if kill.recovered is not None]
            never = len(of_kind) - len(took)
            median, worst = (statistics.median(took), max(took)) if took else (float("nan"), float("nan"))
            hit = sum(kill.calls_hit for kill in of_kind)
            lines.append(f"{kind:<18}{len(of_kind):>6}{hit:>11}{median:>10.1f}{worst:>9.1f}{never or '':>12}")
    return "\n".join(lines)
