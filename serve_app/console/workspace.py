"""Keys, webhooks and voices of a workspace; `administration.py` changes them.

A viewer of one team sees that team's keys and webhooks.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar
from uuid import UUID, uuid4

from starlette.responses import Response

from db.events import deliveries as event_views
from db.events import endpoints as webhooks
from db.events.types import PARTS, type_names
from db.secrets.recording_urls import shown
from db.voices import voiceprints
from db.workspace import directory, keys
from serve_app.console.site import Visit

DELIVERIES = VOICES = 50


class OfTeam(Protocol):
    @property
    def team_id(self) -> UUID | None: ...


T = TypeVar("T", bound=OfTeam)


async def workspace(visit: Visit) -> Response:
    """The page. Secrets are nowhere on it; of addresses what stands behind the path is left out."""
    database, home, team = visit.database, visit.viewer.workspace_id, visit.viewer.team_id
    endpoints = _of_team(await webhooks.list_endpoints(database, home), team)
    ours = {one.endpoint_id: shown(one.url) for one in endpoints}
    deliveries = await event_views.list_deliveries(database, home, limit=DELIVERIES) if endpoints else []
    return visit.page(
        "workspace.html",
        new_key=uuid4(),
        new_webhook=uuid4(),
        types=type_names(),
        parts=PARTS,
        scopes=("submit", "read", "edit", "admin"),
        keys=_of_team(await keys.list_keys(database, home), team),
        endpoints=endpoints,
        urls=ours,
        standings=await event_views.standings(database, home),
        deliveries=[one for one in deliveries if one.endpoint_id in ours],
        voices=await voiceprints.list_(database, home, VOICES) if team is None else [],
        teams={one.team_id: one.name for one in await directory.list_teams(database, home)},
    )


def _of_team(found: Iterable[T], team: UUID | None) -> list[T]:
    return [one for one in found if team in (None, one.team_id)]
