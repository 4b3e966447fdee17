"""`switchboard runs compare`: what a run heard and found, beside the records."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

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
    from evaluation.report import Rate
    from evaluation.score import CallScore, Errors

RECORD = "record"
FIGURES = ("wer", "cpwer", "lost_per_minute", "invented_per_minute", "der", "word_time_error")


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
    worst: Annotated[int, typer.Option(min=0, max=1000, help="How many calls to name.")] = 5,
    json_: Json = False,
) -> None:
    """Compare a run with the records: words and findings changed, what it took; against a gold set, which is better.

    The record is what the machine heard, without what people corrected. Of a promoted run it is the one before.

    Examples:

      switchboard runs compare tiny

      switchboard runs compare tiny --gold returns
    """
    run, calls, truths = names.run(workspace, lambda database, home: _gathered(database, home, name, gold))
    if not calls:
        raise CommandError(f"No call of run {run.name} is done yet.", f"`switchboard runs status {run.name}`", FAILED)
    with libraries():
        differences = [_difference(one) for one in calls]
        scores = _scores(calls, truths) if gold else {}
    if gold and not any(scores.values()):
        raise CommandError(f"No call of run {run.name} is in the gold set {gold}.", "", FAILED)
    if json_:
        print_json(_as_json(run, differences, scores))
    else:
        _show(run, differences, scores, worst)


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
    from db import run_results

    run = await find(database, home, name)
    calls = [one async for one in run_results.compared(database, home.workspace_id, run.run_id)]
    truths = (await loaded(database, home, gold))[1] if gold else []
    return run, calls, truths


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


def _scores(calls: "Sequence[Compared]", truths: Sequence[Any]) -> "dict[str, list[CallScore]]":
    """How the records and the run did on the calls of a gold set that both have."""
    from evaluation.score import score
    from evaluation.truth import of_transcript

    known = {truth.name: truth for truth in truths}
    both = [one for one in calls if str(one.call_id) in known and one.live is not None]
    sides: dict[str, list[CallScore]] = {RECORD: [], "run": []}
    for one in both:
        truth = known[str(one.call_id)]
        for side, said in ((RECORD, one.live), ("run", one.run)):
            assert said is not None
            sides[side].append(score(truth, of_transcript(truth.name, said)))
    return sides


def _show(run: "Run", differences: list[Difference], scores: "dict[str, list[CallScore]]", worst: int) -> None:
    compared = [one for one in differences if one.words is not None]
    said, changed = (sum(getattr(one.words, name) for one in compared) for name in ("said", "all"))
    out().print(f"{run.name}: {counted(len(compared), 'call')} beside their records", markup=False)
    share = f"{changed / said:.1%}" if said else "-"
    out().print(f"words changed: {changed} of {said} ({share})", markup=False)
    steps = Counter(step for one in compared for step in one.findings)
    told = ", ".join(f"{step} in {count}" for step, count in steps.most_common())
    out().print(f"findings changed: {told or 'none'}", markup=False)
    if run.worked_seconds:
        rate = run.audio_seconds / run.worked_seconds
        out().print(f"{duration(run.worked_seconds)} of work, {rate:.1f} times as fast as the audio", markup=False)
    if scores:
        _show_scores(run, scores)
    if gone := len(differences) - len(compared):
        err().print(f"{counted(gone, 'call')} got another recording since, and is left out.", markup=False)
    first = sorted(compared, key=lambda one: -_share(one))[:worst]
    if first and changed:
        lines = table("!most changed", "#words", "#changed", "findings")
        for one in first:
            assert one.words is not None
            lines.add_row(str(one.call_id), str(one.words.said), f"{_share(one):.0%}", ", ".join(one.findings))
        out().print("", lines)


def _show_scores(run: "Run", scores: "dict[str, list[CallScore]]") -> None:
    from evaluation.report import METRICS, SHARES, TITLES, difference, pooled

    def told(rate: "Rate | None", metric: str, sign: str = "") -> str:
        def figure(value: float) -> str:
            return f"{100 * value:{sign}.1f} %" if metric in SHARES else f"{value:{sign}.2f}"

        if rate is None:
            return "-"
        return figure(rate.value) + (
            f" ({figure(rate.low)} to {figure(rate.high or 0)})" if rate.low is not None else ""
        )

    lines = table("", f"!{RECORD}", f"!{run.name}", "!difference")
    for metric in [one for one in FIGURES if one in METRICS]:
        rates = [pooled(side, metric) for side in scores.values()]
        if any(rates):
            change = difference(scores[RECORD], scores["run"], metric)
            lines.add_row(TITLES[metric], *(told(rate, metric) for rate in rates), told(change, metric, "+"))
    out().print("", lines)


def _share(one: Difference) -> float:
    return one.words.all / one.words.said if one.words and one.words.said else 0.0


def _as_json(run: "Run", differences: list[Difference], scores: "dict[str, list[CallScore]]") -> dict[str, Any]:
    from evaluation.report import METRICS, difference, pooled

    figures = {side: {metric: pooled(some, metric) for metric in METRICS} for side, some in scores.items()}
    change = {metric: difference(scores[RECORD], scores["run"], metric) for metric in METRICS} if scores else None
    return {"run": run, "calls": differences, "against_gold": figures or None, "difference": change}
