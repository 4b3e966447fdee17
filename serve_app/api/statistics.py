from zoneinfo import ZoneInfo

from starlette.responses import Response

from db.core.pages import Page
from db.search.trends import TeamWeek, team_weeks
from db.workspace import directory
from serve_app.api.access import ApiRequest, Route, json_answer
from serve_app.api.queries import StatisticsQuery
from serve_app.http.options import Work


async def list_weeks(reading: ApiRequest[StatisticsQuery]) -> Response:
    """List calls, tone, talk and tasks by team and week, as the page Trends shows them."""
    query = reading.query
    zone = query.time_zone or (await directory.find_workspace(reading.database, reading.home)).time_zone
    weeks = await team_weeks(reading.database, reading.reader, ZoneInfo(zone).key, query.weeks)
    return json_answer(reading, Page(tuple(weeks)))


ROUTES = (
    Route(
        "/statistics",
        list_weeks,
        "Show calls, tone, outcomes, talk and tasks by team and week",
        Page[TeamWeek],
        StatisticsQuery,
        work=Work.SEARCH,
        operation="showStatistics",
    ),
)
