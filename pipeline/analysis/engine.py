"""What an engine of the analysis must do, how it is chosen, and what it can be told."""

from importlib import import_module
from typing import Any, ClassVar, Protocol, cast, runtime_checkable
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    SerializationInfo,
    ValidationInfo,
    field_serializer,
    field_validator,
)

from pipeline.domain.insight import Finding, Material, ToneByVoice

REVEAL = "reveal_secrets"  # key of a serialization context under which `api_key` is written out


@runtime_checkable
class Engine(Protocol):
    """Says what a call means."""

    name: str  # what made the findings, e.g. "rules" or "llm qwen3-8b"

    def analyze(self, material: Material) -> tuple[Finding, ...]:
        """One finding for each step of `step.STEPS`, in that order. Never raises: what failed is said in notes."""


ENGINES: dict[str, str] = {
    "rules": "pipeline.analysis.step:Rules",
    "llm": "pipeline.analysis.llm:LanguageModel",
}
"""Engines by the name that settings use: "module:Class", imported only where it is used."""


class AnalysisOptions(BaseModel):
    """How calls are analyzed. Without settings: by rules, on this machine, with no network."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    TEMPERATURE: ClassVar[float] = 0.0  # randomness of the answer; 0 is the least
    RETRIES: ClassVar[int] = 2  # after a refused connection, 408, 429, 502, 503 or 504

    engine: str = Field(
        "rules",
        validate_default=True,
        description="rules (built in, no network) or llm (a language model behind an OpenAI-compatible endpoint; the "
        "words of every call are sent there).",
    )
    base_url: str | None = Field(
        None,
        validate_default=True,
        description="The model's endpoint up to and including its version, such as http://127.0.0.1:8000/v1; "
        "/chat/completions is added.",
    )
    model: str | None = Field(None, validate_default=True, description="The model's name, as the endpoint knows it.")
    api_key: SecretStr | None = Field(
        None, description="Sent to the endpoint as a bearer token; never logged, shown or stored."
    )
    timeout_seconds: float = Field(
        120.0, gt=0, le=3600, description="Longest time for one call in all, repeated and split requests included."
    )
    max_tokens: int = Field(4096, ge=256, description="Longest answer to one request, in tokens.")
    max_transcript_tokens: int = Field(
        12_000,
        ge=200,
        description="Transcript sent in one request, in tokens as estimated (3 bytes each); longer calls are split. "
        "With the answer and some 1500 tokens of instructions it has to fit into the model's context.",
    )
    tone_by_voice: ToneByVoice = Field(
        "customers",
        description="Whose voice, beside their words, says how strongly they mean it: customers, nobody or everybody. "
        "What emotions employees have must not be inferred from their voices in the European Union (AI Act, Article "
        "5(1)(f)): of reps, and of anyone not surely a customer, only words count unless this says everybody.",
    )
    language: str | None = Field(
        None,
        pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
        description="Language of titles and summaries (en, de, pt-BR); left out: the call's own.",
    )

    @field_validator("engine")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ENGINES:
            raise ValueError(f"no engine of the analysis has this name; known: {', '.join(ENGINES)}")
        return value

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return _needed(value, info)
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or parts.fragment:
            raise ValueError("must be a URL such as https://host/v1")
        if parts.username is not None or parts.password is not None or parts.query:
            raise ValueError("must hold no user, password or query, for addresses are logged: a key goes into api_key")
        return value

    @field_validator("model")
    @classmethod
    def _named(cls, value: str | None, info: ValidationInfo) -> str | None:
        return value or _needed(None, info)

    @field_validator("api_key")
    @classmethod
    def _sendable(cls, value: SecretStr | None) -> SecretStr | None:
        """Spaces and line ends around it go; a header takes nothing but printable ASCII."""
        key = value.get_secret_value().strip() if value is not None else ""
        if not all("!" <= sign <= "~" for sign in key):
            raise ValueError("must be printable ASCII without spaces")
        return SecretStr(key) if key else None

    @field_serializer("api_key", when_used="json")
    def _hidden(self, value: SecretStr | None, info: SerializationInfo) -> str | None:
        """Written out only to a caller that asks by name: the service, for the environment of its own replicas."""
        reveal = bool(info.context and info.context.get(REVEAL))
        return None if value is None else value.get_secret_value() if reveal else str(value)


def _needed(value: str | None, info: ValidationInfo) -> str | None:
    if value is None and info.data.get("engine") == "llm":
        raise ValueError("the engine llm needs it")
    return value


def load(options: AnalysisOptions) -> Engine:
    """The engine that the options name."""
    module, name = ENGINES[options.engine].split(":")
    make: Any = getattr(import_module(module), name)
    return cast(Engine, make(options))


def analyze(material: Material, options: AnalysisOptions | None = None) -> tuple[Finding, ...]:
    """What the call means: one finding for each step, by the engine that the options name."""
    return load(options or AnalysisOptions()).analyze(material)
