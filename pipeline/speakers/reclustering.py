"""Who says each piece of a mixed call, judged by the piece's own voice.

A diarizer reads windows of ten seconds, and where two voices are alike it takes both for one. People change at pauses
and at the ends of sentences, so the words of a call are cut there, and where the diarizer hears a change. Each piece is
embedded by itself and clustered (average linkage): a piece holds one voice, where a window holds several.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pipeline.domain.speech import ChunkText, Diarization, Span, SpeakerSpan, Voiceprint
from pipeline.speakers.channel_voices import MARGIN, SHORTEST, clusters
from pipeline.speakers.machines import cut

# Measured on the development half of real voices (README).
SURE_SECONDS = 1.5  # from which a piece takes part in clustering
VOICE_SECONDS = 4.0  # of such pieces that make a voice;
FEW_SECONDS = 1.5  # so few do where the diarizer hears a voice of its own in them,
FAR = 0.15  # or their cosine with every other voice is at most this
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

    `prints` are of `with_margin(pieces)`. Pieces whose mean cosine is at least `least_cosine` (-1..1) are one voice;
    a speaker whose pieces are below it gets no voiceprint, for it may hold two.
    The diarization stays as it is without a piece that is long enough to cluster, and where a voice of its own would
    be dissolved that is unlike all that remain, or has too few such pieces to judge it by: people who interrupt each
    other leave short ones.
    """
    sound = iter(prints)
    known: dict[Span, Vector] = {}
    for piece in pieces:
        made = next(sound) if _wide(piece).duration >= SHORTEST else None
        if made is not None:
            known[piece] = np.asarray(made.vector)
    heard = {piece: _diarized(piece, diarization.spans) for piece in pieces}
    centers = _centers({piece: known[piece] for piece in known if piece.duration >= SURE_SECONDS}, heard, least_cosine)
    if not centers:
        return diarization
    nearest = {piece: max(centers, key=lambda at: float(vector @ centers[at])) for piece, vector in known.items()}
    stands_for = _stands_for(nearest, heard)
    speakers = {piece: _speaker(piece, nearest, stands_for.get(heard[piece])) for piece in pieces}
    if _dissolved(speakers, heard, known, least_cosine):
        return diarization
    labels = {speaker: _letter(at) for at, speaker in enumerate(dict.fromkeys(speakers.values()))}
    spans = tuple(SpeakerSpan(piece.start, piece.end, labels[who]) for piece, who in speakers.items())
    model = next(made.model for made in prints if made is not None)
    return Diarization(spans, _voiceprints(spans, known, model, least_cosine), diarization.engine)


def _wide(piece: Span) -> Span:
    return Span(max(0.0, piece.start - MARGIN), piece.end + MARGIN)


def _centers(sure: Mapping[Span, Vector], heard: Mapping[Span, str | None], least_cosine: float) -> dict[int, Vector]:
    """Return the unit vector of each voice; a cluster that is too small to be one belongs to the nearest voice."""
    if not sure:
        return {}
    chosen = list(sure)
    if len(chosen) > MOST_PIECES:
        chosen = [chosen[at] for at in np.linspace(0, len(chosen) - 1, MOST_PIECES).astype(int)]
    found = clusters(np.stack([sure[piece] for piece in chosen]), least_cosine)
    grouped: dict[int, list[Span]] = defaultdict(list)
    for piece, at in zip(chosen, found, strict=True):
        grouped[at].append(piece)
    seconds = {at: _seconds(group) for at, group in grouped.items()}
    centers: dict[int, Vector] = {}
    taken: set[str | None] = {None}  # labels of the diarizer that a voice is mostly heard as
    for at in sorted(seconds, key=lambda at: -seconds[at]):
        center = _unit(_mean(grouped[at], sure))
        label = _mostly(grouped[at], heard)
        nearest = max((float(center @ other) for other in centers.values()), default=-1.0)
        few = seconds[at] >= FEW_SECONDS and (nearest <= FAR or (nearest <= least_cosine and label not in taken))
        if not centers or seconds[at] >= VOICE_SECONDS or few:
            centers[at] = center
            taken.add(label)
    return centers


