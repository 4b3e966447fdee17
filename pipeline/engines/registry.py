"""Finds the engines of a stage: built-in ones in its registry, others by the entry points of installed packages."""

import contextlib
import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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

log = logging.getLogger(__name__)


class Registry(dict[str, str]):
    """The built-in engines of a stage, by the name in the settings: "module:Class", imported only when it is used.

    `stage`: its name for people. `group`: the group of entry points in which packages name further engines.
    `attributes`: what settings and checks read of an engine's class.
    """

    def __init__(
        self,
        built_in: Mapping[str, str],
        stage: str,
        group: str,
        attributes: Sequence[str] = ("Options", "CHECKPOINTS", "device_of"),
    ) -> None:
        super().__init__(built_in)
        self.stage, self.group, self.attributes = stage, group, attributes

    def names(self) -> list[str]:
        return [*self, *sorted(installed(self.group).keys() - self.keys())]

    def find(self, name: str) -> EntryPoint:
        """Return the entry point of an engine. Raises ValueError for a name that is unknown or not unique."""
        packages = installed(self.group).get(name, [])
        if len(packages) + (name in self) > 1:
            places = ["Switchboard"] * (name in self) + [package_of(point) for point in packages]
            raise ValueError(
                f"The {self.stage} engine {name!r} is in several packages: {', '.join(places)}. "
                f"Uninstall all but one, or rename it in the entry points {self.group} of one of them"
            )
        if packages:
            return packages[0]
        if name not in self:
            raise ValueError(
                f"{name!r} is no {self.stage} engine; installed: {', '.join(self.names())}. Choose one of them, "
                f"or install the package that has it (entry points {self.group})"
            )
        return EntryPoint(name, self[name], self.group)


@cache
def every_entry_point() -> Any:
    """Return the entry points of all packages; reading them takes longer than the rest of the settings."""
    return entry_points()


@cache
def installed(group: str) -> dict[str, list[EntryPoint]]:
    points = defaultdict(list)
    for point in every_entry_point().select(group=group):
        points[point.name].append(point)
    return dict(points)


def package_of(point: EntryPoint) -> str:
    """Return the name and version of the package that has an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "Switchboard"


def load_entry(point: EntryPoint, kind: str) -> Any:
    """Import the object of an entry point; `kind` describes it. Raises ValueError."""
    try:
        return point.load()
    except Exception as error:  # code of another package
        raise ValueError(
            f"The {kind} {point.name!r} of the package {package_of(point)} cannot be imported ({point.value}): "
            f"{type(error).__name__}: {error}. Reinstall or uninstall that package"
        ) from error


class EngineOptions(BaseModel):
    """Options of every engine of a stage; further values are options of the chosen engine.

    An engine defines its options as a subclass next to its code, which forbids unknown ones.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)  # it may be a key

    ENGINES: ClassVar[Registry]
    OFF: ClassVar[str | None] = None  # the value for no engine, if the stage is optional

    engine: str

    @property
    def on(self) -> bool:
        return self.engine != self.OFF

    @property
    def engine_class(self) -> Any:
        return engine_class(self.ENGINES, self.engine)

    @model_validator(mode="after")
    def _engine_takes_them(self) -> Self:
        if not self.on or type(self) is self.engine_class.Options or self.model_config.get("extra") != "allow":
            return self  # already the options of an engine
        try:
            engine_options = self.for_engine()
        except ValidationError as error:  # reported one by one, as in other groups
            faults = error.errors(include_url=False, include_input=False)
            message = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or self.engine}: {fault['msg']}" for fault in faults
            )
            raise PydanticCustomError("engine_options", "{message}", {"message": message, "faults": faults}) from None
        for name in self.model_extra or {}:
            self.__pydantic_extra__[name] = getattr(engine_options, name)  # type: ignore[index]  # a key is a secret from here on
        return self

    @model_serializer(mode="wrap")
    def _with_secrets(self, plain: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Include secrets only if the caller requests them by name; see `pipeline.net.endpoint`."""
        values: dict[str, Any] = plain(self)
        if info.mode == "json" and info.context and info.context.get(REVEAL):
            values |= self.secrets()
        return values

    def secrets(self) -> dict[str, str]:
        extra = self.model_extra or {}
        return {name: value.get_secret_value() for name, value in extra.items() if isinstance(value, SecretStr)}

    def for_engine(self) -> "EngineOptions":
        """Return these options as the chosen engine's. Raises ValidationError for those that it does not have."""
        options: type[EngineOptions] = self.engine_class.Options
        return options.model_validate(self.model_dump())

    @classmethod
    def of_engines(cls) -> Iterator[tuple[str, type["EngineOptions"]]]:
        for name, engine in engine_classes(cls.ENGINES):
            yield name, engine.Options


def engine_class(registry: Registry, name: str) -> Any:
    """Return the class of an engine, whose module is cheap to import. Raises ValueError with a remedy."""
    point = registry.find(name)
    if point.dist is None:
        return point.load()
    engine = load_entry(point, f"{registry.stage} engine")
    if missing := [attribute for attribute in registry.attributes if not hasattr(engine, attribute)]:
        raise ValueError(
            f"The {registry.stage} engine {name!r} of the package {package_of(point)} lacks {', '.join(missing)}. "
            "Update or uninstall that package (for its author: docs/extending.md)"
        )
    return engine


def engine_classes(registry: Registry) -> Iterator[tuple[str, Any]]:
    """Yield the name and class of each engine. An unusable one is logged, and is an error once it is chosen."""
    for name in registry.names():
        try:
            engine = engine_class(registry, name)
        except ValueError as error:
            log.warning("%s.", error)
        else:
            yield name, engine


def load_engine(options: EngineOptions, store: Path | None) -> Any:
    """Return the engine of the options, with its checkpoint loaded.

    `store`: the folder of the checkpoint store; None: the user's. Raises `CheckpointMissing`, `CheckpointDamaged` or
    `DeviceUnavailable`.
    """
    engine = options.engine_class(options.for_engine(), store)
    point = options.ENGINES.find(options.engine)
    if point.dist is not None:
        engine.package = package_of(point)
    return engine


def identity_of(engine: Any) -> str:
    """Return a digest of an engine: its name, options, checkpoint by content, package, and aligner, if it has them.

    It is computed once per engine; a checkpoint of gigabytes takes seconds.
    """
    cached: str | None = getattr(engine, "_identity", None)
    if cached is not None:
        return cached
    options, checkpoint = getattr(engine, "options", None), getattr(engine, "checkpoint", None)
    values = options.model_dump(mode="json") if options is not None else None
    aligner = getattr(engine, "aligner", None)
    more = () if aligner is None else (identity_of(aligner),)
    more += tuple(filter(None, [getattr(engine, "package", None)]))
    identity = digest_of(type(engine).__name__, engine.name, values, checkpoint.digest() if checkpoint else "", *more)
    with contextlib.suppress(AttributeError):  # a class with slots
        engine._identity = identity
    return identity


def digest_of(*facts: Any) -> str:
    """Return a digest of facts that JSON can represent: 32 hexadecimal digits."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
