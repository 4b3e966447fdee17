from typing import Any

from starlette.responses import Response

from db.workspace.admin_log import Actor
from serve_app.api.access import ApiRequest
from serve_app.api.errors import OutsideTeam
from serve_app.http.camel_json import to_json


def actor(writing: ApiRequest[Any]) -> Actor:
    """Return the key as the author of a change."""
    sender = writing.sender
    return Actor("", sender.key_id, sender.team_id, None, writing.request.state.request_id)


def require_workspace_key(writing: ApiRequest[Any], what: str) -> None:
    """Raise `OutsideTeam` for a key of a team."""
    if writing.sender.team_id is not None:
        raise OutsideTeam(f"The API key is limited to a team. Use a key of the workspace for {what}.")


def answer_with(data: Any, status: int = 200) -> Response:
    """Return data as a JSON response."""
    return Response(to_json(data), status, media_type="application/json")
