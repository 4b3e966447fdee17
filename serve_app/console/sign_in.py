from starlette.responses import Response

from db.workspace import directory, keys
from db.workspace import sessions as console_sessions
from pipeline.domain.call import Sender
from serve_app.console import sentences
from serve_app.console.guard import drop_session, keep_session, session_of
from serve_app.console.site import LANGUAGE, NotFound, Visit, Visitor, read_form
from serve_app.console.wording import choose_language

READ = "read"
LANGUAGE_SECONDS = 365 * 24 * 3600


async def sign_in(visitor: Visitor) -> Response:
    """Render the sign-in form; redirect if already signed in."""
    back = _safe_path(visitor.request.query_params.get("next"))
    secret = session_of(visitor.request)
    if secret:
        async with visitor.lookup():
            viewer = await console_sessions.find(visitor.database, secret)
        if viewer is not None:
            return visitor.go(back)
    return visitor.page("sign_in.html", back=back, problem=None)


async def open_session(visitor: Visitor) -> Response:
    """Open a session with a key or a link's secret, and set its cookie."""
    form = await read_form(visitor.request)
    back = _safe_path(form.get("next"))
    agent = visitor.request.headers.get("user-agent", "")
    if link := form.get("link", "").strip():
        secret, problem = await _by_link(visitor, link, agent)
    else:
        secret, problem = await _by_key(visitor, form.get("key", "").strip(), agent)
    if secret is None:
        return visitor.page("sign_in.html", 403, back=back, problem=problem)
    response = visitor.go(back)
    keep_session(visitor.request, response, secret, int(console_sessions.SESSION_LIFE.total_seconds()))
    return response


async def close_session(visit: Visit) -> Response:
    await console_sessions.revoke(visit.database, visit.viewer.session_id, visit.home, visit.viewer)
    response = visit.go("/sign-in")
    drop_session(visit.request, response)
    return response


async def sessions(visit: Visit) -> Response:
    """List the sessions of the viewer's key; for administrators, all that they may end."""
    home = visit.home
    open_sessions = await console_sessions.list_sessions(visit.database, home, visit.viewer)
    teams = {team.team_id: team.name for team in await directory.list_teams(visit.database, home)}
    return visit.page("sessions.html", sessions=open_sessions, teams=teams)


async def revoke_session(visit: Visit) -> Response:
    """End a session; ending another key's session is logged. Raises `NotFound` for sessions that are not listed."""
    session_id, viewer = visit.id(), visit.viewer
    done = await console_sessions.revoke(visit.database, session_id, viewer.workspace_id, viewer)
    if not done and viewer.may_admin:
        done = await console_sessions.end(visit.database, viewer, session_id)
    if not done:
        raise NotFound
    return visit.go("/sessions")


async def set_language(visitor: Visitor) -> Response:
    form = await read_form(visitor.request)
    response = visitor.go(_safe_path(form.get("next")))
    language = choose_language(form.get("language"), "")
    response.set_cookie(
        LANGUAGE, language, max_age=LANGUAGE_SECONDS, path=visitor.root or "/", httponly=True, samesite="lax"
    )
    return response


async def _by_link(visitor: Visitor, link: str, agent: str) -> tuple[str | None, str]:
    async with visitor.lookup():
        return await console_sessions.open_by_link(visitor.database, link, agent), sentences.LINK_USED


async def _by_key(visitor: Visitor, key: str, agent: str) -> tuple[str | None, str]:
    """Report a missing scope; the holder of a valid key may know that."""
    sender = await _find_key(visitor, key) if key else None
    if sender is None:
        return None, sentences.NOT_A_KEY
    if READ not in sender.scopes:
        return None, sentences.NOT_FOR_READING
    return await console_sessions.open_by_key(visitor.database, sender, agent), ""


async def _find_key(visitor: Visitor, key: str) -> Sender | None:
    if keys.is_malformed(key):
        return None
    async with visitor.lookup():
        return await keys.find(visitor.database, key)


def _safe_path(path: str | None) -> str:
    """Return a path of the console to redirect to; the list of calls for anything else."""
    if not path or not path.startswith("/") or path.startswith("//") or "\\" in path or not path.isprintable():
        return "/calls"
    return path
