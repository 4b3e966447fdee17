"""A comparison as one page: works without a network, on a phone and on paper. Calls are one click from their sound."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import UUID

from pipeline.evaluation.compare import Comparison, ScoredCall, Slice, SystemVerdict, apart, figure, interval
from pipeline.evaluation.moments import Moment
from pipeline.evaluation.report import FEWEST, MORE_IS_BETTER, RESAMPLES, SHARES, TITLES, Rate

if TYPE_CHECKING:
    from jinja2 import Template

WITH_MOMENTS, LISTED = 12, 500  # of the worst calls: shown with what was said, and listed at all
WIDTH, MIDDLE = 200.0, 100.0  # of a difference's picture
SIDE = 320.0  # of the picture of calls
LIBRARIES = ("jiwer", "meeteval", "pyannote.metrics", "whisper-normalizer")


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference as it is drawn, in `WIDTH`; zero is in the middle. `low`, `high`: None for too few calls."""

    at: float
    low: float | None
    high: float | None
    better: bool | None


@dataclass(frozen=True, slots=True)
class Dot:
    """A call in the picture of calls: the first system's value across, the other's upwards."""

    x: float
    y: float
    told: str
    url: str | None


@dataclass(frozen=True, slots=True)
class WorstCall:
    """A call with where most of each system's words are wrong. `url`: of its sound, at the first of these."""

    line: ScoredCall
    url: str | None
    moments: tuple[tuple[Moment, str | None], ...]  # each with its URL


def render(comparison: Comparison, heading: str, by: str = "wer", console: str | None = None, note: str = "") -> str:
    """The page as HTML. `by`: the metric of slices and of the worst calls. `console`: the console's URL, for links.

    `note`: what the set is: its version, its digest. Raises ValueError where nothing was heard.
    """
    if not comparison.metrics:
        raise ValueError("none of the calls has a transcript")
    names = [system.name for system in comparison.systems]
    lines = comparison.calls(by)
    seconds = {score.name: score.seconds for system in comparison.systems for score in system.scores}
    return _template().render(
        heading=heading,
        note=note,
        by=by,
        titles=TITLES,
        shares=SHARES,
        more_is_better=by in MORE_IS_BETTER,
        systems=comparison.systems,
        names=names,
        others=names[1:],
        calls=len(seconds),
        minutes=sum(seconds.values()) / 60,
        metrics=[(metric, _row(comparison, metric)) for metric in comparison.metrics],
        verdicts={name: _verdicts(comparison, name) for name in names[1:]},
        slices=[(metric, _slices(comparison, metric)) for metric in [by, *(m for m in comparison.metrics if m != by)]],
        pictures=[(name, *dots(lines, at, by, console)) for at, name in enumerate(names) if at],
        worst=[_worst(comparison, line, console) for line in lines[:WITH_MOMENTS]],
        lines=lines[:LISTED],
        more=len(lines) - LISTED,
        link=lambda call: call_url(console, call),
        libraries=[f"{name} {version(name)}" for name in LIBRARIES],
        resamples=RESAMPLES,
        fewest=FEWEST,
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def call_url(console: str | None, call: str, seconds: float | None = None) -> str | None:
    """Where a call is played, at a second; None without a console, and for calls that it cannot have."""
    try:
        UUID(call)
    except ValueError:
        return None
    if not console:
        return None
    return f"{console.rstrip('/')}/calls/{call}" + ("" if seconds is None else f"#t={seconds:.1f}")


def intervals(verdicts: Sequence[SystemVerdict | None]) -> list[Interval | None]:
    """Differences on one scale: the furthest end of an interval is at the edge."""
    rates = [verdict.rate for verdict in verdicts if verdict is not None]
    reach = max((abs(end) for rate in rates for end in _ends(rate)), default=0.0) or 1.0

    def place(value: float) -> float:
        return round(MIDDLE + value / reach * (MIDDLE - 6), 1)

    def drawn(verdict: SystemVerdict | None) -> Interval | None:
        if verdict is None:
            return None
        rate = verdict.rate
        low, high = (None if end is None else place(end) for end in (rate.low, rate.high))
        return Interval(place(rate.value), low, high, verdict.better)

    return [drawn(verdict) for verdict in verdicts]


def dots(lines: Sequence[ScoredCall], other: int, metric: str, console: str | None) -> tuple[list[Dot], float]:
    """Calls that the first and the other system have heard, and the value at the end of both axes."""
    pairs = [(line, one, two) for line in lines if None not in (one := line.values[0], two := line.values[other])]
    most = max((max(one, two) for _, one, two in pairs if one is not None and two is not None), default=0.0)
    end = _round_up(most)
    made = []
    for line, one, two in pairs:
        if one is not None and two is not None:
            told = f"{line.name}: {figure(one, metric)}, {figure(two, metric)}"
            x, y = round(one / end * SIDE, 1), round(SIDE - two / end * SIDE, 1)
            made.append(Dot(x, y, told, call_url(console, line.name)))
    return made, end


def _row(comparison: Comparison, metric: str) -> Slice:
    """All calls, in the form of a slice."""
    return Slice(
        "",
        "",
        0,
        0.0,
        tuple(comparison.rate(system.name, metric) for system in comparison.systems),
        tuple(comparison.verdict(system.name, metric) for system in comparison.systems[1:]),
    )


def _slices(comparison: Comparison, metric: str) -> list[tuple[Slice, list[Interval | None]]]:
    found = [one for one in comparison.slices(metric) if any(one.rates)]
    return [(one, pictures) for one, pictures in zip(found, _pictures(found), strict=True)]


def _pictures(slices: Sequence[Slice]) -> list[list[Interval | None]]:
    flat = iter(intervals([verdict for one in slices for verdict in one.verdicts]))
    return [[next(flat) for _ in one.verdicts] for one in slices]


def _verdicts(comparison: Comparison, name: str) -> dict[bool | None, list[SystemVerdict]]:
    """By whether the system is better, worse, or neither is shown."""
    made: dict[bool | None, list[SystemVerdict]] = {True: [], False: [], None: []}
    for metric in comparison.metrics:
        verdict = comparison.verdict(name, metric)
        if verdict is not None:
            made[verdict.better].append(verdict)
    return made


def _worst(comparison: Comparison, line: ScoredCall, console: str | None) -> WorstCall:
    moments = comparison.moments(line.name)
    first = moments[0].start if moments else None
    linked = tuple((one, call_url(console, line.name, one.start)) for one in moments)
    return WorstCall(line, call_url(console, line.name, first), linked)


def _ends(rate: Rate) -> list[float]:
    return [rate.value, *(end for end in (rate.low, rate.high) if end is not None)]


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10 ..., times a power of ten."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value - 1e-12)


def clock(seconds: float) -> str:
    """Seconds as m:ss, or h:mm:ss from an hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("pipeline.evaluation"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    helpers: dict[str, Callable[..., str]] = {"apart": apart, "figure": figure, "interval": interval, "clock": clock}
    environment.globals |= helpers
    return environment.get_template("comparison.html")
