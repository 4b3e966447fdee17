"""`switchboard voiceprints`: the voices of the people who handle calls, which are enrolled, and how to correct that."""

import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from db.voices import voiceprints
from db.voices.voiceprints import NoVoiceprint, UnassignedVoiceprint
from pipeline.speakers.policy import Voices
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import parse_id
from serve_app.cli.ui.output import err, moment, out
from serve_app.cli.ui.resource import Answer, Group, Home, listing
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.core.database import Database
    from db.voices.voiceprints import VoiceprintSummary
    from pipeline.domain.speech import Voiceprint

STATES = ("enrolled", "waiting", "quarantined", "removed", "unassigned", "recognized")
LISTED = "`switchboard voiceprints list` shows the calls that have one."
EXPLANATIONS = {
    "enrolled": "is part of the member's profile",
    "waiting": "is good, but too few calls agree as yet, or newer ones make the profile",
    "quarantined": "is kept and not enrolled",
    "removed": "was taken out and has no effect",
    "unassigned": "is not assigned to a member",
    "recognized": "fits this member's profile, though it was not assigned; it is not enrolled",
}

app = Group(
    """Voiceprints: what the people who handle calls sound like, one sample for each of their calls.

    Members are recognized once several of their calls agree. A sample that does not fit is kept and not enrolled.
    One that should not be there can be removed: everything is then as if it had never come.

    Examples:

      switchboard voiceprints list --state quarantined

      switchboard voiceprints remove CALL_ID
""",
    {NoVoiceprint: (LISTED, FAILED)},
)

CallId = Annotated[
    UUID,
    typer.Argument(metavar="CALL_ID", parser=parse_id(LISTED), help="The id of the call that the sample comes from."),
]
UserId = Annotated[
    UUID,
    typer.Argument(
        metavar="USER_ID",
        parser=parse_id("`switchboard members list` shows them."),
        help="A member's id: `switchboard members list`.",
    ),
]


def _state(text: str) -> str:
    if text not in STATES:
        raise CommandError(f"{text!r} is not a state of a voiceprint.", f"States: {', '.join(STATES)}.", USAGE)
    return text


@app.reads()
async def list_(
    home: Home,
    state: Annotated[
        str | None, typer.Option("--state", "-s", metavar="STATE", parser=_state, help=f"One of {', '.join(STATES)}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 1000,
) -> Answer:
    """List samples, newest first, with the state of each and why.

    Example:

      switchboard voiceprints list --workspace acme --state quarantined
    """
    samples = await voiceprints.list_(home.database, home.id, limit)
    return listing(
        [sample for sample in samples if state in (None, sample.state)],
        ("!call", "!state", "#speech", "!since", "member", "why"),
        lambda one: (
            *(str(one.call_id), one.state, f"{one.speech_seconds:.0f} s", moment(one.created_at)),
            *(one.name or str(one.user_id or ""), _reasons(one)),
        ),
        "No such voiceprints: calls with one channel for each party create them.",
    )


@app.reads()
async def show(database: "Database", call_id: CallId, workspace: lookup.Workspace = None) -> Answer:
    """Show one sample: its state, the members it resembles, and what was done with it.

    Example:

      switchboard voiceprints show 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    record = await voiceprints.show(database, call_id, await lookup.workspace_id(database, workspace))
    lines = [f"  {one.cosine:5.2f} like {one.name or one.user_id}" for one in record.likeness]
    for event in record.history:
        to = f" to {event.name or event.user_id}" if event.user_id else ""
        lines.append(f"  {moment(event.at)} {event.action}{to} by {event.who}")
    return Answer(record, (*_lines(record.summary), *lines))


@app.writes()
async def remove(database: "Database", call_id: CallId, workspace: lookup.Workspace = None) -> Answer:
    """Remove a sample, for example if the wrong person spoke or channels were swapped. It is kept but has no effect.

    Example:

      switchboard voiceprints remove 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    return _answer(await voiceprints.remove(database, call_id, *await _editing(database, workspace)))


@app.writes()
async def restore(database: "Database", call_id: CallId, workspace: lookup.Workspace = None) -> Answer:
    """Restore a removed sample; whether it is enrolled is decided as for any other.

    Example:

      switchboard voiceprints restore 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    return _answer(await voiceprints.restore(database, call_id, *await _editing(database, workspace)))


@app.writes()
async def approve(database: "Database", call_id: CallId, workspace: lookup.Workspace = None) -> Answer:
    """Approve a quarantined sample after listening to the call. It is then enrolled.

    The approval lasts until the call gets another recording; `remove` takes the sample out again.

    Example:

      switchboard voiceprints approve 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11
    """
    try:
        return _answer(await voiceprints.approve(database, call_id, *await _editing(database, workspace)))
    except UnassignedVoiceprint as error:
        hint = f"Assign it first: `switchboard voiceprints assign {call_id} USER_ID`."
        raise CommandError("The voiceprint is not assigned to a member.", hint) from error


@app.writes()
async def assign(database: "Database", call_id: CallId, user_id: UserId, workspace: lookup.Workspace = None) -> Answer:
    """Assign a sample to a member where the sender named none. It overrides what the sender says later.

    Example:

      switchboard voiceprints assign 0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11 5d0b...
    """
    return _answer(await voiceprints.assign(database, call_id, user_id, *await _editing(database, workspace)))


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


async def _editing(database: "Database", workspace: str | None) -> tuple[str, Voices, UUID | None]:
    """Return who changes a sample, and the workspace; None: that of the latest call of the id."""
    return getpass.getuser(), Voices(Settings().role_options()), await lookup.workspace_id(database, workspace)


def _answer(sample: "VoiceprintSummary") -> Answer:
    return Answer(sample, _lines(sample))


def _lines(sample: "VoiceprintSummary") -> Sequence[str]:
    owner = sample.name or (str(sample.user_id) if sample.user_id else "no member")
    reasons = _reasons(sample)
    return (
        f"{sample.call_id}: {sample.speech_seconds:.0f} s of {owner}, {sample.state}",
        f"  It {EXPLANATIONS[sample.state]}{f': {reasons}' if reasons else ''}.",
    )


def _reasons(sample: "VoiceprintSummary") -> str:
    from pipeline.speakers.gate import QUALITY_ISSUES
    from pipeline.speakers.profile import OUTLIERS

    texts = QUALITY_ISSUES | OUTLIERS
    return "; ".join(texts.get(reason, reason) for reason in sample.reasons if sample.state == "quarantined")
