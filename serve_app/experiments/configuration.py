"""What a run is made with: the service's settings, those that the run sets instead, its engines and its code.

A run sets what decides results: `asr.model=whisper-tiny.en`. Where the service listens, stores and scales is no part of
it, and no secret is: an `api_key` is the service's own, for its own server; `asr.api_key_env` names a variable.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from rapidfuzz import fuzz
from rapidfuzz import process as matching

from pipeline.engines.fingerprint import digest_of
from pipeline.engines.registry import EngineOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import Recognition
from pipeline.steps.provenance import code_digest
from serve_app.settings import Settings

GROUPS = ("asr", "alignment", "diarization", "safety", "roles", "analysis")
"""The groups of settings that decide what results are."""

OF_OPERATORS = ("base_url", "calibration", "trust_checkpoint", "api_key_file", "api_key_env")
"""What nobody sets over HTTP: where words are sent, which files are read, whose code is run."""

WAITS = 20  # times as long as for a call of the queue: a run lets those go first

Set = dict[str, dict[str, Any]]


class SettingRefused(ValueError):
    """A setting that a run cannot have; the message says why."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run, as the stages and engines take them."""

    asr: dict[str, Any]
    alignment: dict[str, Any]
    diarization: dict[str, Any]
    process: ProcessOptions


