from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from pipeline.analysis.rules.sentiment.change_point import ChangePoint, change_point
from pipeline.analysis.rules.sentiment.lexicon import LexiconScore, score_turn
from pipeline.analysis.rules.sentiment.party import party_features, predict_party
from pipeline.analysis.rules.sentiment.turn import SentimentWeights, TurnSentiment, shipped_weights
from pipeline.analysis.rules.sentiment.voice import VoiceArousal, judged_speakers, voices
from pipeline.analysis.talk import SpokenTurn, Turns, read, roles, rounded
from pipeline.domain.insight import Evidence, Finding, Material, Tone
from pipeline.domain.speech import Role
from pipeline.language.pack import missing

MIN_LABEL_SCORE = 0.2  # distance from 0 of a positive or negative score
CLEAR = 0.5  # min. probability of a negative or positive turn
MIN_TREND = 0.2  # distance from 0 of second half minus first half
MIN_WORDS = 8  # of a party without a clear turn to call it neutral
MAX_CLOSING_WORDS = 14  # of a turn that only closes a call
MAX_BARE_WORDS = 4  # of an answer that shows no sentiment without a listed word: "to my savings account"
NEAR = 3  # turns in which the other party asked "anything else?"
DISPLEASED = frozenset({"negative", "complaint", "strong", "positive not"})  # lists of `lexicon`
PLEASED = frozenset({"positive", "warm", "laughter", "wishes", "care"})
STRENGTH = 0.25  # added weight of a turn's words per standard deviation of arousal


@dataclass(frozen=True, slots=True)
class ScoredTurn:
    """A turn with its probabilities by words, and its arousal if the voice was judged."""

    spoken: SpokenTurn
    lexicon: LexiconScore
    words: TurnSentiment
    voice: VoiceArousal | None

    @property
    def likely(self) -> TurnSentiment:
        """The probabilities, amplified by a raised voice; the words alone decide the direction."""
        raised = min(2.0, max(0.0, self.voice.arousal)) if self.voice else 0.0
        both = self.words.negative + self.words.positive
        factor = min(1 + STRENGTH * raised, 1 / both if both else 1.0)
        return TurnSentiment(self.words.negative * factor, self.words.positive * factor)

    @property
    def speaker(self) -> str:
        return self.spoken.turn.speaker

    @property
    def mark(self) -> float:
        return self.likely.score

    @property
    def is_clear(self) -> bool:
        return max(self.likely.negative, self.likely.positive) >= CLEAR

    @property
    def basis(self) -> tuple[str, ...]:
        return ("words", "voice") if self.voice else ("words",)


class SentimentStep:
    """Sentiment per turn, per party, over time and overall, with trend and turning points; `basis`: words or voice."""

    name = "tone"
    version = 6

    def run(self, material: Material) -> Finding:
        turns = read(material)
        if not any(turn.pack.known for turn in turns):
            why = missing(material.transcript.language) if turns else "no speech in this call"
            return Finding(self.name, self.version, _value(None, {}, [], []), note=why)
        arousals, weights = voices(material), shipped_weights()
        scored_turns = [
            _scored(turn, turns[:at], weights, arousals.get(turn.turn.index)) for at, turn in enumerate(turns)
        ]
        labels = roles(material.transcript)
        by_party = {label: [scored for scored in scored_turns if scored.speaker == label] for label in labels}
        parties = {label: _party(party_turns, scored_turns, weights) for label, party_turns in by_party.items()}
        turning_points = [point for part in by_party.values() if (point := _turning_point(part))]
        value = _value(_overall(parties), parties, [_turn(scored) for scored in scored_turns], turning_points)
        evidence, note = tuple(_strongest_turns(scored_turns)), _note(scored_turns, material)
        return Finding(self.name, self.version, value, evidence, _confidence(parties), note)


def _note(scored_turns: Sequence[ScoredTurn], material: Material) -> str:
    judged = dict.fromkeys(scored.speaker for scored in scored_turns if scored.voice)
    if judged:
        return f"based on all words and the voice of {' and '.join(judged)}"
    if material.tone_by_voice == "nobody":  # language: ok
        return "based on the words only (no voice is judged)"
    if not judged_speakers(material):
        return "based on the words only (no confirmed customer, and no other voice is judged)"
    return "based on the words only (no voice baseline yet)"


