"""Compares a run with the live records or with another run, as input of `serve_app.experiments.comparison_cache`.

With a gold set the comparison shows which of the two is better; without one, in what the run differs, as if the other
side were right.
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

RECORD = "record"  # the live record without corrections; of a promoted run the one that it replaced


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """A run, the other side (None: live records), and the gold set both are scored on (None: the other side)."""

    run: Run
    other: Run | None = None
    gold: GoldSet | None = None

    @property
    def baseline(self) -> str:
        """Name of the other side."""
        return self.other.name if self.other else RECORD

    @property
    def key(self) -> Key:
        """Cache key: changes with the progress of the runs."""
        other, gold = self.other, self.gold
        return self.run.run_id, self.run.done, other and (other.run_id, other.done), gold and gold.set_id


async def count(database: Database, reader: Reader, request: ComparisonRequest) -> int:
    """Return the number of calls to be compared.

    Raises `runs.RunRefused` for a comparison of a run with itself, and if there are no calls.
    """
    run, other, gold = request.run, request.other, request.gold
    if other is not None and other.run_id == run.run_id:
        raise runs.RunRefused(f"The run {run.name!r} cannot be compared with itself.")
    if not run.done:
        raise runs.RunRefused(f"No call of run {run.name!r} is done yet.")
    calls = await run_results.count_compared(database, reader, run.run_id, *_ids(request))
    if not calls and other is not None:
        raise runs.RunRefused(f"No call is done in both runs, {run.name!r} and {other.name!r}.")
    if not calls and gold is not None:
        raise runs.RunRefused(f"No call of run {run.name!r} is in the gold set {gold.name}@{gold.version}.")
    return calls


async def read(database: Database, reader: Reader, request: ComparisonRequest, max_calls: int) -> ComparisonInput:
    """Return the input for the first `max_calls` calls."""
    slow = compared_calls.with_long_timeout(reader)
    rows = run_results.compared(database, slow, request.run.run_id, *_ids(request), max_calls)
    calls = [call async for call in rows]
    truths: list[TrueCall] = []
    if request.gold is not None:
        among = {call.call_id for call in calls}
        truths = await compared_calls.gold_calls(database, reader.workspace_id, request.gold, among=among)
    stored = await count(database, reader, request)
    return replace(material(request, calls, truths, await people_of(database, slow, calls)), stored=stored)


async def people_of(database: Database, reader: Reader, calls: Sequence[Compared]) -> dict[str, TrueContact]:
    """Return the contacts that the findings refer to, by id."""
    ids = [finding.value.get("contact_id") for call in calls for finding in (*call.live_findings, *call.run_findings)]
    async with database.transaction(reader) as connection:
        people = await annotations.contacts_of(connection, ids)
    return {key: compared_calls.as_contact(person) for key, person in people.items()}


def material(
    request: ComparisonRequest, calls: Sequence[Compared], truths: Sequence[TrueCall], people: Mapping[str, TrueContact]
) -> ComparisonInput:
    """Return the input for calls of a run. `truths`: of the gold set. The seconds of live records are unknown."""
    records, results, facts = [], [], {}
    for call in calls:
        name = str(call.call_id)
        if call.live is not None:
            seconds = sum(call.live_seconds.values()) or None
            records.append(from_hypothesis(name, call.live, call.live_findings, people, seconds))
        results.append(from_hypothesis(name, call.run, call.run_findings, people, sum(call.seconds.values()) or None))
        facts[name] = {"layout": str(call.run.layout.kind), **({"agent": call.agent} if call.agent else {})}
    findings = Counter(step for call in calls for step in changed_findings(call))
    shared = (facts, len(calls), findings, sum(call.live is None for call in calls))
    if request.gold is None:
        return ComparisonInput(records, {request.run.name: results}, *shared)
    chosen = [truth for truth in truths if truth.name in facts]
    return ComparisonInput(chosen, {request.baseline: records, request.run.name: results}, *shared)


def changed_findings(call: Compared) -> tuple[str, ...]:
    """Return the steps whose value differs; empty if there is nothing to compare with."""
    if call.live is None:
        return ()
    before, after = ({step.step: step.value for step in steps} for steps in (call.live_findings, call.run_findings))
    return tuple(sorted(step for step in before.keys() | after.keys() if before.get(step) != after.get(step)))


def _ids(request: ComparisonRequest) -> tuple[UUID | None, UUID | None]:
    return (request.other.run_id if request.other else None, request.gold.set_id if request.gold else None)
