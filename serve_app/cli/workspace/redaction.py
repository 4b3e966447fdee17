from typing import Annotated, Any
from uuid import UUID

import typer

from db.records import redactions
from db.workspace import redaction_policies
from pipeline.domain.redaction import RedactionMode
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import Team
from serve_app.cli.ui.policy import PolicyChoice, with_policy
from serve_app.cli.ui.resource import Group, Result, Scope, listing

NONE = "none"  # no policy
EMPTY = "No policy: nothing is hidden. `switchboard redaction set mask --preset pci` sets one."

app = Group(
    """Redaction: personal data hidden in the words and the sound of calls, by workspace or team.

    A policy applies to calls processed from now on; `switchboard redact` applies it to stored calls.
""",
    {redaction_policies.PolicyRefused: ("`switchboard redaction set --help` lists the options.", USAGE)},
)


def _mode(text: str) -> str:
    if text != NONE and text not in set(RedactionMode):
        modes = ", ".join(RedactionMode)
        raise CommandError(f"{text!r} is no mode.", f"Write {modes} or {NONE}.", USAGE)
    return text


@app.writes()
@with_policy
async def set_(
    scope: Scope,
    mode: Annotated[
        str,
        typer.Argument(
            metavar="MODE", parser=_mode, help="mask: originals are sealed; redacted-only: none is kept; off; none."
        ),
    ],
    choice: PolicyChoice,
    team: Team = None,
) -> Result:
    """Set the policy of the workspace, or of a team, which has it instead of its workspace's.

    Without --show-unchecked a call that cannot be checked fails, and nothing of it is stored.

    Examples:

      switchboard redaction set redacted-only --preset pci

      switchboard redaction set mask --preset privacy --preset health --pattern order=AB-999999 --team support
    """
    policy = None if mode == NONE else choice.policy(RedactionMode(mode))
    stored = await redaction_policies.set_policy(scope.database, scope.id, policy, await scope.team_id(team))
    shown = "no policy" if stored.policy is None else f"{stored.policy.name}, {stored.policy.mode}"
    return Result(stored, f"Redaction of {team or scope.workspace.name}: {shown} (version {stored.version})")


@app.reads()
async def list_(scope: Scope) -> Result:
    """List the policies of the workspace and its teams."""
    names = await scope.team_names()
    return listing(
        await redaction_policies.list_policies(scope.database, scope.id),
        ("!policy", "!mode", "team", "#version", "hides"),
        lambda stored: _cells(names, stored),
        EMPTY,
    )


def _cells(names: dict[UUID, str], stored: redaction_policies.StoredPolicy) -> tuple[Any, ...]:
    policy = stored.policy
    assert policy is not None
    team = names.get(stored.team_id, "") if stored.team_id else ""
    hidden = ", ".join([*policy.kinds, *(pattern.name for pattern in policy.patterns)])
    return policy.name, policy.mode, team, stored.version, hidden.replace("_", " ")


@app.reads()
async def status(scope: Scope) -> Result:
    """Show how many calls each policy has redacted, and how many it does not apply to yet. Counts all calls."""
    names = await scope.team_names()
    return listing(
        await redactions.status(scope.database, scope.id),
        ("!team", "!policy", "#redacted", "#not redacted"),
        lambda line: (names.get(line.team_id, ""), line.policy, line.redacted, line.due),
        EMPTY,
    )
