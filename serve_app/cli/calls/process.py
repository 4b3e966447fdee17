import asyncio
import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from rich.text import Text

from pipeline import scratch
from pipeline.domain.call import Call
from pipeline.domain.insight import Roster
from pipeline.domain.speech import Recording
from pipeline.domain.stage import Stage
from pipeline.errors import CallError
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError, explain
from serve_app.cli.ui.options import Country, FromNumber, Outgoing, TimeZone, ToNumber, Words
from serve_app.cli.ui.output import Json, err, out, print_json
from serve_app.intake.values import MAX_NUMBER

if TYPE_CHECKING:
    from pipeline.process import Outcome
    from pipeline.runtime.workers import LocalWorkers
    from serve_app.settings import Settings

Model = Annotated[
    str | None,
    typer.Option(help="Whisper size, hub repository, folder or auto.", show_default="SWITCHBOARD_ASR__MODEL"),
]
Pipeline = Annotated[
    str | None,
    typer.Option(help="Diarization: repository, folder or auto.", show_default="SWITCHBOARD_DIARIZATION__PIPELINE"),
]


Files = Annotated[list[Path], typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="One call each.")]
Second = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="Recording of the other party, if each leg has its file."),
]
StartTime = Annotated[
    datetime | None,
    typer.Option(help="When the call started; dates such as 'tomorrow' are relative to it.", show_default="now"),
]


def process(
    files: Files,
    second: Second = None,
    from_number: FromNumber = "anonymous",
    to_number: ToNumber = "anonymous",
    outgoing: Outgoing = None,
    start_time: StartTime = None,
    country: Country = None,
    time_zone: TimeZone = "UTC",
    model: Model = None,
    pipeline: Pipeline = None,
    words: Words = False,
    json_: Json = False,
) -> None:
    """Run the pipeline on local files and show the results. Nothing is stored.

    Models are loaded once for all files; the first use of a hub model downloads it. Exit code 1 if any file failed.

    Examples:

      switchboard process rep.wav --second customer.wav --outgoing --json

      switchboard process serve_app/demo/samples/*/call.flac --model base
    """
    if second and len(files) > 1:
        raise CommandError("--second belongs to one call, but there are several files.", "", USAGE)
    _check_numbers(from_number, to_number)
    settings = chosen_settings(model, pipeline)
    check_models(settings)

    def describe() -> Call:
        started = (start_time or datetime.now(UTC)).astimezone(UTC)
        return Call(uuid4(), from_number, to_number, started, outgoing=outgoing)

    roster = Roster(default_country=country, time_zone=time_zone)
    results = asyncio.run(_process_all(files, second, describe, roster, settings, words, json_))
    if json_:
        print_json(results)
    if any("error" in result for result in results):
        raise typer.Exit(FAILED)


def _check_numbers(*numbers: str) -> None:
    if not all(1 <= len(number) <= MAX_NUMBER for number in numbers):
        raise CommandError(f"--from and --to take 1 to {MAX_NUMBER} characters.", "", USAGE)


async def _process_all(
    files: list[Path],
    second: Path | None,
    describe: Callable[[], Call],
    roster: Roster,
    settings: "Settings",
    words: bool,
    quiet: bool,
) -> list[dict[str, Any]]:
    from serve_app.cli.render.call import render_outcome

    engines = f"{settings.asr.model} ({settings.asr.engine}), diarization: {settings.diarization.pipeline}"
    err().print(f"Recognition: {engines}", style="dim", markup=False)
    workers = _workers(settings)
    results: list[dict[str, Any]] = []
    for file in files:
        recordings = tuple(_recording(channel, leg) for channel, leg in enumerate((file, second)) if leg is not None)
        try:
            outcome = await _process_one(describe(), recordings, workers, roster, settings)
        except CallError as error:
            explanation = explain(error)
            err().print(Text.assemble((f"{file}: ", "bold red"), explanation.sentence))
            results.append({"file": str(file), "error": {"code": error.code, "message": error.message}})
            continue
        if not quiet:
            render_outcome(str(file), outcome.transcript, outcome.findings, outcome.warnings, out(), words)
        results.append(_as_json(file, outcome))
    return results


