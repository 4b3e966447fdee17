"""Which pieces of a channel one voice says, where a machine may speak in it.

An announcement is not spoken in the voice of the party whose channel it is in, and all that one machine says has one
voice: so what is plainly said by a machine tells of what is not. Pieces are embedded one by one and clustered; nothing
is kept of the voices but who is who.
"""

from collections.abc import Sequence

import numpy as np

from pipeline.domain.speech import ChunkText, Span, SpeakerSpan, Voiceprint
from pipeline.speakers.machines import Piece, pieces_of

MARGIN = 0.1  # seconds beside the words of a piece: word times are off by about as much
SHORTEST = 0.6  # seconds, with the margins, that are embedded at all
SURE_SECONDS = (
    1.0  # from which a piece may found a voice; a shorter one joins a voice that is there, or stays unassigned
)
TELLING = (
    1.5  # log odds of a piece's words from which it is worth the embeddings: one party in sixteen without machines
)
MOST_SECONDS = 300.0  # of a channel: those nearest to what a machine may have said


def needs_voice_check(texts: Sequence[ChunkText], channels: int, spans: Sequence[SpeakerSpan] = ()) -> list[list[Span]]:
    """For each channel the stretches whose voices are to be separated; none where no words suggest a machine.

    `spans` are a diarizer's, in a channel that holds both parties.
    """
    found = []
    for channel in range(channels):
        pieces = pieces_of([text for text in texts if text.chunk.channel == channel], spans, learned=True)
        telling = [piece for piece in pieces if _may_be_a_machines(piece)]
        found.append(_nearest(pieces, telling) if telling else [])
    return found


def _may_be_a_machines(piece: Piece) -> bool:
    """Learned words are not enough: where a machine speaks, some pattern of `announced.py` is nearly always found."""
    patterns = piece.said.counts.keys() - {"person", "reported"}
    return bool(patterns) and piece.said.score >= TELLING


def _nearest(pieces: Sequence[Piece], telling: Sequence[Piece]) -> list[Span]:
    def away(piece: Piece) -> float:
        return min(max(one.start - piece.end, piece.start - one.end, 0.0) for one in telling)

    chosen, seconds = [], 0.0
    for piece in sorted(pieces, key=away):
        span = Span(max(0.0, piece.start - MARGIN), piece.end + MARGIN)
        if span.duration >= SHORTEST and seconds + span.duration <= MOST_SECONDS:
            chosen.append(span)
            seconds += span.duration
    return sorted(chosen, key=lambda span: span.start)


def by_voice(
    spans: Sequence[Span], prints: Sequence[Voiceprint | None], least_cosine: float
) -> tuple[SpeakerSpan, ...]:
    """The stretches with a label for their voice; one that could not be embedded, or is like none, has its own.

    Long stretches whose mean cosine is at least `least_cosine` are one voice (average linkage).
    """
    known = [(span, np.asarray(made.vector)) for span, made in zip(spans, prints, strict=True) if made is not None]
    long = [(span, vector) for span, vector in known if span.duration >= SURE_SECONDS]
    if not long:
        return ()
    labels = clusters(np.stack([vector for _, vector in long]), least_cosine)
    sums = {
        label: np.sum(
            [vector * span.duration for (span, vector), own in zip(long, labels, strict=True) if own == label], 0
        )
        for label in set(labels)
    }
    centers = {label: total / np.linalg.norm(total) for label, total in sums.items()}
    named = {span: f"voice {label}" for (span, _), label in zip(long, labels, strict=True)}
    for span, vector in known:
        best = max(centers, key=lambda label: float(vector @ centers[label]))
        if span not in named and vector @ centers[best] >= least_cosine:
            named[span] = f"voice {best}"
    return tuple(SpeakerSpan(span.start, span.end, named.get(span, f"unknown {at}")) for at, span in enumerate(spans))


def clusters(vectors: np.ndarray, least_cosine: float) -> list[int]:
    """The cluster of each row, shape (n, dimension): average linkage, down to a mean cosine of `least_cosine`."""
    if len(vectors) == 1:
        return [1]
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(vectors, "average", metric="cosine")
    return [int(label) for label in fcluster(tree, 1 - least_cosine, "distance")]
