"""What calls came to by questions and scorecards: choices of the list's filters, and scores over time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from db.search.scores import ScoreWeek, score_weeks
from db.workspace import questions
from db.workspace.questions import StoredQuestion
from pipeline.domain.questions import Scorecard, outcomes_of
from serve_app.console import labels
from serve_app.console.site import Visit

RANGES = ((0, 50), (50, 80), (80, None))  # scores that one filters by
MOST_SCORE = 100
RESULTS = {"passed": {"passed": True}, "failed": {"passed": False}, "auto-failed": {"auto_failed": True}}

Group = tuple[str, list[tuple[str, str]]]  # a heading, and values with their names


async def choices(visit: Visit) -> tuple[list[Group], list[Group]]:
    """What one may filter by: answers to each question, and scores by each scorecard."""
    say = visit.wording.say
    found = await questions.list_defined(visit.database, visit.reader, visit.viewer.workspace_id)
    answers, scores = [], []
    for one in found:
        if isinstance(one, StoredQuestion):
            asked = one.question
            names = [(value, say(labels.OUTCOMES_OF_ANSWERS.get(value, value))) for value in outcomes_of(asked)]
            answers.append((asked.question or asked.key, [(f"{asked.key}:{value}", name) for value, name in names]))
        else:
            scores.append(_of_card(one.scorecard, say))
    return answers, scores


def _of_card(card: Scorecard, say: Callable[..., str]) -> Group:
    fails = any(item.auto_fail for item in card.items)
    results = [] if card.pass_mark is None else ["passed"]
    results += ["failed"] if fails or results else []
    results += ["auto-failed"] if fails else []
    found = [(one, say(labels.RESULTS[one])) for one in results]
    for least, below in RANGES:
        told = "{least} and more" if below is None else "{least} to under {below}"
        found.append((f"{least}-{below or ''}", say(told, least=least, below=below)))
    return card.title or card.key, [(f"{card.key}:{value}", name) for value, name in found]


def wanted(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a `CallFilter` that a form asks for. Raises ValueError."""
    found: dict[str, Any] = {}
    if form["answer"]:
        key, answer = _parts(form["answer"])
        found |= {"question": key, "answer": answer}
    if form["score"]:
        key, result = _parts(form["score"])
        found |= {"scorecard": key}
        if result in RESULTS:
            return found | RESULTS[result]
        least, _, below = result.partition("-")
        found |= {"score_from": _score(least), "score_below": _score(below) if below else None}
    return found


def _parts(value: str) -> tuple[str, str]:
    key, colon, rest = value.partition(":")
    if not (key and colon and rest):
        raise ValueError("neither a question nor a scorecard")
    return key, rest


def _score(text: str) -> float:
    if not text.isascii() or not text.isdecimal() or int(text) > MOST_SCORE:
        raise ValueError("no score")
    return float(text)


@dataclass(frozen=True, slots=True)
class AgentScores:
    """One agent's scores by a scorecard, by week. `score`: the mean of all calls."""

    user_id: UUID | None
    name: str | None
    weeks: tuple[ScoreWeek | None, ...]
    calls: int
    failed: int
    score: float


@dataclass(frozen=True, slots=True)
class CardScores:
    """Scores by one scorecard: of each team by its id, and of each agent."""

    key: str
    title: str
    teams: Mapping[UUID, tuple[ScoreWeek | None, ...]]
    agents: tuple[AgentScores, ...]


async def card_scores(visit: Visit, zone: str, mondays: Sequence[date]) -> list[CardScores]:
    """The scores of the weeks that begin on `mondays`, by scorecard; of those too that are used no more."""
    scope, count = (visit.database, visit.reader), len(mondays)
    by_team = await score_weeks(*scope, zone, count)
    by_member = await score_weeks(*scope, zone, count, "member")
    cards = await questions.list_scorecards(*scope, visit.viewer.workspace_id)
    titles = {one.scorecard.key: one.scorecard.title for one in cards}

    def in_order(found: Iterable[ScoreWeek]) -> tuple[ScoreWeek | None, ...]:
        by_week = {one.week: one for one in found}
        return tuple(by_week.get(monday) for monday in mondays)

    made = []
    for key in sorted({one.key for one in by_team}, key=lambda key: (key not in titles, titles.get(key, key))):
        of_card = [one for one in by_team if one.key == key and one.team_id is not None]
        teams = {
            team: in_order(one for one in of_card if one.team_id == team)
            for team in {one.team_id for one in of_card if one.team_id}
        }
        agents: dict[UUID | None, list[ScoreWeek]] = {}
        for one in by_member:
            if one.key == key:
                agents.setdefault(one.user_id, []).append(one)
        told = [_agent(user, found, in_order(found)) for user, found in agents.items()]
        named = sorted(told, key=lambda one: (one.user_id is None, (one.name or "").casefold()))
        made.append(CardScores(key, titles.get(key) or key, teams, tuple(named)))
    return made


def _agent(user: UUID | None, found: Sequence[ScoreWeek], weeks: tuple[ScoreWeek | None, ...]) -> AgentScores:
    count = sum(one.calls for one in found)
    mean = sum(one.score * one.calls for one in found) / count
    return AgentScores(user, found[0].name, weeks, count, sum(one.failed for one in found), mean)
