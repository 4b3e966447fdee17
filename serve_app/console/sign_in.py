"""Signing in with a key of scope `read` or a one-time link, signing out, and the sessions that are open."""

from starlette.responses import Response

from db.workspace import directory, keys
from db.workspace import sessions as console_sessions
from db.workspace.admin_log import NotAdmin
from pipeline.domain.call import Sender
from serve_app.console import sentences
from serve_app.console.forms import read_form
from serve_app.console.guard import drop_session, keep_session, session_of
from serve_app.console.site import LANGUAGE, NotAllowed, NotFound, Visit, Visitor
from serve_app.console.wording import choose_language

READ = "read"
LANGUAGE_SECONDS = 365 * 24 * 3600


async def sign_in(visitor: Visitor) -> Response:
    """The form. Those who are signed in already are led on."""
    back = _own_path(visitor.request.query_params.get("next"))
    secret = session_of(visitor.request)
    if secret:
        visitor.site.limiter.charge(visitor.site.source(visitor.request))
        if await console_sessions.find(visitor.database, secret) is not None:
            visitor.site.limiter.refund(visitor.site.source(visitor.request))
            return visitor.go(back)
    return visitor.page("sign_in.html", back=back, problem=None)


async def open_session(visitor: Visitor) -> Response:
    """Take a key, or the secret of a link; answers with the cookie of a new session."""
    form = await read_form(visitor.request)
    back = _own_path(form.get("next"))
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
    await console_sessions.revoke(visit.database, visit.viewer.session_id, visit.viewer.workspace_id, visit.viewer)
    response = visit.go("/sign-in")
    drop_session(visit.request, response)
    return response


async def sessions(visit: Visit) -> Response:
    """The sessions that were opened with the viewer's key; for administrators, all that they may end."""
    home = visit.viewer.workspace_id
    found = await console_sessions.list_sessions(visit.database, home, visit.viewer)
    teams = {one.team_id: one.name for one in await directory.list_teams(visit.database, home)}
    return visit.page("sessions.html", sessions=found, teams=teams)


async def revoke_session(visit: Visit) -> Response:
    """End one of them; what an administrator ends of others is in the change log. Raises `NotFound` for any other."""
    session_id, viewer = visit.id(), visit.viewer
    done = await console_sessions.revoke(visit.database, session_id, viewer.workspace_id, viewer)
    if not done and viewer.may_admin:
        try:
            done = await console_sessions.end(visit.database, viewer, session_id)
        except NotAdmin:
            raise NotAllowed from None
    if not done:
        raise NotFound
    return visit.go("/sessions")


async def set_language(visitor: Visitor) -> Response:
    """Keep the language that somebody chose in a cookie."""
    form = await read_form(visitor.request)
    response = visitor.go(_own_path(form.get("next")))
    language = choose_language(form.get("language"), "")
    response.set_cookie(
        LANGUAGE, language, max_age=LANGUAGE_SECONDS, path=visitor.root or "/", httponly=True, samesite="lax"
    )
    return response


async def _by_link(visitor: Visitor, link: str, agent: str) -> tuple[str | None, str]:
    source = visitor.site.source(visitor.request)
    visitor.site.limiter.charge(source)
    secret = await console_sessions.open_by_link(visitor.database, link, agent)
    if secret is not None:
        visitor.site.limiter.refund(source)
    return secret, sentences.LINK_USED


async def _by_key(visitor: Visitor, key: str, agent: str) -> tuple[str | None, str]:
    """A key that lacks the scope is told so: who shows it knows it anyway."""
    sender = await _find_key(visitor, key) if key else None
    if sender is None:
        return None, sentences.NOT_A_KEY
    if READ not in sender.scopes:
        return None, sentences.NOT_FOR_READING
    return await console_sessions.open_by_key(visitor.database, sender, agent), ""


async def _find_key(visitor: Visitor, key: str) -> Sender | None:
    source = visitor.site.source(visitor.request)
    visitor.site.limiter.charge(source)
    found = None if keys.is_no_key(key) else await keys.find(visitor.database, key)
    if found is not None:
        visitor.site.limiter.refund(source)
    return found


def _own_path(path: str | None) -> str:
    """A path of ours to lead to; the list of calls for anything else."""
    if not path or not path.startswith("/") or path.startswith("//") or "\\" in path or not path.isprintable():
        return "/calls"
    return path
