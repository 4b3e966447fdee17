"""Two or more systems on the same calls: each by itself, by how much they differ, where, and in which calls.

    heard = {name: formats.read(Path(f"{name}.jsonl")) for name in ("tiny.en", "base")}
    comparison = compare(formats.read(Path("truth.jsonl")), heard)
    comparison.verdict("base", "wer").sentence

`pipeline.evaluation.frames` returns it as data frames.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.evaluation.moments import Moment, moments
from pipeline.evaluation.report import (
    METRICS,
    MORE_IS_BETTER,
    SHARES,
    Rate,
    difference,
    duration_band,
    pooled,
    value_of,
)
from pipeline.evaluation.score import CallScore, score
from pipeline.evaluation.truth import TrueCall

FACTS = ("language", "layout", "duration", "agent")
"""What slices are made of, in the order in which they are shown; further facts follow."""
MAX_MOMENTS = 3  # of a call

Facts = Mapping[str, Mapping[str, str]]  # by the call's name, such as {"language": "en"}
Progress = Callable[[Iterable[tuple[TrueCall, TrueCall]], str], Iterable[tuple[TrueCall, TrueCall]]]


@dataclass(frozen=True, slots=True)
class System:
    """One that is measured: its name, and how it did on each call."""

    name: str
    scores: tuple[CallScore, ...]
    missing: int  # calls of the set that it has not heard


@dataclass(frozen=True, slots=True)
class SystemVerdict:
    """How one system is beside the first. `rate`: by how much it is above it, over the calls that both have."""

    system: str
    metric: str
    rate: Rate

    @property
    def better(self) -> bool | None:
        """None where the interval holds zero, or there is none: then nothing is shown."""
        if self.rate.low is None or self.rate.high is None or self.rate.low <= 0 <= self.rate.high:
            return None
        return (self.rate.value > 0) == (self.metric in MORE_IS_BETTER)

    @property
    def sentence(self) -> str:
        """Such as "base is better by 4.1 points (2.0 to 6.3)"."""
        rate, shown = self.rate, self.better
        unit = " points" if self.metric in SHARES else ""
        if rate.low is None or rate.high is None:
            return f"{self.system} differs by {_signed(rate.value, self.metric)}{unit}: too few calls to tell"
        if shown is None:
            ends = f"{_signed(rate.low, self.metric)} to {_signed(rate.high, self.metric)}"
            return f"no difference shown ({ends}{unit})"
        low, high = sorted((abs(rate.low), abs(rate.high)))
        by = f"{_plain(abs(rate.value), self.metric)}{unit} ({_plain(low, self.metric)} to {_plain(high, self.metric)})"
        return f"{self.system} is {'better' if shown else 'worse'} by {by}"


@dataclass(frozen=True, slots=True)
class Slice:
    """Calls that share a fact: what each system has on them, in the systems' order, and the verdicts of the others."""

    fact: str
    value: str
    calls: int
    seconds: float
    rates: tuple[Rate | None, ...]
    verdicts: tuple[SystemVerdict | None, ...]


@dataclass(frozen=True, slots=True)
class ScoredCall:
    """A call with a metric of each system, in the systems' order; None where a system has not heard it."""

    name: str
    seconds: float
    facts: Mapping[str, str]
    values: tuple[float | None, ...]

    @property
    def worst(self) -> float:
        """The largest of the values."""
        return max((value for value in self.values if value is not None), default=0.0)


