"""The configuration of a run: the service's settings, those that the run overrides, its engines and its code.

A run sets what decides results: `asr.model=whisper-tiny.en`. Where the service listens, stores and scales is not part
of it, nor is any secret: an `api_key` belongs to the service and its server; `asr.api_key_env` names a variable.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from rapidfuzz import fuzz
from rapidfuzz import process as matching

from pipeline.engines.registry import EngineOptions, digest_of
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import Recognition
from pipeline.steps.provenance import code_digest
from serve_app.settings import Settings

GROUPS = ("asr", "alignment", "diarization", "safety", "roles", "analysis")
"""The groups of settings that decide results."""

OPERATOR_SETTINGS = ("base_url", "calibration", "trust_checkpoint", "api_key_file", "api_key_env")
"""Not accepted over HTTP: they decide where words are sent, which files are read, and whose code runs."""

DEADLINE_FACTOR = 20  # of deadlines, compared with a queued call: a run yields to those

Changes = dict[str, dict[str, Any]]
"""Values of settings by group and name."""


class SettingRefused(ValueError):
    """A setting that a run may not have; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run, in the form that stages and engines take."""

    asr: dict[str, Any]
    alignment: dict[str, Any]
    diarization: dict[str, Any]
    process: ProcessOptions


def parse(assignments: Iterable[str]) -> Changes:
    """Parse `group.name=value`; values are JSON or plain text. Raises `SettingRefused`."""
    changes: Changes = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        group, dot, name = path.strip().lower().partition(".")
        if not (equals and dot and name):
            raise SettingRefused(
                f"{assignment!r} is invalid: write GROUP.NAME=VALUE, such as asr.model=whisper-tiny.en."
            )
        try:
            value = json.loads(text)
        except ValueError:
            value = text.strip()
        changes.setdefault(group, {})[name] = value
    return changes


def check(changes: Changes, settings: Settings, over_http: bool = False) -> Changes:
    """Return the changes if the service accepts them. Raises `SettingRefused`, with a suggestion for a misspelled name.

    `over_http`: the run may start engines only with the models of `settings.api.run_models`, and no setting of it may
    name a path, a repository or a server.
    """
    for group, values in changes.items():
        if group not in GROUPS:
            near = _most_similar(group, GROUPS)
            hint = f"Did you mean {near}?" if near else f"A run sets {', '.join(GROUPS)}."
            raise SettingRefused(f"{group!r} is not a group of settings that a run may set. {hint}")
        for name, value in values.items():
            _check_name(group, name, settings)
            if over_http:
                _check_over_http(group, name, value, settings)
    merged = _merged(changes, settings)
    if over_http:
        for name, model in _new_models(merged, settings):
            if model not in settings.api.run_models:
                raise SettingRefused(
                    f"A run over HTTP may not start an engine with {name}={model}. Operators allow models with "
                    "SWITCHBOARD_API__RUN_MODELS, or create the run: `switchboard runs create`."
                )
    return changes


def _most_similar(name: str, names: Iterable[str]) -> str | None:
    match = matching.extractOne(name, list(names), scorer=fuzz.ratio, score_cutoff=60)
    return match[0] if match else None


def _check_name(group: str, name: str, settings: Settings) -> None:
    is_secret = _settings_of(getattr(settings, group), of_all_engines=True)
    if name not in is_secret:
        near = _most_similar(name, is_secret)
        hint = f"Did you mean {group}.{near}?" if near else f"There are: {', '.join(sorted(is_secret))}."
        raise SettingRefused(f"{group}.{name} is not a setting. {hint}")
    if is_secret[name]:
        raise SettingRefused(f"{group}.{name} is a secret and is not stored with a run: set it for the service.")


def _check_over_http(group: str, name: str, value: Any, settings: Settings) -> None:
    options = getattr(settings, group)
    if name in OPERATOR_SETTINGS or name not in _settings_of(options, of_all_engines=True, built_in=True):
        raise SettingRefused(f"{group}.{name} is set by operators: `switchboard runs create` on the service's machine.")
    current = options.model_dump(mode="json").get(name)
    if value != current and any(sign in str(value) for sign in "/\\~"):
        raise SettingRefused(
            f"{group}.{name}: over HTTP, name a checkpoint of the store (`switchboard checkpoints list`), not a path "
            "or a repository."
        )


def _new_models(merged: Settings, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the setting and the name of each model that a run uses with an engine other than the service's."""
    started = {
        group
        for group in ("asr", "alignment", "diarization")
        if without_secrets(getattr(merged, group)) != without_secrets(getattr(settings, group))
    }
    if started & {"asr", "alignment"}:  # they run in one process
        yield "asr.model", merged.asr.model
        if merged.alignment.on and hasattr(merged.asr.engine_class, "needs_aligner"):
            yield "alignment.model", merged.alignment.model
    if "diarization" in started:
        yield "diarization.pipeline", merged.diarization.pipeline
    analysis, current = merged.analysis, settings.analysis
    if analysis.engine != "rules" and (analysis.engine, analysis.model) != (current.engine, current.model):
        yield "analysis.model", analysis.model or analysis.engine


