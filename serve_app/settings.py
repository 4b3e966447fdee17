"""All settings, from environment variables: SWITCHBOARD_HTTP__PORT=8080 sets `http.port`.

Each part describes its options next to its code; this file combines them, and alone reads the environment.
"""

import json
import logging
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    SerializationInfo,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)
from rapidfuzz import fuzz, process

from db.core.identity import SIGNING_PARAMETERS
from db.secrets.encryption import HOW_TO_CREATE_KEY, KEYS_SETTING, Sealer
from db.secrets.recording_urls import UrlSealer
from pipeline.analysis.engine import AnalysisOptions
from pipeline.asr.alignment.engine import AlignmentOptions
from pipeline.asr.engine import AsrOptions
from pipeline.asr.safety import SafetyOptions
from pipeline.audio.decode.options import DecodeOptions
from pipeline.diarization.engine import DiarizationOptions
from pipeline.embedding import EmbeddingOptions
from pipeline.engines.registry import EngineOptions
from pipeline.fetch.options import FetchOptions
from pipeline.net.endpoint import REVEAL
from pipeline.speakers.roles import RoleOptions
from pipeline.voice import calibration as voice_calibration
from serve_app import data_folder
from serve_app.api.options import ApiOptions
from serve_app.conductor.options import ErasureOptions, ProcessingOptions
from serve_app.http.options import LimitOptions
from serve_app.operations.options import ScalingOptions
from serve_app.webhooks.options import WebhookOptions

if TYPE_CHECKING:
    from db.secrets.call_keys import CallKeys
    from pipeline.checkpoints import CheckpointKind
    from pipeline.domain.voices import VoicePolicy
    from pipeline.options import ProcessOptions

PREFIX = "SWITCHBOARD_"
DELIMITER = "__"
COMMAND_LINE = frozenset({"SWITCHBOARD_API_KEY", "SWITCHBOARD_URL", "SWITCHBOARD_DEBUG"})  # read by the command line
log = logging.getLogger("switchboard.settings")


class Environment(EnvSettingsSource):
    """The environment, in which a list is written as JSON or with commas: pbx.internal,10.0.0.0/8."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        if not field or get_origin(field.annotation) not in (tuple, list):
            return super().decode_complex_value(field_name, field, value)
        text = str(value).strip()
        if text.startswith("["):
            try:
                return super().decode_complex_value(field_name, field, text)
            except ValueError:
                if '"' in text:  # no address: [fd00::1]:8080
                    raise
        return [part.strip() for part in text.split(",") if part.strip()]


class HttpOptions(BaseModel):
    """Where the service listens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on.")
    connections_per_source: int = Field(
        1024,
        ge=1,
        description="Max. connections from one address, except trusted proxies.",
    )
    trusted_proxies: tuple[IPvAnyNetwork, ...] = Field(
        (),
        description="Addresses and networks (CIDR) of the proxies in front of the service: only their "
        "X-Forwarded-For names the client.",
    )


