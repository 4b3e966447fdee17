from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from db.search import task_list
from db.search.task_list import TaskFilter, TaskLine
from db.workspace import directory
from serve_app.console import labels
from serve_app.console.site import NotUnderstood, Visit

ROWS = 100
FIELDS = ("owner", "ownerUserId", "teamId", "done")


async def tasks(visit: Visit) -> Response:
    """Render open tasks by due date; with `done=true`, completed ones."""
    form = {name: visit.request.query_params.get(name, "") for name in FIELDS}
    cursor = visit.request.query_params.get("cursor") or None
    try:
        task_filter = TaskFilter(
            done=form["done"] == "true",
            owner=form["owner"] if form["owner"] in labels.OWNERS else None,
            owner_user_id=UUID(form["ownerUserId"]) if form["ownerUserId"] else None,
            team_id=UUID(form["teamId"]) if form["teamId"] else None,
        )
        page = await task_list.list_tasks(visit.database, visit.reader, task_filter, cursor, ROWS)
    except ValueError:  # also of the cursor
        raise NotUnderstood from None
    members = await directory.list_members(visit.database, visit.home)
    asked = {name: value for name, value in form.items() if value}
    done = {name: value for name, value in asked.items() if name != "done"} | ({} if form["done"] else {"done": "true"})
    return visit.page(
        "tasks.html",
        groups=list(by_due(page.items, datetime.now(visit.wording.zone).date())),
        form=form,
        members={str(member.user_id): member.name for member in members},
        owners=[(owner, urlencode(asked | {"owner": owner})) for owner in ("", *labels.OWNERS)],
        following=page.next and urlencode(asked | {"cursor": page.next}),
        cursor=cursor,
        other=urlencode(done),
    )


@dataclass(frozen=True, slots=True)
class DueGroup:
    """Tasks with similar due dates; `late`: overdue."""

    name: str
    late: bool
    tasks: tuple[TaskLine, ...]


def by_due(lines: tuple[TaskLine, ...], today: date) -> Iterator[DueGroup]:
    for name, group in groupby(lines, key=lambda line: when(line.due_date, today)):
        yield DueGroup(name, name == "Overdue", tuple(group))


def when(due: date | None, today: date) -> str:
    """Name a due date relative to today."""
    if due is None:
        return "No due date"
    if due < today:
        return "Overdue"
    if due <= today + timedelta(days=1):
        return "Today" if due == today else "Tomorrow"
    return "Next 7 days" if due <= today + timedelta(days=7) else "Later"
