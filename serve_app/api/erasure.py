"""Erasure of calls and persons. A key of a team erases only calls of that team."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic.alias_generators import to_camel
from starlette.responses import Response

from db.core.pages import Page
from db.records import erase, erasures
from db.records.erase import CallNotFound
from db.records.erasures import Erasure, ErasureKind, NoSuchTarget, Target
from db.workspace.admin_log import NotAdmin
from serve_app.api import bodies
from serve_app.api.access import ApiRequest, Route, answer_with, json_answer
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, NoSuchCall, NoSuchObject
from serve_app.api.queries import ChangeListQuery, NoQuery
from serve_app.http.json_body import Fault
from serve_app.http.problems import NotAuthenticated

OF_WORKSPACE = (ErasureKind.MEMBER, ErasureKind.TEAM)  # not with the key of a team


@dataclass(frozen=True, slots=True)
class CreatedErasure:
    """What matches now, by kind of object, and the erasure that has begun; None: a dry run."""

    matched: Mapping[str, int]
    erasure: Erasure | None


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


async def create_erasure(writing: ApiRequest[NoQuery]) -> Response:
    """Start an erasure, which a Conductor carries out, or count what it would erase."""
    body = await read_admin_body(writing.request, bodies.NewErasure)
    ((field, value),) = body.targets().items()
    kind, database, home = ErasureKind(field.removesuffix("_id")), writing.database, writing.reader.workspace_id
    if kind in OF_WORKSPACE:
        writing.require_workspace_key(f"the erasure of {kind}s")
    target = Target(kind, number=value) if kind is ErasureKind.NUMBER else Target(kind, value)
    try:
        target = await erasures.resolve(database, writing.reader, target)
    except NoSuchTarget:
        name = to_camel(field)
        raise AdminBodyRefused([Fault(f"/{name}", f"{name} is not a {kind} of this workspace.")]) from None
    if body.dry_run:
        return answer_with(CreatedErasure(await erasures.matches(database, home, target), None))
    try:
        erasure = await erasures.create(database, home, target, writing.actor)
    except NotAdmin:
        raise NotAuthenticated from None
    return answer_with(CreatedErasure(erasure.matched, erasure), 202)


async def show_erasure(reading: ApiRequest[NoQuery]) -> Response:
    erasure = await erasures.find(reading.database, reading.reader, reading.request.path_params["erasure_id"])
    if erasure is None:
        raise NoSuchObject
    return json_answer(reading, erasure)


async def list_erasures(reading: ApiRequest[ChangeListQuery]) -> Response:
    query = reading.query
    return json_answer(
        reading, await erasures.list_erasures(reading.database, reading.reader, query.cursor, query.limit)
    )


ROUTES = (
    Route(
        "/erasures",
        list_erasures,
        "List erasures, the latest first",
        Page[Erasure],
        query=ChangeListQuery,
        admin=True,
    ),
    Route(
        "/erasures",
        create_erasure,
        "Erase a call, a person or a team, or count what matches; 202: a Conductor carries it out",
        CreatedErasure,
        method="POST",
        body=bodies.NewErasure,
        admin=True,
    ),
    Route("/erasures/{erasure_id:uuid}", show_erasure, "Show an erasure and its progress", Erasure, admin=True),
)
