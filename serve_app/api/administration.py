"""Administration: a key with the scope `admin` changes only its workspace.

A key of a team changes the name, members and keys of that team. The workspace, its contacts, its teams and members
without a team require a key of the workspace.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from starlette.responses import Response

from db.core.identity import new_id
from db.core.pages import Page
from db.records import retention
from db.records.retention import RetentionPeriod
from db.search import people_list
from db.voices import consent
from db.workspace import (
    access_log,
    admin_log,
    consents,
    directory,
    keys,
    legal_holds,
    llm_usage,
    redaction_policies,
    removal,
)
from db.workspace.access_log import Read, ReadFilter
from db.workspace.admin_log import ADMIN, AdminChange
from db.workspace.consents import VoiceConsent
from db.workspace.directory import DirectoryMember, Team, Workspace
from db.workspace.keys import KeyInfo
from db.workspace.legal_holds import LegalHold
from db.workspace.llm_usage import ModelUsage
from db.workspace.redaction_policies import StoredPolicy
from pipeline.domain.insight import Contact
from pipeline.domain.voices import KeptVoices
from serve_app.api import bodies
from serve_app.api.access import ApiRequest, Route, admin_route, answer_with, json_answer
from serve_app.api.bodies import read_admin_body
from serve_app.api.calls import now
from serve_app.api.errors import AdminBodyRefused, IdTaken, InUse, LastKey, NoSuchObject, OutsideTeam
from serve_app.api.queries import AccessLogQuery, ChangeListQuery, KeyRevocationQuery, NoQuery
from serve_app.http.json_body import Fault

Writing = ApiRequest[NoQuery]


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key and its secret, which is shown only once."""

    key: KeyInfo
    secret: str = field(repr=False)


TEAM, MEMBER = "/teams/{team_id:uuid}", "/members/{user_id:uuid}"
CONSENTS = f"{MEMBER}/consents"
CONTACT, KEY, HOLD = "/contacts/{contact_id:uuid}", "/keys/{key_id:uuid}", "/holds/{hold_id:uuid}"


async def show_workspace(reading: Writing) -> Response:
    return json_answer(reading, await directory.find_workspace(reading.database, reading.home))


async def change_workspace(writing: Writing) -> Response:
    writing.require_workspace_key("the workspace")
    body = await read_admin_body(writing.request, bodies.WorkspaceChanges)
    changes = body.sent_fields()
    voices = changes.pop("voiceprints", None)
    if changes or voices is None:
        workspace = await directory.update_workspace(writing.database, writing.home, changes, writing.actor)
    if voices is not None:
        kept_voices = (KeptVoices(voices), writing.voices, writing.actor)
        workspace = await consent.set_kept(writing.database, writing.home, *kept_voices)
    return answer_with(workspace)


async def show_model_usage(reading: Writing) -> Response:
    reading.require_workspace_key("the usage of the language model")
    return json_answer(reading, await llm_usage.usage_today(reading.database, reading.home))


async def list_teams(reading: Writing) -> Response:
    return json_answer(reading, Page(tuple(await people_list.list_teams(reading.database, reading.reader))))


async def create_team(writing: Writing) -> Response:
    writing.require_workspace_key("new teams")
    body = await read_admin_body(writing.request, bodies.NewTeam)
    team_id = new_id(writing.home, body.idempotency_key)
    fields = (writing.home, body.name, team_id, body.channels_swapped)
    try:
        return answer_with(await directory.create_team(writing.database, *fields, by=writing.actor), 201)
    except directory.AlreadyExists:
        team = Team(team_id, writing.home, body.name, body.channels_swapped)
        return _repeated(team, await directory.find_team(writing.database, writing.reader, team_id))


async def change_team(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.TeamChanges)
    team = await _team(writing)
    return answer_with(await directory.update_team(writing.database, team, body.sent_fields(), writing.actor))


