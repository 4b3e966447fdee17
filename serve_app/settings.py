"""Every setting, from environment variables: SWITCHBOARD_HTTP__PORT=8080 sets `http.port`.

Each part describes its own options beside its code; this file gathers them and is the only one that reads the
environment.
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
    SecretStr,
    SerializationInfo,
    ValidationError,
    field_serializer,
    field_validator,
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
from db.secrets.encryption import Sealer
from db.secrets.recording_urls import UrlSealer
from pipeline.analysis.engine import AnalysisOptions
from pipeline.asr.alignment.engine import AlignmentOptions
from pipeline.asr.engine import AsrOptions
from pipeline.asr.safety import SafetyOptions
from pipeline.audio.decode.decoder import DecodeOptions
from pipeline.diarization.engine import DiarizationOptions
from pipeline.embedding import EmbeddingOptions
from pipeline.engines.registry import EngineOptions
from pipeline.fetch.fetcher import FetchOptions
from pipeline.net.endpoint import REVEAL
from pipeline.speakers.roles import RoleOptions
from pipeline.voice import calibration as voice_calibration
from serve_app.api.options import ApiOptions
from serve_app.conductor.retry import ProcessingOptions
from serve_app.http.limits import LimitOptions
from serve_app.operations.scaling_options import ScalingOptions
from serve_app.service import data_folder
from serve_app.webhooks.options import WebhookOptions

if TYPE_CHECKING:
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
        description="Connections that one address may hold, of the ingress's 4,096. Raise it behind a load balancer.",
    )


class Settings(BaseSettings):
    """The whole service. Frozen: a process reads its settings once, at its edge."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        title="Settings",
        hide_input_in_errors=True,  # what cannot be used may be a key or a password
    )

    database_url: str | None = Field(
        None, description="PostgreSQL, postgresql://...; unset: an embedded server in data_dir.", repr=False
    )
    data_dir: Path = Field(
        None,
        validate_default=True,
        description="Folder for the embedded PostgreSQL and for recordings; unset: switchboard/data in the user's data "
        "folder (~/.local/share), whatever folder a command is run in.",
    )
    storage: str | None = Field(
        None, description="Folder for fetched recordings, as an fsspec URL (s3://...); unset: in data_dir."
    )
    scratch: str | None = Field(
        None,
        description="Folder for decoded audio while a call runs, as an fsspec URL that every node can reach; "
        "unset: decoded/ in the recordings folder.",
    )
    checkpoints: Path | None = Field(
        None,
        description="The checkpoint store, filled by `switchboard checkpoints fetch`; unset: "
        "switchboard/checkpoints in the user's data folder (~/.local/share).",
    )
    route_prefix: str = Field("/", description="Path of base_url: /v1 makes it POST /v1/submit.")
    signing_parameters: tuple[str, ...] = Field(
        SIGNING_PARAMETERS,
        description="Query parameters that only sign a URL: URLs that differ in nothing else are the same recording.",
    )
    secrets_keys: tuple[SecretStr, ...] = Field(
        (),
        description="Keys that seal stored secrets (recording URLs, credentials of recording servers, secrets of "
        "webhooks), each of 32 bytes in base64 (`openssl rand -base64 32`): the first one seals, all of them open. "
        "Unset: with the embedded database a key is made in data_dir (secrets.key), otherwise nothing "
        "is sealed.",
    )
    seal_paths: bool = Field(
        False,
        description="Seal paths of recording URLs too, for servers that put the secret there (/sig/5ec4e7/call.wav): "
        "people then see scheme, host and port. After a change: `switchboard calls reseal`.",
    )
    log_format: Literal["auto", "text", "json"] = Field(
        "auto",
        description="How processes log: text, json (an object for each line), or auto: text where the service is "
        "started from a terminal, json elsewhere.",
    )
    http: HttpOptions = Field(default_factory=HttpOptions)
    limits: LimitOptions = Field(default_factory=LimitOptions)
    api: ApiOptions = Field(default_factory=ApiOptions)
    processing: ProcessingOptions = Field(default_factory=ProcessingOptions)
    scaling: ScalingOptions = Field(default_factory=ScalingOptions)
    webhooks: WebhookOptions = Field(default_factory=WebhookOptions)
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

    @field_validator("data_dir", "checkpoints")
    @classmethod
    def _absolute(cls, folder: Path | None) -> Path | None:
        """Replicas run in another folder than the process that hands it to them."""
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

    @field_serializer("secrets_keys", when_used="json")
    def _hidden(self, keys: tuple[SecretStr, ...], info: SerializationInfo) -> list[str]:
        """Revealed only on request: to the service, for the environment of its own replicas."""
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
        """Where senders on this machine find the service."""
        host = "127.0.0.1" if self.http.host in ("0.0.0.0", "::") else self.http.host  # noqa: S104 (compared only)
        return f"http://{host}:{self.http.port}{self.route_prefix.rstrip('/')}"

    @property
    def console_path(self) -> str:
        """The path under which the pages are served."""
        return f"{self.route_prefix.rstrip('/')}/console"

    @property
    def console_url(self) -> str:
        """Where people on this machine find the pages."""
        return f"{self.base_url}/console"

    @property
    def serve_logging(self) -> dict[str, str]:
        """Ray Serve's `logging_config`, decided in the process that starts the service."""
        automatic = "text" if sys.stderr.isatty() else "json"
        return {"encoding": (automatic if self.log_format == "auto" else self.log_format).upper()}

    @property
    def storage_url(self) -> str:
        """The fsspec URL of the folder that keeps recordings."""
        return self.storage or (self.data_dir.expanduser().resolve() / "recordings").as_uri()

    @property
    def handed_in(self) -> Path:
        """The folder through which commands of this machine hand files in; see `pipeline.fetch.handed_in`."""
        return self.data_dir / "handed-in"

    def sealer(self) -> Sealer:
        """Seals and opens stored secrets. See `with_folder_key` for the keys."""
        return Sealer(self._keys())

    def url_sealer(self) -> UrlSealer:
        """Seals and opens recording URLs with the same keys."""
        return UrlSealer(self._keys(), self.seal_paths)

    def with_folder_key(self) -> "Settings":
        """The same, and for an embedded database with the key of its folder: behind the keys that are set, where it has
        one; where none is set it is made."""
        if self.database_url is not None:
            return self
        key = data_folder.find_key(self.data_dir) if self.secrets_keys else data_folder.make_key(self.data_dir)
        return self.model_copy(update={"secrets_keys": (*self.secrets_keys, SecretStr(key))}) if key else self

    def _keys(self) -> list[str]:
        return [key.get_secret_value() for key in self.with_folder_key().secrets_keys]

    def require_database_url(self) -> str:
        """The database's URL, in a process that cannot start an embedded one: a replica, a policy."""
        if self.database_url is None:
            raise ValueError(
                f"{PREFIX}DATABASE_URL is not set. `switchboard up` starts an embedded PostgreSQL and sets it; "
                "a service that is started in another way needs a server of its own."
            )
        return self.database_url

    def role_options(self) -> RoleOptions:
        """`roles`, with the calibration that lies in the diarization pipeline's folder where none is set."""
        beside = Path(self.diarization.pipeline).expanduser() / voice_calibration.FILE
        if self.roles.calibration is not None or not beside.is_file():
            return self.roles
        return self.roles.model_copy(update={"calibration": beside.absolute()})

    def process_options(self) -> "ProcessOptions":
        """What the stages need to know."""
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
    """What of the recognition options is secret, in this node's environment.

    `base_url`: of the server that it is for; another server than the service's gets none.
    """
    asr = Settings().asr
    return asr.secrets() if base_url in (None, getattr(asr, "base_url", None)) else {}


