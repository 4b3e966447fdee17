import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from db.core.database import Reader
from db.experiments import promotion, run_results, runs
from db.experiments.gold_sets import NoSuchSet
from db.experiments.runs import RunRefused
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import CallIds, Since, Team, Time, moment_of, parse_new, parse_time
from serve_app.cli.ui.output import counted, duration, err, moment, progress_bar
from serve_app.cli.ui.resource import Group, Result, Scope, listing
from serve_app.cli.ui.table import Table, table
from serve_app.cli.workspace import comparison as report
from serve_app.cli.workspace.gold import join_names, libraries, load_gold_set, parse_set_name
from serve_app.experiments.compared_calls import with_long_timeout
from serve_app.experiments.configuration import Changes, SettingRefused, check, parse
from serve_app.experiments.selection import CallSelection, choose
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.promotion import PromotionResult
    from db.experiments.run_results import Compared
    from db.experiments.runs import Run
    from db.workspace.directory import Workspace
    from pipeline.evaluation.score import Errors
    from pipeline.evaluation.truth import TrueCall, TrueContact
    from serve_app.experiments.compare_runs import ComparisonRequest
POLL_SECONDS = 1.0
SHOWN = 5  # failed calls


RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name or id.")]


app = Group(
    """Runs: process stored calls with another model or settings, without changing their records.

    A run is processed while no call is waiting. Unchanged stages are not repeated. Compare its results with the
    records, make them live (promote), or restore the old records (rollback).
""",
    {RunRefused: ("", FAILED)},
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A call of a run compared with its record or another run.

    `words`: changed by the run; None: the recording was replaced. `findings`: steps whose value differs.
    """

    call_id: UUID
    words: "Errors | None"
    findings: tuple[str, ...]
    corrected: bool


OtherRun = Annotated[
    str | None,
    typer.Argument(metavar="[OTHER]", help="Another run to compare it with.", show_default="the records"),
]
GoldOfBoth = Annotated[
    str | None, typer.Option(metavar="SET", help="Measure both against this gold set: NAME or NAME@VERSION.")
]


@app.reads()
async def compare(
    scope: Scope,
    name: RunName,
    other: OtherRun = None,
    gold: GoldOfBoth = None,
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

      switchboard runs compare tiny --gold returns --csv calls.csv

      switchboard runs compare tiny base --gold returns
    """
    from serve_app.experiments.compare_runs import material

    request, calls, truths, people = await _load(scope, name, other, gold)
    with libraries():
        differences, notes = [_difference(call) for call in calls], []
        if replaced := sum(difference.words is None for difference in differences):
            notes.append(f"{counted(replaced, 'call')} left out: the recording was replaced.")
        data = {"run": request.run, "other": request.other, "calls": differences}
        if not gold:
            return Result({**data, "against_gold": None}, _compared_lines(request, differences, worst), notes)
        scoring = material(request, calls, truths, people)
        nothing = f"No call of run {request.run.name} is in the gold set {gold}."
        priced = [run.name for run in (request.run, request.other) if run]
        comparison = report.measure(scoring, priced, price_per_hour, csv_, nothing)
        lines = [*_compared_lines(request, differences, 0), "", *report.lines(comparison, by, worst)]
        against = report.as_json(comparison, by, worst)
        return Result({**data, "against_gold": against}, lines, [*notes, *report.notes(comparison)])


async def require_run(database: "Database", workspace: "Workspace", name: str) -> "Run":
    try:
        return await runs.find(database, workspace.workspace_id, name)
    except runs.NoSuchRun:
        names = [run.name for run in await runs.list_runs(database, workspace.workspace_id)]
        hint = f"Existing: {', '.join(names[:10])}." if names else "`switchboard runs create NAME` creates one."
        raise CommandError(f"No run {name!r}.", hint) from None


async def _load(
    scope: Scope, name: str, other: str | None, gold: str | None
) -> "tuple[ComparisonRequest, list[Compared], list[TrueCall], dict[str, TrueContact]]":
    from serve_app.experiments import compare_runs

    database, reader = scope.database, Reader(scope.id)
    run = await require_run(database, scope.workspace, name)
    second = await require_run(database, scope.workspace, other) if other else None
    gold_set, truths = await load_gold_set(database, scope.workspace, gold) if gold else (None, [])
    try:
        await compare_runs.count(database, reader, compare_runs.ComparisonRequest(run, second))
    except RunRefused as error:
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


def _compared_lines(
    request: "ComparisonRequest", differences: list[Difference], worst: int
) -> list[str | Text | Table]:
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


Watch = Annotated[bool, typer.Option("--watch", help="Show progress until the run ends.")]
NewRun = Annotated[
    str,
    typer.Argument(metavar="NAME", parser=parse_new("a run"), help="Letters, digits, dots, dashes and underscores."),
]

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="GROUP.NAME=VALUE",
        help="A changed setting: asr.model=whisper-tiny.en. Repeatable.",
        show_default="same settings as live",
    ),
]
Until = Annotated[Time | None, typer.Option(metavar="TIME", parser=parse_time, help="Calls started before.")]
Language = Annotated[str | None, typer.Option(metavar="CODE", help="Calls in this language (ISO 639-1).")]
Gold = Annotated[str | None, typer.Option(metavar="SET", help="Calls of a gold set: NAME or NAME@VERSION.")]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of calls, the latest first.", show_default="2,000")
]


