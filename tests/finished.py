"""Calls that are there to be read: submitted, claimed and completed as the service does it, with words of our own."""

from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Reader
from db.experiments import gold_sets, run_calls
from db.experiments.run_calls import RunOutcome
from db.queue import jobs
from db.records.complete import complete as complete_call
from pipeline.domain.call import Sender
from pipeline.domain.insight import Evidence, Finding, Task
from pipeline.domain.speech import Layout, LayoutKind, Transcript
from pipeline.errors import RunNotReproducible
from pipeline.evaluation.truth import digest, plain
from serve_app.experiments import compared_calls
from tests.postgres import World
from tests.support.calls_by_hand import speakers, turn

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
LAYOUT = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "by hand")
TALK = (
    ("rep", "Good morning, Acme service desk, this is Ana."),
    ("customer", "Hello Ana, my invoice is wrong, the amount is too high."),
    ("rep", "I am sorry. I will send you a corrected invoice tomorrow."),
)


def transcript(*talk: tuple[str, str], language: str = "en") -> Transcript:
    turns = tuple(turn(at, who, at * 3.5, at * 3.5 + 3, text, language) for at, (who, text) in enumerate(talk))
    labels = dict.fromkeys(who for who, _ in talk)
    return Transcript(language, 0.99, len(talk) * 3.5, speakers(*labels), turns, LAYOUT, "by hand")


def task(title: str, due: date | None = None, owner: str = "rep") -> Task:
    return Task(title, owner, "commitment", Evidence(0, 0.0, 3.0, title), 0.9, due_date=due)


def findings(
    tone: str | None = None,
    tasks: tuple[Task, ...] = (),
    heard: dict[str, str] | None = None,
    agent: UUID | None = None,
) -> list[Finding]:
    result = [Finding("summary", 1, {"text": "They talked."})]
    if agent is not None:
        result.append(
            Finding("agent", 1, {"user_id": str(agent), "name": "Ana", "spoken_name": None, "source": "voice"})
        )
    if tone is not None:
        result.append(Finding("tone", 1, {"overall": {"label": tone, "score": 0.0}}))
    if heard is not None:
        facts = {field: {"value": value} for field, value in heard.items() if field != "number"}
        result.append(Finding("contacts", 1, {"match": "new", "number": heard.get("number"), "heard": facts}))
    result.append(Finding("tasks", 1, {"tasks": [asdict(item) for item in tasks]}))
    return result


async def finished(
    world: World,
    *talk: tuple[str, str],
    sender: Sender | None = None,
    minutes: float = 0.0,
    language: str = "en",
    found: list[Finding] | None = None,
    **fields: Any,
) -> UUID:
    """Store a completed call that started `minutes` after `START`; return its call id."""
    call_id = fields.pop("call_id", None) or uuid4()
    plain = {
        "call_id": call_id,
        "start_time": START + timedelta(minutes=minutes),
        "recording_url": "https://s.example/a",
    }
    await world.submit(sender, **(plain | fields))
    lease = await claimed(world, call_id)
    call_transcript = transcript(*(talk or TALK), language=language)
    assert await complete_call(world.database, lease, call_transcript, found or findings(), None, []) is None
    return call_id


async def claimed(world: World, call_id: UUID) -> jobs.Lease:
    """Return the lease of one call's job."""
    for lease in await world.claim(50):
        if lease.call.call_id == call_id:
            return lease
    raise AssertionError(f"no job of {call_id} was there to be claimed")


async def received(world: World, minutes: float = 0.0, sender: Sender | None = None, **fields: Any) -> UUID:
    """Store a call that has only started."""
    call_id = uuid4()
    await world.submit(sender, **({"call_id": call_id, "start_time": START + timedelta(minutes=minutes)} | fields))
    return call_id


async def mark_done(world: World, title: str) -> None:
    """Tick a task off."""
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(
            sa.text(
                "INSERT INTO task_marks (call_pk, task_id, done_by)"
                " SELECT call_pk, task_id(call_pk, title, evidence), 'a person' FROM tasks WHERE title = :title"
            ),
            {"title": title},
        )


__all__ = ["findings", "finished", "mark_done", "received", "replace", "task", "transcript"]


async def work(world: World, *talk: tuple[str, str], fails: bool = False) -> None:
    """Do what a Conductor does with the calls of runs: each gets these words."""
    for lease in await run_calls.claim(world.database, "w", 10, 60.0):
        if fails:
            await run_calls.fail(world.database, lease, RunNotReproducible("The stored recording is gone."))
            continue
        call_transcript = replace(transcript(*talk), engine="other engine")
        outcome = RunOutcome(call_transcript, tuple(findings(tone="positive")), (), {}, {"asr": 1.5})
        await run_calls.complete(world.database, lease, outcome)


async def gold_of_all(world: World, name: str) -> None:
    """Return a gold set of all calls, from their records."""
    rows = await world.rows("SELECT call_id FROM calls WHERE state = 'completed'")
    reader = Reader(world.workspace_id)
    truths = await compared_calls.corrected_calls(world.database, reader, [row["call_id"] for row in rows])
    gold = {UUID(call.name): plain(call) for call in truths}
    await gold_sets.add_version(world.database, world.workspace_id, name, "corrections", digest(truths), gold)
