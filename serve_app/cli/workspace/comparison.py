from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.progress import track
from rich.text import Text

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import err
from serve_app.cli.ui.table import Table, table

if TYPE_CHECKING:
    from pipeline.evaluation.compare import Comparison, ScoredCall, SystemVerdict
    from pipeline.evaluation.report import Rate
    from serve_app.experiments.comparison_cache import ComparisonInput

T = TypeVar("T")


def _metric(name: str) -> str:
    from pipeline.evaluation.report import METRICS

    if name not in METRICS:
        raise CommandError(f"Unknown metric {name!r}.", f"Metrics: {', '.join(METRICS)}.", USAGE)
    return name


By = Annotated[str, typer.Option("--by", metavar="METRIC", parser=_metric, help="Metric of slices and worst calls.")]
Worst = Annotated[int, typer.Option("--worst", min=0, max=1000, help="Number of calls to list.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="A row for each system and call.")]
Price = Annotated[
    float | None,
    typer.Option(
        "--price-per-hour",
        min=0,
        help="Price of an hour of processing, in any currency, for the cost per hour of audio.",
        show_default="SWITCHBOARD_SCALING__TRANSCRIBER__PRICE_PER_HOUR",
    ),
]


def measure(
    scoring: "ComparisonInput", priced: Iterable[str], price: float | None, csv_: Path | None, nothing: str
) -> "Comparison":
    """Return the comparison, and write it to `csv_`. Raises `CommandError` with `nothing` if no call has a transcript.

    `priced`: the systems whose processing has the `price` per hour, by default that of the settings.
    """
    from pipeline.evaluation.compare import compare
    from serve_app.settings import Settings

    cost = Settings().scaling.transcriber.price_per_hour if price is None else price
    prices = {} if cost is None else dict.fromkeys(priced, cost)
    comparison = compare(scoring.truths, scoring.sides, scoring.facts, prices, _progress)
    if not any(system.scores for system in comparison.systems):
        raise CommandError(nothing, "", FAILED)
    if csv_ is not None:
        _write_csv(comparison, csv_)
    return comparison


def _progress(pairs: Iterable[T], name: str) -> Iterable[T]:
    return track(list(pairs), f"Measuring {name}", console=err(), transient=True, disable=not err().is_terminal)


def _write_csv(comparison: "Comparison", file: Path) -> None:
    from pipeline.evaluation.frames import by_call

    try:
        file.write_text(by_call(comparison).to_csv(index=False), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} was not written: {error}.", "", FAILED) from error


def lines(comparison: "Comparison", by: str, worst: int) -> list[str | Text | Table]:
    from pipeline.evaluation.report import TITLES

    first, *others = [system.name for system in comparison.systems]
    shown: list[str | Text | Table] = []
    for name in others:
        if verdict := comparison.verdict(name, by):
            calls = f"{TITLES[by]}; {verdict.rate.calls} calls that {first} also transcribed"
            shown.append(Text.assemble((verdict.sentence, _style(verdict)), (f"  {calls}", "dim")))
    shown.append(_metrics(comparison, first, others))
    slices = [slice_ for slice_ in comparison.slices(by) if any(slice_.rates)]
    if slices:
        rows = table("slice", "", "#calls", *_columns(first, others))
        for slice_ in slices:
            rows.add_row(slice_.fact, slice_.value, str(slice_.calls), *_cells(slice_.rates, slice_.verdicts, by))
        shown += ["", Text(TITLES[by], "bold"), rows]
    if calls_of_worst := comparison.calls(by)[:worst]:
        rows = table("!worst calls", "#minutes", *(f"!{name}" for name in (first, *others)))
        for call in calls_of_worst:
            rows.add_row(call.name, f"{call.seconds / 60:.1f}", *_values(call, by))
        shown += ["", rows]
    return shown


def notes(comparison: "Comparison") -> list[str]:
    return [
        f"{system.name} has no transcript of {system.missing} of the calls."
        for system in comparison.systems
        if system.missing
    ] + ["`switchboard calls show CALLID` shows a call; the console plays it."]


def _metrics(comparison: "Comparison", first: str, others: list[str]) -> Table:
    from pipeline.evaluation.report import TITLES

    rows = table("", *_columns(first, others))
    for metric in comparison.metrics:
        rates = [comparison.rate(name, metric) for name in (first, *others)]
        verdicts = [comparison.verdict(name, metric) for name in others]
        rows.add_row(TITLES[metric], *_cells(rates, verdicts, metric))
    return rows


def _columns(first: str, others: list[str]) -> list[str]:
    return [*(f"!{name}" for name in (first, *others)), *(f"!{name} - {first}" for name in others)]


def _cells(rates: "Iterable[Rate | None]", verdicts: "Iterable[SystemVerdict | None]", metric: str) -> list[str | Text]:
    from pipeline.evaluation.compare import figure, format_difference, interval

    cells: list[str | Text] = []
    for rate in rates:
        ends = interval(rate, metric)
        cells.append("-" if rate is None else figure(rate.value, metric) + (f" ({ends})" if ends else ""))
    return [*cells, *(Text(format_difference(each.rate if each else None, metric), _style(each)) for each in verdicts)]


def _style(verdict: "SystemVerdict | None") -> str:
    shown = None if verdict is None else verdict.better
    return "" if shown is None else "green" if shown else "red"


def _values(line: "ScoredCall", metric: str) -> list[str]:
    from pipeline.evaluation.compare import figure

    return ["-" if value is None else figure(value, metric) for value in line.values]


def as_json(comparison: "Comparison", by: str, worst: int) -> dict[str, Any]:
    """Return the comparison as JSON; lists of a slice or call are in the order of the systems."""
    names = [system.name for system in comparison.systems]
    return {
        "systems": [
            {
                "name": system.name,
                "calls": len(system.scores),
                "missing": system.missing,
                "metrics": {metric: comparison.rate(system.name, metric) for metric in comparison.metrics},
                "against_first": None
                if system.name == names[0]
                else {metric: _verdict(comparison.verdict(system.name, metric)) for metric in comparison.metrics},
            }
            for system in comparison.systems
        ],
        "by": by,
        "slices": [
            {
                "fact": slice_.fact,
                "value": slice_.value,
                "calls": slice_.calls,
                "seconds": slice_.seconds,
                "systems": slice_.rates,
                "against_first": [None, *map(_verdict, slice_.verdicts)],
            }
            for slice_ in comparison.slices(by)
        ],
        "worst": [
            {"call_id": line.name, "seconds": line.seconds, "values": line.values}
            for line in comparison.calls(by)[:worst]
        ],
    }


def _verdict(verdict: "SystemVerdict | None") -> dict[str, Any] | None:
    if verdict is None:
        return None
    rate = verdict.rate
    ends = {"value": rate.value, "low": rate.low, "high": rate.high, "calls": rate.calls}
    return {**ends, "better": verdict.better, "sentence": verdict.sentence}
