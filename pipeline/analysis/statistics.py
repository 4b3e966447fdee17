"""How the talk was shared out in time. The README of this package has the formulas."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pipeline.analysis.talk import read, rounded
from pipeline.domain.insight import Finding, Material
from pipeline.domain.speech import LabelKind, Span

Spoken = dict[str, tuple[Span, ...]]
NOT_SOUND = (LabelKind.SPEECH, LabelKind.SILENCE, LabelKind.NOISE)  # what leaves the line free for the parties


class Statistics:
    """Talk ratio, longest monologue, patience, interactivity, overlap, silence, pace, question rate."""

    name = "statistics"
    version = 2

    def run(self, material: Material) -> Finding:
        spoken = spoken_spans(material)
        minutes = material.transcript.duration / 60
        words, questions = _words(material), _questions(material)
        talk = {label: sum(span.duration for span in spans) for label, spans in spoken.items()}
        other = other_sounds(material)
        floor = measure(
            spoken, material.transcript.duration, union([span for spans in other.values() for span in spans])
        )
        parties = {
            speaker.label: {
                "role": speaker.role.value,
                "talk_seconds": rounded(talk.get(speaker.label, 0.0)),
                "talk_ratio": rounded(_ratio(talk.get(speaker.label, 0.0), sum(talk.values())), 4),
                "longest_monologue_seconds": rounded(floor.monologue.get(speaker.label, 0.0)),
                "patience_seconds": rounded(_mean(floor.pauses.get(speaker.label, []))),
                "words": words.get(speaker.label, 0),
                "words_per_minute": rounded(_ratio(words.get(speaker.label, 0), talk.get(speaker.label, 0.0) / 60), 1),
                "questions": questions.get(speaker.label, 0),
                "questions_per_minute": rounded(_ratio(questions.get(speaker.label, 0), minutes)),
            }
            for speaker in material.transcript.speakers
        }
        value: dict[str, Any] = {
            "duration_seconds": rounded(material.transcript.duration),
            "silence_seconds": rounded(floor.silence),
            "silence_share": rounded(_ratio(floor.silence, material.transcript.duration), 4),
            "overlap_seconds": rounded(floor.overlap),
            "overlap_share": rounded(_ratio(floor.overlap, material.transcript.duration), 4),
            "other_seconds": {kind: rounded(sum(span.duration for span in spans)) for kind, spans in other.items()},
            "turn_changes": floor.changes,
            "interactivity_per_minute": rounded(_ratio(floor.changes, minutes)),
            "basis": "speech" if material.speech else "turns",
            "parties": parties,
        }
        return Finding(self.name, self.version, value, note=None if spoken else "nobody speaks in this call")


@dataclass(frozen=True, slots=True)
class Floor:
    """Who held the floor: seconds, and the pauses before each party took over."""

    overlap: float
    silence: float
    changes: int
    monologue: dict[str, float]
    pauses: dict[str, list[float]]


def spoken_spans(material: Material) -> Spoken:
    """Per speaker, the union of their spans in order: voice activity where it is known, the turns otherwise."""
    found: dict[str, list[Span]] = {label: list(spans) for label, spans in material.speech.items()}
    if not found:
        for turn in material.transcript.turns:
            if not turn.machine:
                found.setdefault(turn.speaker, []).append(Span(turn.start, turn.end))
    return {label: union(spans) for label, spans in found.items() if spans}


def other_sounds(material: Material) -> dict[str, tuple[Span, ...]]:
    """Where the line carries something that no party says, in any channel: a `LabelKind`'s value and its spans."""
    found: dict[str, list[Span]] = {}
    for label in sorted((one for own in material.transcript.labels for one in own), key=lambda one: one.start):
        if label.kind not in NOT_SOUND:
            found.setdefault(label.kind.value, []).append(Span(label.start, label.end))
    return {kind: union(spans) for kind, spans in found.items()}


def union(spans: list[Span]) -> tuple[Span, ...]:
    """Touching and overlapping spans as one, in order of time."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def measure(spoken: Spoken, duration: float, other: tuple[Span, ...] = ()) -> Floor:
    """One sweep over the spans of all parties in order of their start; `other`: where something else is heard."""
    order = sorted((span.start, span.end, label) for label, spans in spoken.items() for span in spans)
    covered = sum(span.duration for span in union([*(Span(start, end) for start, end, _ in order), *other]))
    overlap = _overlap(spoken)
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
    return Floor(overlap, max(0.0, duration - covered), changes, monologue, pauses)


def _overlap(spoken: Spoken) -> float:
    """Seconds in which at least two parties speak."""
    edges = sorted(edge for spans in spoken.values() for span in spans for edge in ((span.start, 1), (span.end, -1)))
    total, active, since = 0.0, 0, 0.0
    for time, step in edges:
        if active >= 2:
            total += time - since
        active, since = active + step, time
    return total


def _words(material: Material) -> dict[str, int]:
    counts: dict[str, int] = {}
    for turn in material.transcript.turns:
        if not turn.machine:
            counts[turn.speaker] = counts.get(turn.speaker, 0) + len(turn.words)
    return counts


def _questions(material: Material) -> dict[str, int]:
    counts: dict[str, int] = {}
    for said in read(material):
        asked = sum(sentence.text.rstrip().endswith("?") for sentence in said.sentences)
        counts[said.turn.speaker] = counts.get(said.turn.speaker, 0) + asked
    return counts


def _mean(values: list[float]) -> float | None:
    return fmean(values) if values else None


def _ratio(part: float, whole: float) -> float | None:
    """None where there is nothing to divide by."""
    return part / whole if whole > 0 else None
