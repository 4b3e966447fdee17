"""Reassignment of the pieces of a mixed call to speakers, by the voice of each piece.

A diarizer reads windows of ten seconds and merges similar voices. Speakers change at pauses and at the ends of
sentences, so the words of a call are cut there and at the diarizer's changes. Each piece is embedded and clustered
(average linkage): a piece has one voice, while a window has several.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pipeline.domain.speech import Diarization, Span, SpeakerSpan, Voiceprint
from pipeline.speakers.channel_voices import MARGIN, MIN_SECONDS, clusters

# Measured on the development half of real voices (README).
SURE_SECONDS = 1.5  # of a clustered piece
VOICE_SECONDS = 4.0  # of such pieces in a voice;
FEW_SECONDS = 1.5  # fewer are enough if the diarizer has a separate voice for them,
FAR = 0.15  # or if their cosine with every other voice is at most this
ONE_VOICE = 0.8  # min. cosine of two voices of the diarizer, with as many seconds each, that are the only one
SURE_SHARE = 0.4  # min. share of such pieces in a voice of the diarizer that may be dissolved
SHORT_SECONDS, MIN_SPOKEN = 0.8, 0.1  # of a short piece with margins, as far as there is room, and without them
VOICEPRINT_SECONDS = 3.0  # of pieces in a voiceprint
MAX_PIECES = 4000  # evenly spread over the call: some hours of talk; their distances need 64 MB

Vector = np.ndarray


def with_margin(pieces: Sequence[Span]) -> list[Span]:
    """Return the pieces, in order, that are long enough to embed, with margins: wide ones for "Bye." between pauses."""
    return [wide for wide in _wide(pieces) if wide.duration >= MIN_SECONDS]


def reclustered(
    diarization: Diarization, pieces: Sequence[Span], prints: Sequence[Voiceprint | None], min_cosine: float
) -> Diarization:
    """Return the diarization with the speakers of `pieces`, labeled A, B, ... by first appearance.

    `prints` are of `with_margin(pieces)`. Pieces whose mean cosine is at least `min_cosine` (-1..1) are one voice; a
    speaker with a lower one gets no voiceprint, since there may be two voices. The diarization is unchanged if no piece
    is long enough to cluster, or if a dissolved voice would be unlike all remaining ones or has too few such pieces to
    decide: people who interrupt each other produce short ones. Two voices become one only if they are nearly alike: the
    diarizer took none of 41 single real voices for two.
    """
    vectors = embedded(pieces, prints)
    diarized = {piece: speaker_at(piece, diarization.spans) for piece in pieces}
    sure = {piece: vector for piece, vector in vectors.items() if piece.duration >= SURE_SECONDS}
    centers = _centers(sure, diarized, min_cosine)
    if not centers:
        return diarization
    nearest = {piece: max(centers, key=lambda at: float(vector @ centers[at])) for piece, vector in vectors.items()}
    voice_of_label = _voices_of_labels(nearest, diarized)
    speakers = {piece: _speaker(piece, nearest, voice_of_label.get(diarized[piece])) for piece in pieces}
    if _dissolved(speakers, diarized, vectors, min_cosine):
        return diarization
    labels = {speaker: _letter(at) for at, speaker in enumerate(dict.fromkeys(speakers.values()))}
    spans = tuple(SpeakerSpan(piece.start, piece.end, labels[speaker]) for piece, speaker in speakers.items())
    model = next(voiceprint.model for voiceprint in prints if voiceprint is not None)
    return Diarization(spans, voiceprints_of(spans, vectors, model, min_cosine), diarization.engine)


def embedded(pieces: Sequence[Span], prints: Sequence[Voiceprint | None]) -> dict[Span, Vector]:
    """Return the unit vector of each piece that has one; `prints` are of `with_margin(pieces)`."""
    long_enough = (piece for piece, wide in zip(pieces, _wide(pieces), strict=True) if wide.duration >= MIN_SECONDS)
    pairs = zip(long_enough, prints, strict=True)
    return {piece: np.asarray(voiceprint.vector) for piece, voiceprint in pairs if voiceprint is not None}


def _wide(pieces: Sequence[Span]) -> list[Span]:
    ends, starts = [0.0, *(piece.end for piece in pieces)], [*(piece.start for piece in pieces[1:]), float("inf")]
    wide = []
    for piece, before, after in zip(pieces, ends, starts, strict=False):
        margin = max(MARGIN, (SHORT_SECONDS - piece.duration) / 2) if piece.duration >= MIN_SPOKEN else MARGIN
        start = min(max(before, piece.start - margin), piece.start - MARGIN)
        wide.append(Span(max(0.0, start), max(min(after, piece.end + margin), piece.end + MARGIN)))
    return wide


def _centers(sure: Mapping[Span, Vector], diarized: Mapping[Span, str | None], min_cosine: float) -> dict[int, Vector]:
    """Return the unit vector of each voice; a cluster too small for a voice belongs to the nearest one."""
    if not sure:
        return {}
    chosen = list(sure)
    if len(chosen) > MAX_PIECES:
        chosen = [chosen[at] for at in np.linspace(0, len(chosen) - 1, MAX_PIECES).astype(int)]
    labels = clusters(np.stack([sure[piece] for piece in chosen]), min_cosine)
    grouped: dict[int, list[Span]] = defaultdict(list)
    for piece, at in zip(chosen, labels, strict=True):
        grouped[at].append(piece)
    seconds = {at: _seconds(group) for at, group in grouped.items()}
    centers: dict[int, Vector] = {}
    taken: set[str | None] = {None}  # main diarizer label of each voice
    for at in sorted(seconds, key=lambda at: -seconds[at]):
        center = _unit(_mean(grouped[at], sure))
        label = _mostly(grouped[at], diarized)
        nearest = max((float(center @ other) for other in centers.values()), default=-1.0)
        few = seconds[at] >= FEW_SECONDS and (nearest <= FAR or (nearest <= min_cosine and label not in taken))
        if not centers or seconds[at] >= VOICE_SECONDS or few:
            centers[at] = center
            taken.add(label)
    return centers


def _seconds(pieces: Iterable[Span]) -> float:
    return sum(piece.duration for piece in pieces)


def _mean(pieces: Sequence[Span], vectors: Mapping[Span, Vector]) -> Vector:
    """Return the mean of the pieces' unit vectors by seconds: its squared length is their mean cosine."""
    weighted = [piece.duration * vectors[piece] for piece in pieces]
    return np.asarray(np.sum(weighted, axis=0) / _seconds(pieces))


