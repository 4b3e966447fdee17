"""`switchboard runs compare`: a run's transcripts and findings, compared with the records or with another run."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, CommandError
from serve_app.cli.ui.output import Json, counted, duration, err, out, print_json
from serve_app.cli.ui.table import table
from serve_app.cli.workspace import comparison as told
from serve_app.cli.workspace.gold_sets import libraries, loaded

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.run_results import Compared
    from db.experiments.runs import Run
    from db.workspace.directory import Workspace
    from pipeline.evaluation.compare import Comparison
    from pipeline.evaluation.score import Errors
    from pipeline.evaluation.truth import TrueCall, TrueContact
    from serve_app.experiments.compare_runs import WantedComparison


RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name or id.")]


@dataclass(frozen=True, slots=True)
class Difference:
    """A call of a run beside its record, or another run. `words`: of the latter, changed by the run; None: that is of
    another recording. `findings`: steps whose value differs."""

    call_id: UUID
    words: "Errors | None"
    findings: tuple[str, ...]
    corrected: bool


def compare(
    name: RunName,
    other: Annotated[
        str | None,
        typer.Argument(metavar="[OTHER]", help="Another run to compare it with.", show_default="the records"),
    ] = None,
    workspace: lookup.Workspace = None,
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
    json_: Json = False,
) -> None:
    """Compare a run with the records or another run: changed words and findings; with --gold, which is better.

    --gold says by how much one is better than the other, with confidence intervals, where, and in which calls; the
    other options apply to it.

    Records are compared without corrections. A promoted run is compared with the records that it replaced.

    Examples:

      switchboard runs compare tiny

      switchboard runs compare tiny --gold returns --csv calls.csv

      switchboard runs compare tiny base --gold returns
    """
    told.checked(by)
    wanted, calls, truths, people = lookup.run(
        workspace, lambda database, home: _gathered(database, home, name, other, gold)
    )
    run = wanted.run
    with libraries():
        differences = [_difference(one) for one in calls]
        found = _comparison(wanted, calls, truths, people, told.price(price_per_hour)) if gold else None
        if found is not None and not any(system.scores for system in found.systems):
            raise CommandError(f"No call of run {run.name} is in the gold set {gold}.", "", FAILED)
        if found is not None and csv_ is not None:
            told.write_csv(found, csv_)
    if json_:
        against = None if found is None else told.as_json(found, by, worst)
        print_json({"run": run, "other": wanted.other, "calls": differences, "against_gold": against})
    else:
        _show(wanted, differences, worst if found is None else 0)
        if found is not None:
            out().print()
            told.show(found, by, worst)


async def find(database: "Database", home: "Workspace", name: str) -> "Run":
    """The run that is meant. Raises `CommandError`."""
    from db.experiments import runs

    try:
        return await runs.find(database, home.workspace_id, name)
    except runs.NoSuchRun:
        known = [one.name for one in await runs.list_runs(database, home.workspace_id)]
        hint = f"There are: {', '.join(known[:10])}." if known else "There are none: `switchboard runs create NAME`."
        raise CommandError(f"There is no run {name!r}.", hint) from None


async def _gathered(
    database: "Database", home: "Workspace", name: str, other: str | None, gold: str | None
) -> "tuple[WantedComparison, list[Compared], list[TrueCall], dict[str, TrueContact]]":
    from db.core.database import Reader
    from db.experiments import run_results, runs
    from serve_app.experiments import compare_runs

    run = await find(database, home, name)
    beside = await find(database, home, other) if other else None
    set_, truths = await loaded(database, home, gold) if gold else (None, [])
    reader = Reader(home.workspace_id)
    try:
        await compare_runs.count(database, reader, compare_runs.WantedComparison(run, beside))
    except runs.RunRefused as error:
        raise CommandError(str(error), "`switchboard runs list` shows how far runs are.", FAILED) from None
    found = run_results.compared(database, home.workspace_id, run.run_id, beside.run_id if beside else None)
    calls = [one async for one in found]
    people = await compare_runs.people_of(database, reader, calls)
    return compare_runs.WantedComparison(run, beside, set_), calls, truths, people


def _difference(one: "Compared") -> Difference:
    from pipeline.evaluation.score import score
    from pipeline.evaluation.truth import of_transcript
    from serve_app.experiments.compare_runs import changed_findings

    if one.live is None:
        return Difference(one.call_id, None, (), one.corrected)
    call = str(one.call_id)
    found = score(of_transcript(call, one.live), of_transcript(call, one.run))
    return Difference(one.call_id, found.normalized, changed_findings(one), one.corrected)


def _comparison(
    wanted: "WantedComparison",
    calls: "list[Compared]",
    truths: "list[TrueCall]",
    people: "dict[str, TrueContact]",
    price: float | None,
) -> "Comparison":
    """Both on the calls of the gold set that the run has."""
    from pipeline.evaluation.compare import compare as compared
    from serve_app.experiments.compare_runs import material

    found = material(wanted, calls, truths, people)
    prices = {} if price is None else {one.name: price for one in (wanted.run, wanted.other) if one}
    return compared(found.truths, found.sides, found.facts, prices, told.progress)


def _show(wanted: "WantedComparison", differences: list[Difference], worst: int) -> None:
    run, other = wanted.run, wanted.other
    compared = [one for one in differences if one.words is not None]
    said, changed = (sum(getattr(one.words, name) for one in compared) for name in ("said", "all"))
    beside = f"those of {other.name}" if other else "their records"
    out().print(f"{run.name}: {counted(len(compared), 'call')} beside {beside}", markup=False)
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
