"""A second look at a mixed call of one or two voices: which party says each piece, by dialogue and voice.

A short reply ("Yes.", "Bye.") has too little sound for a diarizer, but a question has an answer. So the dialogue
(`dialogue.py`) and the voice assign every piece together; voices that differ outweigh the words.

A voice with nearly all of the speech is two if its pieces agree with the dialogue: pieces of a party must be more alike
than they are for other assignments of the same parties to the pieces (a permutation test). A reading with questions has
one voice for both.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.domain.speech import ChunkText, Diarization, Span, SpeakerSpan, Voiceprint, text_of
from pipeline.speakers.dialogue import SpokenPiece, answers, party_odds
from pipeline.speakers.machines import cut
from pipeline.speakers.reclustering import embedded, speaker_at, voiceprints_of

MAIN_SHARE = 0.9  # of the seconds, in one voice: then there may be a second one
MIN_ANSWERS = 3  # of questions: fewer are no dialogue
MIN_PIECES = 8  # with an embedding
MAX_TESTED = 400  # pieces in the test, from the beginning
PERMUTATIONS = 2000
MAX_CHANCE = 0.01  # share of permutations that agree with the voices at least as well
MAX_VOICE = 6.0  # log odds by the voice of a piece
ROUNDS = 6
MAX_MOVED = 0.25  # share of a voice's seconds: more than short replies contradicts the diarizer

Vector = np.ndarray


def spoken_pieces(texts: Sequence[ChunkText], spans: Sequence[SpeakerSpan]) -> list[SpokenPiece]:
    """Return the pieces of a mixed call in order; `spans` are the diarizer's."""
    languages = {word: text.language for text in texts for word in text.words}
    return [SpokenPiece(tuple(words), text_of(words), languages[words[0]]) for _, _, words in cut(texts, spans)]


def two_voices(
    diarization: Diarization, pieces: Sequence[SpokenPiece], prints: Sequence[Voiceprint | None], min_cosine: float
) -> Diarization:
    """Return the diarization with each piece judged by the dialogue and by its voice, if there are two voices.

    One voice with nearly all of the speech becomes two if dialogue and voices show two. The diarization is unchanged if
    there are more than two, or if dialogue and voices contradict it in more than single replies. `prints` are of
    `with_margin` of the pieces' spans. `min_cosine`: see `reclustered`.
    """
    spans = [piece.span for piece in pieces]
    vectors = embedded(spans, prints)
    odds = party_odds(pieces)
    if _is_one_voice(diarization):
        before = None
        if answers(pieces) < MIN_ANSWERS or not _voices_agree(spans, odds, vectors):
            return diarization
    elif vectors and len({span.speaker for span in diarization.spans}) == 2:
        before = odds = _by_diarizer(diarization, spans, odds)
    else:
        return diarization
    for _ in range(ROUNDS):
        odds = party_odds(pieces, _voice_odds(spans, odds, vectors))
    if before is not None and _moved(spans, before, odds) > MAX_MOVED:
        return diarization
    first = odds[0] > 0
    separated = tuple(
        SpeakerSpan(span.start, span.end, "A" if (value > 0) == first else "B")
        for span, value in zip(spans, odds, strict=True)
    )
    model = next(voiceprint.model for voiceprint in prints if voiceprint is not None)
    return Diarization(separated, voiceprints_of(separated, vectors, model, min_cosine), diarization.engine)


def _by_diarizer(diarization: Diarization, spans: Sequence[Span], odds: Sequence[float]) -> list[float]:
    """Return log odds for the agent by the diarizer's voice of each piece; `odds`, by the words, say which is whose."""
    voices = [speaker_at(span, diarization.spans) for span in spans]
    signs = [0 if voice is None else 1 if voice == diarization.spans[0].speaker else -1 for voice in voices]
    agent = 1 if float(np.dot(signs, np.tanh(np.array(odds) / 2))) >= 0 else -1
    return [MAX_VOICE * agent * sign for sign in signs]


def _moved(spans: Sequence[Span], before: Sequence[float], after: Sequence[float]) -> float:
    """Return the share of a voice's seconds that the other voice gets, 0..1: of the voice that loses more."""
    seconds = np.array([span.duration for span in spans])
    parties, moved = np.sign(before), (np.array(before) > 0) != (np.array(after) > 0)
    return max(
        float(seconds[(parties == sign) & moved].sum() / (seconds[parties == sign].sum() or 1.0)) for sign in (1, -1)
    )


def _is_one_voice(diarization: Diarization) -> bool:
    seconds: dict[str, float] = defaultdict(float)
    for span in diarization.spans:
        seconds[span.speaker] += span.end - span.start
    return bool(seconds) and max(seconds.values()) >= MAIN_SHARE * sum(seconds.values())


def _voices_agree(spans: Sequence[Span], odds: Sequence[float], vectors: Mapping[Span, Vector]) -> bool:
    """Return whether the pieces of a party are more alike than by chance."""
    judged = [(span, value) for span, value in zip(spans, odds, strict=True) if span in vectors][:MAX_TESTED]
    if len(judged) < MIN_PIECES:
        return False
    parties = np.tanh(np.array([value for _, value in judged]) / 2)
    alike = np.stack([vectors[span] for span, _ in judged])
    alike = (alike @ alike.T) * (1 - np.eye(len(judged)))
    rng = np.random.default_rng(0)
    orders = np.stack([np.arange(len(judged)), *(rng.permutation(len(judged)) for _ in range(PERMUTATIONS))])
    centered = (parties - parties.mean())[orders]
    agreement = np.einsum("ij,ij->i", centered @ alike, centered)
    return float(np.mean(agreement[1:] >= agreement[0])) <= MAX_CHANCE


def _nearness(weights: Mapping[Span, float], vectors: Mapping[Span, Vector]) -> dict[Span, float]:
    """Return for each embedded piece its cosine with the agent less that with the customer, each without the piece.

    `weights`: from -1 (the customer's) to 1 (the agent's).
    """
    sums = {sign: np.zeros(len(next(iter(vectors.values())))) for sign in (1, -1)}
    shares = {span: weights.get(span, 0.0) * span.duration for span in vectors}
    for span, share in shares.items():
        sums[1 if share > 0 else -1] += abs(share) * vectors[span]
    nearness = {}
    for span, vector in vectors.items():
        share = shares[span]
        agent, customer = sums[1] - max(share, 0.0) * vector, sums[-1] - max(-share, 0.0) * vector
        nearness[span] = float(vector @ (_unit(agent) - _unit(customer)))
    return nearness


def _voice_odds(spans: Sequence[Span], odds: Sequence[float], vectors: Mapping[Span, Vector]) -> list[float]:
    """Return the log odds for the agent by the voice of each piece: those of two normal distributions of one width."""
    weights = {span: float(np.tanh(value / 2)) for span, value in zip(spans, odds, strict=True)}
    nearness = _nearness(weights, vectors)
    agent, customer = ([value for span, value in nearness.items() if weights[span] * sign > 0] for sign in (1, -1))
    if not agent or not customer:
        return [0.0] * len(spans)
    apart, middle = np.mean(agent) - np.mean(customer), (np.mean(agent) + np.mean(customer)) / 2
    variance = (np.var(agent) * len(agent) + np.var(customer) * len(customer)) / len(nearness)
    slope = max(0.0, float(apart)) / max(float(variance), 1e-6)
    return [float(np.clip(slope * (nearness.get(span, middle) - middle), -MAX_VOICE, MAX_VOICE)) for span in spans]


def _unit(vector: Vector) -> Vector:
    return np.asarray(vector / (np.linalg.norm(vector) or 1.0))