def parse(assignments: Iterable[str]) -> Set:
    """The settings of `group.name=value`, values as JSON or as they are. Raises `SettingRefused`."""
    found: Set = {}
    for one in assignments:
        path, equals, text = one.partition("=")
        group, dot, name = path.strip().lower().partition(".")
        if not (equals and dot and name):
            raise SettingRefused(f"{one!r} sets nothing: write GROUP.NAME=VALUE, such as asr.model=whisper-tiny.en.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text.strip()
        found.setdefault(group, {})[name] = value
    return found


def check(changes: Set, settings: Settings, over_http: bool = False) -> Set:
    """The changes, if the service can be set so. Raises `SettingRefused`, with the name that was probably meant.

    `over_http`: checkpoints are named then as the store, or the service's settings, name them: no paths, no hub.
    """
    for group, values in changes.items():
        if group not in GROUPS:
            near = matching.extractOne(group, GROUPS, scorer=fuzz.ratio, score_cutoff=60)
            hint = f"Did you mean {near[0]}?" if near else f"A run sets {', '.join(GROUPS)}."
            raise SettingRefused(f"{group!r} is not a group of settings that a run may set. {hint}")
        for name, value in values.items():
            _check_one(group, name, value, settings, over_http)
    _merged(changes, settings)
    return changes


def _check_one(group: str, name: str, value: Any, settings: Settings, over_http: bool) -> None:
    if name not in (known := _fields(getattr(settings, group), changes_engine=True)):
        near = matching.extractOne(name, list(known), scorer=fuzz.ratio, score_cutoff=60)
        hint = f"Did you mean {group}.{near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
        raise SettingRefused(f"{group}.{name} is not a setting. {hint}")
    if known[name]:
        raise SettingRefused(f"{group}.{name} is a secret, which is not stored with a run: set it for the service.")
    if not over_http:
        return
    if name in OF_OPERATORS:
        raise SettingRefused(f"{group}.{name} is set by operators: `switchboard runs create` on the service's machine.")
    own = getattr(settings, group).model_dump(mode="json").get(name)
    if isinstance(value, str) and value != own and any(sign in value for sign in "/\\~"):
        raise SettingRefused(
            f"{group}.{name}: over HTTP a checkpoint is one of the store (`switchboard checkpoints list`), not a path "
            "or a repository."
        )


def _fields(options: BaseModel, changes_engine: bool = False) -> dict[str, bool]:
    """The names of a group's settings, and whether each is a secret; of engines, those of all of them."""
    kinds = [type(options)]
    if changes_engine and isinstance(options, EngineOptions):
        kinds += [kind for _, kind in type(options).of_engines()]
    return {
        name: SecretStr in (field.annotation, *get_args(field.annotation))
        for kind in kinds
        for name, field in kind.model_fields.items()
    }


def _merged(changes: Set, settings: Settings) -> Settings:
    """The service's settings with the changes in them. Raises `SettingRefused`."""
    made: dict[str, BaseModel] = {}
    for group, values in changes.items():
        own: BaseModel = getattr(settings, group)
        told = own.model_dump(exclude_unset=True)
        if "engine" in values and values["engine"] != getattr(own, "engine", None):
            told = {name: value for name, value in told.items() if name in type(own).model_fields}  # not another's
        try:
            made[group] = type(own).model_validate({**told, **values})
        except ValidationError as error:
            raise SettingRefused("; ".join(_told(group, error)) + ".") from None
    return settings.model_copy(update=made)


def _told(group: str, error: ValidationError) -> Iterator[str]:
    """A phrase for each fault, without the value."""
    for fault in error.errors(include_url=False, include_input=False):
        for own in fault.get("ctx", {}).get("faults", ({},)):
            place = ".".join(str(part) for part in (group, *fault["loc"], *own.get("loc", ())))
            yield f"{place}: {own.get('msg', fault['msg']).removeprefix('Value error, ')}"


def resolved(changes: Set, settings: Settings) -> dict[str, dict[str, Any]]:
    """All settings of a run that decide its results, as they are stored: without secrets. Raises `SettingRefused`."""
    merged = _merged(changes, settings)
    groups: dict[str, BaseModel] = {group: getattr(merged, group) for group in GROUPS}
    groups["roles"] = merged.role_options()
    return {group: without_secrets(options) for group, options in groups.items()}


def without_secrets(options: BaseModel) -> dict[str, Any]:
    """A group's settings as a run stores them; of an engine, all of its own."""
    own = options.own() if isinstance(options, EngineOptions) and options.engine != options.OFF else options
    return own.model_dump(mode="json", exclude={name for name, hidden in _fields(own).items() if hidden})


def options_of(stored: Mapping[str, Mapping[str, Any]], settings: Settings) -> RunOptions:
    """The options that a stored configuration stands for, on a service with these settings, whose secrets it has."""
    own = settings.process_options()
    secrets = {
        name: getattr(settings.analysis, name)
        for name, hidden in _fields(settings.analysis).items()
        if hidden and stored["analysis"].get("base_url") == settings.analysis.base_url
    }
    groups: dict[str, BaseModel] = {
        "safety": type(own.safety).model_validate(stored["safety"]),
        "roles": type(own.roles).model_validate(stored["roles"]),
        "analysis": type(own.analysis).model_validate({**stored["analysis"], **secrets}),
    }
    deadlines = type(own.deadlines)(**{name: WAITS * value for name, value in asdict(own.deadlines).items()})
    process = own.model_copy(update={**groups, "deadlines": deadlines})
    alignment = stored.get("alignment") or without_secrets(settings.alignment)  # of a run begun before it was settable
    return RunOptions(dict(stored["asr"]), dict(alignment), dict(stored["diarization"]), process)


def configuration(stored: Set, recognition: Recognition, diarizer: str | None) -> dict[str, Any]:
    """What a run is made with: its settings, engines with checkpoints by digest, and code."""
    return {
        "settings": stored,
        "engines": {
            "asr": {"name": recognition.engine, "digest": recognition.identity},
            "diarization": {"digest": diarizer},
        },
        "code": code(),
    }


def code() -> dict[str, str]:
    """The version of the package, and a digest of the code that makes results."""
    try:
        known = version("switchboard-calls")
    except PackageNotFoundError:
        known = "unknown"
    return {"version": known, "digest": code_digest()}


def digest(made_with: Mapping[str, Any]) -> str:
    """The digest of a configuration."""
    return digest_of(dict(made_with))
