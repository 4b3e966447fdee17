from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from db.core.pages import Page
from db.search import saved_views
from db.search.saved_views import MAX_NAME_LENGTH, MAX_QUERY_LENGTH, SavedView
from serve_app.api.access import ApiRequest, Route, answer_with, json_answer
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, NoSuchObject
from serve_app.api.queries import NoQuery
from serve_app.http.json_body import Body, Fault

VIEW = "/views/{view_id:uuid}"
ViewName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, description="Name of the view.")]


class NewView(Body):
    """A saved view. One with the same name gets the new filters."""

    name: ViewName
    query: str = Field(
        max_length=MAX_QUERY_LENGTH, description="Filters as in the address of the list: status=failed&openTasks=true."
    )


class ViewChanges(Body):
    """Another name of a saved view."""

    name: ViewName


async def list_views(reading: ApiRequest[NoQuery]) -> Response:
    return json_answer(reading, Page(tuple(await saved_views.list_views(reading.database, reading.reader))))


async def save_view(writing: ApiRequest[NoQuery]) -> Response:
    body = await read_admin_body(writing.request, NewView)
    try:
        view = await saved_views.save(writing.database, writing.reader, body.name, body.query.replace("\x00", ""))
    except ValueError as error:
        raise AdminBodyRefused([Fault("/name", f"name: {error}.")]) from None
    return answer_with(view, 201)


async def rename_view(writing: ApiRequest[NoQuery]) -> Response:
    body = await read_admin_body(writing.request, ViewChanges)
    view_id: UUID = writing.request.path_params["view_id"]
    try:
        if not await saved_views.rename(writing.database, writing.reader, view_id, body.name):
            raise NoSuchObject
    except ValueError as error:
        raise AdminBodyRefused([Fault("/name", f"name: {error}.")]) from None
    return answer_with(await _view(writing, view_id))


async def delete_view(writing: ApiRequest[NoQuery]) -> Response:
    view_id: UUID = writing.request.path_params["view_id"]
    view = await _view(writing, view_id)
    await saved_views.remove(writing.database, writing.reader, view_id)
    return answer_with(view)


async def _view(reading: ApiRequest[NoQuery], view_id: UUID) -> SavedView:
    for view in await saved_views.list_views(reading.database, reading.reader):
        if view.view_id == view_id:
            return view
    raise NoSuchObject


ROUTES = (
    Route("/views", list_views, "List saved views by name", Page[SavedView]),
    Route("/views", save_view, "Save a view, or new filters of a view", SavedView, method="POST", body=NewView),
    Route(VIEW, rename_view, "Rename a saved view", SavedView, method="PATCH", body=ViewChanges),
    Route(VIEW, delete_view, "Delete a saved view", SavedView, method="DELETE"),
)
