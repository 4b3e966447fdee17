"""Compare two or more systems on the same calls: each alone, their differences, slices and worst calls.

    outputs = {name: formats.read(Path(f"{name}.jsonl")) for name in ("tiny.en", "base")}
    comparison = compare(formats.read(Path("truth.jsonl")), outputs)
    comparison.verdict("base", "wer").sentence

`pipeline.evaluation.frames` returns it as data frames.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.evaluation import report
from pipeline.evaluation.moments import Moment, moments
from pipeline.evaluation.score import CallScore, score
from pipeline.evaluation.truth import TrueCall

FACTS = ("language", "layout", "duration", "agent")
"""Facts of the slices, in display order; others follow."""
MAX_MOMENTS = 3  # per call

Facts = Mapping[str, Mapping[str, str]]  # by the call's name, such as {"language": "en"}
Progress = Callable[[Iterable[tuple[TrueCall, TrueCall]], str], Iterable[tuple[TrueCall, TrueCall]]]


@dataclass(frozen=True, slots=True)
class System:
    """A measured system: its name, and its score on each call."""

    name: str
    scores: tuple[CallScore, ...]
    missing: int  # calls of the set without output


@dataclass(frozen=True, slots=True)
class SystemVerdict:
    """Difference between a system and the first one; `rate` is the difference over the calls that both have."""

    system: str
    metric: str
    rate: report.Rate

    @property
    def better(self) -> bool | None:
        """Whether the system is better; None if the interval includes zero or is missing."""
        if self.rate.low is None or self.rate.high is None or self.rate.low <= 0 <= self.rate.high:
            return None
        return (self.rate.value > 0) == (self.metric in report.MORE_IS_BETTER)

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, such as "base is better by 4.1 points (2.0 to 6.3)"."""
        rate, is_better = self.rate, self.better
        unit = " points" if self.metric in report.SHARES else ""
        if rate.low is None or rate.high is None:
            return f"{self.system} differs by {_signed(rate.value, self.metric)}{unit}: too few calls to tell"
        if is_better is None:
            ends = f"{_signed(rate.low, self.metric)} to {_signed(rate.high, self.metric)}"
            return f"no difference shown ({ends}{unit})"
        low, high = sorted((abs(rate.low), abs(rate.high)))
        by = f"{_plain(abs(rate.value), self.metric)}{unit} ({_plain(low, self.metric)} to {_plain(high, self.metric)})"
        return f"{self.system} is {'better' if is_better else 'worse'} by {by}"


@dataclass(frozen=True, slots=True)
class Slice:
    """Calls that share a fact: the rate of each system, in order, and the verdicts of all but the first."""

    fact: str
    value: str
    calls: int
    seconds: float
    rates: tuple[report.Rate | None, ...]
    verdicts: tuple[SystemVerdict | None, ...]


@dataclass(frozen=True, slots=True)
class ScoredCall:
    """A call with one metric of each system, in order; None if a system has no output for it."""

    name: str
    seconds: float
    facts: Mapping[str, str]
    values: tuple[float | None, ...]

    @property
    def worst(self) -> float:
        return max((value for value in self.values if value is not None), default=0.0)


@dataclass(frozen=True)
class Comparison:
    """Systems on the calls of a set; the first one is the baseline."""

    systems: tuple[System, ...]
    facts: Facts
    truths: Mapping[str, TrueCall] = field(repr=False)
    outputs: Mapping[str, Mapping[str, TrueCall]] = field(repr=False)  # by system, by call

    @property
    def metrics(self) -> list[str]:
        """Metrics that some system has, in display order."""
        return [metric for metric in report.METRICS if any(self.rate(system.name, metric) for system in self.systems)]

    def rate(self, system: str, metric: str) -> report.Rate | None:
        return report.pooled(self._scores(system), metric)

    def verdict(self, system: str, metric: str) -> SystemVerdict | None:
        """Compare a system with the first one; None for the first itself, and without calls in common."""
        return None if system == self.systems[0].name else self._verdict(system, metric, self._all)

    def slices(self, metric: str) -> list[Slice]:
        """Return the slices of every fact with more than one value."""
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
        """Return the calls for which a system has the metric, the worst first."""
        values = {
            system.name: {score.name: report.value_of(score, metric) for score in system.scores}
            for system in self.systems
        }
        lines = []
        for name, seconds in self._seconds.items():
            call_values = tuple(values[system.name].get(name) for system in self.systems)
            if any(value is not None for value in call_values):
                lines.append(ScoredCall(name, seconds, self.facts.get(name, {}), call_values))
        sign = 1 if metric in report.MORE_IS_BETTER else -1
        return sorted(lines, key=lambda line: (sign * line.worst, line.name))

    def moments(self, call: str, max_moments: int = MAX_MOMENTS) -> list[Moment]:
        """Return the turns of a call with the most wrong words, in the truth and in each system's output."""
        outputs = {system.name: calls[call] for system in self.systems if call in (calls := self.outputs[system.name])}
        return moments(self.truths[call], outputs, max_moments)

    @property
    def _all(self) -> set[str]:
        return set(self._seconds)

    @property
    def _seconds(self) -> dict[str, float]:
        return {score.name: score.seconds for system in self.systems for score in system.scores}

    def _scores(self, system: str, names: set[str] | None = None) -> list[CallScore]:
        (match,) = (match for match in self.systems if match.name == system)
        return [score for score in match.scores if names is None or score.name in names]

    def _verdict(self, system: str, metric: str, names: set[str]) -> SystemVerdict | None:
        rate = report.difference(self._scores(self.systems[0].name, names), self._scores(system, names), metric)
        return None if rate is None else SystemVerdict(system, metric, rate)

    def _slice(self, fact: str, value: str, names: set[str], metric: str) -> Slice:
        return Slice(
            fact,
            value,
            len(names),
            sum(self._seconds[name] for name in names),
            tuple(report.pooled(self._scores(other.name, names), metric) for other in self.systems),
            tuple(self._verdict(other.name, metric, names) for other in self.systems[1:]),
        )


