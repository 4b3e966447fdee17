"""Administration: a key with the scope `admin` changes only its workspace.

A key of a team changes the name, members and keys of that team. The workspace, its contacts, its teams and members
without a team require a key of the workspace.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from starlette.responses import Response

from db.core.identity import new_id
from db.core.pages import Page
from db.search import people_list
from db.workspace import access_log, admin_log, directory, keys, llm_usage, removal
from db.workspace.access_log import Read, ReadFilter
from db.workspace.admin_log import AdminChange, NotAdmin, NotInDirectory
from db.workspace.directory import DirectoryMember, Team, Workspace
from db.workspace.keys import KeyInfo
from db.workspace.llm_usage import ModelUsage
from pipeline.domain.insight import Contact
from pipeline.errors import UnknownTeam
from serve_app.api import bodies
from serve_app.api.access import ApiRequest, Handler, Route, answer_with, json_answer
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, IdTaken, InUse, LastKey, NoSuchObject, OutsideTeam
from serve_app.api.queries import AccessLogQuery, ChangeListQuery, KeyRevocationQuery, NoQuery
from serve_app.http.json_body import Fault
from serve_app.http.problems import NotAuthenticated

T = TypeVar("T")
Writing = ApiRequest[NoQuery]


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key and its secret, which is shown only once."""

    key: KeyInfo
    secret: str = field(repr=False)


TEAM, MEMBER = "/teams/{team_id:uuid}", "/members/{user_id:uuid}"
CONTACT, KEY = "/contacts/{contact_id:uuid}", "/keys/{key_id:uuid}"


async def show_workspace(reading: Writing) -> Response:
    return json_answer(reading, await directory.find_workspace(reading.database, reading.reader.workspace_id))


async def change_workspace(writing: Writing) -> Response:
    writing.require_workspace_key("the workspace")
    body = await read_admin_body(writing.request, bodies.WorkspaceChanges)
    home = writing.reader.workspace_id
    changed = directory.update_workspace(writing.database, home, body.sent_fields(), writing.actor)
    return answer_with(await _or_refuse(changed))


async def show_model_usage(reading: Writing) -> Response:
    reading.require_workspace_key("the usage of the language model")
    return json_answer(reading, await llm_usage.usage_today(reading.database, reading.reader.workspace_id))


async def list_teams(reading: Writing) -> Response:
    return json_answer(reading, Page(tuple(await people_list.list_teams(reading.database, reading.reader))))


async def create_team(writing: Writing) -> Response:
    writing.require_workspace_key("new teams")
    body = await read_admin_body(writing.request, bodies.NewTeam)
    home = writing.reader.workspace_id
    team_id = new_id(home, body.idempotency_key)
    fields = (home, body.name, team_id, body.channels_swapped)
    try:
        return answer_with(await _or_refuse(directory.create_team(writing.database, *fields, by=writing.actor)), 201)
    except directory.AlreadyExists:
        team = Team(team_id, home, body.name, body.channels_swapped)
        return _repeated(team, await directory.find_team(writing.database, writing.reader, team_id))


async def change_team(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.TeamChanges)
    team = await _team(writing)
    return answer_with(
        await _or_refuse(directory.update_team(writing.database, team, body.sent_fields(), writing.actor))
    )


async def remove_team(writing: Writing) -> Response:
    writing.require_workspace_key("the removal of teams")
    team = await _team(writing)
    by = writing.actor
    try:
        await _or_refuse(removal.remove_unused_team(writing.database, team.workspace_id, team.team_id, by))
    except removal.TeamInUse as error:
        has = error.contents
        raise InUse(
            f"The team has {has.calls} calls, {has.keys} active keys and {has.endpoints} webhooks. Revoke its keys and "
            "delete its webhooks first. Only an operator can delete a team with calls: `switchboard teams delete`."
        ) from None
    return answer_with(team)


async def create_member(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.NewMember)
    team_id = _own_team(writing, body.team_id)
    home = writing.reader.workspace_id
    fields = (home, body.name, body.user_id, team_id, body.aliases)
    try:
        return answer_with(
            await _or_refuse(directory.add_member(writing.database, *fields, writing.actor, new=True)), 201
        )
    except directory.AlreadyExists:
        member = DirectoryMember(body.user_id or UUID(int=0), home, team_id, body.name, tuple(body.aliases))
        return _repeated(member, await directory.find_member(writing.database, writing.reader, member.user_id))


