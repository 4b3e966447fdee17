"""`switchboard gold score`: how good what was heard is, against a gold set."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from rich.progress import track

from serve_app.cli import names
from serve_app.cli.console import Json, err, out, print_json
from serve_app.cli.errors import FAILED, USAGE, CommandError
from serve_app.cli.gold_sets import SetName, libraries, loaded
from serve_app.cli.table import table

if TYPE_CHECKING:
    from db.database import Database
    from db.directory import Workspace
    from db.gold import GoldSet
    from evaluation.report import Rate
    from evaluation.score import CallScore
    from evaluation.truth import TrueCall

MACHINE = "machine"  # what the service heard, before people corrected it
PAGE = 100  # calls read in one transaction
READ_SECONDS = 60.0  # that a statement may take


@dataclass(frozen=True, slots=True)
class System:
    """One that is measured: its name, and how it did on each call."""

    name: str
    scores: "list[CallScore]"
    missing: int  # calls of the set that it has not heard


def score(
    name: SetName,
    workspace: names.Workspace = None,
    heard: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            help="What another system heard: a file or folder as `gold import` takes them. Repeatable; what differs "
            "is told against the first one.",
            show_default="what this service heard, before corrections",
        ),
    ] = None,
    by: Annotated[str, typer.Option(metavar="METRIC", help="For slices and the worst calls.")] = "wer",
    worst: Annotated[int, typer.Option(min=0, max=1000, help="How many calls to name.")] = 5,
    csv_: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="A row for each call.", show_default=False)
    ] = None,
    json_: Json = False,
) -> None:
    """Measure what was heard against a gold set: words, speakers, times; with intervals, slices and the worst calls.

    Intervals hold 95 % of 1,000 resamples of the calls; fewer than five calls have none. `--heard` measures other
    systems, or an export of before, in place of what this service heard.

    Examples:

      switchboard gold score returns

      switchboard gold score returns@2 --heard machine.jsonl --heard other.stm --by cpwer
    """
    from evaluation import formats
    from evaluation.report import METRICS

    if by not in METRICS:
        raise CommandError(f"There is no metric {by!r}.", f"Metrics: {', '.join(METRICS)}.", USAGE)
    with libraries():
        try:
            others = {_name(path, heard or []): formats.read(path) for path in heard or []}
        except formats.UnreadableFile as error:
            raise CommandError(f"{error}.", "Nothing was measured.", USAGE) from error
        one, truths, sides, facts = names.run(workspace, lambda database, home: _gathered(database, home, name, others))
        systems = [_measured(side, truths, calls) for side, calls in sides.items()]
    if not any(system.scores for system in systems):
        raise CommandError(f"None of the calls of {one.name}@{one.version} was heard.", "", FAILED)
    if csv_ is not None:
        _write_csv(csv_, systems, facts)
    if json_:
        print_json(_as_json(one, systems, facts, by, worst))
    else:
        _show(one, systems, facts, by, worst)


def _name(path: Path, among: Sequence[Path]) -> str:
    """A system is called as its file is; files of one name in several folders, by their paths."""
    return path.stem if sum(other.stem == path.stem for other in among) == 1 else str(path)


async def _gathered(
    database: "Database", home: "Workspace", named: str, others: "dict[str, list[TrueCall]]"
) -> "tuple[GoldSet, list[TrueCall], dict[str, list[TrueCall]], dict[str, dict[str, str]]]":
    """The set, its calls, what each system heard, and the facts of calls that slices are made of."""
    from db import gold
    from evaluation.report import duration_band

    one, truths = await loaded(database, home, named)
    sides = others or {MACHINE: await _machine(database, home, [UUID(call.name) for call in truths])}
    agents = await gold.agents(database, home.workspace_id, one)
    languages = {call.name: call.language for side in sides.values() for call in side if call.language}
    facts: dict[str, dict[str, str]] = {}
    for call in truths:
        end = max((turn.end for turn in call.turns), default=0.0)
        apart = bool(call.turns) and all(turn.channel is not None for turn in call.turns)
        known = {
            "language": call.language or languages.get(call.name),
            "channels": "apart" if apart else "one, or unknown",
            "duration": duration_band(end),
            "agent": agents.get(UUID(call.name)),
        }
        facts[call.name] = {fact: value for fact, value in known.items() if value}
    return one, truths, sides, facts


async def _machine(database: "Database", home: "Workspace", call_ids: list[UUID]) -> "list[TrueCall]":
    from db import views
    from db.database import Reader
    from evaluation.truth import of_transcript

    found: list[TrueCall] = []
    for at in range(0, len(call_ids), PAGE):
        async with database.transaction(Reader(home.workspace_id, seconds=READ_SECONDS), snapshot=True) as connection:
            said = await views.transcripts_of(connection, call_ids[at : at + PAGE], machine=True)
        found += [of_transcript(str(call_id), transcript) for call_id, transcript in said]
    return found


def _measured(name: str, truths: "list[TrueCall]", calls: "list[TrueCall]") -> System:
    from evaluation import score as scoring

    heard = {call.name: call for call in calls}
    both = [(truth, heard[truth.name]) for truth in truths if truth.name in heard]
    scores = [
        scoring.score(*pair)
        for pair in track(both, f"Measuring {name}", console=err(), transient=True, disable=not err().is_terminal)
    ]
    return System(name, scores, len(truths) - len(both))


def _show(one: "GoldSet", systems: list[System], facts: dict[str, dict[str, str]], by: str, worst_count: int) -> None:
    from evaluation.report import TITLES, slices, worst

    first = systems[0]
    out().print(f"{one.name}@{one.version}, digest {one.digest[:12]}: {one.left} calls", markup=False)
    out().print(_metrics(systems))
    for system in systems:
        if system.missing:
            err().print(f"{system.name} has not heard {system.missing} of the calls.", style="yellow", markup=False)
    title = TITLES[by] if len(systems) == 1 else f"{first.name}: {TITLES[by]}"
    groups = {fact: some for fact, some in slices(first.scores, facts, by).items() if len(some) > 1}
    if groups:
        lines = table("slice", "", f"!{title}", "#calls")
        for fact, some in groups.items():
            for value, rate in some.items():
                lines.add_row(fact, value, _told(rate, by), str(rate.calls))
        out().print("", lines)
    if found := worst(first.scores, by, worst_count):
        lines = table("!worst calls", "#minutes", f"!{title}")
        for call, share in found:
            lines.add_row(call.name, f"{call.seconds / 60:.1f}", _figure(share, by))
        out().print("", lines)
        err().print("`switchboard calls show CALLID` shows one; the console plays it.", markup=False)


def _metrics(systems: list[System]) -> Any:
    """Each metric of each system, and by how much the others differ from the first."""
    from evaluation.report import METRICS, TITLES, difference, pooled

    first, others = systems[0], systems[1:]
    lines = table("", *(f"!{system.name}" for system in systems), *(f"!{one.name} - {first.name}" for one in others))
    for metric in METRICS:
        rates = [pooled(system.scores, metric) for system in systems]
        changes = [difference(first.scores, system.scores, metric) for system in others]
        if any(rates):
            told = [_told(rate, metric) for rate in rates] + [_told(one, metric, signed=True) for one in changes]
            lines.add_row(TITLES[metric], *told)
    return lines


def _told(rate: "Rate | None", metric: str, signed: bool = False) -> str:
    if rate is None:
        return "-"
    shown = _figure(rate.value, metric, signed)
    if rate.low is None or rate.high is None:
        return shown
    return f"{shown} ({_figure(rate.low, metric, signed)} to {_figure(rate.high, metric, signed)})"


def _figure(value: float, metric: str, signed: bool = False) -> str:
    from evaluation.report import SHARES

    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f} %" if metric in SHARES else f"{value:{sign}.2f}"


def _as_json(
    one: "GoldSet", systems: list[System], facts: dict[str, dict[str, str]], by: str, worst_count: int
) -> dict[str, Any]:
    from evaluation.report import METRICS, difference, pooled, slices, worst
    from serve_app.written import fields

    first = systems[0]
    return {
        "set": fields(one),
        "systems": [
            {
                "name": system.name,
                "calls": len(system.scores),
                "missing": system.missing,
                "metrics": {metric: pooled(system.scores, metric) for metric in METRICS},
                "against_first": None
                if system is first
                else {metric: difference(first.scores, system.scores, metric) for metric in METRICS},
                "slices": slices(system.scores, facts, by),
                "worst": [{"call_id": call.name, by: value} for call, value in worst(system.scores, by, worst_count)],
            }
            for system in systems
        ],
    }


def _write_csv(file: Path, systems: list[System], facts: dict[str, dict[str, str]]) -> None:
    """A row for each system and call: facts and metrics."""
    from evaluation.report import METRICS

    kinds = ("language", "channels", "duration", "agent")
    try:
        with file.open("w", newline="", encoding="utf-8") as target:
            writer = csv.writer(target)
            writer.writerow(["system", "call_id", "seconds", *kinds, *METRICS])
            for system in systems:
                for call in system.scores:
                    parts = [metric(call) for metric in METRICS.values()]
                    rates = [part[0] / part[1] if part and part[1] else "" for part in parts]
                    known = facts.get(call.name, {})
                    writer.writerow([system.name, call.name, call.seconds, *(known.get(k, "") for k in kinds), *rates])
    except OSError as error:
        raise CommandError(f"{file} was not written: {error}.", "", FAILED) from error
