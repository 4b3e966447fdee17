"""`switchboard runs compare`: a run's transcripts and findings, compared with the records."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from serve_app.cli import comparison as told
from serve_app.cli import names
from serve_app.cli.console import Json, counted, duration, err, out, print_json
from serve_app.cli.errors import FAILED, CommandError
from serve_app.cli.gold_sets import libraries, loaded
from serve_app.cli.table import table

if TYPE_CHECKING:
    from db.database import Database
    from db.directory import Workspace
    from db.run_results import Compared
    from db.runs import Run
    from evaluation.compare import Comparison
    from evaluation.score import Errors
    from evaluation.truth import TrueCall, TrueContact

RECORD = "record"


@dataclass(frozen=True, slots=True)
class Difference:
    """A call of a run beside its record. `words`: of the record, changed by the run; None: the record is of another
    recording now. `findings`: steps whose value differs."""

    call_id: UUID
    words: "Errors | None"
    findings: tuple[str, ...]
    corrected: bool


def compare(
    name: Annotated[str, typer.Argument(metavar="RUN", help="The run's name or id.")],
    workspace: names.Workspace = None,
    gold: Annotated[
        str | None,
        typer.Option(
            metavar="SET", help="Measure both against this gold set: NAME or NAME@VERSION.", show_default=False
        ),
    ] = None,
    by: told.By = "wer",
    worst: told.Worst = 5,
    price_per_hour: told.Price = None,
    csv_: told.Csv = None,
    html: told.Html = None,
    console: told.ConsoleUrl = None,
    json_: Json = False,
) -> None:
    """Compare a run with the records: changed words and findings, and processing time; with --gold, which is better.

    --gold says by how much one is better than the other, with confidence intervals, where, and in which calls; the
    other options apply to it.

    Records are compared without corrections. A promoted run is compared with the records that it replaced.

    Examples:

      switchboard runs compare tiny

      switchboard runs compare tiny --gold returns --html compared.html
    """
    told.checked(by)
    run, calls, truths, people = names.run(workspace, lambda database, home: _gathered(database, home, name, gold))
    if not calls:
        raise CommandError(f"No call of run {run.name} is done yet.", f"`switchboard runs status {run.name}`", FAILED)
    with libraries():
        differences = [_difference(one) for one in calls]
        found = _comparison(run, calls, truths, people, told.price(price_per_hour)) if gold else None
        if found is not None and not any(system.scores for system in found.systems):
            raise CommandError(f"No call of run {run.name} is in the gold set {gold}.", "", FAILED)
        if found is not None and csv_ is not None:
            told.write_csv(found, csv_)
        if found is not None and html is not None:
            told.write_html(found, html, f"{RECORD} and {run.name}", by, console, str(gold))
    if json_:
        against = None if found is None else told.as_json(found, by, worst)
        print_json({"run": run, "calls": differences, "against_gold": against})
    else:
        _show(run, differences, worst if found is None else 0)
        if found is not None:
            out().print()
            told.show(found, by, worst)


async def find(database: "Database", home: "Workspace", name: str) -> "Run":
    """The run that is meant. Raises `CommandError`."""
    from db import runs

    try:
        return await runs.find(database, home.workspace_id, name)
    except runs.NoSuchRun:
        known = [one.name for one in await runs.list_runs(database, home.workspace_id)]
        hint = f"There are: {', '.join(known[:10])}." if known else "There are none: `switchboard runs create NAME`."
        raise CommandError(f"There is no run {name!r}.", hint) from None


async def _gathered(database: "Database", home: "Workspace", name: str, gold: str | None) -> Any:
    from db import claims, run_results
    from serve_app import comparisons

    run = await find(database, home, name)
    calls = [one async for one in run_results.compared(database, home.workspace_id, run.run_id)]
    truths = (await loaded(database, home, gold))[1] if gold else []
    ids = [one.value.get("contact_id") for call in calls for one in (*call.live_findings, *call.run_findings)]
    async with database.transaction(home.workspace_id) as connection:
        people = await claims.contacts_of(connection, ids)
    return run, calls, truths, {key: comparisons.as_contact(person) for key, person in people.items()}


def _difference(one: "Compared") -> Difference:
    from evaluation.score import score
    from evaluation.truth import of_transcript

    if one.live is None:
        return Difference(one.call_id, None, (), one.corrected)
    call = str(one.call_id)
    found = score(of_transcript(call, one.live), of_transcript(call, one.run))
    before, after = ({step.step: step.value for step in steps} for steps in (one.live_findings, one.run_findings))
    changed = tuple(sorted(step for step in before.keys() | after.keys() if before.get(step) != after.get(step)))
    return Difference(one.call_id, found.normalized, changed, one.corrected)


def _comparison(
    run: "Run",
    calls: "Sequence[Compared]",
    truths: "Sequence[TrueCall]",
    people: "dict[str, TrueContact]",
    price: float | None,
) -> "Comparison":
    """The records and the run on the calls of a gold set that the run has. What the record took is not known."""
    from evaluation.compare import compare as compared
    from evaluation.truth import heard_of

    known = {str(one.call_id): one for one in calls}
    records, heard, facts = [], [], {}
    for name, one in known.items():
        if one.live is not None:
            records.append(heard_of(name, one.live, one.live_findings, people))
        heard.append(heard_of(name, one.run, one.run_findings, people, sum(one.seconds.values()) or None))
        facts[name] = {"layout": str(one.run.layout.kind), **({"agent": one.agent} if one.agent else {})}
    chosen = [truth for truth in truths if truth.name in known]
    prices = {} if price is None else {run.name: price}
    return compared(chosen, {RECORD: records, run.name: heard}, facts, prices, told.progress)


def _show(run: "Run", differences: list[Difference], worst: int) -> None:
    compared = [one for one in differences if one.words is not None]
    said, changed = (sum(getattr(one.words, name) for one in compared) for name in ("said", "all"))
    out().print(f"{run.name}: {counted(len(compared), 'call')} beside their records", markup=False)
    share = f"{changed / said:.1%}" if said else "-"
    out().print(f"words changed: {changed} of {said} ({share})", markup=False)
    steps = Counter(step for one in compared for step in one.findings)
    changes = ", ".join(f"{step} in {count}" for step, count in steps.most_common())
    out().print(f"findings changed: {changes or 'none'}", markup=False)
    if run.worked_seconds:
        rate = run.audio_seconds / run.worked_seconds
        out().print(f"{duration(run.worked_seconds)} of processing, {rate:.1f} times real time", markup=False)
    if gone := len(differences) - len(compared):
        err().print(f"{counted(gone, 'call')} left out: the recording was replaced since.", markup=False)
    first = sorted(compared, key=lambda one: -_share(one))[:worst]
    if first and changed:
        lines = table("!most changed", "#words", "#changed", "findings")
        for one in first:
            assert one.words is not None
            lines.add_row(str(one.call_id), str(one.words.said), f"{_share(one):.0%}", ", ".join(one.findings))
        out().print("", lines)


def _share(one: Difference) -> float:
    return one.words.all / one.words.said if one.words and one.words.said else 0.0
