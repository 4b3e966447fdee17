"""Measures how the parties share the time of a call. The README of this package has the formulas."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pipeline.analysis.overlaps import OverlapKind, classify, overlaps
from pipeline.analysis.talk import SpokenTurn, read, rounded
from pipeline.domain.insight import Finding, Material
from pipeline.domain.spans import outside, seconds, union
from pipeline.domain.speech import LabelKind, Span, Word
from pipeline.language.pack import pack

SpokenSpans = dict[str, tuple[Span, ...]]
DEFINITIONS = 3  # raise with every change of a formula: values of different definitions are not comparable
NOT_SOUND = (LabelKind.SPEECH, LabelKind.SILENCE, LabelKind.NOISE)  # the line is free for the parties
ON_HOLD = (LabelKind.MUSIC, LabelKind.RINGBACK, LabelKind.ANNOUNCEMENT)  # sounds while a party waits
DEAD_AIR = 5.0  # seconds of silence in the middle of a call


class StatisticsStep:
    """Talk ratio, monologue, patience, interactivity, overlap by kind, silence, dead air, hold, pace, questions."""

    name = "statistics"
    version = DEFINITIONS

    def run(self, material: Material) -> Finding:
        spoken, other = spoken_spans(material), other_sounds(material)
        duration = material.transcript.duration
        floor = measure(spoken, duration, union([span for spans in other.values() for span in spans]))
        crossed = _crossed(material, spoken)
        hold_seconds = hold(spoken, other)
        talking = union([span for spans in spoken.values() for span in spans])
        value: dict[str, Any] = {
            "definitions_version": DEFINITIONS,
            "basis": "speech" if material.speech else "turns",
            "duration_seconds": rounded(duration),
            "talk_seconds": rounded(seconds(talking)),
            "silence_seconds": rounded(floor.silence),
            "silence_share": rounded(_ratio(floor.silence, duration), 4),
            "dead_air_seconds": rounded(sum(floor.dead_air)),
            "dead_airs": len(floor.dead_air),
            "hold_seconds": rounded(hold_seconds),
            "hold_share": rounded(_ratio(hold_seconds, duration), 4),
            "other_seconds": {name: rounded(seconds(spans)) for name, spans in other.items()},
            "overlap_seconds": rounded(floor.overlap),
            "overlap_share": rounded(_ratio(floor.overlap, duration), 4),
            "overlaps": {
                name.value: {
                    "count": sum(kind is name for _, kind, _ in crossed),
                    "seconds": rounded(sum(length for _, kind, length in crossed if kind is name)),
                }
                for name in OverlapKind
            },
            "turn_changes": floor.changes,
            "interactivity_per_minute": rounded(_ratio(floor.changes, duration / 60)),
            "parties": _parties(material, spoken, floor, crossed),
        }
        return Finding(self.name, self.version, value, note=_note(material, spoken))


def _note(material: Material, spoken: SpokenSpans) -> str | None:
    if any(labels and all(label.kind is LabelKind.GAP for label in labels) for labels in material.transcript.labels):
        return "one party's recording is missing: shares and silences describe the other party only"
    return None if spoken else "no speech in this call"


OverlapRecords = list[tuple[str, OverlapKind, float]]  # speaker label, kind, seconds of overlap


@dataclass(frozen=True, slots=True)
class FloorTime:
    """Seconds of speech and silence, the pauses before each party's turns, and the long silences in between."""

    overlap: float
    silence: float
    changes: int
    monologue: dict[str, float]
    pauses: dict[str, list[float]]
    dead_air: tuple[float, ...] = ()


def _parties(
    material: Material, spoken: SpokenSpans, floor: FloorTime, crossed: OverlapRecords
) -> dict[str, dict[str, Any]]:
    words, asked = _words(material), _questions(material)
    talk = {label: seconds(spans) for label, spans in spoken.items()}
    came_in = Counter((label, kind) for label, kind, _ in crossed)
    minutes = material.transcript.duration / 60
    parties: dict[str, dict[str, Any]] = {}
    for speaker in material.transcript.speakers:
        label = speaker.label
        talk_seconds, count = talk.get(label, 0.0), len(words.get(label, ()))
        parties[label] = {
            "role": speaker.role.value,
            "talk_seconds": rounded(talk_seconds),
            "talk_ratio": rounded(_ratio(talk_seconds, sum(talk.values())), 4),
            "longest_monologue_seconds": rounded(floor.monologue.get(label, 0.0)),
            "patience_seconds": rounded(_mean(floor.pauses.get(label, []))),
            "words": count,
            "words_per_minute": rounded(_ratio(count, talk_seconds / 60), 1),
            "questions": asked[label],
            "questions_per_minute": rounded(_ratio(asked[label], minutes)),
            "backchannels": came_in[label, OverlapKind.BACKCHANNEL],
            "interruptions": came_in[label, OverlapKind.INTERRUPTION],
            "interruption_attempts": came_in[label, OverlapKind.ATTEMPT],
        }
    return parties


