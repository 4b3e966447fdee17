"""Checks of the models that the settings name: on this machine, or to be had from the hub. Downloads nothing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from serve_app.cli.checks import Check, bad, good, warn

if TYPE_CHECKING:
    from pipeline.checkpoints.manifest import Checkpoint

HUB_SECONDS = 5.0


def checkpoints(settings: Any) -> Iterator[Check]:
    from pipeline.checkpoints.resolve import DIARIZATION, RECOGNITION

    device = _device(settings)
    yield from _checkpoint("recognition model", settings.asr.model, RECOGNITION, device)
    yield from _checkpoint("diarization model", settings.diarization.pipeline, DIARIZATION, device)


def _checkpoint(name: str, model: str, kind: Any, device: str) -> Iterator[Check]:
    """A model on this machine is good; one that the hub would hand out is a remark: the first start downloads it."""
    from pipeline.errors import CallError

    try:
        found, repository = _locate(kind.auto[device] if model == "auto" else model, kind, device)
    except CallError as error:
        yield bad(name, error.message.split(". ")[0], f"Set {kind.setting}.")
        return
    if found is not None:
        if found.demo:
            yield warn(name, "the demo checkpoint", f"No use on real voices: for those, unset {kind.setting}.")
        else:
            yield good(name, f"{found.name} in {found.folder}")
        return
    yield _on_the_hub(name, model, str(repository), kind)


def _locate(model: str, kind: Any, device: str) -> "tuple[Checkpoint | None, str | None]":
    """What `resolve` would find without the network, and the repository it would ask."""
    from pipeline.checkpoints import hub, manifest
    from pipeline.checkpoints.resolve import _is_path, _repository, resolve

    if model == "demo" or _is_path(model):
        return resolve(model, kind, device), None
    repository = _repository(model, kind)
    folder = hub.cached(repository, kind.patterns, kind.required)
    return (manifest.read(model, folder) if folder else None), repository


def _on_the_hub(name: str, model: str, repository: str, kind: Any) -> Check:
    """Ask the hub for the head of one file: whether it is there, and whether we may have it."""
    import httpx
    from huggingface_hub import constants, get_token

    told = f"{model} ({repository}) is not in the cache"
    elsewhere = f"Bring the cache (HF_HOME) here, or set {kind.setting} to a folder (or to demo, for a trial)."
    if constants.HF_HUB_OFFLINE:
        return bad(name, f"{told} and HF_HUB_OFFLINE is set", elsewhere)
    url = f"{constants.ENDPOINT}/{repository}/resolve/main/{kind.required[0]}"
    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        status = httpx.head(url, headers=headers, timeout=HUB_SECONDS).status_code
    except httpx.HTTPError as error:
        return bad(name, f"{told} and the hub does not answer ({type(error).__name__})", elsewhere)
    if status < 400:
        return warn(name, told, f"The first start downloads it into {_cache()}.")
    if status in (401, 403):
        licence = f"Accept its licence at https://huggingface.co/{repository} and set HF_TOKEN to that account's token."
        return bad(
            name, f"{told} and the hub does not hand it out ({'with this token' if token else 'no token'})", licence
        )
    return bad(name, f"{told} and the hub answers {status}", f"Is the name right? {kind.setting} names it.")


def _cache() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _device(settings: Any) -> str:
    if settings.asr.device != "auto":
        return str(settings.asr.device)
    import ctranslate2

    return "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
