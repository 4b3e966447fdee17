"""A run beside the records, or beside another run, in the form in which `serve_app.experiments.comparison_cache` measures it.

Against a gold set it shows which of the two is better; without one, what the run says differently, as if what it is
compared with were right.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from db.core.database import Database, Reader
from db.experiments import run_results, runs
from db.experiments.gold_sets import GoldSet
from db.experiments.run_results import Compared
from db.experiments.runs import Run
from db.records import annotations
from pipeline.evaluation.truth import TrueCall, TrueContact, from_hypothesis
from serve_app.experiments import compared_calls
from serve_app.experiments.comparison_cache import ComparisonInput, Key

RECORD = "record"  # the service's, before people corrected it; of a promoted run the one that it replaced


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """A run, what it is compared with (None: the records), and what both are measured against (None: the former)."""

    run: Run
    other: Run | None = None
    gold: GoldSet | None = None

    @property
    def beside(self) -> str:
        """The name of what it is compared with."""
        return self.other.name if self.other else RECORD

    @property
    def key(self) -> Key:
        """What names it, as far as its runs are."""
        other, gold = self.other, self.gold
        return self.run.run_id, self.run.done, other and (other.run_id, other.done), gold and gold.set_id


async def count(database: Database, reader: Reader, wanted: ComparisonRequest) -> int:
    """How many calls there are to be compared.

    Raises `runs.RunRefused` for a run beside itself, and where there are none.
    """
    run, other, gold = wanted.run, wanted.other, wanted.gold
    if other is not None and other.run_id == run.run_id:
        raise runs.RunRefused(f"The run {run.name!r} cannot be compared with itself.")
    if not run.done:
        raise runs.RunRefused(f"No call of run {run.name!r} is done yet.")
    found = await run_results.count_compared(database, reader, run.run_id, *_ids(wanted))
    if not found and other is not None:
        raise runs.RunRefused(f"No call is done in both runs, {run.name!r} and {other.name!r}.")
    if not found and gold is not None:
        raise runs.RunRefused(f"No call of run {run.name!r} is in the gold set {gold.name}@{gold.version}.")
    return found


async def read(database: Database, reader: Reader, wanted: ComparisonRequest, most: int) -> ComparisonInput:
    """The first `most` calls, to be measured."""
    slow = compared_calls.patient(reader)
    found = run_results.compared(database, slow, wanted.run.run_id, *_ids(wanted), most)
    calls = [one async for one in found]
    truths: list[TrueCall] = []
    if wanted.gold is not None:
        among = {call.call_id for call in calls}
        truths = await compared_calls.gold_calls(database, reader.workspace_id, wanted.gold, among=among)
    stored = await count(database, reader, wanted)
    return replace(material(wanted, calls, truths, await people_of(database, slow, calls)), stored=stored)


async def people_of(database: Database, reader: Reader, calls: Sequence[Compared]) -> dict[str, TrueContact]:
    """The contacts that the findings name, by id."""
    ids = [one.value.get("contact_id") for call in calls for one in (*call.live_findings, *call.run_findings)]
    async with database.transaction(reader) as connection:
        people = await annotations.contacts_of(connection, ids)
    return {key: compared_calls.as_contact(person) for key, person in people.items()}


def material(
    wanted: ComparisonRequest,
    calls: Sequence[Compared],
    truths: Sequence[TrueCall],
    people: Mapping[str, TrueContact],
) -> ComparisonInput:
    """Calls of a run and what they are compared with. `truths`: of the gold set. What records took is not known."""
    records, heard, facts = [], [], {}
    for one in calls:
        name = str(one.call_id)
        if one.live is not None:
            took = sum(one.live_seconds.values()) or None
            records.append(from_hypothesis(name, one.live, one.live_findings, people, took))
        heard.append(from_hypothesis(name, one.run, one.run_findings, people, sum(one.seconds.values()) or None))
        facts[name] = {"layout": str(one.run.layout.kind), **({"agent": one.agent} if one.agent else {})}
    findings = Counter(step for one in calls for step in changed_findings(one))
    shared = (facts, len(calls), findings, sum(one.live is None for one in calls))
    if wanted.gold is None:
        return ComparisonInput(records, {wanted.run.name: heard}, *shared)
    chosen = [truth for truth in truths if truth.name in facts]
    return ComparisonInput(chosen, {wanted.beside: records, wanted.run.name: heard}, *shared)


def changed_findings(one: Compared) -> tuple[str, ...]:
    """The steps whose value differs; none where there is nothing to compare with."""
    if one.live is None:
        return ()
    before, after = ({step.step: step.value for step in steps} for steps in (one.live_findings, one.run_findings))
    return tuple(sorted(step for step in before.keys() | after.keys() if before.get(step) != after.get(step)))


def _ids(wanted: ComparisonRequest) -> tuple[UUID | None, UUID | None]:
    return (wanted.other.run_id if wanted.other else None, wanted.gold.set_id if wanted.gold else None)