def compare(
    truths: Sequence[TrueCall],
    systems: Mapping[str, Sequence[TrueCall]],
    facts: Facts | None = None,
    price_per_hour: Mapping[str, float] | None = None,
    progress: Progress = lambda pairs, name: pairs,
) -> Comparison:
    """Score the output of each system against the truth.

    `facts` of calls take precedence over those of the truth (`facts_of`). `price_per_hour`: of a system's processing.
    """
    outputs = {name: {call.name: call for call in calls} for name, calls in systems.items()}
    measured = []
    for name, calls in outputs.items():
        both = [(truth, calls[truth.name]) for truth in truths if truth.name in calls]
        price = (price_per_hour or {}).get(name)
        scores = tuple(score(truth, output, price) for truth, output in progress(both, name))
        measured.append(System(name, scores, len(truths) - len(both)))
    call_facts = {
        call.name: facts_of(call, [system_calls.get(call.name) for system_calls in outputs.values()]) for call in truths
    }
    merged = {name: {**known_facts, **(facts or {}).get(name, {})} for name, known_facts in call_facts.items()}
    return Comparison(tuple(measured), merged, {call.name: call for call in truths}, outputs)


def facts_of(truth: TrueCall, outputs: Sequence[TrueCall | None] = ()) -> dict[str, str]:
    end = truth.duration or max((turn.end for turn in truth.turns), default=0.0)
    is_separated = bool(truth.turns) and all(turn.channel is not None for turn in truth.turns)
    languages = [call.language for call in (truth, *outputs) if call is not None and call.language]
    language = {"language": languages[0]} if languages else {}
    return {**language, "layout": "separated" if is_separated else "mixed", "duration": report.duration_band(end)}


def figure(value: float, metric: str) -> str:
    return f"{100 * value:.1f} %" if metric in report.SHARES else f"{value:.{_digits(metric)}f}"


def interval(rate: report.Rate | None, metric: str) -> str:
    """Format the interval of a rate, of shares in percent: "10.1 to 14.8"; empty without one."""
    if rate is None or rate.low is None or rate.high is None:
        return ""
    return f"{_plain(rate.low, metric)} to {_plain(rate.high, metric)}"


def format_difference(rate: report.Rate | None, metric: str) -> str:
    """Format a difference with its interval, of shares in points: "-3.7 (-6.5 to -1.6)"; "-" for none."""
    if rate is None:
        return "-"
    if rate.low is None or rate.high is None:
        return _signed(rate.value, metric)
    return f"{_signed(rate.value, metric)} ({_signed(rate.low, metric)} to {_signed(rate.high, metric)})"


def _signed(value: float, metric: str) -> str:
    return f"{100 * value:+.1f}" if metric in report.SHARES else f"{value:+.{_digits(metric)}f}"


def _plain(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if metric in report.SHARES else f"{value:.{_digits(metric)}f}"


def _digits(metric: str) -> int:
    return 4 if metric == "cost_per_audio_hour" else 2


def _in_order(value: str) -> tuple[int, str]:
    """Sort duration bands by length, all else alphabetically."""
    return (list(report.DURATION_BANDS).index(value), "") if value in report.DURATION_BANDS else (-1, value)