def _center(pieces: Sequence[Span], vectors: Mapping[Span, Vector]) -> Vector | None:
    embedded = [piece for piece in pieces if piece in vectors]
    return _unit(_mean(embedded, vectors)) if embedded else None


def _unit(vector: Vector) -> Vector:
    return np.asarray(vector / (np.linalg.norm(vector) or 1.0))


def _mostly(pieces: Iterable[Span], diarized: Mapping[Span, str | None]) -> str | None:
    seconds: dict[str | None, float] = defaultdict(float)
    for piece in pieces:
        seconds[diarized[piece]] += piece.duration
    return max(seconds, key=lambda label: seconds[label])


def speaker_at(piece: Span, spans: Sequence[SpeakerSpan]) -> str | None:
    """Return the speaker with most of the piece; None if none speaks in it."""
    seconds: dict[str, float] = defaultdict(float)
    for span in spans:
        seconds[span.speaker] += max(0.0, min(piece.end, span.end) - max(piece.start, span.start))
    best = max(seconds, key=lambda label: seconds[label], default=None)
    return best if best and seconds[best] > 0 else None


def _voices_of_labels(nearest: Mapping[Span, int], diarized: Mapping[Span, str | None]) -> dict[str | None, int]:
    """Return the main voice of each of the diarizer's labels; empty if it has a single label."""
    seconds: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for piece, at in nearest.items():
        label = diarized[piece]
        if label is not None:
            seconds[label][at] += piece.duration
    if len(seconds) < 2:
        return {}
    return {label: max(voices, key=lambda at: voices[at]) for label, voices in seconds.items()}


def _dissolved(
    speakers: Mapping[Span, int],
    diarized: Mapping[Span, str | None],
    vectors: Mapping[Span, Vector],
    min_cosine: float,
) -> bool:
    """Return whether a voice of the diarizer disappears that should not: see `reclustered`."""
    by_speaker: dict[int, list[Span]] = defaultdict(list)
    by_label: dict[str, list[Span]] = defaultdict(list)
    for piece, speaker in speakers.items():
        label = diarized[piece]
        if label is not None:
            by_speaker[speaker].append(piece)
            by_label[label].append(piece)
    represented = {_mostly(pieces, diarized) for pieces in by_speaker.values()}
    remaining = [_center(by_label[label], vectors) for label in by_label.keys() & represented]
    candidates = [by_label[label] for label in by_label.keys() - represented]
    if len(set(speakers.values())) == 1 and any(
        _seconds(pieces) >= VOICE_SECONDS and _unlike(pieces, remaining, vectors, ONE_VOICE) for pieces in candidates
    ):
        return True
    return any(_hard_to_judge(pieces) or _unlike(pieces, remaining, vectors, min_cosine) for pieces in candidates)


def _hard_to_judge(pieces: Sequence[Span]) -> bool:
    sure = _seconds(piece for piece in pieces if piece.duration >= SURE_SECONDS)
    return _seconds(pieces) >= VOICE_SECONDS and sure < SURE_SHARE * _seconds(pieces)


def _unlike(
    pieces: Sequence[Span], others: Sequence[Vector | None], vectors: Mapping[Span, Vector], min_cosine: float
) -> bool:
    """Return whether a voice has enough speech and a cosine of max. `min_cosine` with all others."""
    center = _center(pieces, vectors)
    if center is None or _seconds(pieces) < FEW_SECONDS:
        return False
    return all(other is None or float(center @ other) <= min_cosine for other in others)


def _speaker(piece: Span, nearest: Mapping[Span, int], diarized: int | None) -> int:
    """Return the voice of a piece; without an embedding the diarizer's, or its neighbor's."""
    if piece in nearest:
        return nearest[piece]
    if diarized is not None:
        return diarized
    return nearest[min(nearest, key=lambda other: max(other.start - piece.end, piece.start - other.end))]


def voiceprints_of(
    spans: Sequence[SpeakerSpan], vectors: Mapping[Span, Vector], model: str, min_cosine: float
) -> dict[str, Voiceprint]:
    """Return the mean of each speaker's pieces, including short ones: a voice says little in a call."""
    by_speaker: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        piece = Span(span.start, span.end)
        if piece in vectors:
            by_speaker[span.speaker].append(piece)
    means = {label: _mean(pieces, vectors) for label, pieces in by_speaker.items()}
    return {
        label: Voiceprint(tuple(float(x) for x in _unit(mean)), model, round(_seconds(by_speaker[label]), 2))
        for label, mean in means.items()
        if _seconds(by_speaker[label]) >= VOICEPRINT_SECONDS and float(mean @ mean) >= min_cosine
    }


def _letter(at: int) -> str:
    return chr(ord("A") + at) if at < 26 else f"S{at + 1}"
