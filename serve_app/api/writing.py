"""What handlers that write have in common: who writes, what takes a key of the workspace, and the answer."""

from typing import Any

from starlette.responses import Response

from db.workspace.admin_log import Actor
from serve_app.api.access import ReadRequest, to_json
from serve_app.api.errors import OutsideTeam


def actor(writing: ReadRequest[Any]) -> Actor:
    """The key that writes."""
    sender = writing.sender
    return Actor("", sender.key_id, sender.team_id, None, writing.request.state.request_id)


def of_workspace(writing: ReadRequest[Any], what: str) -> None:
    """Raises `OutsideTeam` for a key of a team."""
    if writing.sender.team_id is not None:
        raise OutsideTeam(f"The API key is bound to a team; {what} take one of the workspace.")


def answer_with(made: Any, status: int = 200) -> Response:
    """What is there now, as JSON."""
    return Response(to_json(made), status, media_type="application/json")
