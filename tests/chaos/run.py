"""One storm from its start to its audit."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from db.core.database import Database
from db.secrets.recording_urls import UrlSealer
from db.workspace import directory, keys
from tests.chaos import events, skew
from tests.chaos.auditor import Fault, Truth, audit
from tests.chaos.kills import MAX_RECOVERY_SECONDS, SHARES, Kill, Killer, schedule
from tests.chaos.ledger import ACCEPTED, Attempt, Ledger
from tests.chaos.recordings import Recordings, spoken
from tests.chaos.stand import SECRETS_KEY, Onlooker, Stand
from tests.chaos.storm import Plan, Senders, Step, _Sketch
from tests.receiver import Receiver, receiving

WORKSPACES = ("north", "south", "west")
CALLS_AT_ONCE = 14  # being sent
MAX_WAITING = 30  # due live jobs; above it no new call begins, so that recoveries are measured and not queues
SETTLE_SECONDS = 300.0  # in which at least one more job ends


@dataclass(frozen=True, slots=True)
class Options:
    """What a storm is to be like. It ends when both numbers are reached, or after so many minutes."""

    seed: int = 1
    submissions: int = 5000
    kills: int = 200
    minutes: float = 36.0
    kinds: tuple[str, ...] = tuple(SHARES)
    settings: tuple[tuple[str, str], ...] = ()
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a storm."""

    options: Options
    figures: dict[str, Any]
    kills: list[Kill]
    faults: list[Fault]


@dataclass
class _Storm:
    options: Options
    stand: Stand
    onlooker: Onlooker
    ledger: Ledger
    plan: Plan
    senders: Senders
    killer: Killer
    started: float

    @property
    def over(self) -> bool:
        enough = self.ledger.accepted >= self.options.submissions and self.struck >= self.options.kills
        return enough or time.monotonic() - self.started > 60 * self.options.minutes

    @property
    def behind(self) -> bool:
        """Return whether fewer submissions were accepted than the clock requires."""
        share = (time.monotonic() - self.started) / (60 * self.options.minutes)
        return self.ledger.accepted < 100 + 1.15 * share * self.options.submissions

    @property
    def struck(self) -> int:
        return self.killer.struck


async def run(folder: Path, options: Options) -> Report:
    """Storm, settle, audit. `folder` keeps ledger, truth, logs and database."""
    stand = Stand(folder, events.SETTINGS | dict(options.settings), skew.SECONDS if "clock" in options.kinds else 0)
    recordings, ledger = Recordings(), Ledger(folder / "ledger.jsonl")
    started = time.monotonic()
    with recordings.serving():
        async with (
            stand.standing(),
            _onlooking(stand) as onlooker,
            _posting() as http,
            receiving(answer=events.reluctantly(options.seed)) as receiver,
        ):
            keys_by_name = await _workspaces(stand, receiver)
            senders = Senders(stand.submit_url, keys_by_name, ledger, http, _ended(onlooker))
            plan = Plan(options.seed, recordings, WORKSPACES)
            killer = Killer(stand, onlooker, ledger, _witness(plan, senders), random.Random(options.seed))
            await stand.wait_for_engines()
            storm = _Storm(options, stand, onlooker, ledger, plan, senders, killer, time.monotonic())
            await _rage(storm)
            settled, remaining = await _settle(onlooker)
            recordings.save(folder / "recordings.json")
            faults = await asyncio.to_thread(
                audit,
                stand.database_url,
                ledger.attempts,
                Truth.read(folder / "recordings.json"),
                UrlSealer([SECRETS_KEY]),
            )
            faults += await events.audit(onlooker, receiver.taken)
            faults += events.stale(receiver.taken)
            figures = await _figures(storm, settled, time.monotonic() - started)
            figures["left unfinished"] = remaining
            figures |= {"events stored": len(await onlooker.rows(events.EVENTS)), "events taken": len(receiver.taken)}
    ledger.close()
    faults += [Fault("wrong", f"refused: {attempt.status} {attempt.error}") for attempt in senders.refused]
    faults += [
        Fault("unfinished", f"{kill.kind} ({kill.what}) had not recovered")
        for kill in killer.kills
        if not kill.recovered
    ]
    return Report(options, figures, sorted(killer.kills, key=lambda kill: kill.at), faults)


