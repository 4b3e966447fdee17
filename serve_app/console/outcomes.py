from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from db.search.trends import ScoreWeek, score_weeks
from db.workspace import questions
from db.workspace.questions import StoredQuestion
from pipeline.domain.questions import Scorecard, outcomes_of
from serve_app.console import labels
from serve_app.console.site import Visit

RANGES = ((0, 50), (50, 80), (80, None))  # score filters
MAX_SCORE = 100
RESULTS = {"passed": {"passed": True}, "failed": {"passed": False}, "auto-failed": {"auto_failed": True}}

Group = tuple[str, list[tuple[str, str]]]  # a heading, and values with display names


async def choices(visit: Visit) -> tuple[list[Group], list[Group]]:
    """Return the options of the filters by answer and by score."""
    say = visit.wording.say
    defined = await questions.list_defined(visit.database, visit.reader, visit.home)
    answers, scores = [], []
    for item in defined:
        if isinstance(item, StoredQuestion):
            asked = item.question
            names = [(value, say(labels.OUTCOMES_OF_ANSWERS.get(value, value))) for value in outcomes_of(asked)]
            answers.append((asked.question or asked.key, [(f"{asked.key}:{value}", name) for value, name in names]))
        else:
            scores.append(_of_card(item.scorecard, say))
    return answers, scores


def _of_card(card: Scorecard, say: Callable[..., str]) -> Group:
    fails = any(item.auto_fail for item in card.items)
    results = [] if card.pass_mark is None else ["passed"]
    results += ["failed"] if fails or results else []
    results += ["auto-failed"] if fails else []
    options = [(result, say(labels.RESULTS[result])) for result in results]
    for least, below in RANGES:
        text = "{least} or higher" if below is None else "{least} to under {below}"
        options.append((f"{least}-{below or ''}", say(text, least=least, below=below)))
    return card.title or card.key, [(f"{card.key}:{value}", name) for value, name in options]


def filter_fields(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a `CallFilter` for a form. Raises ValueError."""
    fields: dict[str, Any] = {}
    if form["answer"]:
        key, answer = _parts(form["answer"])
        fields |= {"question": key, "answer": answer}
    if form["score"]:
        key, result = _parts(form["score"])
        fields |= {"scorecard": key}
        if result in RESULTS:
            return fields | RESULTS[result]
        least, _, below = result.partition("-")
        fields |= {"score_from": _score(least), "score_below": _score(below) if below else None}
    return fields


def _parts(value: str) -> tuple[str, str]:
    key, colon, rest = value.partition(":")
    if not (key and colon and rest):
        raise ValueError("not KEY:VALUE")
    return key, rest


def _score(text: str) -> float:
    if not text.isascii() or not text.isdecimal() or int(text) > MAX_SCORE:
        raise ValueError("invalid score")
    return float(text)


@dataclass(frozen=True, slots=True)
class AgentScores:
    """An agent's scores on a scorecard by week; `score` is the mean of all calls."""

    user_id: UUID | None
    name: str | None
    weeks: tuple[ScoreWeek | None, ...]
    calls: int
    failed: int
    score: float


@dataclass(frozen=True, slots=True)
class CardScores:
    """Scores on a scorecard, by team id and by agent."""

    key: str
    title: str
    teams: Mapping[UUID, tuple[ScoreWeek | None, ...]]
    agents: tuple[AgentScores, ...]


async def card_scores(visit: Visit, zone: str, mondays: Sequence[date]) -> list[CardScores]:
    """Return scores by scorecard for the weeks that begin on `mondays`; deleted scorecards included."""
    scope, count = (visit.database, visit.reader), len(mondays)
    by_team = await score_weeks(*scope, zone, count)
    by_member = await score_weeks(*scope, zone, count, "member")
    cards = await questions.list_scorecards(*scope, visit.home)
    titles = {card.scorecard.key: card.scorecard.title for card in cards}

    def in_order(scores: Iterable[ScoreWeek]) -> tuple[ScoreWeek | None, ...]:
        by_week = {score.week: score for score in scores}
        return tuple(by_week.get(monday) for monday in mondays)

    cards_ = []
    for key in sorted({score.key for score in by_team}, key=lambda key: (key not in titles, titles.get(key, key))):
        of_card = [score for score in by_team if score.key == key and score.team_id is not None]
        teams = {
            team: in_order(score for score in of_card if score.team_id == team)
            for team in {score.team_id for score in of_card if score.team_id}
        }
        agents: dict[UUID | None, list[ScoreWeek]] = {}
        for score in by_member:
            if score.key == key:
                agents.setdefault(score.user_id, []).append(score)
        agent_scores = [_agent(user, scores, in_order(scores)) for user, scores in agents.items()]
        by_name = sorted(agent_scores, key=lambda agent: (agent.user_id is None, (agent.name or "").casefold()))
        cards_.append(CardScores(key, titles.get(key) or key, teams, tuple(by_name)))
    return cards_


def _agent(user: UUID | None, scores: Sequence[ScoreWeek], weeks: tuple[ScoreWeek | None, ...]) -> AgentScores:
    count = sum(score.calls for score in scores)
    mean = sum(score.score * score.calls for score in scores) / count
    return AgentScores(user, scores[0].name, weeks, count, sum(score.failed for score in scores), mean)
