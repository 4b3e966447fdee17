"""Keys, webhooks, voice profiles, deletion of calls and contacts. Changes need the scope `admin`.

A session of a team creates webhooks of the team. Whether events may be sent to an address is judged as
`switchboard webhooks` judges it.
"""

import asyncio
from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID, uuid4

from starlette.responses import Response

from db.core.identity import new_id
from db.events import endpoints, upkeep
from db.events.endpoints import Endpoint, EndpointExists, TooManyEndpoints
from db.events.types import PARTS, type_names
from db.records import erase, erasures, retention
from db.records.erase import CallHeld
from db.records.erasures import ErasureKind, Target
from db.records.retention import RetentionKind
from db.secrets.recording_urls import shown
from db.voices import voiceprints
from db.voices.voiceprints import NoConsent, UnassignedVoiceprint
from db.workspace import access_log, admin_log, directory, keys, redaction_policies
from db.workspace import settings as workspace_settings
from db.workspace.admin_log import Actor, NotInDirectory
from db.workspace.keys import KeyInfo
from pipeline.errors import AddressForbidden, UnknownTeam
from serve_app.console import labels, sentences
from serve_app.console.site import NotAllowed, NotFound, NotUnderstood, PageProblem, Visit, read_form
from serve_app.webhooks import signing
from serve_app.webhooks.post import Poster

PAGE = "/workspace"
MAX_NAME_LENGTH = 200
MAX_DELIVERIES = MAX_VOICES = 50
ACTIONS = {"approve": (voiceprints.approve, "approved"), "discard": (voiceprints.remove, "discarded")}


def actor(visit: Visit) -> Actor:
    """Return the actor for the log of changes. Raises `NotAllowed` if the session's key lacks the scope `admin`."""
    viewer = visit.viewer
    if not viewer.may_admin:
        raise NotAllowed(sentences.ADMIN_ONLY)
    return Actor(viewer.name, viewer.key_id, viewer.team_id, viewer.session_id)


async def create_key(visit: Visit) -> Response:
    """Create a key, which expires with the session's key, and show its secret once.

    A resubmitted form redirects, since its key exists already.
    """
    by = actor(visit)
    form = await read_form(visit.request)
    name = " ".join(form.get("name", "").replace("\x00", "").split())
    scopes = [scope for scope in keys.SCOPES if form.get(f"scope-{scope}")]
    if not name or len(name) > MAX_NAME_LENGTH or not scopes:
        return visit.problem(sentences.KEY_INCOMPLETE, 400)
    team = by.team_id or uuid_of(form.get("team"))
    try:
        key, secret = await keys.create(
            visit.database,
            visit.home,
            team,
            scopes,
            name,
            by=by,
            key_id=new_id(visit.home, uuid_of(form.get("id"))),
        )
    except keys.KeyExists:
        return visit.go(PAGE)
    except (UnknownTeam, UnicodeEncodeError):
        raise NotUnderstood from None
    return visit.page("new_key.html", key=key, secret=secret)


async def revoke_key(visit: Visit) -> Response:
    by = actor(visit)
    key = await _key(visit)
    keep = bool((await read_form(visit.request)).get("keep-created"))
    try:
        await keys.revoke(visit.database, key.key_id, key.workspace_id, by, keep)
    except keys.LastAdminKey:
        return visit.problem(sentences.LAST_ADMIN_KEY, 409)
    return visit.go(PAGE)


async def replay_failed(visit: Visit) -> Response:
    by = actor(visit)
    endpoint = await endpoint_of(visit, visit.id())
    await _note(visit, by, "replayed", "webhook", endpoint.endpoint_id, "all that failed")
    await upkeep.replay(visit.database, endpoint.workspace_id, endpoint.endpoint_id)
    return visit.go(PAGE + "#deliveries")


async def replay_one(visit: Visit) -> Response:
    """Resend one event to one endpoint, delivered or not."""
    by = actor(visit)
    endpoint, event_id = await endpoint_of(visit, visit.id()), visit.id("event")
    await _note(visit, by, "replayed", "webhook", endpoint.endpoint_id, f"event {event_id}")
    home = endpoint.workspace_id
    if not await upkeep.replay(visit.database, home, endpoint.endpoint_id, event_id, failed_only=False):
        raise NotFound
    return visit.go(PAGE + "#deliveries")