async def change_member(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.MemberChanges)
    changes = body.sent_fields()
    if "team_id" in changes and changes["team_id"] != _own_team(writing, changes["team_id"]):
        raise OutsideTeam("A key of a team cannot move members to another team.")
    member = await _member(writing)
    return answer_with(await _or_refuse(directory.update_member(writing.database, member, changes, writing.actor)))


async def remove_member(writing: Writing) -> Response:
    member = await _member(writing)
    await _or_refuse(directory.remove_member(writing.database, member, writing.actor))
    return answer_with(member)


async def create_contact(writing: Writing) -> Response:
    writing.require_workspace_key("contacts")
    body = await read_admin_body(writing.request, bodies.NewContact)
    home, details = writing.reader.workspace_id, (body.name, body.company, body.email, body.phone)
    contact_id = new_id(home, body.idempotency_key)
    try:
        creation = directory.add_contact(writing.database, home, *details, contact_id, writing.actor)
        return answer_with(await _or_refuse(creation), 201)
    except directory.AlreadyExists:
        existing = await directory.find_contact(writing.database, writing.reader, contact_id)
        number = await directory.number(writing.database, home, body.phone)
        return _repeated(Contact(str(contact_id), body.name, body.company, body.email, number), existing)


async def change_contact(writing: Writing) -> Response:
    writing.require_workspace_key("contacts")
    body = await read_admin_body(writing.request, bodies.ContactChanges)
    home, contact_id = writing.reader.workspace_id, writing.request.path_params["contact_id"]
    changed = directory.update_contact(writing.database, home, contact_id, body.sent_fields(), writing.actor)
    return answer_with(await _or_refuse(changed))


async def remove_contact(writing: Writing) -> Response:
    writing.require_workspace_key("contacts")
    contact_id: UUID = writing.request.path_params["contact_id"]
    contact = await directory.find_contact(writing.database, writing.reader, contact_id)
    if contact is None:
        raise NoSuchObject
    await _or_refuse(directory.remove_contact(writing.database, writing.reader.workspace_id, contact_id, writing.actor))
    return answer_with(contact)


async def list_keys(reading: Writing) -> Response:
    return json_answer(reading, Page(tuple(await keys.list_keys(reading.database, reading.reader))))


async def create_key(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.NewKey)
    team_id = _own_team(writing, body.team_id)
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise AdminBodyRefused([Fault("/expiresAt", "expiresAt is in the past. Set a time in the future.")])
    creation = keys.create(
        writing.database,
        writing.reader.workspace_id,
        team_id,
        body.scopes,
        body.name,
        body.expires_at,
        body.channels_swapped,
        writing.actor,
        new_id(writing.reader.workspace_id, body.idempotency_key),
    )
    try:
        key, secret = await _or_refuse(creation)
    except keys.KeyExists:
        raise IdTaken(
            "A key with this idempotencyKey exists. Its secret was in the first response and is not stored. If you do "
            "not have it, revoke the key and create another one."
        ) from None
    except keys.KeyOutlivesParent:
        message = "expiresAt: a key must not outlive the key that creates it."
        raise AdminBodyRefused([Fault("/expiresAt", message)]) from None
    answer = answer_with(CreatedKey(key, secret), 201)
    answer.headers["Cache-Control"] = "no-store"
    return answer


async def change_key(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.KeyChanges)
    key = await _key(writing)
    changed = await _or_refuse(keys.update(writing.database, key.key_id, body.sent_fields(), writing.actor))
    if changed is None:
        raise NoSuchObject
    return answer_with(changed)


async def revoke_key(writing: ApiRequest[KeyRevocationQuery]) -> Response:
    """Revoke the key and the keys that it created; return a key that is revoked already unchanged."""
    key = await _key(writing)
    keep = writing.query.keep_created
    try:
        await _or_refuse(keys.revoke(writing.database, key.key_id, key.workspace_id, writing.actor, keep))
    except keys.LastAdminKey:
        raise LastKey from None
    return answer_with(await _key(writing))


async def list_changes(reading: ApiRequest[ChangeListQuery]) -> Response:
    query, home = reading.query, reading.reader.workspace_id
    page = await admin_log.list_changes(reading.database, reading.reader, home, query.cursor, query.limit)
    return json_answer(reading, page)


async def list_access_log(reading: ApiRequest[AccessLogQuery]) -> Response:
    query, home = reading.query, reading.reader.workspace_id
    filter_ = ReadFilter(query.call_id, query.key_id, query.since, query.until)
    page = await access_log.list_all(reading.database, reading.reader, home, filter_, query.cursor, query.limit)
    return json_answer(reading, page)


