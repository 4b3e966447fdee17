"""Calls of a workspace with questions, analyzed by the rules as in a Conductor."""

from typing import Any
from uuid import UUID, uuid4

from db.queue.jobs import Lease
from db.records import roster, views
from db.records.complete import complete
from db.workspace import questions
from pipeline.analysis.step import run_all
from pipeline.domain.insight import Material
from pipeline.domain.questions import Question
from tests.finished import claimed, transcript
from tests.postgres import World

TALK = (
    ("rep", "Acme service desk, this is Ana."),
    ("customer", "I want to cancel my contract, because the price went up."),
    ("rep", "I am sorry. Could I offer you an appointment on Friday?"),
)
OFFERED = Question(
    "offered", question="Was an appointment offered?", party="rep", phrases=("offer you an appointment",)
)
WHY = Question("why", "text", "Why?", party="customer", phrases=("because",))
CANCELS = Question("cancels", "tracker", party="customer", phrases=("cancel",))
NOTICE = Question("notice", "tracker", party="rep", first=1.0, required=True, phrases=("call is recorded",))


async def define(world: World, *definitions: Question, **options: Any) -> questions.QuestionChanges:
    return await questions.set_questions(world.database, world.workspace_id, definitions, **options)


async def analyzed(world: World, call_id: UUID | None = None, **fields: Any) -> UUID:
    """Complete a call with the results of the analysis."""
    call_id = call_id or uuid4()
    sender = fields.pop("sender", None)
    await world.submit(
        sender, **({"call_id": call_id, "recording_url": "https://s.example/a", "outgoing": False} | fields)
    )
    await analyze(world, await claimed(world, call_id))
    return call_id


async def analyze(world: World, lease: Lease) -> None:
    """Complete a claimed call."""
    call_transcript = transcript(*TALK)
    results = run_all(Material(lease.call, call_transcript, await roster.load(world.database, lease)))
    assert await complete(world.database, lease, call_transcript, results, None, []) is None


async def record(world: World, call_id: UUID) -> views.CallRecord:
    record = await views.show_call(world.database, call_id)
    assert record is not None
    return record
