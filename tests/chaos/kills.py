"""Kills of every kind, and how long each was felt."""

import asyncio
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.ledger import ACCEPTED, Ledger
from tests.chaos.stand import Onlooker, Stand
from tests.chaos.wire import WAYS

SHARES = {  # how often each kind comes, of 220; what takes long to come back comes seldom
    "task": 36,
    "intake": 28,
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
}
AT_ONCE = {"task": 2, "cut": 3, "backend": 2}  # recoveries of a kind under way at once; of the others one: what is down
# already cannot be killed, and what is killed faster than it starts proves only that
ENGINE_STAGES = {"transcriber": "asr", "diarizer": "diarization"}
LONGEST = 240.0  # seconds a recovery is waited for
NODE_AWAY = 4.0  # seconds until a lost node is replaced

Witness = Callable[[], Awaitable[str]]  # sends a call that needs both engines, and returns its callId


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill. `recovered`: seconds until what it hit went on; None: not within `LONGEST`."""

    kind: str
    at: float
    what: str
    recovered: float | None
    calls_hit: int


def schedule(count: int, rng: random.Random, kinds: Sequence[str] = tuple(SHARES)) -> list[str]:
    """Kinds in random order, to be taken from the end: first one of each, then by their shares."""
    each = list(kinds)
    rng.shuffle(each)
    return [*rng.choices(kinds, [SHARES[kind] for kind in kinds], k=max(0, count - len(kinds))), *each]


class Killer:
    """Kills, and watches what comes of it. Several recoveries may be under way at once."""

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
        if kind in ("head", "node"):
            await self.settle()
        before = await self._running()
        if kind in ENGINE_STAGES:
            struck = await self._engine(kind)
        else:
            struck = await getattr(self, f"_{kind}", lambda: self._process(kind))()
        if struck is None:
            self.skipped += 1
            return
        at, what, hit = struck
        if hit is None:
            hit = before
        self.struck += 1
        self._under_way[kind] += 1
        task = asyncio.create_task(self._watch(kind, at, what, hit))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        if kind in ("head", "node"):
            await task

    def busy(self, kind: str) -> bool:
        """Whether another kill of this kind has to wait."""
        return self._under_way[kind] >= AT_ONCE.get(kind, 1)

    async def settle(self) -> None:
        """Wait until every recovery under way has ended."""
        while self._watching:
            await asyncio.wait(self._watching)

    # How each kind is struck: when, what, and which jobs it hit (None: all that were running)

    async def _process(self, kind: str) -> tuple[float, str, Any] | None:
        if kind == "task":
            await self._wait(lambda: self._stand.pids("task"), 10)
        at = time.time()
        pid = self._stand.kill_one(kind, self._rng)
        if pid is None:
            return None
        hit = None
        if kind == "conductor":
            held = await self._running()
            hit = {job: run for job, run in held.items() if run[1].split(":")[-2:-1] == [str(pid)]}
        return at, f"pid {pid}", hit

    async def _engine(self, kind: str) -> tuple[float, str, Any] | None:
        """In the middle of a call that it works on."""
        call_id = await self._witness()
        query = """SELECT jobs.id FROM jobs JOIN calls ON calls.id = jobs.call_pk
            WHERE calls.call_id = %(call)s AND jobs.state = 'running' AND jobs.stage IN ('asr', 'diarization')"""
        deadline = time.monotonic() + 30
        while not (found := await self._onlooker.rows(query, call=call_id)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.sleep(self._rng.uniform(0, 0.3))
        at = time.time()
        pid = self._stand.kill_one(kind, self._rng)
        return None if pid is None else (at, f"pid {pid}", {row["id"]: (0, "") for row in found})

    async def _postgres(self) -> tuple[float, str, Any]:
        at = time.time()
        pid = self._stand.kill_postgres()
        await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0, 14.0)))  # the last one: longer than a lease
        await self._stand.start_postgres()
        return at, f"postmaster {pid}", None

    async def _head(self) -> tuple[float, str, Any]:
        at = time.time()
        count = self._stand.kill_service()
        await self._stand.start_service()
        await self._stand.wait_for_engines()
        return at, f"{count} processes", None

    async def _node(self) -> tuple[float, str, Any]:
        at = time.time()
        lost = await self._stand.command("lose_node", "node_lost")
        await asyncio.sleep(NODE_AWAY)
        await self._stand.command("add_node", "node_added")
        return at, f"{lost['killed']} processes", None

    async def _cut(self) -> tuple[float, str, Any] | None:
        way = self._rng.choice(WAYS)
        before = self._stand.wire.cuts.total()
        self._stand.wire.arm(way)
        await self._wait(lambda: self._stand.wire.cuts.total() > before, 15)
        self._stand.wire.disarm()
        if self._stand.wire.cuts.total() == before:
            return None
        return self._stand.wire.last_cut, f"{way} the commit", None

    async def _backend(self) -> tuple[float, str, Any] | None:
        at = time.time()
        query = """SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'switchboard' ORDER BY random() LIMIT 2"""
        ended = await self._onlooker.rows(query)
        return (at, f"{len(ended)} connections", None) if ended else None

    # When it is over

    async def _watch(self, kind: str, at: float, what: str, hit: dict[Any, tuple[int, str]]) -> None:
        felt: list[Awaitable[object]] = []
        if kind in ENGINE_STAGES and hit:
            felt.append(self._wait_async(lambda: self._heard(ENGINE_STAGES[kind], at, list(hit))))
        elif kind in ("task", "conductor", "cut", "backend", "postgres", "node", "head"):
            felt.append(self._wait_async(lambda: self._moved(at, hit)))
        if kind in ("intake", "proxy", "cut", "backend", "postgres", "node", "head"):
            felt.append(self._accepting(at))
        if kind in (*ENGINE_STAGES, "controller", "conductor", "intake"):
            felt.append(self._wait(lambda: len(self._stand.pids(kind)) >= _wanted(kind), LONGEST))
        try:
            async with asyncio.timeout(LONGEST):
                await asyncio.gather(*felt)
            took: float | None = time.time() - at
        except TimeoutError:
            took = None
        self._under_way[kind] -= 1
        self.kills.append(Kill(kind, at, what, None if took is None else round(took, 2), len(hit)))

    async def _accepting(self, at: float) -> None:
        """The first 202 for something that was sent after the kill."""
        self.probing += 1
        try:
            await self._wait(lambda: any(one.sent_at > at for one in self._accepted()), LONGEST)
        finally:
            self.probing -= 1

    def _accepted(self) -> list[Any]:
        return [one for one in self._ledger.attempts[-200:] if one.status == ACCEPTED]

    async def _moved(self, at: float, hit: dict[Any, tuple[int, str]]) -> bool:
        """Whether every job that was hit has gone on: a stage recorded, taken up anew, ended or put back."""
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

    async def _running(self) -> dict[Any, tuple[int, str]]:
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
    lines = [f"{'kind':<12}{'kills':>6}{'calls hit':>11}{'median s':>10}{'worst s':>9}{'not within':>12}"]
    for kind in SHARES:
        if of_kind := by_kind.get(kind):
            took = [kill.recovered for kill in of_kind if kill.recovered is not None]
            never = len(of_kind) - len(took)
            median, worst = (statistics.median(took), max(took)) if took else (float("nan"), float("nan"))
            hit = sum(kill.calls_hit for kill in of_kind)
            lines.append(f"{kind:<12}{len(of_kind):>6}{hit:>11}{median:>10.1f}{worst:>9.1f}{never or '':>12}")
    return "\n".join(lines)