async def _rage(storm: _Storm) -> None:
    """Run calls and kills in parallel until the end, then wait for every sender."""
    telling = asyncio.create_task(_tell(storm))
    probing = asyncio.create_task(_probe(storm))
    killing = asyncio.create_task(_kill(storm))
    sending = asyncio.create_task(_send(storm))
    await asyncio.wait({sending, killing}, return_when=asyncio.FIRST_EXCEPTION)
    await asyncio.gather(sending, killing)  # whichever failed says why
    await storm.killer.settle()
    for task in (telling, probing):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _send(storm: _Storm) -> None:
    under_way: set[asyncio.Task[None]] = set()
    latest: dict[tuple[str, str], list[Step]] = {}
    while not storm.over:
        if len(under_way) < CALLS_AT_ONCE and await _waiting(storm.onlooker) <= MAX_WAITING:
            workspace, steps = storm.plan.call()
            latest[steps[0].bodies[0]["callId"], workspace] = steps
            under_way.add(asyncio.create_task(storm.senders.run(workspace, steps)))
        elif latest and len(under_way) < 2 * CALLS_AT_ONCE and storm.behind:
            # No room for more work: what came before comes again, as from a sender that has lost count.
            (_, workspace), steps = storm.plan.rng.choice(list(latest.items()))
            under_way.add(asyncio.create_task(storm.senders.run(workspace, [Step(_last_word(steps))])))
        await asyncio.sleep(0.05)
        for task in [task for task in under_way if task.done()]:
            under_way.discard(task)
            task.result()
    await asyncio.gather(*under_way)


def _last_word(steps: list[Step]) -> tuple[dict[str, Any], ...]:
    """Send the latest submission of a call with a recording, or its latest, twice at once."""
    bodies = [body for step in steps for body in step.bodies]
    carrying = [body for body in bodies if "recordingUrl" in body]
    return ((carrying or bodies)[-1],) * 2


async def _kill(storm: _Storm) -> None:
    rng = random.Random(storm.options.seed + 1)
    kinds = schedule(storm.options.kills, rng, storm.options.kinds) if storm.options.kills else []
    pace = 60 * storm.options.minutes / max(1, len(kinds))
    while kinds and not storm.over:
        await asyncio.sleep(rng.uniform(0.0, 0.3) * pace)  # a strike itself takes most of its share
        kind = next((kind_of_kill for kind_of_kill in reversed(kinds) if not storm.killer.busy(kind_of_kill)), None)
        if kind is None:
            await asyncio.sleep(0.2)
            continue
        kinds.remove(kind)
        skipped = storm.killer.skipped
        await storm.killer.strike(kind)
        if storm.killer.skipped > skipped:  # there was none to kill just then
            kinds.insert(0, kind)
            await asyncio.sleep(0.5)


async def _probe(storm: _Storm) -> None:
    """Send requests all the time while a recovery waits for accepted calls."""
    sketch = _Sketch(storm.plan, uuid4(), WORKSPACES[0])
    while True:
        if storm.killer.probing:
            await storm.senders.send(WORKSPACES[0], sketch.first())
        await asyncio.sleep(0.25)


async def _tell(storm: _Storm) -> None:
    while True:
        if not storm.options.quiet:
            minutes = (time.monotonic() - storm.started) / 60
            waiting = await _waiting(storm.onlooker)
            print(
                f"{minutes:5.1f} min  {storm.ledger.accepted} accepted of {len(storm.ledger.attempts)} sent, "
                f"{storm.struck} kills, {waiting} jobs due",
                flush=True,
            )
        await asyncio.sleep(15)


def _witness(plan: Plan, senders: Senders) -> Any:
    async def send() -> str:
        """Send a call that needs both engines."""
        sketch = _Sketch(plan, uuid4(), plan.workspaces[0])
        url = plan.recordings.add("good", spoken(plan.rng, "mono"))
        await senders.send(plan.workspaces[0], sketch.finish(url))
        return str(sketch.call_id)

    return send


def _ended(onlooker: Onlooker) -> Any:
    query = """SELECT state FROM calls JOIN workspaces ON workspaces.id = calls.workspace_id
        WHERE name = %(workspace)s AND call_id = %(call)s AND state IN ('completed', 'failed')"""

    async def ended(workspace: str, call_id: str) -> bool:
        return bool(await onlooker.rows(query, workspace=workspace, call=call_id))

    return ended


