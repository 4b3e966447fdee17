"""Teams and members of a workspace: listed for everybody, made and changed by sessions whose key has the scope `admin`.

As over the API, a key of a team changes that team's name and members; what is of all teams takes one of the workspace.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from db.workspace import directory, removal
from db.workspace.admin_log import NotAdmin, NotInDirectory
from db.workspace.directory import DirectoryMember, Team
from serve_app.api import bodies
from serve_app.console import sentences
from serve_app.console.administration import actor
from serve_app.console.forms import read_form
from serve_app.console.site import NotAllowed, NotFound, PageProblem, Visit

PAGE = "/people"
B = TypeVar("B", bound=BaseModel)
T = TypeVar("T")


async def people(visit: Visit) -> Response:
    """The page: teams with their members. A viewer of one team sees that team, and members of all teams."""
    home, own = visit.viewer.workspace_id, visit.viewer.team_id
    teams = [one for one in await directory.list_teams(visit.database, home) if own in (None, one.team_id)]
    members = await directory.list_members(visit.database, home)
    return visit.page(
        "people.html",
        teams=teams,
        members=[one for one in members if own in (None, one.team_id) or one.team_id is None],
        names={one.team_id: one.name for one in teams},
        new_team=uuid4(),
        new_member=uuid4(),
    )


async def create_team(visit: Visit) -> Response:
    by, form = actor(visit), await read_form(visit.request)
    _of_workspace(visit)
    new = _body(bodies.NewTeam, form, team_id=form.get("id"), channels_swapped="channels_swapped" in form)
    made = directory.create_team(
        visit.database, visit.viewer.workspace_id, new.name, new.team_id, new.channels_swapped, by
    )
    return await _back(visit, made)


async def edit_team(visit: Visit) -> Response:
    """The form of a team."""
    team = await _team(visit)
    actor(visit)
    return visit.page("edit_team.html", team=team)


async def change_team(visit: Visit) -> Response:
    """Change a team, or remove it where nothing uses it."""
    team, by, form = await _team(visit), actor(visit), await read_form(visit.request)
    if form.get("action") != "remove":
        changes = _body(bodies.TeamChanges, form, channels_swapped="channels_swapped" in form).given()
        return await _back(visit, directory.update_team(visit.database, team, changes, by))
    _of_workspace(visit)
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
    wanted = (visit.viewer.workspace_id, new.name, new.user_id, new.team_id, new.aliases)
    return await _back(visit, directory.add_member(visit.database, *wanted, by=by, new=True), chosen)


async def edit_member(visit: Visit) -> Response:
    """The form of a member."""
    member = await _member(visit)
    actor(visit)
    teams = await directory.list_teams(visit.database, visit.viewer.workspace_id)
    return visit.page("edit_member.html", member=member, teams=teams)


async def change_member(visit: Visit) -> Response:
    """Change a member, or remove it with its voice profile."""
    member, by, form = await _member(visit), actor(visit), await read_form(visit.request)
    if form.get("action") == "remove":
        return await _back(visit, directory.remove_member(visit.database, member, by))
    changes = _body(bodies.MemberChanges, form, team_id=_team_id(visit, form), aliases=_aliases(form)).given()
    return await _back(visit, directory.update_member(visit.database, member, changes, by))


async def _back(visit: Visit, work: Awaitable[T], chosen: str = "") -> Response:
    """Do it and lead to the page. The form that is sent again finds its id taken, and leads there, too; an id that was
    `chosen` is somebody else's."""
    try:
        await work
    except directory.AlreadyThere:
        if chosen:
            raise PageProblem(sentences.ID_TAKEN, 409) from None
    except directory.NoSuchTeam:
        raise PageProblem(sentences.FORM_INCOMPLETE, 400) from None
    except NotInDirectory:
        raise NotFound from None
    except NotAdmin:
        raise NotAllowed(sentences.ADMIN_ONLY) from None
    return visit.go(PAGE)


def _body(model: type[B], form: Mapping[str, str], **given: Any) -> B:
    """A form as the API's body. Raises `PageProblem`."""
    try:
        return model.model_validate({"name": form.get("name", "").replace("\x00", ""), **given})
    except ValidationError:
        raise PageProblem(sentences.FORM_INCOMPLETE, 400) from None


def _aliases(form: Mapping[str, str]) -> list[str]:
    return [one.strip() for one in form.get("aliases", "").replace("\x00", "").split(",") if one.strip()]


def _team_id(visit: Visit, form: Mapping[str, str]) -> str | None:
    """The team that a form names; of a viewer of one team that one. None: all teams."""
    own = visit.viewer.team_id
    return str(own) if own is not None else form.get("team") or None


def _of_workspace(visit: Visit) -> None:
    """Raises `NotAllowed` for a viewer of one team."""
    if visit.viewer.team_id is not None:
        raise NotAllowed(sentences.OF_ALL_TEAMS)


async def _team(visit: Visit) -> Team:
    found = await directory.find_team(visit.database, visit.reader, visit.id())
    if found is None:
        raise NotFound
    return found


async def _member(visit: Visit) -> DirectoryMember:
    """Raises `NotFound`, and `NotAllowed` for a member of all teams and a viewer of one."""
    found = await directory.find_member(visit.database, visit.reader, visit.id())
    if found is None:
        raise NotFound
    if visit.viewer.team_id not in (None, found.team_id):
        raise NotAllowed(sentences.OF_ALL_TEAMS)
    return found
