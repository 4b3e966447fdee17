"""Routes and handlers of administrators: a key with the scope `admin` changes its own workspace, and nothing beyond.

A key of a team changes that team's name, members and keys. What belongs to all teams (the workspace, contacts, members
of all teams, teams themselves) takes a key of the workspace.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from starlette.responses import Response

from db.core.pages import Page
from db.search import people_list
from db.workspace import admin_log, directory, keys, llm_usage, removal
from db.workspace.admin_log import AdminChange, NotAdmin, NotInDirectory
from db.workspace.directory import DirectoryMember, Team, Workspace
from db.workspace.keys import KeyInfo
from db.workspace.llm_usage import ModelUsage
from pipeline.domain.insight import Contact
from pipeline.errors import UnknownTeam
from serve_app.api import bodies
from serve_app.api.access import Handler, ReadRequest, json_answer
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, InUse, LastKey, NoSuchObject, OutsideTeam, Taken
from serve_app.api.queries import ChangeListQuery, NoQuery
from serve_app.api.routing import Route
from serve_app.api.writing import actor, answer_with, of_workspace
from serve_app.http.json_body import Fault
from serve_app.http.problems import NotAuthenticated

T = TypeVar("T")
Writing = ReadRequest[NoQuery]


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key and its secret, which is shown this once."""

    key: KeyInfo
    secret: str = field(repr=False)


TEAM, MEMBER = "/teams/{team_id:uuid}", "/members/{user_id:uuid}"
CONTACT, KEY = "/contacts/{contact_id:uuid}", "/keys/{key_id:uuid}"


async def show_workspace(reading: Writing) -> Response:
    return json_answer(reading, await directory.find_workspace(reading.database, reading.reader.workspace_id))


async def change_workspace(writing: Writing) -> Response:
    of_workspace(writing, "the workspace")
    body = await read_admin_body(writing.request, bodies.WorkspaceChanges)
    home = writing.reader.workspace_id
    changed = directory.update_workspace(writing.database, home, body.given(), actor(writing))
    return answer_with(await _done(changed))


async def show_model_usage(reading: Writing) -> Response:
    of_workspace(reading, "the use of the language model")
    return json_answer(reading, await llm_usage.of_today(reading.database, reading.reader.workspace_id))


async def list_teams(reading: Writing) -> Response:
    return json_answer(reading, Page(tuple(await people_list.list_teams(reading.database, reading.reader))))


async def create_team(writing: Writing) -> Response:
    of_workspace(writing, "new teams")
    body = await read_admin_body(writing.request, bodies.NewTeam)
    wanted = (writing.reader.workspace_id, body.name, body.team_id, body.channels_swapped)
    try:
        return answer_with(await _done(directory.create_team(writing.database, *wanted, by=actor(writing))), 201)
    except directory.AlreadyThere:
        team = Team(body.team_id or UUID(int=0), writing.reader.workspace_id, body.name, body.channels_swapped)
        return _made_before(team, await directory.find_team(writing.database, writing.reader, team.team_id))


async def change_team(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.TeamChanges)
    team = await _team(writing)
    return answer_with(await _done(directory.update_team(writing.database, team, body.given(), actor(writing))))


async def remove_team(writing: Writing) -> Response:
    of_workspace(writing, "the removal of teams")
    team = await _team(writing)
    by = actor(writing)
    try:
        await _done(removal.remove_unused_team(writing.database, team.workspace_id, team.team_id, by))
    except removal.TeamInUse as error:
        has = error.contents
        raise InUse(
            f"The team has {has.calls} calls, {has.keys} keys in use and {has.endpoints} webhooks. Revoke its keys and "
            "remove its webhooks first. A team with calls is removed by an operator: `switchboard teams delete`."
        ) from None
    return answer_with(team)


async def create_member(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.NewMember)
    team_id = _own_team(writing, body.team_id)
    home = writing.reader.workspace_id
    wanted = (home, body.name, body.user_id, team_id, body.aliases)
    try:
        return answer_with(await _done(directory.add_member(writing.database, *wanted, actor(writing), new=True)), 201)
    except directory.AlreadyThere:
        member = DirectoryMember(body.user_id or UUID(int=0), home, team_id, body.name, tuple(body.aliases))
        return _made_before(member, await directory.find_member(writing.database, writing.reader, member.user_id))