def _own_team(writing: Writing, team_id: UUID | None) -> UUID | None:
    """Return the team of the request; by default that of the key. Raises `OutsideTeam` for another team."""
    key_team = writing.sender.team_id
    if key_team is not None and team_id not in (None, key_team):
        raise OutsideTeam("The API key is bound to another team.")
    return key_team or team_id


async def _team(writing: Writing) -> Team:
    team = await directory.find_team(writing.database, writing.reader, writing.request.path_params["team_id"])
    if team is None:
        raise NoSuchObject
    return team


async def _member(writing: Writing) -> DirectoryMember:
    """Return the member of the path. Raises `OutsideTeam` for a member without a team and a key of a team."""
    member = await directory.find_member(writing.database, writing.reader, writing.request.path_params["user_id"])
    if member is None:
        raise NoSuchObject
    if writing.sender.team_id not in (None, member.team_id):
        raise OutsideTeam("The member belongs to no team. Use an API key of the workspace.")
    return member


async def _key(writing: ApiRequest[Any]) -> KeyInfo:
    key_id = writing.request.path_params["key_id"]
    for key in await keys.list_keys(writing.database, writing.reader, key_id):
        return key
    raise NoSuchObject


async def _or_refuse(work: Awaitable[T]) -> T:
    try:
        return await work
    except NotAdmin:
        raise NotAuthenticated from None
    except (UnknownTeam, directory.NoSuchTeam):
        raise AdminBodyRefused([Fault("/teamId", "teamId is not a team of this workspace.")]) from None
    except directory.UnreadableNumber as error:
        raise AdminBodyRefused([Fault("/phone", f"phone: {error}.")]) from None
    except NotInDirectory:
        raise NoSuchObject from None


def _repeated(requested: Any, existing: Any) -> Response:
    """Return what an earlier request with the same key and content created. Raises `IdTaken` for other content."""
    if existing != requested:
        raise IdTaken
    return answer_with(existing)


def _route(method: str, path: str, handler: Handler, summary: str, answer: Any, body: Any = None) -> Route:
    return Route(path, handler, NoQuery, summary, answer, method=method, body=body, admin=True)


ROUTES = (
    _route("GET", "/workspace", show_workspace, "Show the workspace", Workspace),
    _route("PATCH", "/workspace", change_workspace, "Change the workspace", Workspace, bodies.WorkspaceChanges),
    _route(
        "GET",
        "/workspace/model-usage",
        show_model_usage,
        "Today's usage of the language model, and its limits",
        ModelUsage,
    ),
    _route("GET", "/teams", list_teams, "List teams by name", Page[Team]),
    _route("POST", "/teams", create_team, "Create a team", Team, bodies.NewTeam),
    _route("PATCH", TEAM, change_team, "Change a team", Team, bodies.TeamChanges),
    _route("DELETE", TEAM, remove_team, "Delete an unused team; its members stay in the workspace", Team),
    _route("POST", "/members", create_member, "Create a member", DirectoryMember, bodies.NewMember),
    _route("PATCH", MEMBER, change_member, "Change a member", DirectoryMember, bodies.MemberChanges),
    _route(
        "DELETE", MEMBER, remove_member, "Delete a member and its voice profile; calls keep the userId", DirectoryMember
    ),
    _route("POST", "/contacts", create_contact, "Create a contact", Contact, bodies.NewContact),
    _route("PATCH", CONTACT, change_contact, "Change a contact", Contact, bodies.ContactChanges),
    _route("DELETE", CONTACT, remove_contact, "Delete a contact; calls keep their transcripts", Contact),
    _route("GET", "/keys", list_keys, "List keys, including revoked ones, the oldest first", Page[KeyInfo]),
    _route("POST", "/keys", create_key, "Create a key; its secret is shown only once", CreatedKey, bodies.NewKey),
    _route(
        "PATCH", KEY, change_key, "Rename a key, or set which party is on the first channel", KeyInfo, bodies.KeyChanges
    ),
    Route(
        KEY,
        revoke_key,
        KeyRevocationQuery,
        "Revoke a key and the keys that it created; they stay in the list",
        KeyInfo,
        method="DELETE",
        admin=True,
    ),
    Route(
        "/changes",
        list_changes,
        ChangeListQuery,
        "List administrative changes, the latest first",
        Page[AdminChange],
        admin=True,
    ),
    Route(
        "/access-log",
        list_access_log,
        AccessLogQuery,
        "List who read, played, exported, corrected or erased which calls, the latest hour first",
        Page[Read],
        admin=True,
    ),
)
