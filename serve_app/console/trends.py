from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TypeVar

from starlette.responses import Response

from db.search.trends import ScoreWeek, TeamWeek, team_weeks
from db.workspace import directory
from serve_app.console import labels, outcomes
from serve_app.console.site import Visit

WEEKS = 12
WIDTH, HEIGHT, GAP = 480.0, 120.0, 6.0  # of a chart, in its own units


Part = tuple[str, float, object]  # of a column: kind, height from 0 to 1, tooltip


@dataclass(frozen=True, slots=True)
class Bar:
    """A segment of a week's column. `kind`: CSS class; `x`, `y`, `width`, `height` in the chart's units."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    tooltip: str


@dataclass(frozen=True, slots=True)
class TeamTrend:
    """Charts of a team. `max_calls`: calls in the busiest week, the height of the chart."""

    name: str
    weeks: tuple[TeamWeek | None, ...]
    max_calls: int
    volume: tuple[Bar, ...]
    tone: tuple[Bar, ...]
    talk: tuple[Bar, ...]
    outcomes: tuple[Bar, ...]
    tasks: tuple[Bar, ...]
    max_tasks: int  # in one week
    ended: tuple[str, ...]  # outcomes that occur, in the order of `labels.OUTCOMES`
    scores: tuple["TeamScores", ...] = ()


@dataclass(frozen=True, slots=True)
class TeamScores:
    """A team's mean scores on a scorecard, by week and as a chart."""

    title: str
    weeks: tuple[ScoreWeek | None, ...]
    bars: tuple[Bar, ...]


async def trends(visit: Visit) -> Response:
    """Render the last weeks of each team that the viewer may see."""
    zone = str(getattr(visit.wording.zone, "key", "UTC"))
    weeks = await team_weeks(visit.database, visit.reader, zone, WEEKS)
    names = {team.team_id: team.name for team in await directory.list_teams(visit.database, visit.home)}
    today = datetime.now(visit.wording.zone).date()
    last = max((week.week for week in weeks), default=today - timedelta(days=today.weekday()))
    first = last - timedelta(weeks=WEEKS - 1)
    mondays = [first + timedelta(weeks=at) for at in range(WEEKS)]
    cards = await outcomes.card_scores(visit, zone, mondays)
    teams = [
        replace(
            trend(names.get(team, ""), [week for week in weeks if week.team_id == team], mondays, visit.wording.say),
            scores=tuple(_scores(card.title, card.teams[team], visit) for card in cards if team in card.teams),
        )
        for team in sorted({week.team_id for week in weeks}, key=lambda team: names.get(team, ""))
    ]
    return visit.page("trends.html", teams=teams, cards=cards, mondays=mondays, width=WIDTH, height=HEIGHT)


def _scores(title: str, weeks: tuple[ScoreWeek | None, ...], visit: Visit) -> TeamScores:
    wording = visit.wording

    def tooltip(week: ScoreWeek) -> str:
        return f"{wording.number(week.score, 1)} · {wording.count(week.calls, '{n} call', '{n} calls')}"

    return TeamScores(title, weeks, tuple(_columns(weeks, lambda week: [("volume", week.score / 100, tooltip(week))])))


def trend(name: str, team_weeks_: Sequence[TeamWeek], mondays: Sequence[date], say: Callable[[str], str]) -> TeamTrend:
    """Build a team's charts; `say` translates."""
    by_week = {week.week: week for week in team_weeks_}
    weeks = tuple(by_week.get(monday) for monday in mondays)
    max_calls = max((week.calls for week in team_weeks_), default=1)
    max_tasks = max((week.tasks for week in team_weeks_), default=0)
    there = {outcome for week in team_weeks_ for outcome in week.outcomes}
    return TeamTrend(
        name,
        weeks,
        max_calls,
        tuple(_columns(weeks, lambda week: [("volume", week.calls / max_calls, week.calls)])),
        tuple(_columns(weeks, _tones)),
        tuple(_columns(weeks, lambda week: [("volume", week.talk_ratio or 0.0, round((week.talk_ratio or 0) * 100))])),
        tuple(_columns(weeks, lambda week: _outcomes(week, say))),
        tuple(_columns(weeks, lambda week: _tasks(week, max_tasks, say))),
        max_tasks,
        tuple(outcome for outcome in labels.OUTCOMES if outcome in there),
    )


def _outcomes(week: TeamWeek, say: Callable[[str], str]) -> list[Part]:
    counts = [(outcome, week.outcomes.get(outcome, 0)) for outcome in labels.OUTCOMES]
    total = sum(count for _, count in counts) or 1
    return [(kind, count / total, f"{say(labels.OUTCOMES[kind])}: {count}") for kind, count in counts]


def _tasks(week: TeamWeek, most: int, say: Callable[[str], str]) -> list[Part]:
    counts = (("done", week.tasks_done, "Done"), ("open", week.tasks - week.tasks_done, "Open"))
    return [(kind, count / (most or 1), f"{say(name)}: {count}") for kind, count, name in counts]


def _tones(week: TeamWeek) -> list[Part]:
    """Return shares of the calls with a known sentiment, negative at the bottom."""
    total = week.positive + week.neutral + week.negative or 1
    parts = (("negative", week.negative), ("neutral", week.neutral), ("positive", week.positive))
    return [(kind, count / total, count) for kind, count in parts]


W = TypeVar("W", TeamWeek, ScoreWeek)


def _columns(weeks: Sequence[W | None], parts_of: Callable[[W], Sequence[Part]]) -> Iterator[Bar]:
    step = WIDTH / len(weeks)
    for at, week in enumerate(weeks):
        below = 0.0
        for kind, share, figure in parts_of(week) if week else ():
            height = share * HEIGHT
            x, y = at * step + GAP / 2, HEIGHT - below - height
            yield Bar(round(x, 1), round(y, 1), round(step - GAP, 1), round(height, 1), kind, str(figure))
            below += height
