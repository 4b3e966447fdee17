"""In what tone the parties speak, read from their words."""

import math
import re
from dataclasses import asdict
from statistics import fmean
from typing import Any

from pipeline.analysis.language import Pack, missing
from pipeline.analysis.talk import Said, read, roles
from pipeline.domain.insight import Evidence, Finding, Material, Tone

LABEL_FROM = 0.2  # a score at least this far from 0 is positive or negative
TREND_FROM = 0.2  # second half minus first half, at least this far from 0
REACH = 3  # words after a negation or an intensifier that it bears on
WARM, STRONG, POLITE = 0.7, 1.5, 0.25  # weight of a warm phrase, a strong one, a polite word; other words have 1


class ToneOfVoice:
    """Per turn, per party, overall, and where it went. The basis is the words alone, and says so."""

    name = "tone"
    version = 1

    def run(self, material: Material) -> Finding:
        said = read(material)
        if not any(turn.pack.known for turn in said):
            note = missing(material.transcript.language) if said else "nobody speaks in this call"
            return Finding(self.name, self.version, _value(None, {}, [], None), note=note)
        marks = {turn.turn.index: weigh(turn) for turn in said}
        turns = [_of_turn(turn, marks[turn.turn.index]) for turn in said]
        parties = {label: _of_party(label, said, marks) for label in roles(material.transcript)}
        heard = [party for party in parties.values() if party]
        overall = tone(fmean(party["score"] for party in heard)) if heard else None
        evidence = _telling(said, marks)
        value = _value(overall, parties, turns, _trend(turns))
        return Finding(self.name, self.version, value, tuple(evidence), confidence=0.5)


def weigh(said: Said) -> float:
    """The sum of the turn's tone words: negation turns a word round, an intensifier adds half."""
    text = said.text.lower()
    total = sum(WARM for pattern in said.pack.patterns("tone", "warm") if pattern.search(text))
    total -= sum(STRONG for pattern in said.pack.patterns("tone", "strong") if pattern.search(text))
    for pattern in said.pack.patterns("tone", "neutral"):
        text = pattern.sub(" . ", text)
    return total + _word_weight(text, said.pack)


def _word_weight(text: str, pack: Pack) -> float:
    positive, negative, polite = (pack.words("tone", key) for key in ("positive", "negative", "polite"))
    total, turned, raised = 0.0, 0, 0
    for token in re.findall(r"[\w'-]+|[.,!?;:]", text):
        if not token[0].isalnum():
            turned = raised = 0
        elif token in pack.words("tone", "negations"):
            turned = REACH
            total -= 1.0 if token in negative else 0.0
        elif token in pack.words("tone", "intensifiers"):
            raised = REACH
        else:
            sign = (token in positive) - (token in negative) + POLITE * (token in polite)
            total += sign * (1.5 if raised else 1.0) * (-0.8 if turned else 1.0)
            turned, raised = max(0, turned - 1), max(0, raised - 1)
    return total


def tone(score: float) -> Tone:
    label = "positive" if score >= LABEL_FROM else "negative" if score <= -LABEL_FROM else "neutral"
    return Tone(label, round(score, 3))


def _of_turn(said: Said, mark: float) -> dict[str, Any]:
    return {"turn": said.turn.index, "speaker": said.turn.speaker, **_plain(tone(math.tanh(mark / 2)))}


def _of_party(label: str, said: tuple[Said, ...], marks: dict[int, float]) -> dict[str, Any] | None:
    """The party's marks against the square root of its turns: a long call needs more to take on a colour."""
    own = [marks[turn.turn.index] for turn in said if turn.turn.speaker == label]
    return _plain(tone(math.tanh(sum(own) / (2.5 * math.sqrt(len(own)))))) if own else None


def _trend(turns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The mean of the second half of the turns against that of the first."""
    if len(turns) < 4:
        return None
    scores = [turn["score"] for turn in turns]
    change = fmean(scores[len(scores) // 2 :]) - fmean(scores[: len(scores) // 2])
    label = "improving" if change >= TREND_FROM else "worsening" if change <= -TREND_FROM else "steady"
    return {"label": label, "change": round(change, 3)}


def _telling(said: tuple[Said, ...], marks: dict[int, float]) -> list[Evidence]:
    """The most positive and the most negative turn."""
    coloured = [turn for turn in said if abs(marks[turn.turn.index]) >= 1]
    ordered = sorted(coloured, key=lambda turn: marks[turn.turn.index])
    picked = {turn.turn.index: turn for turn in (*ordered[:1], *ordered[-1:])}
    return [_whole(turn) for _, turn in sorted(picked.items())]


def _whole(said: Said) -> Evidence:
    return Evidence(said.turn.index, said.turn.start, said.turn.end, said.turn.text)


def _plain(tone: Tone) -> dict[str, Any]:
    return {**asdict(tone), "basis": list(tone.basis)}


def _value(overall: Tone | None, parties: dict[str, Any], turns: list[Any], trend: Any) -> dict[str, Any]:
    plain = _plain(overall) if overall else None
    return {"overall": plain, "parties": parties, "turns": turns, "trend": trend}