async def remove_team(writing: Writing) -> Response:
    writing.require_workspace_key("the removal of teams")
    team = await _team(writing)
    try:
        await removal.remove_unused_team(writing.database, team.workspace_id, team.team_id, writing.actor)
    except removal.TeamInUse as error:
        has = error.contents
        raise InUse(
            f"The team has {has.calls} calls, {has.keys} active keys and {has.endpoints} webhooks. Revoke its keys and "
            "delete its webhooks first. POST /api/v1/erasures with its teamId deletes a team with its calls."
        ) from None
    return answer_with(team)


async def create_member(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.NewMember)
    team_id = writing.own_team(body.team_id)
    fields = (writing.home, body.name, body.user_id, team_id, body.aliases)
    try:
        return answer_with(await directory.add_member(writing.database, *fields, writing.actor, new=True), 201)
    except directory.AlreadyExists:
        member = DirectoryMember(body.user_id or UUID(int=0), writing.home, team_id, body.name, tuple(body.aliases))
        return _repeated(member, await directory.find_member(writing.database, writing.reader, member.user_id))


async def change_member(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.MemberChanges)
    changes = body.sent_fields()
    if "team_id" in changes and changes["team_id"] != writing.own_team(changes["team_id"]):
        raise OutsideTeam("A key of a team cannot move members to another team.")
    member = await _member(writing)
    return answer_with(await directory.update_member(writing.database, member, changes, writing.actor))


async def remove_member(writing: Writing) -> Response:
    member = await _member(writing)
    await directory.remove_member(writing.database, member, writing.actor)
    return answer_with(member)


async def list_consents(reading: Writing) -> Response:
    member = await _member(reading)
    return json_answer(reading, Page(tuple(await consents.list_(reading.database, reading.home, member.user_id))))


async def create_consent(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.NewConsent)
    member = await _member(writing)
    try:
        fields = (member, body.text_version, body.expires_at, writing.actor)
        return answer_with(await consents.record(writing.database, *fields), 201)
    except consents.ConsentRefused as error:
        raise AdminBodyRefused([Fault("/expiresAt", str(error))]) from None


async def withdraw_consent(writing: Writing) -> Response:
    """Withdraw the consents of a member and delete the voices; return the consents."""
    member = await _member(writing)
    withdrawn = await consent.withdraw(writing.database, member, writing.voices, writing.actor)
    return answer_with(Page(tuple(withdrawn)))


async def create_contact(writing: Writing) -> Response:
    writing.require_workspace_key("contacts")
    body = await read_admin_body(writing.request, bodies.NewContact)
    details, contact_id = (body.name, body.company, body.email, body.phone), new_id(writing.home, body.idempotency_key)
    try:
        contact = await directory.add_contact(writing.database, writing.home, *details, contact_id, writing.actor)
        return answer_with(contact, 201)
    except directory.AlreadyExists:
        existing = await directory.find_contact(writing.database, writing.reader, contact_id)
        number = await directory.number(writing.database, writing.home, body.phone)
        return _repeated(Contact(str(contact_id), body.name, body.company, body.email, number), existing)


async def change_contact(writing: Writing) -> Response:
    writing.require_workspace_key("contacts")
    body = await read_admin_body(writing.request, bodies.ContactChanges)
    contact_id: UUID = writing.request.path_params["contact_id"]
    changes = body.sent_fields()
    return answer_with(
        await directory.update_contact(writing.database, writing.home, contact_id, changes, writing.actor)
    )


async def remove_contact(writing: Writing) -> Response:
    writing.require_workspace_key("contacts")
    contact_id: UUID = writing.request.path_params["contact_id"]
    contact = await directory.find_contact(writing.database, writing.reader, contact_id)
    if contact is None:
        raise NoSuchObject
    await directory.remove_contact(writing.database, writing.home, contact_id, writing.actor)
    return answer_with(contact)


async def list_keys(reading: Writing) -> Response:
    return json_answer(reading, Page(tuple(await keys.list_keys(reading.database, reading.reader))))


