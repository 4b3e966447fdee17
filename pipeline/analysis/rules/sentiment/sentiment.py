"""In what tone the parties speak: whether pleased from their words, how strongly from their words and their voice."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from pipeline.analysis.rules.sentiment.change_point import ChangePoint, change_point
from pipeline.analysis.rules.sentiment.lexicon import LexiconScore, score_turn
from pipeline.analysis.rules.sentiment.party import party_features, predict_party
from pipeline.analysis.rules.sentiment.turn import SentimentWeights, TurnSentiment, shipped_weights
from pipeline.analysis.rules.sentiment.voice import VoiceArousal, judged_speakers, voices
from pipeline.analysis.talk import Said, read, roles, rounded
from pipeline.domain.insight import Evidence, Finding, Material, Tone
from pipeline.domain.speech import Role
from pipeline.language.pack import missing

LABEL_FROM = 0.2  # a score of several turns or parties at least this far from 0 is positive or negative
CLEAR = 0.5  # probability from which a turn is negative or positive
TREND_FROM = 0.2  # second half minus first half, at least this far from 0
FEW_WORDS = 8  # of a party who says nothing telling: too few to call it neutral
STRENGTH = 0.25  # by which a voice raised by one standard deviation makes a turn's words weigh more


@dataclass(frozen=True, slots=True)
class ScoredTurn:
    """A turn, how likely its words are displeased or pleased, and how it sounds where that is known."""

    said: Said
    found: LexiconScore
    words: TurnSentiment
    voice: VoiceArousal | None

    @property
    def likely(self) -> TurnSentiment:
        """What a raised voice says is meant more strongly; what it says is in the words."""
        raised = min(2.0, max(0.0, self.voice.arousal)) if self.voice else 0.0
        both = self.words.negative + self.words.positive
        factor = min(1 + STRENGTH * raised, 1 / both if both else 1.0)
        return TurnSentiment(self.words.negative * factor, self.words.positive * factor)

    @property
    def mark(self) -> float:
        return self.likely.score

    @property
    def telling(self) -> bool:
        return max(self.likely.negative, self.likely.positive) >= CLEAR

    @property
    def basis(self) -> tuple[str, ...]:
        return ("words", "voice") if self.voice else ("words",)


class SentimentStep:
    """Per turn, per party, over time and overall, where it went and turned; `basis` and the note say by what."""

    name = "tone"
    version = 5

    def run(self, material: Material) -> Finding:
        said = read(material)
        if not any(turn.pack.known for turn in said):
            why = missing(material.transcript.language) if said else "nobody speaks in this call"
            return Finding(self.name, self.version, _value(None, {}, [], []), note=why)
        sounded, weights = voices(material), shipped_weights()
        spoken = [_spoken(turn, weights, sounded.get(turn.turn.index)) for turn in said]
        by_party = {
            label: [one for one in spoken if one.said.turn.speaker == label] for label in roles(material.transcript)
        }
        parties = {label: _party(own, spoken, weights) for label, own in by_party.items()}
        turned = [found for own in by_party.values() if (found := _turning_point(own))]
        value = _value(_overall(parties), parties, [_turn(one) for one in spoken], turned)
        return Finding(
            self.name, self.version, value, tuple(_telling(spoken)), _confidence(parties), _note(spoken, material)
        )


def _note(spoken: Sequence[ScoredTurn], material: Material) -> str:
    """What the tone was read from."""
    heard = dict.fromkeys(one.said.turn.speaker for one in spoken if one.voice)
    if heard:
        return f"read from the words of everybody and the voice of {' and '.join(heard)}"
    if material.tone_by_voice == "nobody":
        return "read from the words alone: no voice is to be judged"
    if not judged_speakers(material):
        return "read from the words alone: nobody is surely a customer, and no other voice is judged"
    return "read from the words alone: how the voices usually sound is not known"


def tone(score: float, basis: tuple[str, ...] = ("words",)) -> Tone:
    label = "positive" if score >= LABEL_FROM else "negative" if score <= -LABEL_FROM else "neutral"
    return Tone(label, round(score, 3), basis)


def _spoken(said: Said, weights: SentimentWeights, voice: VoiceArousal | None) -> ScoredTurn:
    """A turn in a language without a pack tells nothing."""
    found = score_turn(said)
    return ScoredTurn(said, found, weights.predict(said, found) if said.pack.known else TurnSentiment(0.0, 0.0), voice)


def _score(part: Sequence[ScoredTurn]) -> float:
    """Of a part of a party's turns: their mean."""
    return fmean(one.mark for one in part)


def _confidence(parties: dict[str, dict[str, Any] | None]) -> float | None:
    """Of the least sure party."""
    return min((party["confidence"] for party in parties.values() if party), default=None)


def _turn(one: ScoredTurn) -> dict[str, Any]:
    made = {"turn": one.said.turn.index, "speaker": one.said.turn.speaker}
    likely = one.likely
    label = "negative" if likely.negative >= CLEAR else "positive" if likely.positive >= CLEAR else "neutral"
    made |= _plain(Tone(label, round(likely.score, 3), one.basis))
    return made | {"arousal": one.voice.arousal, "voice": one.voice.label} if one.voice else made


