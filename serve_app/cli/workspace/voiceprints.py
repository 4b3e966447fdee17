import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from db.voices import voiceprints
from db.voices.voiceprints import NoConsent, NoVoiceprint, UnassignedVoiceprint
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import parse_id
from serve_app.cli.ui.output import err, moment, out
from serve_app.cli.ui.resource import AnyScope, Group, Result, Scope, listing
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.voices.voiceprints import VoiceprintSummary
    from pipeline.domain.speech import Voiceprint
    from pipeline.domain.voices import VoicePolicy

STATES = ("enrolled", "waiting", "quarantined", "removed", "unassigned", "recognized")
LIST_HINT = "`switchboard voiceprints list` shows the calls that have one."
EXPLANATIONS = {
    "enrolled": "is part of the member's profile",
    "waiting": "is good, but too few calls agree so far, or newer samples form the profile",
    "quarantined": "is stored but not enrolled",
    "removed": "was removed and has no effect",
    "unassigned": "is not assigned to a member",
    "recognized": "matches this member's profile without being assigned; it is not enrolled",
}

app = Group(
    """Voiceprints: voice samples of members, one per call.

    A member is recognized when several of their calls agree. An outlier is stored but not enrolled. A wrong sample can
    be removed, as if it had never existed.
""",
    {NoVoiceprint: (LIST_HINT, FAILED), NoConsent: ("`switchboard members consent NAME --text VERSION`.", FAILED)},
)

CallId = Annotated[UUID, typer.Argument(metavar="CALL_ID", parser=parse_id(LIST_HINT), help="The call of the sample.")]
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
    scope: Scope,
    state: Annotated[
        str | None, typer.Option("--status", "-s", metavar="STATUS", parser=_state, help=f"One of {', '.join(STATES)}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 1000,
) -> Result:
    """List samples, newest first, with the state of each and why.

    Example:

      switchboard voiceprints list --workspace acme --status quarantined
    """
    samples = await voiceprints.list_(scope.database, scope.id, limit)
    return listing(
        [sample for sample in samples if state in (None, sample.state)],
        ("!call", "!status", "#speech", "!since", "member", "why"),
        lambda sample: (
            *(sample.call_id, sample.state, f"{sample.speech_seconds:.0f} s", sample.created_at),
            *(sample.name or sample.user_id, _reasons(sample)),
        ),
        "No such voiceprints: calls with one channel per party create them.",
    )


@app.reads()
async def show(scope: AnyScope, call_id: CallId) -> Result:
    """Show one sample: its state, similar members, and its history."""
    record = await voiceprints.show(scope.database, call_id, scope.id)
    lines = [f"  {member.cosine:5.2f} like {member.name or member.user_id}" for member in record.likeness]
    for event in record.history:
        to = f" to {event.name or event.user_id}" if event.user_id else ""
        lines.append(f"  {moment(event.at)} {event.action}{to} by {event.who}")
    return Result(record, (*_lines(record.summary), *lines))


@app.writes()
async def remove(scope: AnyScope, call_id: CallId) -> Result:
    """Remove a sample, such as of a wrong person or swapped channels. It is stored but has no effect."""
    return _result(await voiceprints.remove(scope.database, call_id, *_editing(scope)))


@app.writes()
async def restore(scope: AnyScope, call_id: CallId) -> Result:
    """Restore a removed sample; it is enrolled like any other sample."""
    return _result(await voiceprints.restore(scope.database, call_id, *_editing(scope)))


@app.writes()
async def approve(scope: AnyScope, call_id: CallId) -> Result:
    """Approve a quarantined sample after listening to the call. It is then enrolled.

    The approval lasts until the call gets another recording; `remove` removes the sample again.
    """
    try:
        return _result(await voiceprints.approve(scope.database, call_id, *_editing(scope)))
    except UnassignedVoiceprint as error:
        hint = f"Assign it first: `switchboard voiceprints assign {call_id} USER_ID`."
        raise CommandError("The voiceprint is not assigned to a member.", hint) from error


@app.writes()
async def assign(scope: AnyScope, call_id: CallId, user_id: UserId) -> Result:
    """Assign a sample to a member if the submission has no userId. It overrides later submissions."""
    return _result(await voiceprints.assign(scope.database, call_id, user_id, *_editing(scope)))


@app.command()
def calibrate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Recordings with one voice each: SPEAKER/*.wav.")],
    file: Annotated[Path, typer.Option("--out", help="The calibration to write.")],
) -> None:
    """Calibrate speaker recognition: measure on labeled recordings when the embedder confuses two voices.

    Needs 10 or more speakers with two or more recordings each, ideally of different days, with 7 s or more of speech.

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
        voiceprint = engine.voiceprint(spoken(audio, 0, find_speech(audio, SpeechOptions())[0]))
        if voiceprint is None:
            err().print(f"{path}: too little speech; left out.", markup=False)
        else:
            prints.setdefault(path.parent.name, []).append(voiceprint)
    try:
        calibration = measured(prints)
    except CannotCalibrate as error:
        raise CommandError(str(error), f"{folder} must contain SPEAKER/*.wav.") from error
    file.write_text(as_toml(calibration), encoding="utf-8")
    out().print(f"{file}: {calibration.basis}", markup=False)
    out().print(f"Set SWITCHBOARD_ROLES__CALIBRATION={file.absolute()}", markup=False)


def _editing(scope: AnyScope) -> tuple[str, "VoicePolicy", UUID | None]:
    """Return the editor, the options of voices, and the workspace; None: of the latest call with the id."""
    return getpass.getuser(), Settings().voices(), scope.id


def _result(sample: "VoiceprintSummary") -> Result:
    return Result(sample, _lines(sample))


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
