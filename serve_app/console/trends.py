"""Volume, tone, outcomes, talk ratio and tasks by team and week, as charts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TypeVar

from starlette.responses import Response

from db.search.scores import ScoreWeek
from db.search.trends import TeamWeek, team_weeks
from db.workspace import directory
from serve_app.console import labels, outcomes
from serve_app.console.site import Visit

WEEKS = 12
ENDINGS = ("resolved", "follow_up", "voicemail", "wrong_number", "no_speech", "refused")  # in a column, upwards
WIDTH, HEIGHT, GAP = 480.0, 120.0, 6.0  # of a chart, in its own units


Part = tuple[str, float, object]  # of a column: its kind, its height from 0 to 1, what it says


@dataclass(frozen=True, slots=True)
class Bar:
    """One piece of a week's column. `kind`: its class; `x`, `y`, `width`, `height` in the chart's units."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    told: str


@dataclass(frozen=True, slots=True)
class TeamTrend:
    """One team's charts. `most`: calls of its fullest week, the height of the chart."""

    name: str
    weeks: tuple[TeamWeek | None, ...]
    most: int
    volume: tuple[Bar, ...]
    tone: tuple[Bar, ...]
    talk: tuple[Bar, ...]
    outcomes: tuple[Bar, ...]
    tasks: tuple[Bar, ...]
    most_tasks: int  # of one week
    ended: tuple[str, ...]  # the outcomes that there are, in the order of `ENDINGS`
    scores: tuple["TeamScores", ...] = ()


@dataclass(frozen=True, slots=True)
class TeamScores:
    """One team's mean scores by a scorecard, by week, and as a chart."""

    title: str
    weeks: tuple[ScoreWeek | None, ...]
    bars: tuple[Bar, ...]


async def trends(visit: Visit) -> Response:
    """The last weeks of each team that the viewer may see."""
    zone = str(getattr(visit.wording.zone, "key", "UTC"))
    found = await team_weeks(visit.database, visit.reader, zone, WEEKS)
    names = {one.team_id: one.name for one in await directory.list_teams(visit.database, visit.viewer.workspace_id)}
    today = datetime.now(visit.wording.zone).date()
    last = max((one.week for one in found), default=today - timedelta(days=today.weekday()))
    first = last - timedelta(weeks=WEEKS - 1)
    mondays = [first + timedelta(weeks=at) for at in range(WEEKS)]
    cards = await outcomes.card_scores(visit, zone, mondays)
    teams = [
        replace(
            trend(names.get(team, ""), [one for one in found if one.team_id == team], mondays, visit.wording.say),
            scores=tuple(_scores(card.title, card.teams[team], visit) for card in cards if team in card.teams),
        )
        for team in sorted({one.team_id for one in found}, key=lambda team: names.get(team, ""))
    ]
    return visit.page("trends.html", teams=teams, cards=cards, mondays=mondays, width=WIDTH, height=HEIGHT)


def _scores(title: str, weeks: tuple[ScoreWeek | None, ...], visit: Visit) -> TeamScores:
    wording = visit.wording

    def told(one: ScoreWeek) -> str:
        return f"{wording.number(one.score, 1)} · {wording.count(one.calls, '{n} call', '{n} calls')}"

    return TeamScores(title, weeks, tuple(_columns(weeks, lambda one: [("volume", one.score / 100, told(one))])))


def trend(name: str, found: Sequence[TeamWeek], mondays: Sequence[date], say: Callable[[str], str]) -> TeamTrend:
    """The charts of one team's weeks. `say`: in the viewer's language."""
    by_week = {one.week: one for one in found}
    weeks = tuple(by_week.get(monday) for monday in mondays)
    most = max((one.calls for one in found), default=1)
    most_tasks = max((one.tasks for one in found), default=0)
    there = {outcome for one in found for outcome in one.outcomes}
    return TeamTrend(
        name,
        weeks,
        most,
        tuple(_columns(weeks, lambda one: [("volume", one.calls / most, one.calls)])),
        tuple(_columns(weeks, _tones)),
        tuple(_columns(weeks, lambda one: [("volume", one.talk_ratio or 0.0, round((one.talk_ratio or 0) * 100))])),
        tuple(_columns(weeks, lambda one: _outcomes(one, say))),
        tuple(_columns(weeks, lambda one: _tasks(one, most_tasks, say))),
        most_tasks,
        tuple(one for one in ENDINGS if one in there),
    )


def _outcomes(week: TeamWeek, say: Callable[[str], str]) -> list[Part]:
    """Shares of the calls of which it is known how they ended."""
    counts = [(one, week.outcomes.get(one, 0)) for one in ENDINGS]
    known = sum(count for _, count in counts) or 1
    return [(kind, count / known, f"{say(labels.OUTCOMES[kind])}: {count}") for kind, count in counts]


def _tasks(week: TeamWeek, most: int, say: Callable[[str], str]) -> list[Part]:
    """Done ones at the bottom."""
    counts = (("done", week.tasks_done, "Done"), ("open", week.tasks - week.tasks_done, "Open"))
    return [(kind, count / (most or 1), f"{say(name)}: {count}") for kind, count, name in counts]


def _tones(week: TeamWeek) -> list[Part]:
    """Shares of the calls whose tone is known, negative ones at the bottom."""
    known = week.positive + week.neutral + week.negative or 1
    parts = (("negative", week.negative), ("neutral", week.neutral), ("positive", week.positive))
    return [(kind, count / known, count) for kind, count in parts]


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