async def judge_voice(visit: Visit) -> Response:
    """Approve or delete a voiceprint. Voiceprints are workspace-wide, so viewers limited to one team may not."""
    by = actor(visit)
    action = (await read_form(visit.request)).get("action", "")
    if action not in ACTIONS:
        raise NotUnderstood
    if visit.viewer.team_id is not None:
        raise NotAllowed(sentences.OF_ALL_TEAMS)
    home, call_id = visit.home, visit.id()
    policy = visit.site.settings.voices()
    try:
        await voiceprints.show(visit.database, call_id, home)
        change, done = ACTIONS[action]
        await _note(visit, by, done, "voiceprint", call_id)
        await change(visit.database, call_id, by.name, policy, home)
    except UnassignedVoiceprint:
        return visit.problem(sentences.VOICE_UNASSIGNED, 409)
    except NoConsent:
        return visit.problem(sentences.VOICE_WITHOUT_CONSENT, 409)
    return visit.go(PAGE + "#voices")


async def delete_call(visit: Visit) -> Response:
    by, voices = actor(visit), visit.site.settings.voices()
    try:
        await erase.erase_call(visit.database, visit.home, visit.id(), voices, by)
    except CallHeld:
        return visit.problem(sentences.CALL_ON_HOLD, 409)
    return visit.go("/calls")


async def delete_contact(visit: Visit) -> Response:
    """Start the erasure of a contact and its calls, of all teams, then show the list of calls."""
    by = actor(visit)
    if visit.viewer.team_id is not None:
        raise NotAllowed(sentences.OF_ALL_TEAMS)
    target = await erasures.resolve(visit.database, visit.reader, Target(ErasureKind.CONTACT, visit.id()))
    await erasures.create(visit.database, visit.home, target, by)
    return visit.go("/calls")


async def _note(visit: Visit, by: Actor, action: str, kind: str, object_id: UUID, detail: str = "") -> None:
    """Log a change before it is made. Raises `NotAdmin` if the session has lost the scope."""
    async with admin_log.changing(visit.database, visit.home, by) as change:
        await change.note(action, kind, object_id, "", detail, visit.viewer.team_id)


async def _key(visit: Visit) -> KeyInfo:
    for key in await keys.list_keys(visit.database, visit.reader, visit.id()):
        return key
    raise NotFound


async def endpoint_of(visit: Visit, endpoint_id: UUID) -> Endpoint:
    """Return an endpoint that the viewer may see. Raises `NotFound`."""
    for endpoint in await endpoints.list_endpoints(visit.database, visit.home):
        if endpoint.endpoint_id == endpoint_id and visit.sees(endpoint.team_id):
            return endpoint
    raise NotFound


def uuid_of(text: str | None) -> UUID | None:
    """Parse an id from a form; None if empty. Raises `NotUnderstood`."""
    try:
        return UUID(text) if text else None
    except ValueError:
        raise NotUnderstood from None


async def workspace(visit: Visit) -> Response:
    """Render the page. It shows no secrets, and URLs without their query."""
    database, home = visit.database, visit.home
    hooks = [hook for hook in await endpoints.list_endpoints(database, home) if visit.sees(hook.team_id)]
    urls = {hook.endpoint_id: shown(hook.url) for hook in hooks}
    deliveries = await endpoints.list_deliveries(database, home, limit=MAX_DELIVERIES) if hooks else []
    policies = await redaction_policies.list_policies(database, home)
    return visit.page(
        "workspace.html",
        new_key=uuid4(),
        new_webhook=uuid4(),
        types=type_names(),
        parts=PARTS,
        scopes=("submit", "read", "edit", "admin", "unredacted"),
        keys=[key for key in await keys.list_keys(database, home) if visit.sees(key.team_id)],
        endpoints=hooks,
        urls=urls,
        standings=await endpoints.standings(database, home),
        deliveries=[delivery for delivery in deliveries if delivery.endpoint_id in urls],
        voices=await voiceprints.list_(database, home, MAX_VOICES) if visit.sees(None) else [],
        teams={row.team_id: row.name for row in await directory.list_teams(database, home)},
        periods=await _periods(visit),
        policies=[stored for stored in policies if _applies(visit, stored.team_id)],
    )


async def _periods(visit: Visit) -> list[tuple[RetentionKind, UUID | None, int | None]]:
    """Return kind, team and days of each period that applies to the viewer's calls; days None: without limit."""
    stored = [
        (period.kind, period.team_id, period.days)
        for period in await retention.list_periods(visit.database, visit.home)
    ]
    of_workspace = {kind for kind, team_id, _ in stored if team_id is None}
    otherwise = {
        RetentionKind.EVENTS: round(visit.site.settings.webhooks.retention_days),
        RetentionKind.ACCESS_LOG: access_log.RETENTION.days,
    }
    unset = [(kind, None, otherwise.get(kind)) for kind in RetentionKind if kind not in of_workspace]
    order = list(labels.RETENTION_KINDS)
    rows = [row for row in (*unset, *stored) if _applies(visit, row[1])]
    return sorted(rows, key=lambda row: (order.index(row[0]), row[1] is not None))


def _applies(visit: Visit, team_id: UUID | None) -> bool:
    return team_id is None or visit.sees(team_id)


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