def _settings_of(options: BaseModel, of_all_engines: bool = False, built_in: bool = False) -> dict[str, bool]:
    """Return for each setting of a group, by name, whether it is a secret.

    `of_all_engines`: include the settings of the engines that the group can choose. `built_in`: leave out those of
    engines of other packages, which may name servers and files.
    """
    kinds = [type(options)]
    if of_all_engines and isinstance(options, EngineOptions):
        kinds += [kind for _, kind in type(options).of_engines()]
    return {
        name: SecretStr in (field.annotation, *get_args(field.annotation))
        for kind in kinds
        if not built_in or kind.__module__.startswith("pipeline.")
        for name, field in kind.model_fields.items()
    }


def _merged(changes: Changes, settings: Settings) -> Settings:
    """Return the service's settings with the changes applied. Raises `SettingRefused`."""
    groups: dict[str, BaseModel] = {}
    for group, values in changes.items():
        options: BaseModel = getattr(settings, group)
        explicit = options.model_dump(exclude_unset=True)
        if "engine" in values and values["engine"] != getattr(options, "engine", None):
            # The settings of the former engine mean nothing to the new one.
            explicit = {name: value for name, value in explicit.items() if name in type(options).model_fields}
        try:
            groups[group] = type(options).model_validate({**explicit, **values})
        except ValidationError as error:
            raise SettingRefused("; ".join(_sentences(group, error)) + ".") from None
    return settings.model_copy(update=groups)


def _sentences(group: str, error: ValidationError) -> Iterator[str]:
    """Yield a phrase for each error, without the value."""
    for fault in error.errors(include_url=False, include_input=False):
        for detail in fault.get("ctx", {}).get("faults", ({},)):
            place = ".".join(str(part) for part in (group, *fault["loc"], *detail.get("loc", ())))
            yield f"{place}: {detail.get('msg', fault['msg']).removeprefix('Value error, ')}"


def resolved(changes: Changes, settings: Settings) -> dict[str, dict[str, Any]]:
    """Return all settings that decide the results of a run, as stored: without secrets. Raises `SettingRefused`."""
    merged = _merged(changes, settings)
    groups: dict[str, BaseModel] = {group: getattr(merged, group) for group in GROUPS}
    groups["roles"] = merged.role_options()
    return {group: without_secrets(options) for group, options in groups.items()}


def without_secrets(options: BaseModel) -> dict[str, Any]:
    """Return a group's settings as a run stores them; of an engine, all that it has."""
    if isinstance(options, EngineOptions) and options.on:
        options = options.for_engine()
    secrets = {name for name, is_secret in _settings_of(options).items() if is_secret}
    return options.model_dump(mode="json", exclude=secrets)


def options_of(stored: Mapping[str, Mapping[str, Any]], settings: Settings) -> RunOptions:
    """Return the options of a stored configuration, completed by the secrets of the service with these settings."""
    current = settings.process_options()
    is_same_server = stored["analysis"].get("base_url") == settings.analysis.base_url
    secrets = {  # of the server that the service uses; no other one may receive them
        name: getattr(settings.analysis, name)
        for name, is_secret in _settings_of(settings.analysis).items()
        if is_secret and is_same_server
    }
    groups: dict[str, BaseModel] = {
        "safety": type(current.safety).model_validate(stored["safety"]),
        "roles": type(current.roles).model_validate(stored["roles"]),
        "analysis": type(current.analysis).model_validate({**stored["analysis"], **secrets}),
    }
    deadlines = type(current.deadlines)(
        **{name: DEADLINE_FACTOR * value for name, value in asdict(current.deadlines).items()}
    )
    process = current.model_copy(update={**groups, "deadlines": deadlines})
    alignment = stored.get("alignment") or without_secrets(settings.alignment)  # of a run begun before it was settable
    return RunOptions(dict(stored["asr"]), dict(alignment), dict(stored["diarization"]), process)


def configuration(stored: Changes, recognition: Recognition, diarizer: str | None) -> dict[str, Any]:
    """Return a run's configuration: its settings, engines with checkpoints by digest, and code."""
    return {
        "settings": stored,
        "engines": {
            "asr": {"name": recognition.engine, "digest": recognition.identity},
            "diarization": {"digest": diarizer},
        },
        "code": code(),
    }


def code() -> dict[str, str]:
    """Return the version of the package, and a digest of the code that produces results."""
    try:
        release = version("switchboard-calls")
    except PackageNotFoundError:
        release = "unknown"
    return {"version": release, "digest": code_digest()}


def digest(stored: Mapping[str, Any]) -> str:
    return digest_of(dict(stored))
