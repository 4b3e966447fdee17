from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from serve_app.cli.ui.errors import FAILED, CommandError
from serve_app.cli.ui.output import counted, duration
from serve_app.cli.ui.resource import Result, Scope
from serve_app.cli.ui.table import Table, table
from serve_app.cli.workspace import comparison as report
from serve_app.cli.workspace.gold_sets import libraries, load_gold_set

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.run_results import Compared
    from db.experiments.runs import Run
    from db.workspace.directory import Workspace
    from pipeline.evaluation.score import Errors
    from pipeline.evaluation.truth import TrueCall, TrueContact
    from serve_app.experiments.compare_runs import ComparisonRequest


RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name or id.")]


@dataclass(frozen=True, slots=True)
class Difference:
    """A call of a run compared with its record or another run.

    `words`: changed by the run; None: the recording was replaced. `findings`: steps whose value differs.
    """

    call_id: UUID
    words: "Errors | None"
    findings: tuple[str, ...]
    corrected: bool


async def compare(
    scope: Scope,
    name: RunName,
    other: Annotated[
        str | None,
        typer.Argument(metavar="[OTHER]", help="Another run to compare it with.", show_default="the records"),
    ] = None,
    gold: Annotated[
        str | None, typer.Option(metavar="SET", help="Measure both against this gold set: NAME or NAME@VERSION.")
    ] = None,
    by: report.By = "wer",
    worst: report.Worst = 5,
    price_per_hour: report.Price = None,
    csv_: report.Csv = None,
) -> Result:
    """Compare a run with the records or another run: changed words and findings; with --gold, which is better.

    --gold reports the difference with confidence intervals, by slice and for the worst calls; the other options apply
    to it.

    Records are compared without corrections. A promoted run is compared with the records that it replaced.

    Examples:

      switchboard runs compare tiny

      switchboard runs compare tiny --gold returns --csv calls.csv

      switchboard runs compare tiny base --gold returns
    """
    from pipeline.evaluation.compare import compare as compared
    from serve_app.experiments.compare_runs import material

    request, calls, truths, people = await _load(scope, name, other, gold)
    run, comparison = request.run, None
    with libraries():
        differences = [_difference(call) for call in calls]
        if gold:
            scoring, price = material(request, calls, truths, people), report.price(price_per_hour)
            prices = {} if price is None else {candidate.name: price for candidate in (run, request.other) if candidate}
            comparison = compared(scoring.truths, scoring.sides, scoring.facts, prices, report.progress)
            if not any(system.scores for system in comparison.systems):
                raise CommandError(f"No call of run {run.name} is in the gold set {gold}.", "", FAILED)
            if csv_ is not None:
                report.write_csv(comparison, csv_)
        against = None if comparison is None else report.as_json(comparison, by, worst)
        lines = _lines(request, differences, worst if comparison is None else 0)
        notes = []
        if replaced := sum(difference.words is None for difference in differences):
            notes.append(f"{counted(replaced, 'call')} left out: the recording was replaced.")
        if comparison is not None:
            lines += ["", *report.lines(comparison, by, worst)]
            notes += report.notes(comparison)
    return Result({"run": run, "other": request.other, "calls": differences, "against_gold": against}, lines, notes)


async def require_run(database: "Database", workspace: "Workspace", name: str) -> "Run":
    """Return the run with this name or id. Raises `CommandError`."""
    from db.experiments import runs

    try:
        return await runs.find(database, workspace.workspace_id, name)
    except runs.NoSuchRun:
        names = [run.name for run in await runs.list_runs(database, workspace.workspace_id)]
        hint = f"Existing: {', '.join(names[:10])}." if names else "`switchboard runs create NAME` creates one."
        raise CommandError(f"No run {name!r}.", hint) from None


async def _load(
    scope: Scope, name: str, other: str | None, gold: str | None
) -> "tuple[ComparisonRequest, list[Compared], list[TrueCall], dict[str, TrueContact]]":
    from db.core.database import Reader
    from db.experiments import run_results, runs
    from serve_app.experiments import compare_runs

    database, reader = scope.database, Reader(scope.id)
    run = await require_run(database, scope.workspace, name)
    second = await require_run(database, scope.workspace, other) if other else None
    gold_set, truths = await load_gold_set(database, scope.workspace, gold) if gold else (None, [])
    try:
        await compare_runs.count(database, reader, compare_runs.ComparisonRequest(run, second))
    except runs.RunRefused as error:
        raise CommandError(str(error), "`switchboard runs list` shows the progress of runs.", FAILED) from None
    results = run_results.compared(database, scope.id, run.run_id, second.run_id if second else None)
    calls = [call async for call in results]
    people = await compare_runs.people_of(database, reader, calls)
    return compare_runs.ComparisonRequest(run, second, gold_set), calls, truths, people


def _difference(compared: "Compared") -> Difference:
    from pipeline.evaluation.score import score
    from pipeline.evaluation.truth import from_transcript
    from serve_app.experiments.compare_runs import changed_findings

    if compared.live is None:
        return Difference(compared.call_id, None, (), compared.corrected)
    call = str(compared.call_id)
    result = score(from_transcript(call, compared.live), from_transcript(call, compared.run))
    return Difference(compared.call_id, result.normalized, changed_findings(compared), compared.corrected)


def _lines(request: "ComparisonRequest", differences: list[Difference], worst: int) -> list[str | Text | Table]:
    run, other = request.run, request.other
    compared = [(difference, words) for difference in differences if (words := difference.words) is not None]
    spoken, changed = (sum(getattr(words, name) for _, words in compared) for name in ("reference", "all"))
    share = f"{changed / spoken:.1%}" if spoken else "-"
    steps = Counter(step for difference, _ in compared for step in difference.findings)
    changes = ", ".join(f"{step} in {count}" for step, count in steps.most_common())
    lines: list[str | Text | Table] = [
        f"{run.name}: {counted(len(compared), 'call')} compared with {other.name if other else 'their records'}",
        f"words changed: {changed} of {spoken} ({share})",
        f"findings changed: {changes or 'none'}",
    ]
    if run.worked_seconds:
        rate = run.audio_seconds / run.worked_seconds
        lines.append(f"{duration(run.worked_seconds)} of processing, {rate:.1f} times real time")
    first = sorted(compared, key=lambda pair: -_share(pair[1]))[:worst]
    if first and changed:
        rows = table("!most changed", "#words", "#changed", "findings")
        for difference, words in first:
            rows.add_row(
                str(difference.call_id), str(words.reference), f"{_share(words):.0%}", ", ".join(difference.findings)
            )
        lines += ["", rows]
    return lines


def _share(words: "Errors") -> float:
    return words.all / words.reference if words.reference else 0.0
