from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.analysis.evidence import quote
from pipeline.analysis.questions.phrases import PhraseMatch, find
from pipeline.analysis.questions.scope import AskedTurns, NotEvaluated, asked_turns, is_of_these_calls
from pipeline.analysis.questions.values import SpokenValue, mean_confidence, sentence_of, value_of
from pipeline.analysis.talk import SpokenTurn
from pipeline.domain.answers import QuestionAnswer, TrackerMatch, TrackerResult
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.questions import Question
from pipeline.domain.scorecards import ScorecardResult, score

MAX_MATCHES = 20  # stored per tracker
NO_MODEL = "no phrases, and no language model is configured"


class QuestionsStep:
    """`answers` and `trackers` of the workspace by phrases, in their order; `scorecards` with scores if defined."""

    name = "questions"
    version = 1

    def run(self, material: Material) -> Finding:
        asked = material.roster.questions
        answers = [answer(question, material) for question in asked if question.type != "tracker"]
        trackers = [track(question, material) for question in asked if question.type == "tracker"]
        return finding(answers, trackers, material)


def finding(answers: Sequence[QuestionAnswer], trackers: Sequence[TrackerResult], material: Material) -> Finding:
    """Return the finding of answers and trackers, with the scores if the material has scorecards."""
    value: dict[str, Any] = {"answers": list(map(plain, answers)), "trackers": list(map(plain, trackers))}
    if scores := scores_of(material, answers, trackers):
        value["scorecards"] = scores
    return Finding(QuestionsStep.name, QuestionsStep.version, value)


def scores_of(
    material: Material, answers: Sequence[QuestionAnswer], trackers: Sequence[TrackerResult]
) -> list[dict[str, Any]]:
    roster = material.roster
    cards = [card for card in roster.scorecards if is_of_these_calls(card, material)]
    return [plain(score(card, roster.questions, answers, trackers)) for card in cards]


def plain(result: QuestionAnswer | TrackerResult | ScorecardResult) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(result).items()}


def blank(question: Question, excluded: NotEvaluated | None = None) -> QuestionAnswer:
    """Return a missing answer: not said, or why the question was not evaluated."""
    excluded = excluded or NotEvaluated("not_said", None)
    shared = (question.key, question.version, question.type, question.question)
    return QuestionAnswer(*shared, excluded.state, weight=question.weight, reason=excluded.reason)


def answer(question: Question, material: Material) -> QuestionAnswer:
    turns = asked_turns(question, material)
    if isinstance(turns, NotEvaluated):
        return blank(question, turns)
    if not question.has_phrases:
        return blank(question, NotEvaluated("not_asked", NO_MODEL))
    place = _choice(question, turns, material) if question.type == "choice" else _first(question, turns, material)
    if place is None:
        return blank(question)
    value, match, evidence = place
    return spoken_answer(question, value, match.turn, evidence, "phrases", mean_confidence(evidence, match.turn))


def spoken_answer(
    question: Question, value: str | float, turn: SpokenTurn, evidence: Evidence, found_by: Any, confidence: float
) -> QuestionAnswer:
    shared = (question.key, question.version, question.type, question.question)
    return QuestionAnswer(*shared, "said", value, turn.turn.speaker, evidence, found_by, confidence, question.weight)


_Place = tuple[str | float, PhraseMatch, Evidence]


def _first(question: Question, turns: AskedTurns, material: Material) -> _Place | None:
    for match, evidence in _matches(question.phrases, question, turns, material):
        if question.type == "yes/no":
            return "yes", match, evidence
        spoken = value_of(question.type, match, material)
        if spoken is not None:
            return spoken.value, match, _with(match, spoken)
    return None


def _with(match: PhraseMatch, value: SpokenValue) -> Evidence:
    return quote(match.turn.turn, min(match.first, value.first), max(match.last, value.last))


def _choice(question: Question, turns: AskedTurns, material: Material) -> _Place | None:
    """Return the choice with the most matches; the first of equals."""
    matches = {value: list(_matches(phrases, question, turns, material)) for value, phrases in question.choices.items()}
    choices = [(value, places) for value, places in matches.items() if places]
    if not choices:
        return None
    value, places = min(choices, key=lambda entry: (-len(entry[1]), entry[1][0][1].start))
    return value, *places[0]


def _matches(
    phrases: tuple[str, ...], question: Question, turns: AskedTurns, material: Material
) -> Iterator[tuple[PhraseMatch, Evidence]]:
    whole = material.transcript.language or ""
    for turn in turns.turns:
        language = (turn.turn.language if turn.turn.language not in ("", "und") else whole)[:2]
        matches = sorted(find(phrases, turn, language), key=lambda match: (match.first, -match.last))
        end = -1
        for match in matches:
            evidence = quote(turn.turn, match.first, match.last)
            if match.first >= end and turns.holds(evidence) and not _taken_back(question.unless, match, language):
                end = match.last
                yield match, evidence


def _taken_back(unless: tuple[str, ...], match: PhraseMatch, language: str) -> bool:
    sentence = sentence_of(match.turn, match.first)
    return sentence is not None and any(
        sentence.first <= other.first < sentence.last for other in find(unless, match.turn, language)
    )


def track(question: Question, material: Material) -> TrackerResult:
    """Return the matches of a tracker, and whether they raise its event."""
    shared = (question.key, question.version, question.question, question.required)
    turns = asked_turns(question, material)
    if isinstance(turns, NotEvaluated):
        return TrackerResult(*shared, turns.state, False, reason=turns.reason)
    places = list(_matches(question.phrases, question, turns, material))[:MAX_MATCHES]
    matches = tuple(TrackerMatch(m.turn.turn.speaker, e, mean_confidence(e, m.turn)) for m, e in places)
    return TrackerResult(*shared, "said" if matches else "not_said", bool(matches) != question.required, matches)