async def change_member(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.MemberChanges)
    changes = body.given()
    if "team_id" in changes and changes["team_id"] != _own_team(writing, changes["team_id"]):
        raise OutsideTeam("A key of a team keeps its members in that team.")
    member = await _member(writing)
    return answer_with(await _done(directory.update_member(writing.database, member, changes, actor(writing))))


async def remove_member(writing: Writing) -> Response:
    member = await _member(writing)
    await _done(directory.remove_member(writing.database, member, actor(writing)))
    return answer_with(member)


async def create_contact(writing: Writing) -> Response:
    of_workspace(writing, "contacts")
    body = await read_admin_body(writing.request, bodies.NewContact)
    home, details = writing.reader.workspace_id, (body.name, body.company, body.email, body.phone)
    try:
        made = directory.add_contact(writing.database, home, *details, body.contact_id, actor(writing))
        return answer_with(await _done(made), 201)
    except directory.AlreadyThere:
        contact_id = body.contact_id or UUID(int=0)
        found = await directory.find_contact(writing.database, writing.reader, contact_id)
        number = await directory.number(writing.database, home, body.phone)
        return _made_before(Contact(str(contact_id), body.name, body.company, body.email, number), found)


async def change_contact(writing: Writing) -> Response:
    of_workspace(writing, "contacts")
    body = await read_admin_body(writing.request, bodies.ContactChanges)
    home, contact_id = writing.reader.workspace_id, writing.request.path_params["contact_id"]
    changed = directory.update_contact(writing.database, home, contact_id, body.given(), actor(writing))
    return answer_with(await _done(changed))


async def remove_contact(writing: Writing) -> Response:
    of_workspace(writing, "contacts")
    contact_id: UUID = writing.request.path_params["contact_id"]
    found = await directory.find_contact(writing.database, writing.reader, contact_id)
    if found is None:
        raise NoSuchObject
    await _done(directory.remove_contact(writing.database, writing.reader.workspace_id, contact_id, actor(writing)))
    return answer_with(found)


async def list_keys(reading: Writing) -> Response:
    return json_answer(reading, Page(tuple(await keys.of_reader(reading.database, reading.reader))))


async def create_key(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.NewKey)
    team_id = _own_team(writing, body.team_id)
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise AdminBodyRefused([Fault("/expiresAt", "expiresAt is over: say a time to come.")])
    made = keys.create(
        writing.database,
        writing.reader.workspace_id,
        team_id,
        body.scopes,
        body.name,
        body.expires_at,
        body.channels_swapped,
        actor(writing),
        body.key_id,
    )
    try:
        key, secret = await _done(made)
    except keys.KeyExists:
        raise Taken(
            "There is a key of this keyId; its secret was in the first answer and is not kept. If you do not have it, "
            "revoke the key and create another one."
        ) from None
    except keys.KeyOutlivesParent:
        told = "expiresAt: a key with the scope admin ends no later than the key that makes it."
        raise AdminBodyRefused([Fault("/expiresAt", told)]) from None
    answer = answer_with(CreatedKey(key, secret), 201)
    answer.headers["Cache-Control"] = "no-store"
    return answer


async def change_key(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.KeyChanges)
    key = await _key(writing)
    changed = await _done(keys.update(writing.database, key.key_id, body.given(), actor(writing)))
    if changed is None:
        raise NoSuchObject
    return answer_with(changed)


async def revoke_key(writing: Writing) -> Response:
    """Revoke it; one that was revoked before is answered as it is."""
    key = await _key(writing)
    try:
        await _done(keys.revoke(writing.database, key.key_id, key.workspace_id, actor(writing)))
    except keys.LastAdminKey:
        raise LastKey from None
    return answer_with(await _key(writing))


async def list_changes(reading: ReadRequest[ChangeListQuery]) -> Response:
    query, home = reading.query, reading.reader.workspace_id
    page = await admin_log.list_changes(reading.database, reading.reader, home, query.cursor, query.limit)
    return json_answer(reading, page)