@dataclass(frozen=True)
class Comparison:
    """Systems on the calls of a set. The first one is what the others are held against."""

    systems: tuple[System, ...]
    facts: Facts
    truths: Mapping[str, TrueCall] = field(repr=False)
    heard: Mapping[str, Mapping[str, TrueCall]] = field(repr=False)  # by system, by call

    @property
    def metrics(self) -> list[str]:
        """Those that are known of some system, in the order in which they are shown."""
        return [metric for metric in METRICS if any(self.rate(system.name, metric) for system in self.systems)]

    def rate(self, system: str, metric: str) -> Rate | None:
        """A metric of a system, over all calls that it has heard."""
        return pooled(self._scores(system), metric)

    def verdict(self, system: str, metric: str) -> SystemVerdict | None:
        """How a system is beside the first one; None of the first itself, and where they share nothing that counts."""
        return None if system == self.systems[0].name else self._verdict(system, metric, self._all)

    def slices(self, metric: str) -> list[Slice]:
        """Every fact that not all calls share, value by value."""
        groups: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for name in self._all:
            for fact, value in self.facts.get(name, {}).items():
                groups[fact][value].add(name)
        order = [*(fact for fact in FACTS if fact in groups), *sorted(set(groups) - set(FACTS))]
        return [
            self._slice(fact, value, groups[fact][value], metric)
            for fact in order
            if len(groups[fact]) > 1
            for value in sorted(groups[fact], key=_in_order)
        ]

    def calls(self, metric: str) -> list[ScoredCall]:
        """Every call in which the metric is known of a system, the worst first."""
        values = {one.name: {s.name: value_of(s, metric) for s in one.scores} for one in self.systems}
        lines = []
        for name, seconds in self._seconds.items():
            of_call = tuple(values[one.name].get(name) for one in self.systems)
            if any(value is not None for value in of_call):
                lines.append(ScoredCall(name, seconds, self.facts.get(name, {}), of_call))
        sign = 1 if metric in MORE_IS_BETTER else -1
        return sorted(lines, key=lambda line: (sign * line.worst, line.name))

    def moments(self, call: str, most: int = MAX_MOMENTS) -> list[Moment]:
        """Where in a call most words are wrong, what was said there and what each system heard."""
        heard = {one.name: calls[call] for one in self.systems if call in (calls := self.heard[one.name])}
        return moments(self.truths[call], heard, most)

    @property
    def _all(self) -> set[str]:
        return set(self._seconds)

    @property
    def _seconds(self) -> dict[str, float]:
        return {score.name: score.seconds for system in self.systems for score in system.scores}

    def _scores(self, system: str, names: set[str] | None = None) -> list[CallScore]:
        (one,) = (one for one in self.systems if one.name == system)
        return [score for score in one.scores if names is None or score.name in names]

    def _verdict(self, system: str, metric: str, names: set[str]) -> SystemVerdict | None:
        rate = difference(self._scores(self.systems[0].name, names), self._scores(system, names), metric)
        return None if rate is None else SystemVerdict(system, metric, rate)

    def _slice(self, fact: str, value: str, names: set[str], metric: str) -> Slice:
        return Slice(
            fact,
            value,
            len(names),
            sum(self._seconds[name] for name in names),
            tuple(pooled(self._scores(one.name, names), metric) for one in self.systems),
            tuple(self._verdict(one.name, metric, names) for one in self.systems[1:]),
        )


def compare(
    truths: Sequence[TrueCall],
    systems: Mapping[str, Sequence[TrueCall]],
    facts: Facts | None = None,
    price_per_hour: Mapping[str, float] | None = None,
    progress: Progress = lambda pairs, name: pairs,
) -> Comparison:
    """Score what each system heard against the truth.

    `facts`: of calls, over those that the truth itself tells (`facts_of`). `price_per_hour`: of what a
    system processes.
    """
    heard = {name: {call.name: call for call in calls} for name, calls in systems.items()}
    made = []
    for name, calls in heard.items():
        both = [(truth, calls[truth.name]) for truth in truths if truth.name in calls]
        price = (price_per_hour or {}).get(name)
        scores = tuple(score(truth, said, price) for truth, said in progress(both, name))
        made.append(System(name, scores, len(truths) - len(both)))
    known = {call.name: facts_of(call, [some.get(call.name) for some in heard.values()]) for call in truths}
    merged = {name: {**own, **(facts or {}).get(name, {})} for name, own in known.items()}
    return Comparison(tuple(made), merged, {call.name: call for call in truths}, heard)


def facts_of(truth: TrueCall, heard: Sequence[TrueCall | None] = ()) -> dict[str, str]:
    """Language, layout and duration of a call, as far as they are known of the truth, or of what was heard."""
    end = truth.duration or max((turn.end for turn in truth.turns), default=0.0)
    apart = bool(truth.turns) and all(turn.channel is not None for turn in truth.turns)
    languages = [call.language for call in (truth, *heard) if call is not None and call.language]
    found = {"language": languages[0]} if languages else {}
    return {**found, "layout": "separated" if apart else "mixed", "duration": duration_band(end)}


def figure(value: float, metric: str) -> str:
    """A metric's value as it is shown."""
    return f"{100 * value:.1f} %" if metric in SHARES else f"{value:.{_digits(metric)}f}"


def interval(rate: Rate | None, metric: str) -> str:
    """The interval of a rate, of shares in per cent: "10.1 to 14.8"; nothing where there is none."""
    if rate is None or rate.low is None or rate.high is None:
        return ""
    return f"{_plain(rate.low, metric)} to {_plain(rate.high, metric)}"


def apart(rate: Rate | None, metric: str) -> str:
    """A difference with its interval, of shares in points: "-3.7 (-6.5 to -1.6)"; "-" for none."""
    if rate is None:
        return "-"
    if rate.low is None or rate.high is None:
        return _signed(rate.value, metric)
    return f"{_signed(rate.value, metric)} ({_signed(rate.low, metric)} to {_signed(rate.high, metric)})"


def _signed(value: float, metric: str) -> str:
    return f"{100 * value:+.1f}" if metric in SHARES else f"{value:+.{_digits(metric)}f}"


def _plain(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if metric in SHARES else f"{value:.{_digits(metric)}f}"


def _digits(metric: str) -> int:
    return 4 if metric == "cost_per_audio_hour" else 2


_BANDS = ("under 1 min", "1 to 5 min", "5 to 15 min", "15 min and more")


def _in_order(value: str) -> tuple[int, str]:
    """Bands by their length, all else by the alphabet."""
    return (_BANDS.index(value), "") if value in _BANDS else (-1, value)
