import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from serve_app.cli.calls.process import Model, Pipeline, check_models, chosen_settings
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import Country, TimeZone
from serve_app.cli.ui.output import Json, duration, out, print_json, print_step, progress_bar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from pipeline.backfill.actors import BackfillJob
    from pipeline.backfill.run import BackfillProgress, Hardware
    from serve_app.settings import Settings

LOCAL = "local"
RESUME = "Run the same command again"
INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended
OBJECT_STORE_BYTES = 100 * 2**20  # it holds paths, no audio


Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Folder of recordings: a path, or s3://..., gs://...")]
Output = Annotated[
    str, typer.Option("--out", metavar="FOLDER", help="Folder for the Parquet files: a path, or s3://..., gs://...")
]
Pattern = Annotated[
    str | None, typer.Option(help="Shell pattern for paths in SOURCE: '2026-*/*.wav'.", show_default="audio files")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray to run on: host:port or auto; local starts one here for this run.",
        show_default="the service on this machine, else local",
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Worker processes, each with its own engines.")]
Cpus = Annotated[float, typer.Option(min=0, help="Cores that Ray reserves for each worker.")]
Gpus = Annotated[
    float | None,
    typer.Option(
        min=0, help="GPUs for each worker.", show_default="1 if the cluster has one, and the device is not cpu"
    ),
]
Resource = Annotated[
    str | None,
    typer.Option(help="A custom Ray resource that each worker takes one of: restricts workers to nodes with it."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Maximum number of recordings in this run.")]


def backfill(
    source: Source,
    output: Output,
    pattern: Pattern = None,
    address: Address = None,
    workers: Workers = 1,
    cpus: Cpus = 1.0,
    gpus: Gpus = None,
    resource: Resource = None,
    limit: Limit = None,
    failed: Annotated[bool, typer.Option("--failed", help="Retry recordings that failed before.")] = False,
    country: Country = None,
    time_zone: TimeZone = "UTC",
    model: Model = None,
    pipeline: Pipeline = None,
    json_: Json = False,
) -> None:
    """Run the pipeline on all recordings of a folder or bucket with Ray Data, and write one row for each to Parquet.

    You can stop it at any time: run the same command again to process the rest. A recording that fails becomes a row
    with an error. Nothing is stored in the service's database; to store calls, use `switchboard submit`.

    Examples:

      switchboard backfill recordings/ --out texts/

      switchboard backfill s3://bucket/2025 --out s3://bucket/texts --workers 4
    """
    settings = chosen_settings(model, pipeline)
    check_models(settings)
    _check_folders(source, output)  # before Ray is started, to fail fast on invalid paths
    with _errors_as_advice(), _ray(settings, address) as cluster:
        job = _job(settings, source, output, country, time_zone)
        hardware = _hardware(settings, cluster, workers, cpus, gpus, resource)
        progress = _run(job, hardware, pattern, failed, limit, json_)
    _report(progress, job.output, json_)


@contextlib.contextmanager
def _errors_as_advice() -> Iterator[None]:
    from pipeline.backfill.source import FolderUnusable

    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints warnings on stdout, which is for data
            yield
    except KeyboardInterrupt:
        raise CommandError("Interrupted.", f"{RESUME} to process the rest.", INTERRUPTED) from None
    except FolderUnusable as error:
        raise CommandError(f"{error.message} ({error.code})", f"{RESUME} when this is fixed.", FAILED) from error


def _check_folders(source: str, output: str) -> None:
    from pipeline.backfill.source import Source, opened
    from pipeline.errors import StorageError

    try:
        Source(_address(source))
        opened(_address(output))
    except StorageError as error:
        raise CommandError(error.message, "", USAGE) from error


def _job(settings: "Settings", source: str, output: str, country: str | None, time_zone: str) -> "BackfillJob":
    from pipeline.backfill.actors import BackfillJob
    from pipeline.domain.insight import Roster

    return BackfillJob(
        source=_address(source),
        output=_address(output),
        run="",
        asr=settings.asr,
        diarization=settings.diarization,
        process=settings.process_options(),
        roster=Roster(default_country=country, time_zone=time_zone),
        alignment=settings.alignment,
        store=settings.checkpoints,
    )


def _address(folder: str) -> str:
    # Workers run in other folders, so relative paths are resolved here.
    return folder if "://" in folder else f"file://{Path(folder).expanduser().absolute()}"  # fsspec does not unquote


@contextlib.contextmanager
def _ray(settings: "Settings", address: str | None) -> Iterator[dict[str, float]]:
    """Join or start Ray and yield its resources. Variables that Ray reads on import are set first."""
    from serve_app.service import children, ray_access, run_folder

    where = address or os.environ.get("RAY_ADDRESS") or _ray_of_service(settings)
    is_local = where == LOCAL
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # hides warnings that Ray Data causes
    if is_local:
        quiet = {"RAY_worker_niceness": "0"}  # the actors set their own niceness
        for name, value in (ray_access.own_ray(run_folder.own_folder().path) | quiet).items():
            os.environ.setdefault(name, value)
    else:
        ray_access.join(where)
    before = children.descendants()

    def end() -> None:
        if is_local:
            children.end(spared=lambda: before)

    print_step("Starting Ray" if is_local else f"Joining Ray at {where}")
    try:
        options = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES} if is_local else {}
        ray_access.start(where, print_step, end, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        action = "start Ray" if is_local else f"join Ray at {where}"
        raise CommandError(f"Cannot {action}: {error}", "Check --address and RAY_AUTH_TOKEN_PATH.") from error
    import ray

    try:
        yield ray.cluster_resources()
    finally:
        ray.shutdown()
        end()
        if is_local:
            run_folder.discard_own_folder()


def _ray_of_service(settings: "Settings") -> str:
    """Return the address of Ray of the service on this machine; without one, `LOCAL`."""
    from serve_app.cli.ui import this_machine

    service = this_machine.find(settings, None)
    return str(service.facts.get("ray_address", LOCAL)) if service else LOCAL


def _hardware(
    settings: "Settings", cluster: dict[str, float], workers: int, cpus: float, gpus: float | None, resource: str | None
) -> "Hardware":
    """Return the resources of the workers. Raises `CommandError` if the cluster lacks them: Ray would wait forever."""
    from pipeline.backfill.run import Hardware

    if gpus is None:
        gpus = 1.0 if cluster.get("GPU") and settings.asr.device != "cpu" else 0.0
    required = {"CPU": workers * cpus, "GPU": workers * gpus, **({resource: workers} if resource else {})}
    for what, amount in required.items():
        if amount > cluster.get(what, 0.0):
            raise CommandError(
                f"{workers} workers need {amount:g} {what}; the cluster has {cluster.get(what, 0.0):g}.",
                "Reduce --workers, --cpus or --gpus.",
                USAGE,
            )
    return Hardware(workers, cpus, gpus, resource)


def _run(
    job: "BackfillJob", hardware: "Hardware", pattern: str | None, failed: bool, limit: int | None, quiet: bool
) -> "BackfillProgress":
    from pipeline.backfill.run import backfill as run

    with progress_bar(disable=quiet) as bar:
        task = bar.add_task("loading the engines", total=None)
        return run(job, hardware, pattern, failed, limit, lambda progress: _show(bar, task, progress, limit))


def _show(bar: "Progress", task: "TaskID", progress: "BackfillProgress", limit: int | None) -> None:
    total = progress.total - progress.before
    bar.update(
        task,
        total=min(total, limit) if limit else total,
        completed=progress.done,
        description="recordings" if progress.done else "loading the engines",
    )


def _report(progress: "BackfillProgress", output: str, as_json: bool) -> None:
    if as_json:
        print_json({**_counts(progress), "output": output})
    else:
        _print_summary(progress, output)
    if progress.failed and progress.failed == progress.done:
        raise typer.Exit(FAILED)


def _counts(progress: "BackfillProgress") -> dict[str, float]:
    return {
        "found": progress.total,
        "done_before": progress.before,
        "done": progress.done,
        "failed": progress.failed,
        "left": progress.remaining,
        "audio_seconds": round(progress.audio, 1),
        "seconds": round(progress.seconds, 1),
    }


def _print_summary(progress: "BackfillProgress", output: str) -> None:
    console = out()
    if not progress.total:
        console.print("No recordings in the source.")
        return
    before = f", {progress.before} processed before" if progress.before else ""
    console.print(f"{progress.total} recordings{before}.")
    if progress.done:
        per_hour = progress.done / progress.seconds * 3600
        console.print(
            f"Processed now: {progress.done} with {duration(progress.audio)} of audio, in {duration(progress.seconds)} "
            f"({per_hour:,.0f} per hour)."
        )
    if progress.failed:
        console.print(
            Text.assemble(
                (f"{progress.failed} failed", "bold red"),
                ": columns `code` and `error` say why; --failed retries them.",
            )
        )
    if progress.remaining:
        console.print(f"{progress.remaining} left: run the same command again.")
    console.print(Text(f"Rows: {output}"))
