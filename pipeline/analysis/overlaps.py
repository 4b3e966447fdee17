"""Classifies overlapping speech: backchannel ("mm-hm"), interruption, or change of turns.

The kinds follow Sacks, Schegloff & Jefferson 1974 (overlap at a turn's end is ordinary), Yngve 1970 (backchannels take
no turn) and Gravano & Hirschberg 2012 (an interruption is successful if the holder of the floor yields).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipeline.domain.speech import Span, Word
from pipeline.language.pack import Pack, straighten

SEAM = 0.5  # seconds: if the first speaker stops within, the overlap is a change of turns
YIELDS = 2.0  # seconds within which the holder of the floor must stop to yield
SHORT = 1.5  # max. seconds of a backchannel with known words
SHORT_UNKNOWN_WORDS = 1.0

SpokenSpans = Mapping[str, Sequence[Span]]


class OverlapKind(StrEnum):
    """Kind of an overlap."""

    BACKCHANNEL = "backchannel"  # short listener words while the other keeps the floor
    INTERRUPTION = "interruption"  # the other yields
    ATTEMPT = "attempt"  # the other keeps the floor: an interruption that failed
    SEAM = "seam"  # at the end of a turn
    TOGETHER = "together"  # both begin at once


@dataclass(frozen=True, slots=True)
class SpeechOverlap:
    """From `start` to `end` at least two parties speak; `by` began while `holder` spoke."""

    start: float
    end: float
    holder: str
    by: str
    holder_span: Span
    by_span: Span

    @property
    def duration(self) -> float:
        return self.end - self.start


def overlaps(spoken: SpokenSpans) -> tuple[SpeechOverlap, ...]:
    """Return the longest stretches in which at least two parties speak, in order. Spans of a party must be disjoint.

    With more than two parties at once, a stretch belongs to the two who begin it.
    """
    edges = sorted(  # ends sort before starts: adjacent spans do not overlap
        (
            edge
            for label, spans in spoken.items()
            for span in spans
            if span.duration > 0
            for edge in ((span.start, 1, label, span), (span.end, 0, label, span))
        ),
        key=lambda edge: edge[:3],
    )
    speaking: dict[str, Span] = {}
    open_overlap: tuple[float, str, str, Span, Span] | None = None  # all of it but its end
    stretches = []
    for time, begins, label, span in edges:
        if begins:
            speaking[label] = span
            if len(speaking) == 2:
                holder = min(speaking, key=lambda party: (speaking[party].start, party == label))
                (by,) = speaking.keys() - {holder}
                open_overlap = (time, holder, by, speaking[holder], speaking[by])
        else:
            del speaking[label]
            if len(speaking) == 1 and open_overlap:
                start, holder, by, holder_span, by_span = open_overlap
                stretches.append(SpeechOverlap(start, time, holder, by, holder_span, by_span))
                open_overlap = None
    return tuple(stretches)


def classify(overlap: SpeechOverlap, words: Sequence[Word], pack: Pack) -> OverlapKind:
    """Classify an overlap. `words` are those of `overlap.by_span`, empty if unknown, in the language of `pack`."""
    holder_span, by_span = overlap.holder_span, overlap.by_span
    if holder_span.start == by_span.start:
        return OverlapKind.TOGETHER
    if holder_span.end >= by_span.end:  # the holder keeps the floor
        return OverlapKind.BACKCHANNEL if _is_listening(by_span, words, pack) else OverlapKind.ATTEMPT
    stops_after = holder_span.end - by_span.start
    if stops_after <= SEAM:
        return OverlapKind.SEAM
    return OverlapKind.INTERRUPTION if stops_after <= YIELDS else OverlapKind.ATTEMPT


def _is_listening(span: Span, words: Sequence[Word], pack: Pack) -> bool:
    listening = pack.words("statistics", "backchannels")
    if not words or not listening:
        return span.duration <= SHORT_UNKNOWN_WORDS
    return span.duration <= SHORT and all(_bare(word.text) in listening for word in words)


def _bare(word: str) -> str:
    return re.sub(r"[^\w'-]", "", straighten(word).lower())
