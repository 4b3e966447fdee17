"""Teams and members of a workspace. Changes need a session whose key has the scope `admin`.

As in the API, a team's key changes that team's name and members; workspace-wide changes need a key of the workspace.
"""

from collections.abc import Awaitable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from db.core.identity import new_id
from db.voices import consent
from db.workspace import consents, directory, removal
from db.workspace.admin_log import Actor
from db.workspace.directory import DirectoryMember, Team
from serve_app.api import bodies
from serve_app.console import sentences
from serve_app.console.administration import actor
from serve_app.console.site import NotAllowed, NotFound, PageProblem, Visit, read_form

PAGE = "/people"
B = TypeVar("B", bound=BaseModel)
T = TypeVar("T")


async def people(visit: Visit) -> Response:
    """Render teams and members. A viewer limited to one team sees that team and workspace-wide members."""
    teams = [team for team in await directory.list_teams(visit.database, visit.home) if visit.sees(team.team_id)]
    return visit.page(
        "people.html",
        teams=teams,
        members=await visit.members(),
        names={team.team_id: team.name for team in teams},
        new_team=uuid4(),
        new_member=uuid4(),
    )


async def create_team(visit: Visit) -> Response:
    by, form = actor(visit), await read_form(visit.request)
    _require_workspace_key(visit)
    new = _body(bodies.NewTeam, form, idempotency_key=form.get("id"), channels_swapped="channels_swapped" in form)
    home = visit.home
    team_id = new_id(home, new.idempotency_key)
    creation = directory.create_team(visit.database, home, new.name, team_id, new.channels_swapped, by)
    return await _back(visit, creation)


async def edit_team(visit: Visit) -> Response:
    team = await _team(visit)
    actor(visit)
    return visit.page("edit_team.html", team=team)


async def change_team(visit: Visit) -> Response:
    """Update a team, or delete it if nothing uses it."""
    team, by, form = await _team(visit), actor(visit), await read_form(visit.request)
    if form.get("action") != "remove":
        changes = _body(bodies.TeamChanges, form, channels_swapped="channels_swapped" in form).sent_fields()
        return await _back(visit, directory.update_team(visit.database, team, changes, by))
    _require_workspace_key(visit)
    try:
        return await _back(visit, removal.remove_unused_team(visit.database, team.workspace_id, team.team_id, by))
    except removal.TeamInUse:
        raise PageProblem(sentences.TEAM_IN_USE, 409) from None


async def create_member(visit: Visit) -> Response:
    by, form = actor(visit), await read_form(visit.request)
    chosen = form.get("user_id", "").strip()
    new = _body(
        bodies.NewMember, form, user_id=chosen or form.get("id"), team_id=_team_id(visit, form), aliases=_aliases(form)
    )
    fields = (visit.home, new.name, new.user_id, new.team_id, new.aliases)
    return await _back(visit, directory.add_member(visit.database, *fields, by=by, new=True), chosen)


async def edit_member(visit: Visit) -> Response:
    member = await _member(visit)
    actor(visit)
    teams = await directory.list_teams(visit.database, visit.home)
    history = await consents.list_(visit.database, visit.home, member.user_id)
    setting = (await directory.find_workspace(visit.database, visit.home)).voiceprints
    return visit.page("edit_member.html", member=member, teams=teams, consents=history, setting=setting)


async def change_member(visit: Visit) -> Response:
    """Update a member, record or withdraw the consent to voiceprints, or delete the member with the voice profile."""
    member, by, form = await _member(visit), actor(visit), await read_form(visit.request)
    if form.get("action") == "remove":
        return await _back(visit, directory.remove_member(visit.database, member, by))
    if form.get("action") in ("consent", "withdraw"):
        return await _change_consent(visit, member, by, form)
    changes = _body(bodies.MemberChanges, form, team_id=_team_id(visit, form), aliases=_aliases(form)).sent_fields()
    return await _back(visit, directory.update_member(visit.database, member, changes, by))


async def _change_consent(visit: Visit, member: DirectoryMember, by: Actor, form: Mapping[str, str]) -> Response:
    if form["action"] == "withdraw":
        await consent.withdraw(visit.database, member, visit.site.settings.voices(), by)
        return visit.go(f"{PAGE}/members/{member.user_id}")
    try:
        end = form.get("expires", "")
        expires_at = datetime.combine(date.fromisoformat(end), time.max, UTC) if end else None
        await consents.record(visit.database, member, form.get("text", ""), expires_at, by)
    except ValueError:  # `ConsentRefused` too
        raise PageProblem(sentences.FORM_INCOMPLETE, 400) from None
    return visit.go(f"{PAGE}/members/{member.user_id}")


async def _back(visit: Visit, work: Awaitable[T], chosen: str = "") -> Response:
    """Await the change and redirect. A resubmitted form, whose id exists, redirects too, but an id that the user has
    `chosen` belongs to another member."""
    try:
        await work
    except directory.AlreadyExists:
        if chosen:
            raise PageProblem(sentences.ID_TAKEN, 409) from None
    except directory.NoSuchTeam:
        raise PageProblem(sentences.FORM_INCOMPLETE, 400) from None
    return visit.go(PAGE)


def _body(model: type[B], form: Mapping[str, str], **fields: Any) -> B:
    """Validate a form as the API's body. Raises `PageProblem`."""
    try:
        return model.model_validate({"name": form.get("name", "").replace("\x00", ""), **fields})
    except ValidationError:
        raise PageProblem(sentences.FORM_INCOMPLETE, 400) from None


def _aliases(form: Mapping[str, str]) -> list[str]:
    return [alias.strip() for alias in form.get("aliases", "").replace("\x00", "").split(",") if alias.strip()]


def _team_id(visit: Visit, form: Mapping[str, str]) -> str | None:
    """Return the team in a form, or the viewer's team. None: all teams."""
    team_id = visit.viewer.team_id
    return str(team_id) if team_id is not None else form.get("team") or None


def _require_workspace_key(visit: Visit) -> None:
    """Raise `NotAllowed` for a viewer limited to one team."""
    if visit.viewer.team_id is not None:
        raise NotAllowed(sentences.OF_ALL_TEAMS)


async def _team(visit: Visit) -> Team:
    team = await directory.find_team(visit.database, visit.reader, visit.id())
    if team is None:
        raise NotFound
    return team


async def _member(visit: Visit) -> DirectoryMember:
    """Return the member in the path. Raises `NotFound`, `NotAllowed` for a member of no team and a viewer of a team."""
    member = await directory.find_member(visit.database, visit.reader, visit.id())
    if member is None:
        raise NotFound
    if visit.viewer.team_id not in (None, member.team_id):
        raise NotAllowed(sentences.OF_ALL_TEAMS)
    return member