class Documented(NamedTuple):
    """One setting as people read about it."""

    variable: str
    default: str
    description: str


def documented(model: type[BaseModel] = Settings, prefix: str = PREFIX, default: Any = None) -> Iterator[Documented]:
    """Every setting once, nested ones by the name of their variable."""
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
    """What single engines of a stage can be told besides, one row for a variable that several of them read."""
    rows: dict[str, list[Documented]] = defaultdict(list)
    for engine, options in model.of_engines():
        for name, field in options.model_fields.items():
            if name not in model.model_fields:
                told = f"{engine}: {field.description}"
                rows[name].append(Documented(f"{prefix}{name.upper()}", _shown(field.get_default()), told))
    for same in rows.values():
        defaults = {one.default or "unset" for one in same}
        shown = same[0].default if len(defaults) == 1 else ""
        own = [f" (default: {one.default or 'unset'})" if len(defaults) > 1 else "" for one in same]
        told = " ".join(one.description + default for one, default in zip(same, own, strict=True))
        yield Documented(same[0].variable, shown, told)


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
    """Variables with our prefix that name no setting, each with the closest one that does."""
    known = {one.variable for one in documented()} | COMMAND_LINE
    groups = {name[:at] for name in known for at in range(len(name)) if name.startswith(DELIMITER, at)}  # one JSON each
    ours = [given for given in environment if given.upper().startswith(PREFIX)]
    strange = [given for given in ours if not {given.upper(), *_groups_of(given.upper())[1:]} & known]
    return {given: closest(given) for given in strange if given.upper() not in groups}