@app.writes()
async def create(
    scope: Scope,
    name: NewRun,
    set_: Sets = None,
    team: Team = None,
    since: Since = None,
    until: Until = None,
    language: Language = None,
    gold: Gold = None,
    call: CallIds = None,
    limit: Limit = None,
    watch: Watch = False,
) -> Result:
    """Create a run over completed calls, with the settings that differ from live.

    A run can change settings of asr, alignment, diarization, safety, roles and analysis (see SETTINGS.md). Without
    --set, it shows what the service would produce for these calls today.

    Examples:

      switchboard runs create tiny --set asr.model=whisper-tiny.en --since 7d

      switchboard runs create checked --gold returns --set asr.beam_size=1
    """
    changes = _changes(set_ or [])
    period = (await moment_of(scope.database, since), await moment_of(scope.database, until))
    of_gold = parse_set_name(gold) if gold else None
    selection = CallSelection(tuple(call or ()), of_gold, *period, await scope.team_id(team), language, limit)
    chosen = await _choose(scope, selection, gold)
    run, left_out = await runs.create(scope.database, scope.id, name, changes, chosen)
    notes = [f"Created run {run.name}: {counted(run.calls, 'call')}, {_set(run)}."]
    notes += [f"Left out because they are not completed: {join_names(left_out)}."] if left_out else []
    if not watch:
        return Result({"run": run, "left_out": left_out}, notes=notes)
    err().print("\n".join(notes), markup=False)
    return await show(scope, run.name, watch=True)


def _changes(settings: list[str]) -> Changes:
    try:
        return check(parse(settings), Settings())
    except SettingRefused as error:
        raise CommandError(str(error), "SETTINGS.md lists them.", USAGE) from None


async def _choose(scope: Scope, selection: CallSelection, gold: str | None) -> list[UUID]:
    try:
        chosen = await choose(scope.database, with_long_timeout(Reader(scope.id)), selection)
    except NoSuchSet:
        raise CommandError(f"No gold set {gold!r}.", "`switchboard gold list` shows them.", USAGE) from None
    if not chosen:
        raise CommandError("No completed call matches.", "`switchboard calls list` shows calls.", FAILED)
    return chosen


@app.reads()
async def list_(scope: Scope) -> Result:
    """List runs, the latest first."""
    return listing(
        await runs.list_runs(scope.database, scope.id),
        ("!run", "status", "#calls", "#failed", "sets", "!created", "by"),
        lambda run: (
            *(run.name, "promoted" if run.promoted_at else _state(run), run.calls, run.failed or ""),
            *(_set(run), run.made_at, run.made_by),
        ),
        "No runs yet: `switchboard runs create NAME --set asr.model=...` creates one from stored calls.",
    )


@app.reads()
async def show(scope: Scope, name: RunName, watch: Watch = False) -> Result:
    """Show a run's progress, speed, remaining time and failures.

    Example:

      switchboard runs show tiny --watch
    """
    run = await require_run(scope.database, scope.workspace, name)
    if watch:
        run = await _watch(scope.database, scope.workspace, run)
    failed = (await run_results.list_calls(scope.database, scope.id, run.run_id, "failed", limit=SHOWN)).items
    lines: list[str | Text] = [*_lines(run)]
    lines += [Text(f"  {call.call_id}  {call.error_code}: {call.error_message}", "red") for call in failed]
    if run.failed > len(failed):
        lines.append(f"  and {run.failed - len(failed)} more")
    return Result({"run": run, "failed": failed}, lines)


