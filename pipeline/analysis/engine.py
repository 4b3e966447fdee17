from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from pipeline.analysis.step import all_steps
from pipeline.domain.insight import Finding, Material, ModelAnswers, ModelRequest, ModelText, ToneByVoice, Unanswered
from pipeline.engines.registry import Registry, engine_class
from pipeline.net.endpoint import Address, ApiKey


@runtime_checkable
class Engine(Protocol):
    """Analyzes calls."""

    name: str  # producer of the findings, e.g. "rules" or "llm qwen3-8b"

    def analyze(self, material: Material) -> tuple[Finding, ...]:
        """Return one finding for each step of `step.all_steps`, in that order. Never raises: notes state failures."""


Keep = Callable[[str, ModelText], Awaitable[None]]
"""Stores an answer of a language model as it arrives, by its request's key."""


class BudgetReached(Exception):
    """The budget for the language model is used up. The message is for users."""


class ReservedRequest(Protocol):
    """A request to a language model, counted at its expected cost until it is settled."""

    async def settle(self, prompt_tokens: int, completion_tokens: int, estimated: bool = False) -> None:
        """Replace the expected cost. `estimated`: the endpoint reported no usage."""


class Spending(Protocol):
    """Meters requests to a language model and enforces the budget."""

    async def reserve(self, prompt_tokens: int, completion_tokens: int) -> ReservedRequest:
        """Reserve the expected cost before a request is sent. Raises `BudgetReached`."""


@runtime_checkable
class AsksModel(Protocol):
    """An engine that queries a language model, in three steps: only `ask` waits, and it needs no CPU."""

    def requests(self, material: Material, cached: Mapping[str, ModelText]) -> tuple[ModelRequest, ...]:
        """Return the requests without an answer in `cached`, in order. Never raises."""

    async def ask(
        self, requests: Sequence[ModelRequest], keep: Keep, spending: Spending | None = None
    ) -> dict[str, Unanswered]:
        """Pass each answer to `keep`; return why the others are missing. Raises only what `keep` raises."""

    def conclude(self, material: Material, answers: ModelAnswers) -> tuple[Finding, ...]:
        """Return the same findings as `analyze`, from these answers. Never raises."""


ENGINES = Registry(
    {"rules": "pipeline.analysis.step:Rules", "llm": "pipeline.analysis.llm.engine:LanguageModel"},
    stage="analysis",
    group="switchboard.analysis",
    attributes=(),
)


class AnalysisOptions(BaseModel):
    """Options of the analysis. Defaults: rules, on this machine, no network."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    TEMPERATURE: ClassVar[float] = 0.0  # 0: deterministic, as far as the server supports it
    RETRIES: ClassVar[int] = 2  # after a refused connection, 408, 429, 502, 503 or 504

    engine: str = Field(
        "rules",
        validate_default=True,
        description="rules (no network), or llm: an OpenAI-compatible endpoint, which receives the words of every"
        " call.",
    )
    base_url: Address = Field(
        None,
        validate_default=True,
        description="The endpoint up to its version, such as http://127.0.0.1:8000/v1.",
    )
    model: str | None = Field(None, validate_default=True, description="Name of the model at the endpoint.")
    api_key: ApiKey = Field(None, description="Bearer token for the endpoint; never logged, shown or stored.")
    timeout_seconds: float = Field(
        120.0, gt=0, le=3600, description="Maximum time for one call, with retries and split requests."
    )
    max_tokens: int = Field(4096, ge=256, description="Maximum length of one answer, in tokens.")
    max_transcript_tokens: int = Field(
        12_000,
        ge=200,
        description="Transcript in one request, in tokens of 3 bytes; longer calls are split. Transcript, answer "
        "and some 2200 tokens of instructions must fit into the model's context.",
    )
    tone_by_voice: ToneByVoice = Field(
        "customers",
        description="Whose voice strengthens sentiment, in addition to the words: customers, "
        "nobody or everybody. "  # language: ok
        "The EU AI Act, Article 5(1)(f), prohibits inferring emotions of employees from voices.",
    )
    language: str | None = Field(
        None,
        pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
        description="Language of titles and summaries (en, de, pt-BR); default: the call's language.",
    )

    @field_validator("engine")
    @classmethod
    def _check_engine(cls, value: str) -> str:
        if ENGINES.find(value).dist is not None:
            engine_class(ENGINES, value)
        all_steps()
        return value

    @field_validator("base_url", "model")
    @classmethod
    def _require_for_llm(cls, value: str | None, info: ValidationInfo) -> str | None:
        if not value and info.data.get("engine") == "llm":
            raise ValueError("required by the engine llm")
        return value or None


def load(options: AnalysisOptions) -> Engine:
    make: Any = _class_of(options)
    return cast(Engine, make(options))


def _class_of(options: AnalysisOptions) -> type:
    return cast(type, engine_class(ENGINES, options.engine))


def analyze(material: Material, options: AnalysisOptions | None = None) -> tuple[Finding, ...]:
    """Return one finding for each step, from the engine that the options select."""
    return load(options or AnalysisOptions()).analyze(material)


def asks_model(options: AnalysisOptions) -> bool:
    return issubclass(_class_of(options), AsksModel)


def model_requests(
    material: Material, options: AnalysisOptions, cached: Mapping[str, ModelText]
) -> tuple[ModelRequest, ...]:
    """Return the requests for a language model without an answer in `cached`."""
    return _asking(options).requests(material, cached)


async def ask(
    requests: Sequence[ModelRequest], options: AnalysisOptions, keep: Keep, spending: Spending | None = None
) -> dict[str, Unanswered]:
    """Query a language model; see `AsksModel.ask`."""
    return await _asking(options).ask(requests, keep, spending)


def conclude(material: Material, options: AnalysisOptions, answers: ModelAnswers) -> tuple[Finding, ...]:
    """Return the same findings as `analyze`, from the answers to `model_requests`."""
    return _asking(options).conclude(material, answers)


def _asking(options: AnalysisOptions) -> AsksModel:
    engine = load(options)
    if not isinstance(engine, AsksModel):
        raise TypeError(f"the engine {options.engine} uses no language model")
    return engine