def tone(score: float, basis: tuple[str, ...] = ("words",)) -> Tone:
    label = "positive" if score >= MIN_LABEL_SCORE else "negative" if score <= -MIN_LABEL_SCORE else "neutral"
    return Tone(label, round(score, 3), basis)


def _scored(turn: SpokenTurn, before: Turns, weights: SentimentWeights, voice: VoiceArousal | None) -> ScoredTurn:
    lexicon_score = score_turn(turn)
    words = weights.predict(turn, lexicon_score) if turn.pack.known else TurnSentiment(0.0, 0.0)
    short = len(turn.text.split()) <= MAX_CLOSING_WORDS
    if short and not lexicon_score.counts.keys() & DISPLEASED:
        if _declines_help(turn, before) and not lexicon_score.counts.keys() & PLEASED:
            words = TurnSentiment(0.0, 0.0)
        elif turn.pack.matches("summary", "closing", turn.text):
            words = replace(words, negative=0.0)
    if not lexicon_score.counts and _is_bare_answer(turn, before):
        words = TurnSentiment(0.0, 0.0)
    return ScoredTurn(turn, lexicon_score, words, voice)


def _is_bare_answer(turn: SpokenTurn, before: Turns) -> bool:
    """Return whether a turn is a few words that answer a question: "To my savings account." """
    asked = bool(before) and before[-1].text.endswith("?") and before[-1].turn.speaker != turn.turn.speaker
    return asked and len(turn.text.split()) <= MAX_BARE_WORDS and not turn.text.endswith(("!", "?"))


def _declines_help(turn: SpokenTurn, before: Turns) -> bool:
    """Return whether a turn only declines further help: "No, that was going to be it"."""
    others = (earlier for earlier in reversed(before[-NEAR:]) if earlier.turn.speaker != turn.turn.speaker)
    asked = next(others, None)
    is_asked = asked is not None and asked.pack.matches("summary", "anything_else", asked.text)
    return turn.pack.matches("summary", "declined", turn.text) or (
        is_asked and turn.pack.matches("tasks", "no", turn.text)
    )


def _score(part: Sequence[ScoredTurn]) -> float:
    return fmean(scored.mark for scored in part)


def _confidence(parties: dict[str, dict[str, Any] | None]) -> float | None:
    return min((party["confidence"] for party in parties.values() if party), default=None)


def _turn(scored: ScoredTurn) -> dict[str, Any]:
    value = {"turn": scored.spoken.turn.index, "speaker": scored.speaker}
    likely = scored.likely
    label = "negative" if likely.negative >= CLEAR else "positive" if likely.positive >= CLEAR else "neutral"
    value |= _plain(Tone(label, round(likely.score, 3), scored.basis))
    return value | {"arousal": scored.voice.arousal, "voice": scored.voice.label} if scored.voice else value


def _party(
    party_turns: list[ScoredTurn], scored_turns: list[ScoredTurn], weights: SentimentWeights
) -> dict[str, Any] | None:
    words = sum(len(scored.spoken.turn.words) for scored in party_turns)
    if not party_turns or (words < MIN_WORDS and not any(scored.is_clear for scored in party_turns)):
        return None
    others = [scored.likely for scored in scored_turns if scored.speaker != party_turns[0].speaker]
    lists = [scored.lexicon.weight for scored in party_turns]
    exclaimed = sum("!" in scored.spoken.text for scored in party_turns)
    likely, is_rep = [scored.likely for scored in party_turns], party_turns[0].spoken.role is Role.REP
    sentiment = predict_party(party_features(likely, lists, is_rep, others, exclaimed), weights)
    basis = ("words", "voice") if any(scored.voice for scored in party_turns) else ("words",)
    value = _plain(Tone(sentiment.label, round(sentiment.score, 3), basis))
    value["confidence"] = round(sentiment.confidence, 3)
    by_voice = {f"{label}_turns": _sounding(label, party_turns) for label in ("raised", "lowered")}
    return value | by_voice | {"over_time": _over_time(party_turns)}