@app.writes()
async def promote(scope: Scope, name: RunName) -> Result:
    """Make a run live: its results replace the records of its calls, all at once. Changed calls are skipped.

    A correction is kept if the corrected words still exist. Each call gets a call.promoted event. `runs rollback`
    undoes the promotion.
    """
    run = await require_run(scope.database, scope.workspace, name)
    return _promotion_result(await promotion.promote(scope.database, scope.id, run.run_id), "is now live for")


@app.writes()
async def rollback(scope: Scope, name: RunName) -> Result:
    """Restore the records that a promotion replaced, all at once."""
    run = await require_run(scope.database, scope.workspace, name)
    return _promotion_result(await promotion.roll_back(scope.database, scope.id, run.run_id), "is no longer live for")


@app.writes()
async def cancel(scope: Scope, name: RunName) -> Result:
    """Cancel a run. Finished calls stay, and can be compared and promoted."""
    match = await require_run(scope.database, scope.workspace, name)
    run = await runs.cancel(scope.database, scope.id, match.run_id)
    return Result(run, f"Canceled run {run.name}: {run.done} of {counted(run.calls, 'call')} done.")


@app.writes()
async def delete(scope: Scope, name: RunName) -> Result:
    """Delete a run and its results. Calls and their records stay; a promoted run is rolled back first."""
    match = await require_run(scope.database, scope.workspace, name)
    run = await runs.delete(scope.database, scope.id, match.run_id)
    return Result({"deleted": run}, f"Deleted run {run.name}.")


def _promotion_result(result: "PromotionResult", outcome: str) -> Result:
    skipped = [
        f"Skipped ({reason}): {join_names([call_id for call_id, why in result.skipped.items() if why == reason])}"
        for reason in sorted(set(result.skipped.values()))
    ]
    return Result(result, f"Run {result.run.name} {outcome} {counted(result.calls, 'call')}.", skipped)


async def _watch(database: "Database", workspace: "Workspace", run: "Run") -> "Run":
    console, printed = err(), time.monotonic()
    with progress_bar(disable=not console.is_terminal) as bar:
        task = bar.add_task(run.name, total=run.calls)
        while run.state == "running":
            bar.update(task, completed=run.done + run.failed, total=run.waiting + run.running + run.done + run.failed)
            if not console.is_terminal and time.monotonic() - printed > 30:
                printed = time.monotonic()
                console.print(_lines(run)[1], markup=False)
            await asyncio.sleep(POLL_SECONDS)
            run = await runs.find(database, workspace.workspace_id, run.run_id)
    return run


def _lines(run: "Run") -> list[str]:
    lines = [f"{run.name}  {_set(run)}"]
    remaining = run.waiting + run.running
    ended = f"{run.done} of {counted(run.calls, 'call')} done" + (f", {run.failed} failed" if run.failed else "")
    lines.append(f"{_state(run)}: {ended}" + (f", {_remaining(run)}" if remaining and run.state == "running" else ""))
    if run.worked_seconds > 0:
        rate = run.audio_seconds / run.worked_seconds
        worked = f"{duration(run.worked_seconds)} of processing ({rate:.1f} times real time)"
        lines.append(f"{duration(run.audio_seconds)} of audio in {worked}")
    elif run.done:
        lines.append(f"{duration(run.audio_seconds)} of audio; no stage was repeated")
    if run.configuration:
        engine, code = run.configuration["engines"]["asr"], run.configuration["code"]
        lines.append(
            f"engine {engine['name']} ({engine['digest'][:12]}), code {code['version']} ({code['digest'][:12]})"
        )
        lines.append(f"configuration {run.digest}")
    if run.promoted_at:
        lines.append(f"promoted {moment(run.promoted_at)} by {run.promoted_by}: live for {run.promoted} calls")
    deleted_calls = run.calls - run.done - run.failed - remaining
    if deleted_calls and run.state != "canceled":
        lines.append(f"{counted(deleted_calls, 'call')} were deleted")
    return lines


def _remaining(run: "Run") -> str:
    seconds = run.seconds_left(datetime.now(UTC))
    if seconds is None:
        return "waiting for its turn" if not run.running else "processing the first calls"
    return f"about {duration(seconds)} left"


def _state(run: "Run") -> str:
    return "waiting" if run.is_waiting else run.state


def _set(run: "Run") -> str:
    return ", ".join(run.changes) or "same settings as live"