def _groups_of(name: str) -> list[str]:
    """SWITCHBOARD_A, SWITCHBOARD_A__B of SWITCHBOARD_A__B__C."""
    parts = name.split(DELIMITER)
    return [DELIMITER.join(parts[:count]) for count in range(1, len(parts))]


def closest(variable: str) -> str | None:
    """The setting whose name is most like `variable`; None where none is like it."""
    known = [one.variable for one in documented()]
    found = process.extractOne(variable.upper(), known, scorer=fuzz.ratio, score_cutoff=70)
    return found[0] if found else None


def not_a_setting(variable: str) -> str:
    """The sentence about a variable that names no setting."""
    near = closest(variable)
    return f"is not a setting; {f'did you mean {near}?' if near else 'see SETTINGS.md for those there are.'}"


def faults(error: ValidationError | SettingsError) -> dict[str, str]:
    """What is wrong with the environment: variable -> sentence. No value is repeated: it may be a secret."""
    if isinstance(error, SettingsError):
        name = re.search(r'field "(\w+)"', str(error))
        variable = PREFIX + (name[1].upper() if name else "...")
        return {variable: 'cannot be read: a list is written a,b or ["a", "b"], a group of settings as a JSON object'}
    found: dict[str, str] = {}
    for fault in error.errors(include_url=False, include_input=False):
        for own in fault.get("ctx", {}).get("faults", ({},)):
            loc = [str(part) for part in (*fault["loc"], *own.get("loc", ())) if isinstance(part, str)]
            variable = PREFIX + DELIMITER.join(loc).upper()
            kind, told = own.get("type", fault["type"]), own.get("msg", fault["msg"])
            found[variable] = (
                not_a_setting(variable) if kind == "extra_forbidden" else told.removeprefix("Value error, ")
            )
    return found


def usable() -> tuple[Settings, dict[str, str]]:
    """The settings without those variables that cannot be used, and what is wrong with these, as `faults` says."""
    wrong: dict[str, str] = {}
    left_out: dict[str, str] = {}
    try:
        while True:
            try:
                return Settings(), wrong
            except (ValidationError, SettingsError) as error:
                found = faults(error)
                guilty = [
                    name
                    for name in os.environ
                    if any(name.upper() == one or name.upper().startswith(one + DELIMITER) for one in found)
                ] or [name for name in os.environ if any(one.startswith(name.upper()) for one in found)]
                if not guilty:
                    raise
                wrong |= found
                left_out |= {name: os.environ.pop(name) for name in guilty}
    finally:
        os.environ.update(left_out)


_warned: set[str] = set()


def _warn_of_unknown_variables(environment: Mapping[str, str]) -> None:
    """Once for each variable and process: replicas read their settings more than once."""
    for name, near in unknown_variables([name for name in environment if name not in _warned]).items():
        _warned.add(name)
        hint = f"did you mean {near}?" if near else "see SETTINGS.md for those there are."
        log.warning("%s is not a setting and has no effect; %s", name, hint)