def _seconds(pieces: Iterable[Span]) -> float:
    return sum(piece.duration for piece in pieces)


def _mean(pieces: Sequence[Span], known: Mapping[Span, Vector]) -> Vector:
    """Return the mean of the pieces' unit vectors by seconds: its squared length is their mean cosine."""
    weighted = [piece.duration * known[piece] for piece in pieces]
    return np.asarray(np.sum(weighted, axis=0) / _seconds(pieces))


def _center(pieces: Sequence[Span], known: Mapping[Span, Vector]) -> Vector | None:
    """Return the unit vector of those pieces that could be embedded; None without one."""
    embedded = [piece for piece in pieces if piece in known]
    return _unit(_mean(embedded, known)) if embedded else None


def _unit(vector: Vector) -> Vector:
    return np.asarray(vector / (np.linalg.norm(vector) or 1.0))


def _mostly(pieces: Iterable[Span], heard: Mapping[Span, str | None]) -> str | None:
    """Return the diarizer's label of most seconds of the pieces."""
    held: dict[str | None, float] = defaultdict(float)
    for piece in pieces:
        held[heard[piece]] += piece.duration
    return max(held, key=lambda label: held[label])


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


def _dissolved(
    speakers: Mapping[Span, int],
    heard: Mapping[Span, str | None],
    known: Mapping[Span, Vector],
    least_cosine: float,
) -> bool:
    """Whether a voice of the diarizer stands for none any more, and should not be: see `reclustered`."""
    said: dict[int, list[Span]] = defaultdict(list)
    own: dict[str, list[Span]] = defaultdict(list)
    for piece, speaker in speakers.items():
        label = heard[piece]
        if label is not None:
            said[speaker].append(piece)
            own[label].append(piece)
    kept = {_mostly(pieces, heard) for pieces in said.values()}
    remaining = [_center(own[label], known) for label in own.keys() & kept]
    return any(
        _hard_to_judge(own[label]) or _unlike(own[label], remaining, known, least_cosine) for label in own.keys() - kept
    )


def _hard_to_judge(pieces: Sequence[Span]) -> bool:
    sure = _seconds(piece for piece in pieces if piece.duration >= SURE_SECONDS)
    return _seconds(pieces) >= VOICE_SECONDS and sure < SURE_SHARE * _seconds(pieces)


def _unlike(
    pieces: Sequence[Span], others: Sequence[Vector | None], known: Mapping[Span, Vector], least_cosine: float
) -> bool:
    """Whether enough is said in a voice whose cosine with all others is at most `least_cosine`."""
    center = _center(pieces, known)
    if center is None or _seconds(pieces) < FEW_SECONDS:
        return False
    return all(other is None or float(center @ other) <= least_cosine for other in others)


def _speaker(piece: Span, nearest: Mapping[Span, int], diarized: int | None) -> int:
    """Return the voice of a piece; one that could not be embedded is the diarizer's, or its neighbor's."""
    if piece in nearest:
        return nearest[piece]
    if diarized is not None:
        return diarized
    return nearest[min(nearest, key=lambda other: max(other.start - piece.end, piece.start - other.end))]


def _voiceprints(
    spans: Sequence[SpeakerSpan], known: Mapping[Span, Vector], model: str, least_cosine: float
) -> dict[str, Voiceprint]:
    """Return the mean of each speaker's pieces, short ones too: what is said by one voice in a call is little."""
    own: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        piece = Span(span.start, span.end)
        if piece in known:
            own[span.speaker].append(piece)
    means = {label: _mean(pieces, known) for label, pieces in own.items()}
    return {
        label: Voiceprint(tuple(float(x) for x in _unit(mean)), model, round(_seconds(own[label]), 2))
        for label, mean in means.items()
        if _seconds(own[label]) >= VOICEPRINT_SECONDS and float(mean @ mean) >= least_cosine
    }


def _letter(at: int) -> str:
    return chr(ord("A") + at) if at < 26 else f"S{at + 1}"