def spoken_spans(material: Material) -> SpokenSpans:
    """Return the union of spans per speaker, in order: voice activity if available, else the turns."""
    spans_by_party: dict[str, list[Span]] = {label: list(spans) for label, spans in material.speech.items()}
    if not spans_by_party:
        for turn in material.transcript.turns:
            if not turn.machine:
                spans_by_party.setdefault(turn.speaker, []).append(Span(turn.start, turn.end))
    return {label: union(spans) for label, spans in spans_by_party.items() if spans}


def other_sounds(material: Material) -> dict[str, tuple[Span, ...]]:
    """Return the spans of other sounds in any channel, by a `LabelKind`'s value."""
    spans_by_kind: dict[str, list[Span]] = {}
    labels = [label for channel in material.transcript.labels for label in channel]
    for label in sorted(labels, key=lambda label: label.start):
        if label.kind not in NOT_SOUND:
            spans_by_kind.setdefault(label.kind.value, []).append(Span(label.start, label.end))
    return {name: union(spans) for name, spans in spans_by_kind.items()}


def hold(spoken: SpokenSpans, other: dict[str, tuple[Span, ...]]) -> float:
    """Return the seconds with music, ringing or an announcement while no party speaks, after the first speech."""
    talking = union([span for spans in spoken.values() for span in spans])
    if not talking:
        return 0.0
    waiting = union([span for name in ON_HOLD for span in other.get(name.value, ())])
    after = (Span(max(span.start, talking[0].start), span.end) for span in waiting if span.end > talking[0].start)
    return seconds(outside(tuple(after), talking))


def measure(spoken: SpokenSpans, duration: float, other: tuple[Span, ...] = ()) -> FloorTime:
    """Measure the call in one sweep over all spans in order of their start; `other`: spans of other sounds."""
    order = sorted((span.start, span.end, label) for label, spans in spoken.items() for span in spans)
    covered = union([*(Span(start, end) for start, end, _ in order), *other])
    monologue: dict[str, float] = {}
    pauses: dict[str, list[float]] = {}
    changes, run_start, speaking, heard_until, heard_from = 0, 0.0, "", 0.0, ""
    for start, end, label in order:
        if label != speaking:
            run_start, changes, speaking = start, changes + bool(speaking), label
        waited = heard_from not in ("", label) and start >= heard_until
        if waited and not any(span.start < start and span.end > heard_until for span in other):
            pauses.setdefault(label, []).append(start - heard_until)
        if not heard_from or end >= heard_until:
            heard_until, heard_from = end, label
        monologue[label] = max(monologue.get(label, 0.0), end - run_start)
    overlap = sum(stretch.duration for stretch in overlaps(spoken))
    silence = max(0.0, duration - seconds(covered))
    inner = Span(order[0][0], heard_until) if order else Span(0.0, 0.0)
    return FloorTime(overlap, silence, changes, monologue, pauses, _dead_air(inner, covered))


def _dead_air(inner: Span, covered: tuple[Span, ...]) -> tuple[float, ...]:
    return tuple(gap.duration for gap in outside((inner,), covered) if gap.duration >= DEAD_AIR)


def _crossed(material: Material, spoken: SpokenSpans) -> OverlapRecords:
    words, language = _words(material), {turn.speaker: turn.language for turn in material.transcript.turns}
    whole = material.transcript.language
    middles = {label: [_middle(word) for word in party_words] for label, party_words in words.items()}
    crossed = []
    for overlap in overlaps(spoken):
        party_pack, word_middles = pack(language.get(overlap.by, whole)), middles.get(overlap.by, [])
        first, last = bisect_left(word_middles, overlap.by_span.start), bisect_right(word_middles, overlap.by_span.end)
        inside = words[overlap.by][first:last] if word_middles else []
        kind = classify(overlap, inside, party_pack if party_pack.known else pack(whole))
        crossed.append((overlap.by, kind, overlap.duration))
    return crossed


def _middle(word: Word) -> float:
    return (word.start + word.end) / 2


def _words(material: Material) -> dict[str, list[Word]]:
    words: dict[str, list[Word]] = {}
    for turn in material.transcript.turns:
        if not turn.machine:
            words.setdefault(turn.speaker, []).extend(turn.words)
    return {label: sorted(party_words, key=_middle) for label, party_words in words.items()}


def _questions(material: Material) -> Counter[str]:
    asked: Counter[str] = Counter()
    for turn in read(material):
        asked[turn.turn.speaker] += _asked(turn)
    return asked


def _asked(turn: SpokenTurn) -> int:
    """Count sentences with a question mark; a turn without punctuation counts as one if it is worded as a question."""
    if not any(mark in turn.text for mark in ".?!…"):
        return int(turn.pack.matches("statistics", "questions", turn.text))
    return sum(sentence.text.rstrip().endswith("?") for sentence in turn.sentences)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