def _own_team(writing: Writing, wanted: UUID | None) -> UUID | None:
    """The team that is meant: for a key of a team that one. Raises `OutsideTeam` for another."""
    own = writing.sender.team_id
    if own is not None and wanted not in (None, own):
        raise OutsideTeam("The API key is bound to another team.")
    return own or wanted


async def _team(writing: Writing) -> Team:
    found = await directory.find_team(writing.database, writing.reader, writing.request.path_params["team_id"])
    if found is None:
        raise NoSuchObject
    return found


async def _member(writing: Writing) -> DirectoryMember:
    """Raises `OutsideTeam` for a member of all teams and a key of one."""
    found = await directory.find_member(writing.database, writing.reader, writing.request.path_params["user_id"])
    if found is None:
        raise NoSuchObject
    if writing.sender.team_id not in (None, found.team_id):
        raise OutsideTeam("The member is of all teams; an API key of the workspace changes it.")
    return found


async def _key(writing: Writing) -> KeyInfo:
    wanted = writing.request.path_params["key_id"]
    for key in await keys.of_reader(writing.database, writing.reader, wanted):
        return key
    raise NoSuchObject


async def _done(work: Awaitable[T]) -> T:
    """What was done, or the refusal that says why not."""
    try:
        return await work
    except NotAdmin:
        raise NotAuthenticated from None
    except (UnknownTeam, directory.NoSuchTeam):
        raise AdminBodyRefused([Fault("/teamId", "teamId does not name a team of this workspace.")]) from None
    except directory.UnreadableNumber as error:
        raise AdminBodyRefused([Fault("/phone", f"phone: {error}.")]) from None
    except NotInDirectory:
        raise NoSuchObject from None


def _made_before(wanted: Any, found: Any) -> Response:
    """What an earlier request of the same id and content made. Raises `Taken` for anything else."""
    if found != wanted:
        raise Taken
    return answer_with(found)


def _route(method: str, path: str, handler: Handler, summary: str, answer: Any, body: Any = None) -> Route:
    return Route(path, handler, NoQuery, summary, answer, method=method, body=body, admin=True)


ROUTES = (
    _route("GET", "/workspace", show_workspace, "The workspace of the key", Workspace),
    _route("PATCH", "/workspace", change_workspace, "Change the workspace", Workspace, bodies.WorkspaceChanges),
    _route(
        "GET",
        "/workspace/model-usage",
        show_model_usage,
        "Today's use of the language model, and its limits",
        ModelUsage,
    ),
    _route("GET", "/teams", list_teams, "Teams by name", Page[Team]),
    _route("POST", "/teams", create_team, "A new team", Team, bodies.NewTeam),
    _route("PATCH", TEAM, change_team, "Change a team", Team, bodies.TeamChanges),
    _route("DELETE", TEAM, remove_team, "Remove a team that is not used; its members stay, of all teams", Team),
    _route("POST", "/members", create_member, "A new member", DirectoryMember, bodies.NewMember),
    _route("PATCH", MEMBER, change_member, "Change a member", DirectoryMember, bodies.MemberChanges),
    _route(
        "DELETE", MEMBER, remove_member, "Remove a member and its voice profile; calls keep the userId", DirectoryMember
    ),
    _route("POST", "/contacts", create_contact, "A new contact", Contact, bodies.NewContact),
    _route("PATCH", CONTACT, change_contact, "Change a contact", Contact, bodies.ContactChanges),
    _route("DELETE", CONTACT, remove_contact, "Remove a contact; calls keep what was said in them", Contact),
    _route("GET", "/keys", list_keys, "Keys, revoked ones too, the oldest first", Page[KeyInfo]),
    _route("POST", "/keys", create_key, "A new key with its secret, shown this once", CreatedKey, bodies.NewKey),
    _route(
        "PATCH", KEY, change_key, "Rename a key, or say which party its calls have first", KeyInfo, bodies.KeyChanges
    ),
    _route("DELETE", KEY, revoke_key, "Revoke a key: it stays in the list", KeyInfo),
    Route(
        "/changes", list_changes, ChangeListQuery, "Who changed what, the latest first", Page[AdminChange], admin=True
    ),
)
