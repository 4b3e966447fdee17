"""Webhooks over HTTP: a key of the workspace manages all of them, a key of a team those of the team."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from db.core.identity import new_id
from db.core.pages import Page
from db.events import endpoints
from db.events.endpoints import DeliverySummary, Endpoint
from db.events.types import PARTS, type_names
from db.secrets.recording_urls import shown
from db.workspace import settings
from db.workspace.admin_log import NotInDirectory
from pipeline.errors import AddressForbidden
from serve_app.api.access import ApiRequest, Route, admin_route, answer_with, json_answer
from serve_app.api.bodies import Id, IdempotencyKey, read_admin_body
from serve_app.api.errors import AdminBodyRefused, IdTaken, NoSuchObject
from serve_app.api.queries import DeliveryListQuery, NoQuery
from serve_app.http.json_body import Body, Fault
from serve_app.webhooks import signing

WEBHOOK = "/webhooks/{endpoint_id:uuid}"
RESOLVE_SECONDS = 10.0  # for the host name
Url = Annotated[str, Field(min_length=1, max_length=2_000, description="https://...; events are posted there, signed.")]
Events = Annotated[list[str], Field(min_length=1, max_length=50, description=f"Of {', '.join(type_names())}.")]
Include = Annotated[
    list[Literal["record", "transcript"]],
    Field(max_length=len(PARTS), description="What call.completed carries besides ids, state and times."),
]
Description = Annotated[str, Field(max_length=200, description="Description, for people.")]
Writing = ApiRequest[NoQuery]


class NewWebhook(Body):
    """A webhook."""

    idempotency_key: IdempotencyKey = None
    url: Url
    events: Events | None = Field(None, description="Unset: all.")
    include: Include = Field(default=[])
    description: Description = ""
    team_id: Id | None = Field(None, description="Unset: calls of every team; with a key of a team, of that team.")


class WebhookChanges(Body):
    """Changes of a webhook."""

    url: Url | None = None
    events: Events | None = None
    include: Include | None = None
    description: Description | None = None
    enabled: bool | None = Field(None, description="false: events wait until it is enabled again.")


@dataclass(frozen=True, slots=True)
class CreatedWebhook:
    """A new webhook and its signing secret, which is shown only once."""

    webhook: Endpoint
    secret: str = field(repr=False)


async def list_webhooks(reading: Writing) -> Response:
    hooks = await endpoints.list_endpoints(reading.database, reading.home)
    return json_answer(reading, Page(tuple(_shown(hook) for hook in hooks if _visible(reading, hook))))


async def show_webhook(reading: Writing) -> Response:
    return json_answer(reading, await _webhook(reading))


async def create_webhook(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, NewWebhook)
    team_id = writing.own_team(body.team_id)
    await _check_url(writing, body.url)
    secret, endpoint_id = signing.new_secret(), new_id(writing.home, body.idempotency_key)
    fields = (writing.tools.sealer.seal(secret), body.events, body.include, team_id, body.description, writing.actor)
    try:
        endpoint = await endpoints.add(writing.database, writing.home, body.url, *fields, endpoint_id)
    except endpoints.EndpointExists:
        raise IdTaken("This request was made before. The secret is not stored: rotate it, or use a new key.") from None
    except NotInDirectory:
        raise AdminBodyRefused([Fault("/teamId", "teamId is not a team of this workspace.")]) from None
    except ValueError as error:
        raise AdminBodyRefused([Fault("/events", f"{error}.")]) from None
    return answer_with(CreatedWebhook(_shown(endpoint), secret), 201)


async def change_webhook(writing: Writing) -> Response:
    endpoint, body = await _webhook(writing, whole=True), await read_admin_body(writing.request, WebhookChanges)
    if body.url is not None:
        await _check_url(writing, body.url)
    values = (body.url, body.events, body.include, body.description, writing.actor)
    try:
        changed = await endpoints.change(writing.database, endpoint, *values)
    except ValueError as error:
        raise AdminBodyRefused([Fault("/events", f"{error}.")]) from None
    if changed and body.enabled is True:
        changed = await endpoints.enable(writing.database, changed, by=writing.actor)
    elif changed and body.enabled is False:
        changed = await endpoints.disable(writing.database, changed, "Disabled over the API.", writing.actor)
    if changed is None:
        raise NoSuchObject
    return answer_with(_shown(changed))


async def delete_webhook(writing: Writing) -> Response:
    endpoint = await _webhook(writing, whole=True)
    await endpoints.remove(writing.database, endpoint, writing.actor)
    return answer_with(_shown(endpoint))


async def list_deliveries(reading: ApiRequest[DeliveryListQuery]) -> Response:
    endpoint, query = await _webhook(reading), reading.query
    selection = (reading.home, endpoint.endpoint_id, query.status, query.call_id, query.limit)
    return json_answer(reading, Page(tuple(await endpoints.list_deliveries(reading.database, *selection))))


async def _check_url(writing: Writing, url: str) -> None:
    """Raise `AdminBodyRefused` unless events may be sent to the URL."""
    hosts = await settings.allowed_hosts(writing.database, writing.home)
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            await writing.tools.poster.for_workspace(hosts).look(url)
    except AddressForbidden as error:
        raise AdminBodyRefused([Fault("/url", error.message)]) from None
    except TimeoutError:
        raise AdminBodyRefused([Fault("/url", "url: its host name was not resolved in time.")]) from None
    except ValueError as error:
        raise AdminBodyRefused([Fault("/url", f"url: {error}.")]) from None


async def _webhook(reading: ApiRequest[Any], whole: bool = False) -> Endpoint:
    """Return the webhook in the path; its URL with the query only if `whole`. Raises `NoSuchObject`."""
    endpoint_id = reading.request.path_params["endpoint_id"]
    for endpoint in await endpoints.list_endpoints(reading.database, reading.home):
        if endpoint.endpoint_id == endpoint_id and _visible(reading, endpoint):
            return endpoint if whole else _shown(endpoint)
    raise NoSuchObject


def _visible(reading: ApiRequest[Any], endpoint: Endpoint) -> bool:
    team_id: UUID | None = reading.sender.team_id
    return team_id is None or endpoint.team_id == team_id


def _shown(endpoint: Endpoint) -> Endpoint:
    """Return the webhook without what may be secret in its URL."""
    return replace(endpoint, url=shown(endpoint.url))


ROUTES = (
    admin_route("GET", "/webhooks", list_webhooks, "List webhooks, the oldest first", Page[Endpoint]),
    admin_route("GET", WEBHOOK, show_webhook, "Show a webhook and its health", Endpoint),
    admin_route(
        "POST",
        "/webhooks",
        create_webhook,
        "Create a webhook; only this shows its secret",
        CreatedWebhook,
        NewWebhook,
    ),
    admin_route("PATCH", WEBHOOK, change_webhook, "Change, disable or enable a webhook", Endpoint, WebhookChanges),
    admin_route("DELETE", WEBHOOK, delete_webhook, "Delete a webhook with its queued events", Endpoint),
    Route(
        f"{WEBHOOK}/deliveries",
        list_deliveries,
        "List the latest deliveries of a webhook, with their attempts",
        Page[DeliverySummary],
        DeliveryListQuery,
        admin=True,
    ),
)
