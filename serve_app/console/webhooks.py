"""Webhooks made and changed in pages, by sessions whose key has the scope `admin`; a team's makes those of the team.

Whether events may be sent to an address is judged as `switchboard webhooks` judges it.
"""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from starlette.responses import Response

from db.core.identity import new_id
from db.events import endpoints
from db.events.endpoints import Endpoint, EndpointExists, TooManyEndpoints
from db.events.types import PARTS, type_names
from db.workspace import settings as workspace_settings
from db.workspace.admin_log import NotInDirectory
from pipeline.errors import AddressForbidden
from serve_app.console import sentences
from serve_app.console.administration import PAGE, actor, endpoint_of, uuid_of
from serve_app.console.site import NotFound, NotUnderstood, PageProblem, Visit, read_form
from serve_app.webhooks import signing
from serve_app.webhooks.post import Poster

T = TypeVar("T")
MAX_URL_LENGTH, MAX_DESCRIPTION_LENGTH = 2_000, 200
RESOLVE_SECONDS = 10.0  # for the host name
OVERLAP_SECONDS = 24 * 3600.0  # in which the previous secret signs too


async def create_webhook(visit: Visit) -> Response:
    """Create a webhook and show its secret once. A resubmitted form redirects, since its webhook exists already."""
    by, form = actor(visit), await read_form(visit.request)
    url = await _url(visit, form)
    events, parts = _chosen(form)
    secret = signing.new_secret()
    sealed = visit.site.settings.sealer().seal(secret)
    team = visit.viewer.team_id or uuid_of(form.get("team"))
    fields = (
        visit.home,
        url,
        sealed,
        events,
        parts,
        team,
        _description(form),
        by,
        new_id(visit.home, uuid_of(form.get("id"))),
    )
    try:
        endpoint = await endpoints.add(visit.database, *fields)
    except EndpointExists:
        return visit.go(PAGE + "#webhooks")
    except TooManyEndpoints:
        raise PageProblem(sentences.TOO_MANY_WEBHOOKS, 409) from None
    except NotInDirectory:
        raise NotUnderstood from None
    return visit.page("new_webhook.html", url=endpoint.url, secret=secret, overlap=False)


async def edit_webhook(visit: Visit) -> Response:
    """Render the form of a webhook, with its whole URL: only administrators see it."""
    endpoint = await endpoint_of(visit, visit.id())
    actor(visit)
    return visit.page("edit_webhook.html", endpoint=endpoint, types=type_names(), parts=PARTS)


async def change_webhook(visit: Visit) -> Response:
    """Update, disable, enable or delete a webhook, or rotate its secret."""
    endpoint = await endpoint_of(visit, visit.id())
    by, form = actor(visit), await read_form(visit.request)
    action, database = form.get("action", "save"), visit.database
    if action == "rotate":
        return await _rotate(visit, endpoint)
    if action == "remove":
        done: object = await endpoints.remove(database, endpoint, by) or None
    elif action == "disable":
        done = await endpoints.disable(database, endpoint, "Disabled by hand.", by)
    elif action == "enable":
        done = await endpoints.enable(database, endpoint, by=by)
    elif action == "save":
        url = form.get("url", "").strip()
        url = endpoint.url if url == endpoint.url else await _url(visit, form)
        done = await endpoints.change(database, endpoint, url, *_chosen(form), _description(form), by)
    else:
        raise NotUnderstood
    if done is None:
        raise NotFound
    return visit.go(PAGE + "#webhooks")


async def _rotate(visit: Visit, endpoint: Endpoint) -> Response:
    secret = signing.new_secret()
    sealed = visit.site.settings.sealer().seal(secret)
    if await endpoints.rotate(visit.database, endpoint, sealed, OVERLAP_SECONDS, actor(visit)) is None:
        raise NotFound
    return visit.page("new_webhook.html", url=endpoint.url, secret=secret, overlap=True)


async def _url(visit: Visit, form: Mapping[str, str]) -> str:
    """Return the URL in a form. Raises `PageProblem` if it is not allowed or its host cannot be resolved."""
    url = form.get("url", "").strip()
    if not 0 < len(url) <= MAX_URL_LENGTH:
        raise PageProblem(sentences.FORM_INCOMPLETE, 400)
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            hosts = await workspace_settings.allowed_hosts(visit.database, visit.home)
            poster = Poster(visit.site.settings.webhooks, visit.site.settings.fetch.ca_file)
            await poster.for_workspace(hosts).look(url)
    except AddressForbidden as error:
        raise PageProblem((sentences.WEBHOOK_REFUSED, error.message), 400) from None
    except TimeoutError:
        raise PageProblem((sentences.WEBHOOK_REFUSED, sentences.HOST_SILENT), 400) from None
    except ValueError as error:
        raise PageProblem((sentences.WEBHOOK_REFUSED, f"{error}."), 400) from None
    return url


def _chosen(form: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return event types and parts of records. Raises `PageProblem` without any type."""
    events = [event for event in type_names() if form.get(f"event-{event}")]
    if not events:
        raise PageProblem(sentences.NO_EVENTS, 400)
    return events, [part for part in PARTS if form.get(f"include-{part}")]


def _description(form: Mapping[str, str]) -> str:
    return " ".join(form.get("description", "").replace("\x00", "").split())[:MAX_DESCRIPTION_LENGTH]
