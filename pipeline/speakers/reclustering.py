"""Who says each piece of a mixed call, judged by the piece's own voice.

A diarizer reads windows of ten seconds, and where two voices are alike it takes both for one. People change at pauses
and at the ends of sentences, so the words of a call are cut there, and where the diarizer hears a change. Each piece is
embedded by itself and clustered (average linkage): a piece holds one voice, where a window holds several.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.domain.speech import ChunkText, Diarization, Span, SpeakerSpan, Voiceprint
from pipeline.speakers.channel_voices import MARGIN, SHORTEST, clusters
from pipeline.speakers.machines import cut

# Measured on the development half of real voices (README).
SURE_SECONDS = 1.5  # from which a piece takes part in clustering
VOICE_SECONDS = 4.0  # of such pieces that make a voice;
FAR_SECONDS, FAR = 1.5, 0.15  # so few do where their cosine with every other voice is at most this
SURE_SHARE = 0.4  # of such pieces in what a voice of the diarizer says, without which it is not dissolved
VOICEPRINT_SECONDS = 3.0  # of pieces below which no voiceprint is made
MOST_PIECES = 4000  # clustered, evenly spread over the call: some hours of talk; their distances take 64 MB

Vector = np.ndarray


def pieces_to_embed(texts: Sequence[ChunkText], spans: Sequence[SpeakerSpan]) -> list[Span]:
    """Return where each piece of a mixed call lies, in order; `spans` are the diarizer's."""
    return [Span(words[0].start, words[-1].end) for _, _, words in cut(texts, spans)]


def with_margin(pieces: Sequence[Span]) -> list[Span]:
    """Return the sound of those pieces that are long enough to embed."""
    return [wide for wide in map(_wide, pieces) if wide.duration >= SHORTEST]


def reclustered(
    diarization: Diarization, pieces: Sequence[Span], prints: Sequence[Voiceprint | None], least_cosine: float
) -> Diarization:
    """Return the diarization with the speakers of `pieces`, labeled A, B, ... by first appearance.

    `prints` are of `with_margin(pieces)`. Pieces whose mean cosine is at least `least_cosine` (-1..1) are one voice.
    The diarization stays as it is without a piece that is long enough to cluster, and where a voice of its own would
    be dissolved that has too few such pieces to judge it by: people who interrupt each other leave short ones.
    """
    sound = iter(prints)
    known: dict[Span, Vector] = {}
    for piece in pieces:
        made = next(sound) if _wide(piece).duration >= SHORTEST else None
        if made is not None:
            known[piece] = np.asarray(made.vector)
    centers = _centers({piece: known[piece] for piece in known if piece.duration >= SURE_SECONDS}, least_cosine)
    if not centers:
        return diarization
    nearest = {piece: max(centers, key=lambda at: float(vector @ centers[at])) for piece, vector in known.items()}
    heard = {piece: _diarized(piece, diarization.spans) for piece in pieces}
    stands_for = _stands_for(nearest, heard)
    speakers = [_speaker(piece, nearest, stands_for.get(heard[piece])) for piece in pieces]
    if _dissolved(pieces, [heard[piece] for piece in pieces], speakers):
        return diarization
    labels = {speaker: _letter(at) for at, speaker in enumerate(dict.fromkeys(speakers))}
    spans = tuple(SpeakerSpan(one.start, one.end, labels[who]) for one, who in zip(pieces, speakers, strict=True))
    model = next(made.model for made in prints if made is not None)
    return Diarization(spans, _voiceprints(spans, known, model), diarization.engine)


def _wide(piece: Span) -> Span:
    return Span(max(0.0, piece.start - MARGIN), piece.end + MARGIN)


