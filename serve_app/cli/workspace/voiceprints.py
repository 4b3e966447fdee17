"""`switchboard voiceprints`: the voices of the people who handle calls, which are enrolled, and how to correct that."""

import getpass
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer

from serve_app.cli.ui import database as state
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, err, moment, out, print_json, print_list

if TYPE_CHECKING:
    from db.core.database import Database
    from db.voices.voiceprints import VoiceprintSummary
    from pipeline.domain.speech import Voiceprint

T = TypeVar("T")
STATES = ("enrolled", "waiting", "quarantined", "removed", "unassigned", "recognized")
WHERE = "`switchboard voiceprints list` shows the calls that have one."
STANDING = {
    "enrolled": "is part of the member's profile",
    "waiting": "is good, but too few calls agree as yet, or newer ones make the profile",
    "quarantined": "is kept and not enrolled",
    "removed": "was taken out and has no effect",
    "unassigned": "is not assigned to a member",
    "recognized": "fits this member's profile, though it was not assigned; it is not enrolled",
}

app = command_group("""Voiceprints: what the people who handle calls sound like, one sample for each of their calls.

    Members are recognized once several of their calls agree. A sample that does not fit is kept and not enrolled.
    One that should not be there can be removed: everything is then as if it had never come.

    Examples:

      switchboard voiceprints list --state quarantined

      switchboard voiceprints remove CALL_ID
""")

CallId = Annotated[str, typer.Argument(metavar="CALL_ID", help="The id of the call that the sample comes from.")]