class Settings(BaseSettings):
    """The settings of the service. Frozen: a process reads its settings once, at its edge."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        title="Settings",
        hide_input_in_errors=True,  # an invalid value may be a key or a password
    )

    database_url: str | None = Field(
        None, description="PostgreSQL, postgresql://...; unset: an embedded server in data_dir.", repr=False
    )
    data_dir: Path = Field(
        None,
        validate_default=True,
        description="Folder of the embedded PostgreSQL and of recordings; unset: switchboard/data in the user's "
        "data folder (~/.local/share).",
    )
    storage: str | None = Field(
        None, description="Folder for fetched recordings, as an fsspec URL (s3://...); unset: in data_dir."
    )
    scratch: str | None = Field(
        None,
        description="Folder for decoded audio, as an fsspec URL that every node can reach; unset: decoded/ in the"
        " recordings folder.",
    )
    checkpoints: Path | None = Field(
        None,
        description="The checkpoint store; unset: switchboard/checkpoints in the user's data folder (~/.local/share).",
    )
    route_prefix: str = Field("/", description="Path of base_url: /v1 makes it POST /v1/submit.")
    signing_parameters: tuple[str, ...] = Field(
        SIGNING_PARAMETERS,
        description="Query parameters that only sign a URL: URLs that differ only in these are the same recording.",
    )
    secrets_keys: tuple[SecretStr, ...] = Field(
        (),
        description="Keys that encrypt stored secrets, each of 32 bytes in base64 (`openssl rand -base64 32`): "
        "the first one encrypts, all decrypt. Unset: with the embedded database a key in data_dir "
        "(secrets.key), otherwise nothing is encrypted.",
    )
    seal_paths: bool = Field(
        False,
        description="Encrypt paths of recording URLs too, for servers that put the secret there. After a change: "
        "`switchboard calls reseal`.",
    )
    seal_calls: bool = Field(
        False,
        description="Encrypt recordings, transcripts and stage results of new calls with a key for each call. "
        "Needs secrets_keys.",
    )
    egress: Literal["allow", "deny"] = Field(
        "allow",
        description="deny: connect only to hosts that settings name, to recording hosts and to webhook receivers.",
    )
    log_format: Literal["auto", "text", "json"] = Field(
        "auto",
        description="text, json (one object per line), or auto: text in a terminal, otherwise json.",
    )
    log_dir: Path | None = Field(
        None,
        description="Folder for the logs of `switchboard up` (6 files of 50 MB at most); unset: standard output.",
    )
    http: HttpOptions = Field(default_factory=HttpOptions)
    limits: LimitOptions = Field(default_factory=LimitOptions)
    api: ApiOptions = Field(default_factory=ApiOptions)
    processing: ProcessingOptions = Field(default_factory=ProcessingOptions)
    scaling: ScalingOptions = Field(default_factory=ScalingOptions)
    webhooks: WebhookOptions = Field(default_factory=WebhookOptions)
    erasure: ErasureOptions = Field(default_factory=ErasureOptions)
    fetch: FetchOptions = Field(default_factory=FetchOptions)
    decode: DecodeOptions = Field(default_factory=DecodeOptions)
    asr: AsrOptions = Field(default_factory=AsrOptions)
    alignment: AlignmentOptions = Field(default_factory=AlignmentOptions)
    diarization: DiarizationOptions = Field(default_factory=DiarizationOptions)
    embedding: EmbeddingOptions = Field(default_factory=EmbeddingOptions)
    safety: SafetyOptions = Field(default_factory=SafetyOptions)
    roles: RoleOptions = Field(default_factory=RoleOptions)
    analysis: AnalysisOptions = Field(default_factory=AnalysisOptions)

    @field_validator("data_dir", mode="before")
    @classmethod
    def _of_the_user(cls, folder: Any) -> Any:
        return data_folder.default() if folder is None else folder

    @field_validator("data_dir", "checkpoints", "log_dir")
    @classmethod
    def _absolute(cls, folder: Path | None) -> Path | None:
        """Make the path absolute: replicas run in another folder than the process that passes it to them."""
        return folder and folder.expanduser().absolute()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, Environment(settings_cls)

    def model_post_init(self, _: Any) -> None:
        _warn_of_unknown_variables(os.environ)

    @field_validator("database_url")
    @classmethod
    def _postgresql(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("must be a URL of the form postgresql://user:password@host/database")
        return value

    @field_validator("secrets_keys")
    @classmethod
    def _can_seal(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        Sealer([key.get_secret_value() for key in keys])
        return keys

    @model_validator(mode="after")
    def _can_seal_calls(self) -> "Settings":
        if self.seal_calls and self.database_url is not None and not self.secrets_keys:
            raise ValueError(f"{PREFIX}SEAL_CALLS needs {KEYS_SETTING}: {HOW_TO_CREATE_KEY}")
        return self

    @field_serializer("secrets_keys", when_used="json")
    def _hidden(self, keys: tuple[SecretStr, ...], info: SerializationInfo) -> list[str]:
        """Reveal keys on request only, for the environment of the service's replicas."""
        reveal = bool(info.context and info.context.get(REVEAL))
        return [key.get_secret_value() if reveal else str(key) for key in keys]

    @field_validator("route_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if not value.startswith("/") or (value != "/" and value.endswith("/")) or "{" in value:
            raise ValueError("must begin with a slash and not end with one, such as /v1")
        return value

    @property
    def base_url(self) -> str:
        """URL of the service for clients on this machine."""
        host = "127.0.0.1" if self.http.host in ("0.0.0.0", "::") else self.http.host  # noqa: S104 (compared only)
        return f"http://{host}:{self.http.port}{self.route_prefix.rstrip('/')}"

    @property
    def console_path(self) -> str:
        """URL path of the pages."""
        return f"{self.route_prefix.rstrip('/')}/console"

    @property
    def console_url(self) -> str:
        """URL of the pages for browsers on this machine."""
        return f"{self.base_url}/console"

    @property
    def logs_as_json(self) -> bool:
        """Whether logs are JSON, decided in the process that starts the service."""
        return self.log_format == "json" or (
            self.log_format == "auto" and not (sys.stdout.isatty() and not self.log_dir)
        )

    @property
    def serve_logging(self) -> dict[str, str]:
        """Ray Serve's `logging_config`."""
        return {"encoding": "JSON" if self.logs_as_json else "TEXT"}

    @property
    def storage_url(self) -> str:
        """Fsspec URL of the folder for recordings."""
        return self.storage or (self.data_dir.expanduser().resolve() / "recordings").as_uri()

    @property
    def handed_in(self) -> Path:
        """Folder for files that commands on this machine hand in; see `pipeline.fetch.handed_in`."""
        return self.data_dir / "handed-in"

    def voices(self) -> "VoicePolicy":
        """Return the rules by which voice profiles are computed."""
        from pipeline.speakers.profile import Voices

        return Voices(self.role_options())

    def sealer(self) -> Sealer:
        """Return the sealer of stored secrets. See `with_folder_key` for the keys."""
        return Sealer(self.sealing_keys())

    def url_sealer(self) -> UrlSealer:
        """Return the sealer of recording URLs, with the same keys."""
        return UrlSealer(self.sealing_keys(), self.seal_paths)

    def call_keys(self) -> "CallKeys":
        """Return what seals and opens calls, with the same keys."""
        from db.secrets.call_keys import CallKeys

        return CallKeys(self.sealer(), self.seal_calls)

    def with_folder_key(self) -> "Settings":
        """Return the settings with the key of the data folder, if the database is embedded.

        The folder's key comes after the keys that are set, if it has one; without any key one is created.
        """
        if self.database_url is not None:
            return self
        key = data_folder.find_key(self.data_dir) if self.secrets_keys else data_folder.make_key(self.data_dir)
        return self.model_copy(update={"secrets_keys": (*self.secrets_keys, SecretStr(key))}) if key else self

    def sealing_keys(self) -> list[str]:
        """Return the keys that seal secrets, and sign backups and the ledger of erasures."""
        return [key.get_secret_value() for key in self.with_folder_key().secrets_keys]

    def require_database_url(self) -> str:
        """Return the database's URL, in a process that cannot start an embedded one. Raises ValueError without one."""
        if self.database_url is None:
            raise ValueError(
                f"{PREFIX}DATABASE_URL is not set. `switchboard up` starts an embedded PostgreSQL and sets it; any "
                "other way to start the service needs a PostgreSQL server."
            )
        return self.database_url

    def role_options(self) -> RoleOptions:
        """Return `roles`, with the calibration in the diarization pipeline's folder unless one is set."""
        path = Path(self.diarization.pipeline).expanduser() / voice_calibration.FILE
        if self.roles.calibration is not None or not path.is_file():
            return self.roles
        return self.roles.model_copy(update={"calibration": path.absolute()})

    def models(self) -> list[tuple[str, "CheckpointKind"]]:
        """Return the name and the kind of checkpoint of each model that this machine needs.

        An engine whose model runs on a server is left out; so is an aligner that no engine uses.
        """
        models: list[tuple[str, Any]] = [(self.asr.model, self.asr.engine_class)]
        if self.alignment.on and self.asr.may_align:
            models.append((self.alignment.model, self.alignment.engine_class))
        models.append((self.diarization.pipeline, self.diarization.engine_class))
        if self.embedding.on:
            models.append((self.embedding.model, self.embedding.engine_class))
        return [(model, engine.CHECKPOINTS) for model, engine in models if engine.CHECKPOINTS is not None]

    def process_options(self) -> "ProcessOptions":
        from pipeline.options import ProcessOptions

        return ProcessOptions(
            storage=self.storage_url,
            scratch=self.scratch,
            handed_in=self.handed_in,
            fetch=self.fetch,
            decode=self.decode,
            roles=self.role_options(),
            safety=self.safety,
            analysis=self.analysis,
        )


def asr_secrets(base_url: str | None = None) -> dict[str, str]:
    """Return the secret options of recognition, from this node's environment.

    `base_url`: the server that they are for; a server other than the service's gets none.
    """
    asr = Settings().asr
    return asr.secrets() if base_url in (None, getattr(asr, "base_url", None)) else {}


class Documented(NamedTuple):
    variable: str
    default: str
    description: str


def documented(model: type[BaseModel] = Settings, prefix: str = PREFIX, default: Any = None) -> Iterator[Documented]:
    """Yield every setting once, nested ones by the name of their variable."""
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        value = getattr(default, name) if default is not None else field.get_default(call_default_factory=True)
        inner = _nested_model(field)
        if inner is not None:
            yield from documented(inner, variable + DELIMITER, value)
        else:
            yield Documented(variable, _shown(value), field.description or "")
    if issubclass(model, EngineOptions):
        yield from _of_engines(model, prefix)


def _of_engines(model: type[EngineOptions], prefix: str) -> Iterator[Documented]:
    """Yield options of single engines, one row for a variable that several of them read."""
    rows: dict[str, list[Documented]] = defaultdict(list)
    for engine, options in model.of_engines():
        for name, field in options.model_fields.items():
            if name not in model.model_fields:
                description = f"{engine}: {field.description}"
                rows[name].append(Documented(f"{prefix}{name.upper()}", _shown(field.get_default()), description))
    for same in rows.values():
        defaults = {row.default or "unset" for row in same}
        shown = same[0].default if len(defaults) == 1 else ""
        suffixes = [f" (default: {row.default or 'unset'})" if len(defaults) > 1 else "" for row in same]
        description = " ".join(row.description + default for row, default in zip(same, suffixes, strict=True))
        yield Documented(same[0].variable, shown, description)


def _nested_model(field: FieldInfo) -> type[BaseModel] | None:
    kinds = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else (field.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, list | tuple | set | frozenset | dict):
        return json.dumps(value if isinstance(value, dict) else list(value), default=str)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def unknown_variables(environment: Iterable[str]) -> dict[str, str | None]:
    """Return variables with the prefix that name no setting, each with the closest one that does."""
    names = {setting.variable for setting in documented()} | COMMAND_LINE
    groups = {name[:at] for name in names for at in range(len(name)) if name.startswith(DELIMITER, at)}  # one JSON each
    ours = [name for name in environment if name.upper().startswith(PREFIX)]
    strange = [name for name in ours if not {name.upper(), *_groups_of(name.upper())[1:]} & names]
    return {name: closest(name) for name in strange if name.upper() not in groups}


def _groups_of(name: str) -> list[str]:
    """Return SWITCHBOARD_A, SWITCHBOARD_A__B for SWITCHBOARD_A__B__C."""
    parts = name.split(DELIMITER)
    return [DELIMITER.join(parts[:count]) for count in range(1, len(parts))]


def closest(variable: str) -> str | None:
    """Return the setting whose name is most similar to `variable`; None if none is similar."""
    names = [setting.variable for setting in documented()]
    match = process.extractOne(variable.upper(), names, scorer=fuzz.ratio, score_cutoff=70)
    return match[0] if match else None


def not_a_setting(variable: str) -> str:
    """Return the sentence about a variable that names no setting."""
    near = closest(variable)
    return f"is not a setting; {f'did you mean {near}?' if near else 'see SETTINGS.md.'}"


def faults(error: ValidationError | SettingsError) -> dict[str, str]:
    """Return the errors of the environment: variable -> sentence. Never repeats a value: it may be a secret."""
    if isinstance(error, SettingsError):
        name = re.search(r'field "(\w+)"', str(error))
        variable = PREFIX + (name[1].upper() if name else "...")
        return {variable: 'cannot be read: a list is written a,b or ["a", "b"], a group of settings as a JSON object'}
    sentences: dict[str, str] = {}
    for fault in error.errors(include_url=False, include_input=False):
        for detail in fault.get("ctx", {}).get("faults", ({},)):
            loc = [str(part) for part in (*fault["loc"], *detail.get("loc", ())) if isinstance(part, str)]
            variable = PREFIX + DELIMITER.join(loc).upper()
            kind, message = detail.get("type", fault["type"]), detail.get("msg", fault["msg"])
            sentences[variable] = (
                not_a_setting(variable) if kind == "extra_forbidden" else message.removeprefix("Value error, ")
            )
    return sentences


def usable() -> tuple[Settings, dict[str, str]]:
    """Return the settings without the variables that cannot be used, and the errors of those, as from `faults`."""
    wrong: dict[str, str] = {}
    left_out: dict[str, str] = {}
    try:
        while True:
            try:
                return Settings(), wrong
            except (ValidationError, SettingsError) as error:
                sentences = faults(error)
                unusable = [
                    name
                    for name in os.environ
                    if any(
                        name.upper() == variable or name.upper().startswith(variable + DELIMITER)
                        for variable in sentences
                    )
                ] or [name for name in os.environ if any(variable.startswith(name.upper()) for variable in sentences)]
                if not unusable:
                    raise
                wrong |= sentences
                left_out |= {name: os.environ.pop(name) for name in unusable}
    finally:
        os.environ.update(left_out)


_warned: set[str] = set()


def _warn_of_unknown_variables(environment: Mapping[str, str]) -> None:
    """Warn once per variable and process: replicas read their settings more than once."""
    for name, near in unknown_variables([name for name in environment if name not in _warned]).items():
        _warned.add(name)
        hint = f"did you mean {near}?" if near else "see SETTINGS.md."
        log.warning("%s is not a setting and has no effect; %s", name, hint)