def _centers(sure: Mapping[Span, Vector], least_cosine: float) -> dict[int, Vector]:
    """Return the unit vector of each voice; a cluster that is too small to be one belongs to the nearest voice."""
    if not sure:
        return {}
    chosen = list(sure)
    if len(chosen) > MOST_PIECES:
        chosen = [chosen[at] for at in np.linspace(0, len(chosen) - 1, MOST_PIECES).astype(int)]
    found = clusters(np.stack([sure[piece] for piece in chosen]), least_cosine)
    seconds: dict[int, float] = defaultdict(float)
    sums: dict[int, Vector] = {}
    for piece, at in zip(chosen, found, strict=True):
        seconds[at] += piece.duration
        sums[at] = sums.get(at, 0.0) + piece.duration * sure[piece]
    centers: dict[int, Vector] = {}
    for at in sorted(seconds, key=lambda at: -seconds[at]):
        center = sums[at] / (np.linalg.norm(sums[at]) or 1.0)
        far = seconds[at] >= FAR_SECONDS and all(float(center @ other) <= FAR for other in centers.values())
        if not centers or seconds[at] >= VOICE_SECONDS or far:
            centers[at] = center
    return centers


def _diarized(piece: Span, spans: Sequence[SpeakerSpan]) -> str | None:
    """Return the diarizer's label that holds most of the piece."""
    held: dict[str, float] = defaultdict(float)
    for span in spans:
        held[span.speaker] += max(0.0, min(piece.end, span.end) - max(piece.start, span.start))
    best = max(held, key=lambda label: held[label], default=None)
    return best if best and held[best] > 0 else None


def _stands_for(nearest: Mapping[Span, int], heard: Mapping[Span, str | None]) -> dict[str | None, int]:
    """Return the voice that a diarizer's label mostly holds; none for a diarizer that heard a single voice."""
    held: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for piece, at in nearest.items():
        label = heard[piece]
        if label is not None:
            held[label][at] += piece.duration
    return {label: max(own, key=lambda at: own[at]) for label, own in held.items()} if len(held) > 1 else {}


def _dissolved(pieces: Sequence[Span], labels: Sequence[str | None], speakers: Sequence[int]) -> bool:
    """Whether a voice of the diarizer stands for none any more, of which there is little to judge it by."""
    held: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    spoken: dict[str, float] = defaultdict(float)
    sure: dict[str, float] = defaultdict(float)
    for piece, label, speaker in zip(pieces, labels, speakers, strict=True):
        if label is not None:
            held[speaker][label] += piece.duration
            spoken[label] += piece.duration
            sure[label] += piece.duration if piece.duration >= SURE_SECONDS else 0.0
    kept = {max(own, key=lambda label: own[label]) for own in held.values()}
    return any(
        spoken[label] >= VOICE_SECONDS and sure[label] < SURE_SHARE * spoken[label] for label in spoken.keys() - kept
    )


def _speaker(piece: Span, nearest: Mapping[Span, int], diarized: int | None) -> int:
    """Return the voice of a piece; one that could not be embedded is the diarizer's, or its neighbor's."""
    if piece in nearest:
        return nearest[piece]
    if diarized is not None:
        return diarized
    return nearest[min(nearest, key=lambda other: max(other.start - piece.end, piece.start - other.end))]


def _voiceprints(spans: Sequence[SpeakerSpan], known: Mapping[Span, Vector], model: str) -> dict[str, Voiceprint]:
    sums: dict[str, Vector] = {}
    seconds: dict[str, float] = defaultdict(float)
    for span in spans:
        piece = Span(span.start, span.end)
        if piece in known and piece.duration >= SURE_SECONDS:
            sums[span.speaker] = sums.get(span.speaker, 0.0) + piece.duration * known[piece]
            seconds[span.speaker] += piece.duration
    return {
        label: Voiceprint(tuple(float(x) for x in total / np.linalg.norm(total)), model, round(seconds[label], 2))
        for label, total in sums.items()
        if seconds[label] >= VOICEPRINT_SECONDS and np.linalg.norm(total) > 0
    }


def _letter(at: int) -> str:
    return chr(ord("A") + at) if at < 26 else f"S{at + 1}"