async def create_key(writing: Writing) -> Response:
    body = await read_admin_body(writing.request, bodies.NewKey)
    team_id = writing.own_team(body.team_id)
    if body.expires_at is not None and body.expires_at <= await now(writing):
        raise AdminBodyRefused([Fault("/expiresAt", "expiresAt is in the past. Set a time in the future.")])
    fields = (body.scopes, body.name, body.expires_at, body.channels_swapped)
    key_id = new_id(writing.home, body.idempotency_key)
    try:
        key, secret = await keys.create(writing.database, writing.home, team_id, *fields, writing.actor, key_id)
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
    changed = await keys.update(writing.database, key.key_id, body.sent_fields(), writing.actor)
    if changed is None:
        raise NoSuchObject
    return answer_with(changed)


async def revoke_key(writing: ApiRequest[KeyRevocationQuery]) -> Response:
    """Revoke the key and the keys that it created; return a key that is revoked already unchanged."""
    key = await _key(writing)
    keep = writing.query.keep_created
    try:
        await keys.revoke(writing.database, key.key_id, key.workspace_id, writing.actor, keep)
    except keys.LastAdminKey:
        raise LastKey from None
    return answer_with(await _key(writing))


async def list_changes(reading: ApiRequest[ChangeListQuery]) -> Response:
    page = (reading.query.cursor, reading.query.limit)
    return json_answer(reading, await admin_log.list_changes(reading.database, reading.reader, reading.home, *page))


async def list_access_log(reading: ApiRequest[AccessLogQuery]) -> Response:
    query = reading.query
    filter_ = ReadFilter(query.call_id, query.key_id, query.since, query.until)
    page = await access_log.list_all(reading.database, reading.reader, reading.home, filter_, query.cursor, query.limit)
    return json_answer(reading, page)


async def list_retention(reading: Writing) -> Response:
    reading.require_workspace_key("retention periods")
    return json_answer(reading, Page(tuple(await retention.list_periods(reading.database, reading.home))))


async def set_retention(writing: Writing) -> Response:
    """Set or remove a period; return all periods."""
    writing.require_workspace_key("retention periods")
    body = await read_admin_body(writing.request, bodies.NewRetention)
    await retention.set_period(writing.database, writing.home, body.kind, body.days, body.team_id, writing.actor)
    return answer_with(Page(tuple(await retention.list_periods(writing.database, writing.home))))


async def list_redaction(reading: Writing) -> Response:
    reading.require_workspace_key("policies of redaction")
    return json_answer(reading, Page(tuple(await redaction_policies.list_policies(reading.database, reading.home))))


async def set_redaction(writing: Writing) -> Response:
    """Set or remove a policy; return all policies."""
    writing.require_workspace_key("policies of redaction")
    body = await read_admin_body(writing.request, bodies.NewRedaction)
    await redaction_policies.set_policy(writing.database, writing.home, body.policy(), body.team_id, writing.actor)
    return answer_with(Page(tuple(await redaction_policies.list_policies(writing.database, writing.home))))


async def list_holds(reading: Writing) -> Response:
    reading.require_workspace_key("legal holds")
    return json_answer(reading, Page(tuple(await legal_holds.list_holds(reading.database, reading.home))))


async def create_hold(writing: Writing) -> Response:
    writing.require_workspace_key("legal holds")
    body = await read_admin_body(writing.request, bodies.NewHold)
    fields = (writing.home, body.kind, body.subject, body.reason, writing.actor)
    return answer_with(await legal_holds.create(writing.database, *fields), 201)


async def release_hold(writing: Writing) -> Response:
    """Release a hold; return one that is released already unchanged."""
    writing.require_workspace_key("legal holds")
    hold_id = writing.request.path_params["hold_id"]
    return answer_with(await legal_holds.release(writing.database, writing.home, hold_id, writing.actor))


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


def _repeated(requested: Any, existing: Any) -> Response:
    """Return what an earlier request with the same key and content created. Raises `IdTaken` for other content."""
    if existing != requested:
        raise IdTaken
    return answer_with(existing)


