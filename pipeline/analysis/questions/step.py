from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import chain, islice
from typing import Any

from pipeline.analysis.evidence import quote
from pipeline.analysis.questions.phrases import (
    COMPARISONS_OF_A_QUOTE,
    PhraseMatch,
    Span,
    SpokenValue,
    TooManyComparisons,
    ignored,
    mean_confidence,
    sentence_of,
    value_of,
    words_of,
)
from pipeline.analysis.questions.scope import AskedTurns, NotEvaluated, asked_turns, excluded, is_of_these_calls
from pipeline.analysis.talk import SpokenTurn, read
from pipeline.domain.answers import AnswerState, QuestionAnswer, TrackerMatch, TrackerResult
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.questions import Question
from pipeline.domain.scorecards import ScorecardResult, score
from pipeline.domain.vocabulary import NoticeState

MAX_MATCHES = 20  # stored per tracker
NO_MODEL = "no phrases, and no language model is configured"
TOO_MANY = "could not look for all phrases, since they match too many words of this call"
IGNORED = "could not look for the phrase {!r}, since it has no word or matches every word"


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
    search = _Search(question, turns, material)
    try:
        place = _choice(search) if question.type == "choice" else _first(search)
    except TooManyComparisons:
        return blank(question, NotEvaluated("not_asked", TOO_MANY))
    if place is None:
        return blank(question, search.unsearched)
    value, match, evidence = place
    return spoken_answer(question, value, match.turn, evidence, "phrases", mean_confidence(evidence, match.turn))


def spoken_answer(
    question: Question, value: str | float, turn: SpokenTurn, evidence: Evidence, found_by: Any, confidence: float
) -> QuestionAnswer:
    shared = (question.key, question.version, question.type, question.question)
    return QuestionAnswer(*shared, "said", value, turn.turn.speaker, evidence, found_by, confidence, question.weight)


_Place = tuple[str | float, PhraseMatch, Evidence]


class _Search:
    """The search for the phrases of a question in the turns that it is about."""

    def __init__(self, question: Question, turns: AskedTurns, material: Material) -> None:
        self.question, self.material = question, material
        self._turns, self._words = turns, words_of(material)
        self._included = {turn.turn.index for turn in turns.turns}
        self._for_places, self._for_quotes = self._words.comparisons(), self._words.comparisons()

    def matches(self, phrases: tuple[str, ...]) -> Iterator[tuple[PhraseMatch, Evidence]]:
        """Yield matches in order, without overlaps. Raises `TooManyComparisons` after the matches of some phrases."""
        spans: set[Span] = set()
        incomplete = None
        try:
            self._words.find(phrases, self._for_places, spans)
        except TooManyComparisons as error:
            incomplete = error
        turn, end = -1, -1
        for match in map(self._words.match, sorted(spans)):
            index = match.turn.turn.index
            if index not in self._included or (index == turn and match.first < end):
                continue
            self._for_quotes.spend(COMPARISONS_OF_A_QUOTE)
            evidence = self._words.quote(match)
            if self._turns.has_time_of(evidence) and not self._is_excluded(match):
                turn, end = index, match.last
                yield match, evidence
        if incomplete:
            raise incomplete

    @property
    def unsearched(self) -> NotEvaluated | None:
        """Why a question without a match was not looked for; None if it was."""
        phrases = chain(self.question.phrases, *self.question.choices.values())
        unsearched = ignored(tuple(phrases))
        return NotEvaluated("not_asked", IGNORED.format(unsearched[0])) if unsearched else None

    @cached_property
    def _exceptions(self) -> Mapping[int, Sequence[int]]:
        """The first characters of the phrases of `unless`, by turn."""
        spans: set[Span] = set()
        self._words.find(self.question.unless, self._for_places, spans)
        firsts = defaultdict(list)
        for match in map(self._words.match, sorted(spans)):
            firsts[match.turn.turn.index].append(match.first)
        return firsts

    def _is_excluded(self, match: PhraseMatch) -> bool:
        sentence = sentence_of(match.turn, match.first) if self.question.unless else None
        firsts = self._exceptions.get(match.turn.turn.index, ()) if sentence else ()
        at = bisect_left(firsts, sentence.first) if sentence else 0
        return sentence is not None and at < len(firsts) and firsts[at] < sentence.last


def _first(search: _Search) -> _Place | None:
    for match, evidence in search.matches(search.question.phrases):
        if search.question.type == "yes/no":
            return "yes", match, evidence
        spoken = value_of(search.question.type, match, search.material)
        if spoken is not None:
            return spoken.value, match, _with(match, spoken)
    return None


def _with(match: PhraseMatch, value: SpokenValue) -> Evidence:
    return quote(match.turn.turn, min(match.first, value.first), max(match.last, value.last))


def _choice(search: _Search) -> _Place | None:
    """Return the choice with the most matches; the first of equals."""
    matches = {value: list(search.matches(phrases)) for value, phrases in search.question.choices.items()}
    choices = [(value, places) for value, places in matches.items() if places]
    if not choices:
        return None
    value, places = min(choices, key=lambda entry: (-len(entry[1]), entry[1][0][1].start))
    return value, *places[0]


def track(question: Question, material: Material) -> TrackerResult:
    """Return the matches of a tracker, and whether they raise its event."""
    if question.finding is not None:
        return _track_finding(question, question.finding, material)
    shared = (question.key, question.version, question.question, question.required)
    turns = asked_turns(question, material)
    if isinstance(turns, NotEvaluated):
        return TrackerResult(*shared, turns.state, False, reason=turns.reason)
    search = _Search(question, turns, material)
    matches: list[TrackerMatch] = []
    unsearched = search.unsearched
    try:
        for match, evidence in islice(search.matches(question.phrases), MAX_MATCHES):
            confidence = mean_confidence(evidence, match.turn)
            matches.append(TrackerMatch(match.turn.turn.speaker, evidence, confidence))
    except TooManyComparisons:
        unsearched = NotEvaluated("not_asked", TOO_MANY)
    reason = unsearched.reason if unsearched else None
    if unsearched and not matches:
        return TrackerResult(*shared, unsearched.state, False, reason=reason)
    state: AnswerState = "said" if matches else "not_said"
    return TrackerResult(*shared, state, bool(matches) != question.required, tuple(matches), reason)


_STATES: Mapping[str, AnswerState] = {NoticeState.FOUND: "said", NoticeState.NOT_FOUND: "not_said"}


def _track_finding(question: Question, step: str, material: Material) -> TrackerResult:
    """Return a tracker of a finding, in which announcements count as well."""
    shared = (question.key, question.version, question.question, question.required)
    if refused := excluded(question, material):
        return TrackerResult(*shared, refused.state, False, reason=refused.reason)
    result = material.findings.get(step)
    state = _STATES.get(result.value.get("state", ""), "not_asked") if result else "not_asked"
    if result is None or state == "not_asked":
        return TrackerResult(*shared, "not_asked", False, reason=result.note if result else f"there is no {step}")
    turns = {turn.turn.index: turn for turn in read(material, machines=True)}
    spoken = [(turns[evidence.turn], evidence) for evidence in result.evidence]
    matches = [TrackerMatch(turn.turn.speaker, quoted, mean_confidence(quoted, turn)) for turn, quoted in spoken]
    return TrackerResult(*shared, state, (state == "said") != question.required, tuple(matches), result.note)