async def _waiting(onlooker: Onlooker) -> int:
    waits = "state IN ('fetching', 'queued') AND not_before <= now()"
    query = f"SELECT count(*) AS n FROM jobs WHERE state = 'running' OR ({waits})"
    return int((await onlooker.rows(query))[0]["n"])


async def _settle(onlooker: Onlooker) -> tuple[float | None, list[dict[str, Any]]]:
    """Nothing strikes any more: every call has to come to its end.

    The seconds that took, or None where `SETTLE_SECONDS` passed in which not one job ended; and what was left then.
    """
    query = """SELECT call_pk, kind, state, stage, attempts, failures, crashes, error_code, error_message, worker,
        lease_until - now() AS lease, not_before - now() AS pause, now() - started_at AS claimed
        FROM jobs WHERE state IN ('fetching', 'queued', 'running')"""
    started = moved = time.monotonic()
    remaining = await onlooker.rows(query)
    while remaining:
        await asyncio.sleep(0.5)
        now, before = time.monotonic(), len(remaining)
        remaining = await onlooker.rows(query)
        if len(remaining) < before:
            moved = now
        elif now > moved + SETTLE_SECONDS:
            return None, remaining
    return time.monotonic() - started, []


async def _figures(storm: _Storm, settled: float | None, seconds: float) -> dict[str, Any]:
    rows = await storm.onlooker.rows("SELECT state, failure_code, count(*) AS n FROM calls GROUP BY 1, 2 ORDER BY 1, 2")
    states = {f"{row['state']} {row['failure_code'] or ''}".strip(): row["n"] for row in rows}
    jobs = await storm.onlooker.rows(
        "SELECT count(*) AS n, sum(crashes) AS crashes, max(crashes) AS most, sum(failures) AS failures FROM jobs"
    )
    stored = (await storm.onlooker.rows("SELECT count(*) AS n FROM submissions"))[0]["n"]
    answers = Counter(str(attempt.status or attempt.error) for attempt in storm.ledger.attempts)
    return {
        "seed": storm.options.seed,
        "seconds in all": round(seconds),
        "submissions accepted": storm.ledger.accepted,
        "attempts by answer": dict(answers.most_common()),
        "attempts without an answer, by what was under way": unanswered(storm.ledger.attempts, storm.killer.kills),
        "stored submissions beyond those accepted": stored - answers[str(ACCEPTED)],
        "calls by end": states,
        "jobs": jobs[0]["n"],
        "crashes counted, most of one job": f"{jobs[0]['crashes']}, {jobs[0]['most']}",
        "failures counted": jobs[0]["failures"],
        "kills": storm.struck,
        "cuts": dict(storm.stand.wire.cuts),
        "times a Conductor was cut off silently": storm.stand.wire.silences,
        "seconds until every call had ended": "not within the time" if settled is None else round(settled),
    }


def unanswered(attempts: Iterable[Attempt], kills: Sequence[Kill]) -> dict[str, int]:
    """Count attempts without a response, by the latest fault that was active while they waited."""
    counts: Counter[str] = Counter()
    for attempt in attempts:
        if attempt.status is None:
            felt = [
                kill
                for kill in kills
                if kill.at < attempt.answered_at
                and kill.at + (kill.recovered or MAX_RECOVERY_SECONDS) > attempt.sent_at
            ]
            counts[f"{attempt.error}: {max(felt, key=lambda kill: kill.at).kind if felt else 'nothing'}"] += 1
    return dict(counts.most_common())


async def _workspaces(stand: Stand, receiver: Receiver) -> dict[str, str]:
    """Create three workspaces with an endpoint at `receiver`; return the key of each."""
    database = await Database.open(stand.database_url, pool_size=2)
    workspaces = {}
    for name in WORKSPACES:
        workspace = await directory.create_workspace(database, name, default_country="US")
        team = await directory.create_team(database, workspace.workspace_id, "Service desk")
        await events.subscribe(database, workspace.workspace_id, receiver)
        _, workspaces[name] = await keys.create(database, workspace.workspace_id, team.team_id, ["submit"], "storm")
    await database.close()
    return workspaces


@asynccontextmanager
async def _onlooking(stand: Stand) -> AsyncIterator[Onlooker]:
    onlooker = Onlooker(stand.database_url)
    yield onlooker
    await onlooker.close()


@asynccontextmanager
async def _posting() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(timeout=12, trust_env=False, limits=limits) as client:
        yield client
