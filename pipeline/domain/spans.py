"""Exact arithmetic of spans, so that totals add up."""

from collections.abc import Iterable, Sequence

from pipeline.domain.speech import Span


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge touching and overlapping spans; return them in order of time."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def outside(spans: Sequence[Span], taken: Sequence[Span]) -> tuple[Span, ...]:
    """Return the parts of `spans` outside of `taken`; both ordered and without overlap, as from `union`."""
    rest: list[Span] = []
    first = 0
    for span in spans:
        while first < len(taken) and taken[first].end <= span.start:
            first += 1
        start, at = span.start, first
        while at < len(taken) and taken[at].start < span.end:
            if taken[at].start > start:
                rest.append(Span(start, taken[at].start))
            start = max(start, taken[at].end)
            at += 1
        if start < span.end:
            rest.append(Span(start, span.end))
    return tuple(rest)


def seconds(spans: Iterable[Span]) -> float:
    return sum(span.duration for span in spans)
