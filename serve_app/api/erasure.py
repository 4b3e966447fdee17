from starlette.responses import Response

from db.records import erase
from db.records.erase import CallNotFound
from db.workspace.admin_log import NotAdmin
from serve_app.api.access import ApiRequest
from serve_app.api.errors import NoSuchCall
from serve_app.api.queries import NoQuery
from serve_app.http.problems import NotAuthenticated


async def erase_call(writing: ApiRequest[NoQuery]) -> Response:
    """Erase the call in the path; 204 also if it was erased before."""
    workspace_id, by = writing.reader.workspace_id, writing.actor
    try:
        await erase.erase_call(writing.database, workspace_id, writing.call_id, writing.voices, by)
    except NotAdmin:
        raise NotAuthenticated from None
    except CallNotFound:
        raise NoSuchCall from None
    return Response(status_code=204)
