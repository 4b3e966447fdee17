"""Engines of a stage: one line in the stage's registry, and options and checkpoints that the engine's class names."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SecretStr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pipeline.net.endpoint import REVEAL

Registry = Mapping[str, str]  # name -> "module:Class", imported only where it is asked


class EngineOptions(BaseModel):
    """What every engine of a stage can be told; values beside these fields are for the chosen engine.

    An engine's own options are a subclass beside its code, which forbids what it does not know.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)  # it may be a key

    STAGE: ClassVar[str]  # for people: "recognition"
    ENGINES: ClassVar[Registry]
    OFF: ClassVar[str | None] = None  # what stands for no engine, of a stage that can be left out

    engine: str

    @model_validator(mode="after")
    def _engine_takes_them(self) -> Self:
        if self.engine == self.OFF:
            return self
        if self.engine not in self.ENGINES:
            raise ValueError(f"{self.engine!r} is no {self.STAGE} engine; known: {', '.join(self.ENGINES)}")
        if type(self) is engine_class(self.ENGINES, self.engine).Options or self.model_config.get("extra") != "allow":
            return self  # they are an engine's own
        try:
            own = self.own()
        except ValidationError as error:  # told one by one, as those of other groups are
            found = error.errors(include_url=False, include_input=False)
            told = "; ".join(f"{'.'.join(map(str, fault['loc'])) or self.engine}: {fault['msg']}" for fault in found)
            raise PydanticCustomError("engine_options", "{told}", {"told": told, "faults": found}) from None
        for name in self.model_extra or {}:
            self.__pydantic_extra__[name] = getattr(own, name)  # type: ignore[index]  # a key is a secret from here on
        return self

    @model_serializer(mode="wrap")
    def _with_secrets(self, plain: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Secrets are written out only to a caller that asks by name; see `pipeline.net.endpoint`."""
        told: dict[str, Any] = plain(self)
        if info.mode == "json" and info.context and info.context.get(REVEAL):
            told |= self.secrets()
        return told

    def secrets(self) -> dict[str, str]:
        """Return the secrets among the chosen engine's options, by name."""
        extra = self.model_extra or {}
        return {name: value.get_secret_value() for name, value in extra.items() if isinstance(value, SecretStr)}

    def own(self) -> "EngineOptions":
        """Return these options as the chosen engine's. Raises ValidationError for those it does not know."""
        options: type[EngineOptions] = engine_class(self.ENGINES, self.engine).Options
        return options.model_validate(self.model_dump())

    @classmethod
    def of_engines(cls) -> Iterator[tuple[str, type["EngineOptions"]]]:
        """Yield each engine's name and its own options, a subclass of these."""
        for name in cls.ENGINES:
            yield name, engine_class(cls.ENGINES, name).Options


def engine_class(registry: Registry, name: str) -> Any:
    """Return the class of an engine, whose module is cheap to import. Raises KeyError."""
    module, attribute = registry[name].split(":")
    return getattr(import_module(module), attribute)


def load_engine(options: EngineOptions, store: Path | None) -> Any:
    """Return the engine that the options name, with its checkpoint loaded.

    `store`: the folder of the checkpoint store; None: the user's. Raises `CheckpointMissing`, `CheckpointDamaged` or
    `DeviceUnavailable`.
    """
    return engine_class(options.ENGINES, options.engine)(options.own(), store)
