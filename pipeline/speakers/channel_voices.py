"""Voices of the pieces of a channel in which a machine may speak.

An announcement has another voice than the party of its channel, and all words of one machine have the same voice: so
definite words of a machine identify its other words. Pieces are embedded one by one and clustered; only the labels are
kept.
"""

from collections.abc import Sequence

import numpy as np

from pipeline.domain.speech import ChunkText, Span, SpeakerSpan, Voiceprint
from pipeline.speakers.machines import Piece, pieces_of

MARGIN = 0.1  # seconds on either side of a piece's words: word times are off by about as much
MIN_SECONDS = 0.6  # of an embedded piece, with margins
SURE_SECONDS = 1.0  # of a piece that may create a voice; a shorter one joins an existing voice, or none
MIN_LOG_ODDS = 1.5  # of a piece's words that justifies embeddings: one party in sixteen without machines has it
MAX_SECONDS = 300.0  # of a channel: those nearest to possible machine speech


def needs_voice_check(texts: Sequence[ChunkText], channels: int, spans: Sequence[SpeakerSpan] = ()) -> list[list[Span]]:
    """Return each channel's stretches to separate by voice; none if no words suggest a machine.

    `spans` are a diarizer's, in a channel with both parties.
    """
    spans_by_channel = []
    for channel in range(channels):
        pieces = pieces_of([text for text in texts if text.chunk.channel == channel], spans, learned=True)
        suspects = [piece for piece in pieces if _may_be_machine(piece)]
        spans_by_channel.append(_nearest(pieces, suspects) if suspects else [])
    return spans_by_channel


def _may_be_machine(piece: Piece) -> bool:
    """Return whether a piece matches a pattern and has a high score; fitted weights alone are not enough."""
    patterns = piece.evidence.counts.keys() - {"person", "reported"}
    return bool(patterns) and piece.evidence.score >= MIN_LOG_ODDS


def _nearest(pieces: Sequence[Piece], suspects: Sequence[Piece]) -> list[Span]:
    def distance(piece: Piece) -> float:
        return min(max(suspect.start - piece.end, piece.start - suspect.end, 0.0) for suspect in suspects)

    chosen, seconds = [], 0.0
    for piece in sorted(pieces, key=distance):
        span = Span(max(0.0, piece.start - MARGIN), piece.end + MARGIN)
        if span.duration >= MIN_SECONDS and seconds + span.duration <= MAX_SECONDS:
            chosen.append(span)
            seconds += span.duration
    return sorted(chosen, key=lambda span: span.start)


def by_voice(spans: Sequence[Span], prints: Sequence[Voiceprint | None], min_cosine: float) -> tuple[SpeakerSpan, ...]:
    """Label the stretches by voice; one without an embedding, or unlike all voices, gets its own label.

    Long stretches whose mean cosine is at least `min_cosine` are one voice (average linkage).
    """
    pairs = zip(spans, prints, strict=True)
    embedded = [(span, np.asarray(voiceprint.vector)) for span, voiceprint in pairs if voiceprint is not None]
    long = [(span, vector) for span, vector in embedded if span.duration >= SURE_SECONDS]
    if not long:
        return ()
    labels = clusters(np.stack([vector for _, vector in long]), min_cosine)
    sums = {
        label: np.sum(
            [vector * span.duration for (span, vector), cluster in zip(long, labels, strict=True) if cluster == label],
            0,
        )
        for label in set(labels)
    }
    centers = {label: total / np.linalg.norm(total) for label, total in sums.items()}
    voices = {span: f"voice {label}" for (span, _), label in zip(long, labels, strict=True)}
    for span, vector in embedded:
        best = max(centers, key=lambda label: float(vector @ centers[label]))
        if span not in voices and vector @ centers[best] >= min_cosine:
            voices[span] = f"voice {best}"
    return tuple(SpeakerSpan(span.start, span.end, voices.get(span, f"unknown {at}")) for at, span in enumerate(spans))


def clusters(vectors: np.ndarray, min_cosine: float) -> list[int]:
    """Return the cluster of each row, shape (n, dimension): average linkage, down to a mean cosine of `min_cosine`."""
    if len(vectors) == 1:
        return [1]
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(vectors, "average", metric="cosine")
    return [int(label) for label in fcluster(tree, 1 - min_cosine, "distance")]