@app.command("list")
def list_(
    workspace: lookup.Workspace = None,
    state_: Annotated[
        str | None, typer.Option("--state", "-s", help=f"One of {', '.join(STATES)}.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 1000,
    json_: Json = False,
) -> None:
    """List samples, newest first, with the state of each and why.

    Example:

      switchboard voiceprints list --workspace acme --state quarantined
    """
    if state_ is not None and state_ not in STATES:
        raise CommandError(f"{state_!r} is not a state of a voiceprint.", f"States: {', '.join(STATES)}.", USAGE)
    from db.voices import voiceprints

    found = lookup.run(workspace, lambda database, home: voiceprints.list_(database, home.workspace_id, limit))
    print_list(
        [one for one in found if state_ is None or one.state == state_],
        json_,
        ("!call", "!state", "#speech", "!since", "member", "why"),
        lambda one: (
            str(one.call_id),
            one.state,
            f"{one.speech_seconds:.0f} s",
            moment(one.created_at),
            one.name or str(one.user_id or ""),
            _reasons(one.reasons if one.state == "quarantined" else ()),
        ),
        "No such voiceprints: calls with one channel for each party make them.",
    )


@app.command()
def show(call_id: CallId, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Show one sample: its state, the members it resembles, and what was done with it.

    Example:

      switchboard voiceprints show 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    from db.voices import voiceprints

    record = _of_call(call_id, workspace, voiceprints.show)
    if json_:
        print_json(record)
        return
    _print(record.summary)
    for one in record.likeness:
        out().print(f"  {one.cosine:5.2f} like {one.name or one.user_id}", markup=False)
    for event in record.history:
        to = f" to {event.name or event.user_id}" if event.user_id else ""
        out().print(f"  {moment(event.at)} {event.action}{to} by {event.who}", markup=False)


@app.command()
def remove(call_id: CallId, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Remove a sample, for example if the wrong person spoke or channels were swapped. It is kept but has no effect.

    Example:

      switchboard voiceprints remove 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    _change("remove", call_id, workspace, json_)


@app.command()
def restore(call_id: CallId, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Restore a removed sample; whether it is enrolled is decided as for any other.

    Example:

      switchboard voiceprints restore 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    _change("restore", call_id, workspace, json_)


@app.command()
def approve(call_id: CallId, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Approve a quarantined sample after listening to the call. It is then enrolled.

    It holds until the call gets another recording; `remove` takes the sample out again.

    Example:

      switchboard voiceprints approve 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    _change("approve", call_id, workspace, json_)


@app.command()
def assign(
    call_id: CallId,
    user_id: Annotated[str, typer.Argument(metavar="USER_ID", help="A member's id: `switchboard members list`.")],
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Assign a sample to a member where the sender named none. It overrides what the sender says later.

    Example:

      switchboard voiceprints assign 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11 5d0b...
    """
    member = lookup.need_uuid(user_id, "`switchboard members list` shows them.")
    _change("assign", call_id, workspace, json_, member)


@app.command()
def calibrate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Recordings of one voice each: SPEAKER/*.wav.")],
    file: Annotated[Path, typer.Option("--out", help="The calibration to write.")],
) -> None:
    """Calibrate speaker recognition: measure on your labeled recordings when the embedder confuses two voices.

    Takes 10 speakers or more, each with two recordings or more, best of other days, with 7 s of speech or more.

    Example:

      switchboard voiceprints calibrate recordings --out community-1.toml
    """
    from pipeline import diarization
    from pipeline.audio.chunks import find_speech
    from pipeline.audio.decode.decoder import decode_file
    from pipeline.audio.labels.detector import SpeechOptions
    from pipeline.runtime.workers import spoken
    from pipeline.voice.calibrate import CannotCalibrate, as_toml
    from pipeline.voice.calibrate import calibrate as measured
    from serve_app.settings import Settings

    settings = Settings()
    engine = diarization.load(settings.diarization, settings.checkpoints)
    prints: dict[str, list[Voiceprint]] = {}
    for path in sorted(path for path in folder.glob("*/*") if path.is_file()):
        audio = decode_file(path, settings.decode).audio
        made = engine.voiceprint(spoken(audio, 0, find_speech(audio, SpeechOptions())[0]))
        if made is None:
            err().print(f"{path}: too little speech; left out.", markup=False)
        else:
            prints.setdefault(path.parent.name, []).append(made)
    try:
        found = measured(prints)
    except CannotCalibrate as error:
        raise CommandError(str(error), f"{folder} holds SPEAKER/*.wav.") from error
    file.write_text(as_toml(found), encoding="utf-8")
    out().print(f"{file}: {found.basis}", markup=False)
    out().print(f"Set SWITCHBOARD_ROLES__CALIBRATION={file.absolute()}", markup=False)


def _change(action: str, call_id: str, workspace: str | None, json_: bool, member: UUID | None = None) -> None:
    from db.voices import voiceprints
    from pipeline.speakers.policy import Voices
    from serve_app.settings import Settings

    policy, who = Voices(Settings().role_options()), getpass.getuser()
    changes = {"remove": voiceprints.remove, "restore": voiceprints.restore, "approve": voiceprints.approve}

    def change(database: "Database", call: UUID, home: UUID | None) -> "Awaitable[VoiceprintSummary]":
        if member is not None:
            return voiceprints.assign(database, call, member, who, policy, home)
        return changes[action](database, call, who, policy, home)

    changed = _of_call(call_id, workspace, change, writes=True)
    if json_:
        print_json(changed)
    else:
        _print(changed)


def _of_call(
    call_id: str,
    workspace: str | None,
    ask: "Callable[[Database, UUID, UUID | None], Awaitable[T]]",
    writes: bool = False,
) -> T:
    """Ask about a call of a workspace; without one, about the latest call of that id."""
    from db.voices.voiceprints import NoVoiceprint, UnassignedVoiceprint

    call = lookup.need_uuid(call_id, WHERE)

    async def work(database: "Database") -> T:
        return await ask(database, call, await lookup.workspace_id(database, workspace))

    try:
        return state.run(work, writes)
    except NoVoiceprint as error:
        raise CommandError(f"Call {call} has no voiceprint.", WHERE) from error
    except UnassignedVoiceprint as error:
        hint = f"Assign it first: `switchboard voiceprints assign {call} USER_ID`."
        raise CommandError("The voiceprint is not assigned to a member.", hint) from error


def _print(one: "VoiceprintSummary") -> None:
    whose = one.name or (str(one.user_id) if one.user_id else "nobody")
    out().print(f"{one.call_id}: {one.speech_seconds:.0f} s of {whose}, {one.state}", markup=False)
    why = _reasons(one.reasons if one.state == "quarantined" else ())
    out().print(f"  It {STANDING[one.state]}{f': {why}' if why else ''}.", markup=False)


def _reasons(reasons: tuple[str, ...]) -> str:
    from pipeline.speakers.gate import QUALITY_ISSUES
    from pipeline.speakers.profile import OUTLIERS

    known = QUALITY_ISSUES | OUTLIERS
    return "; ".join(known.get(reason, reason) for reason in reasons)