def _party(own: list[ScoredTurn], spoken: list[ScoredTurn], weights: SentimentWeights) -> dict[str, Any] | None:
    """None where too little is said to tell."""
    words = sum(len(one.said.turn.words) for one in own)
    if not own or (words < FEW_WORDS and not any(one.telling for one in own)):
        return None
    others = [one.likely for one in spoken if one.said.turn.speaker != own[0].said.turn.speaker]
    lists = [one.found.weight for one in own]
    exclaimed = sum("!" in one.said.text for one in own)
    given = party_features([one.likely for one in own], lists, own[0].said.role is Role.REP, others, exclaimed)
    found = predict_party(given, weights)
    basis = ("words", "voice") if any(one.voice for one in own) else ("words",)
    made = _plain(Tone(found.label, round(found.score, 3), basis)) | {"confidence": round(found.confidence, 3)}
    by_voice = {f"{label}_turns": _sounding(label, own) for label in ("raised", "lowered")}
    return made | by_voice | {"over_time": _over_time(own)}


def _sounding(label: str, own: list[ScoredTurn]) -> list[int]:
    """The turns whose voice has this label."""
    return [one.said.turn.index for one in own if one.voice and one.voice.label == label]


def _over_time(own: list[ScoredTurn]) -> list[dict[str, Any]]:
    """The thirds of a party's turns; of fewer than six, nothing."""
    if len(own) < 6:
        return []
    edges = [round(len(own) * part / 3) for part in range(4)]
    return [_third(own[first:last]) for first, last in pairwise(edges)]


def _third(part: list[ScoredTurn]) -> dict[str, Any]:
    found = tone(_score(part))
    aroused = [one.voice.arousal for one in part if one.voice]
    return {
        "start": part[0].said.turn.start,
        "end": part[-1].said.turn.end,
        "label": found.label,
        "score": found.score,
        "arousal": rounded(fmean(aroused)) if aroused else None,
    }


def _turning_point(own: list[ScoredTurn]) -> dict[str, Any] | None:
    found = change_point([one.mark for one in own])
    if found is None:
        return None
    before, after = (tone(_score(part)).label for part in (own[: found.at], own[found.at :]))
    if before == after:
        return None
    first = own[found.at]
    return {
        "turn": first.said.turn.index,
        "speaker": first.said.turn.speaker,
        "from": before,
        "to": after,
        "why": _why(own, found),
        "evidence": asdict(_whole(first.said)),
    }


def _why(own: list[ScoredTurn], found: ChangePoint) -> str:
    text = (
        f"words score {found.before:+.2f} a turn in the {found.at} turns before, "
        f"{found.after:+.2f} in the {len(own) - found.at} from here on"
    )
    parts = ([one.voice.arousal for one in part if one.voice] for part in (own[: found.at], own[found.at :]))
    aroused = [fmean(part) for part in parts if part]
    if len(aroused) == 2 and abs(aroused[1] - aroused[0]) >= 0.5:
        text += f"; the voice is {'more' if aroused[1] > aroused[0] else 'less'} aroused"
    return text


def _overall(parties: dict[str, dict[str, Any] | None]) -> Tone | None:
    heard = [party for party in parties.values() if party]
    if not heard:
        return None
    basis = ("words", "voice") if any("voice" in party["basis"] for party in heard) else ("words",)
    return tone(fmean(party["score"] for party in heard), basis)


def _trend(turns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The mean of the second half of the turns against that of the first."""
    if len(turns) < 4:
        return None
    scores = [turn["score"] for turn in turns]
    moved = fmean(scores[len(scores) // 2 :]) - fmean(scores[: len(scores) // 2])
    label = "improving" if moved >= TREND_FROM else "worsening" if moved <= -TREND_FROM else "steady"
    return {"label": label, "change": round(moved, 3)}


def _telling(spoken: list[ScoredTurn]) -> list[Evidence]:
    """The most positive and the most negative turn."""
    ordered = sorted((one for one in spoken if one.telling), key=lambda one: one.mark)
    picked = {one.said.turn.index: one.said for one in (*ordered[:1], *ordered[-1:])}
    return [_whole(said) for _, said in sorted(picked.items())]


def _whole(said: Said) -> Evidence:
    return Evidence(said.turn.index, said.turn.start, said.turn.end, said.turn.text)


def _plain(tone: Tone) -> dict[str, Any]:
    return {**asdict(tone), "basis": list(tone.basis)}


def _value(
    overall: Tone | None, parties: dict[str, Any], turns: list[dict[str, Any]], turned: list[dict[str, Any]]
) -> dict[str, Any]:
    plain = _plain(overall) if overall else None
    return {
        "overall": plain,
        "parties": parties,
        "turns": turns,
        "trend": _trend(turns),
        "turning_points": sorted(turned, key=lambda point: point["turn"]),
    }