ROUTES = (
    admin_route("GET", "/workspace", show_workspace, "Show the workspace", Workspace),
    admin_route("PATCH", "/workspace", change_workspace, "Change the workspace", Workspace, bodies.WorkspaceChanges),
    admin_route(
        "GET",
        "/workspace/model-usage",
        show_model_usage,
        "Today's usage of the language model, and its limits",
        ModelUsage,
    ),
    Route("/teams", list_teams, "List teams by name", Page[Team], also=ADMIN),
    admin_route("POST", "/teams", create_team, "Create a team", Team, bodies.NewTeam),
    admin_route("PATCH", TEAM, change_team, "Change a team", Team, bodies.TeamChanges),
    admin_route("DELETE", TEAM, remove_team, "Delete an unused team; its members stay in the workspace", Team),
    admin_route("POST", "/members", create_member, "Create a member", DirectoryMember, bodies.NewMember),
    admin_route("PATCH", MEMBER, change_member, "Change a member", DirectoryMember, bodies.MemberChanges),
    admin_route(
        "DELETE", MEMBER, remove_member, "Delete a member and its voice profile; calls keep the userId", DirectoryMember
    ),
    admin_route(
        "GET", CONSENTS, list_consents, "List a member's consents to voiceprints, the latest first", Page[VoiceConsent]
    ),
    admin_route("POST", CONSENTS, create_consent, "Record a consent of a member", VoiceConsent, bodies.NewConsent),
    admin_route(
        "DELETE", CONSENTS, withdraw_consent, "Withdraw a member's consent and delete the voice", Page[VoiceConsent]
    ),
    admin_route("POST", "/contacts", create_contact, "Create a contact", Contact, bodies.NewContact),
    admin_route("PATCH", CONTACT, change_contact, "Change a contact", Contact, bodies.ContactChanges),
    admin_route("DELETE", CONTACT, remove_contact, "Delete a contact; calls keep their transcripts", Contact),
    admin_route("GET", "/keys", list_keys, "List keys, including revoked ones, the oldest first", Page[KeyInfo]),
    admin_route("POST", "/keys", create_key, "Create a key; its secret is shown only once", CreatedKey, bodies.NewKey),
    admin_route(
        "PATCH", KEY, change_key, "Rename a key, or set which party is on the first channel", KeyInfo, bodies.KeyChanges
    ),
    Route(
        KEY,
        revoke_key,
        "Revoke a key and the keys that it created; they stay in the list",
        KeyInfo,
        KeyRevocationQuery,
        method="DELETE",
        admin=True,
    ),
    admin_route("GET", "/retention", list_retention, "List retention periods", Page[RetentionPeriod]),
    admin_route(
        "POST",
        "/retention",
        set_retention,
        "Set a retention period of the workspace or a team; returns all periods",
        Page[RetentionPeriod],
        bodies.NewRetention,
    ),
    admin_route("GET", "/redaction", list_redaction, "List policies of redaction", Page[StoredPolicy]),
    admin_route(
        "POST",
        "/redaction",
        set_redaction,
        "Set a policy of redaction of the workspace or a team; returns all policies",
        Page[StoredPolicy],
        bodies.NewRedaction,
    ),
    admin_route(
        "GET", "/holds", list_holds, "List legal holds, including released ones, the latest first", Page[LegalHold]
    ),
    admin_route(
        "POST", "/holds", create_hold, "Set a legal hold on a call, number or contact", LegalHold, bodies.NewHold
    ),
    admin_route("DELETE", HOLD, release_hold, "Release a legal hold; it stays in the list", LegalHold),
    Route(
        "/changes",
        list_changes,
        "List administrative changes, the latest first",
        Page[AdminChange],
        ChangeListQuery,
        admin=True,
    ),
    Route(
        "/access-log",
        list_access_log,
        "List who read, played, exported, corrected or erased which calls, the latest hour first",
        Page[Read],
        AccessLogQuery,
        admin=True,
    ),
)
