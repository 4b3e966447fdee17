from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response

from db.search import saved_views
from db.search.saved_views import NameTaken, TooManyViews
from serve_app.console import sentences
from serve_app.console.calls import asked_for, filter_of
from serve_app.console.site import NotAllowed, NotFound, NotUnderstood, Visit, read_form


async def save_view(visit: Visit) -> Response:
    """Save filters as a view; a view with the same name is overwritten."""
    form = await _form(visit)
    fields = asked_for(dict(parse_qsl(form.get("query", ""))))
    try:
        filter_of(fields, visit.wording.zone)
    except ValueError:
        raise NotUnderstood from None
    query = urlencode({name: value for name, value in fields.items() if value})
    if not query:
        raise NotUnderstood
    try:
        await saved_views.save(visit.database, visit.reader, form.get("name", ""), query)
    except TooManyViews:
        return visit.problem(sentences.TOO_MANY_VIEWS, 409)
    except ValueError:
        return visit.problem(sentences.VIEW_UNNAMED, 400)
    return visit.go(f"/calls?{query}")


async def change_view(visit: Visit) -> Response:
    """Rename or delete a view."""
    form = await _form(visit)
    action, view_id = form.get("action"), visit.id()
    try:
        if action == "rename":
            done = await saved_views.rename(visit.database, visit.reader, view_id, form.get("name", ""))
        elif action == "delete":
            done = await saved_views.remove(visit.database, visit.reader, view_id)
        else:
            raise NotUnderstood
    except NameTaken:
        return visit.problem(sentences.VIEW_NAME_TAKEN, 409)
    except ValueError:
        return visit.problem(sentences.VIEW_UNNAMED, 400)
    if not done:
        raise NotFound
    return visit.go("/calls")


async def _form(visit: Visit) -> dict[str, str]:
    if not visit.viewer.may_edit:
        raise NotAllowed
    return await read_form(visit.request)