def _sounding(label: str, party_turns: list[ScoredTurn]) -> list[int]:
    return [scored.spoken.turn.index for scored in party_turns if scored.voice and scored.voice.label == label]


def _over_time(party_turns: list[ScoredTurn]) -> list[dict[str, Any]]:
    if len(party_turns) < 6:
        return []
    edges = [round(len(party_turns) * part / 3) for part in range(4)]
    return [_third(party_turns[first:last]) for first, last in pairwise(edges)]


def _third(part: list[ScoredTurn]) -> dict[str, Any]:
    mean_tone = tone(_score(part))
    aroused = [scored.voice.arousal for scored in part if scored.voice]
    return {
        "start": part[0].spoken.turn.start,
        "end": part[-1].spoken.turn.end,
        "label": mean_tone.label,
        "score": mean_tone.score,
        "arousal": rounded(fmean(aroused)) if aroused else None,
    }


def _turning_point(party_turns: list[ScoredTurn]) -> dict[str, Any] | None:
    change = change_point([scored.mark for scored in party_turns])
    if change is None:
        return None
    before, after = (tone(_score(part)).label for part in (party_turns[: change.at], party_turns[change.at :]))
    if before == after:
        return None
    first = party_turns[change.at]
    return {
        "turn": first.spoken.turn.index,
        "speaker": first.speaker,
        "from": before,
        "to": after,
        "why": _why(party_turns, change),
        "evidence": asdict(_whole(first.spoken)),
    }


def _why(party_turns: list[ScoredTurn], change: ChangePoint) -> str:
    text = (
        f"words score {change.before:+.2f} per turn in the {change.at} turns before, "
        f"{change.after:+.2f} in the {len(party_turns) - change.at} from there on"
    )
    halves = party_turns[: change.at], party_turns[change.at :]
    parts = ([scored.voice.arousal for scored in part if scored.voice] for part in halves)
    aroused = [fmean(part) for part in parts if part]
    if len(aroused) == 2 and abs(aroused[1] - aroused[0]) >= 0.5:
        text += f"; the voice is {'more' if aroused[1] > aroused[0] else 'less'} aroused"
    return text


def _overall(parties: dict[str, dict[str, Any] | None]) -> Tone | None:
    party_values = [party for party in parties.values() if party]
    if not party_values:
        return None
    basis = ("words", "voice") if any("voice" in party["basis"] for party in party_values) else ("words",)
    return tone(fmean(party["score"] for party in party_values), basis)


def _trend(turns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Compare the mean of the second half of the turns with that of the first."""
    if len(turns) < 4:
        return None
    scores = [turn["score"] for turn in turns]
    moved = fmean(scores[len(scores) // 2 :]) - fmean(scores[: len(scores) // 2])
    label = "improving" if moved >= MIN_TREND else "worsening" if moved <= -MIN_TREND else "steady"
    return {"label": label, "change": round(moved, 3)}


def _strongest_turns(scored_turns: list[ScoredTurn]) -> list[Evidence]:
    """Return the most positive and the most negative turn."""
    ordered = sorted((scored for scored in scored_turns if scored.is_clear), key=lambda scored: scored.mark)
    picked = {scored.spoken.turn.index: scored.spoken for scored in (*ordered[:1], *ordered[-1:])}
    return [_whole(turn) for _, turn in sorted(picked.items())]


def _whole(turn: SpokenTurn) -> Evidence:
    return Evidence(turn.turn.index, turn.turn.start, turn.turn.end, turn.turn.text)


def _plain(tone: Tone) -> dict[str, Any]:
    return {**asdict(tone), "basis": list(tone.basis)}


def _value(
    overall: Tone | None, parties: dict[str, Any], turns: list[dict[str, Any]], turning_points: list[dict[str, Any]]
) -> dict[str, Any]:
    plain = _plain(overall) if overall else None
    return {
        "overall": plain,
        "parties": parties,
        "turns": turns,
        "trend": _trend(turns),
        "turning_points": sorted(turning_points, key=lambda point: point["turn"]),
    }