async def _process_one(
    call: Call, recordings: tuple[Recording, ...], workers: "LocalWorkers", roster: Roster, settings: "Settings"
) -> "Outcome":
    """Run the pipeline on files that count as fetched, without a server or the service's storage.

    Decoded audio is stored in a temporary folder (TMPDIR) unless the settings name one.
    """
    from pipeline.journal import MemoryJournal
    from pipeline.process import process as run_pipeline

    console = err()
    started = time.monotonic()

    class PrintedJournal(MemoryJournal):
        async def record(self, stage: Stage, result: Any) -> None:
            await super().record(stage, result)
            line = f"  {time.monotonic() - started:6.1f} s  {stage.display_name:<14} {summary(stage, result)}"
            console.print(line, style="dim", markup=False)

    options = settings.process_options()
    if options.scratch is None:
        options = options.model_copy(update={"scratch": scratch.temporary_root().as_uri()})
    with console.status("processing ..."):
        journal = PrintedJournal({Stage.FETCH: recordings})
        return await run_pipeline(call, workers, roster, journal, options=options)


def summary(stage: Stage, result: Any) -> str:
    return SUMMARIES.get(stage, lambda _: "")(result)


def _audio(result: Any) -> str:
    speech = sum(span.duration for spans in result.speech for span in spans)
    kinds = dict.fromkeys(label.kind.value for labels in result.labels for label in labels)
    others = ", ".join(kind for kind in kinds if kind not in ("speech", "silence"))
    also = f" (also {others})" if others else ""
    return (
        f"{result.duration:.1f} s, {result.layout.kind}, {speech:.1f} s of speech in {len(result.chunks)} chunks{also}"
    )


def _asr(result: Any) -> str:
    texts = result.texts
    languages = sorted({text.language for text in texts})
    doubts = f", doubts: {len(result.doubts)}" if result.doubts else ""
    return f"{sum(len(text.words) for text in texts)} words, {', '.join(languages) or 'no language'}{doubts}"


SUMMARIES: dict[Stage, Callable[[Any], str]] = {
    Stage.AUDIO: _audio,
    Stage.RECOGNITION: _asr,
    Stage.DIARIZATION: lambda result: f"{len({span.speaker for span in result.spans})} voices",
    Stage.VOICEPRINT: lambda result: (
        f"of {result.speech_seconds:.1f} s of the rep" if result else "too little speech of the rep"
    ),
    Stage.SPEAKERS: lambda result: ", ".join(f"{speaker.label} ({speaker.role})" for speaker in result.speakers),
}


def chosen_settings(model: str | None, pipeline: str | None) -> "Settings":
    """Return the settings with this command's models, validated like other settings."""
    from serve_app.settings import Settings

    settings = Settings()
    asr, diarization = settings.asr, settings.diarization
    if model:
        asr = type(asr).model_validate({**asr.model_dump(), "model": model})
    if pipeline:
        diarization = type(diarization).model_validate({**diarization.model_dump(), "pipeline": pipeline})
    return settings.model_copy(update={"asr": asr, "diarization": diarization})


def check_models(settings: "Settings") -> None:
    from pipeline.checkpoints.resolve import check_name
    from pipeline.errors import CheckpointMissing

    try:
        for model, kind in settings.models():
            check_name(model, kind)
    except CheckpointMissing as error:
        raise CommandError(error.message, "", USAGE) from None


def _workers(settings: "Settings") -> "LocalWorkers":
    # Engines are loaded when first needed: a stereo call in which the rep is silent never loads the diarizer.
    from pipeline import asr, diarization
    from pipeline.runtime.workers import LocalWorkers

    store = settings.checkpoints
    return LocalWorkers(
        lambda: asr.load(settings.asr, store, settings.alignment), lambda: diarization.load(settings.diarization, store)
    )


def _recording(channel: int, file: Path) -> Recording:
    path = file.resolve()
    with path.open("rb") as source:
        sha256 = hashlib.file_digest(source, "sha256").hexdigest()
    return Recording(channel, path.as_uri(), sha256, path.stat().st_size)


def _as_json(file: Path, outcome: "Outcome") -> dict[str, Any]:
    return {
        "file": str(file),
        "transcript": outcome.transcript,
        "findings": outcome.findings,
        "warnings": list(outcome.warnings),
    }
