"""Tasks across calls, by when they are due."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from db.core.pages import InvalidCursor
from db.search import task_list
from db.search.task_list import TaskFilter, TaskLine
from db.workspace import directory
from serve_app.console import labels
from serve_app.console.site import NotUnderstood, Visit

ROWS = 100
FIELDS = ("owner", "member", "team", "done")


async def tasks(visit: Visit) -> Response:
    """Open tasks, those due first at the top; `done=yes`: those that were ticked off."""
    form = {name: visit.request.query_params.get(name, "") for name in FIELDS}
    cursor = visit.request.query_params.get("cursor") or None
    try:
        wanted = TaskFilter(
            done=form["done"] == "yes",
            owner=form["owner"] if form["owner"] in labels.OWNERS else None,
            owner_user_id=UUID(form["member"]) if form["member"] else None,
            team_id=UUID(form["team"]) if form["team"] else None,
        )
        page = await task_list.list_tasks(visit.database, visit.reader, wanted, cursor, ROWS)
    except (ValueError, InvalidCursor):
        raise NotUnderstood from None
    members = await directory.list_members(visit.database, visit.viewer.workspace_id)
    asked = {name: value for name, value in form.items() if value}
    done = {name: value for name, value in asked.items() if name != "done"} | ({} if form["done"] else {"done": "yes"})
    return visit.page(
        "tasks.html",
        groups=list(by_due(page.items, datetime.now(visit.wording.zone).date())),
        form=form,
        members={str(one.user_id): one.name for one in members},
        owners=[(owner, urlencode(asked | {"owner": owner})) for owner in ("", *labels.OWNERS)],
        following=page.next and urlencode(asked | {"cursor": page.next}),
        cursor=cursor,
        other=urlencode(done),
    )


@dataclass(frozen=True, slots=True)
class DueGroup:
    """Tasks that are due at about the same time. `late`: they should be done by now."""

    name: str
    late: bool
    tasks: tuple[TaskLine, ...]


def by_due(lines: tuple[TaskLine, ...], today: date) -> Iterator[DueGroup]:
    """In the order of the lines, which is that of their dates."""
    for name, own in groupby(lines, key=lambda line: when(line.due_date, today)):
        yield DueGroup(name, name == "Overdue", tuple(own))


def when(due: date | None, today: date) -> str:
    """What people call a due date."""
    if due is None:
        return "Without a date"
    if due < today:
        return "Overdue"
    if due <= today + timedelta(days=1):
        return "Today" if due == today else "Tomorrow"
    return "Within a week" if due <= today + timedelta(days=7) else "Later"
