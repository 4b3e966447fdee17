import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from db.workspace.redaction_policies import named
from pipeline.domain import redaction
from serve_app.cli.ui.errors import USAGE, CommandError

_DEFAULTS = redaction.RedactionPolicy()


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """What the options choose; without a preset, kind or pattern they choose nothing."""

    presets: tuple[redaction.RedactionPreset, ...]
    kinds: tuple[redaction.EntityKind, ...]
    options: dict[str, Any]

    def __bool__(self) -> bool:
        return bool(self.presets or self.kinds or self.options["patterns"])

    def require(self) -> None:
        """Raise `CommandError` if other options are set although nothing is chosen: they would have no effect."""
        if not self and self != _choice():
            hint = "Name what is hidden by --preset, --kind or --pattern."
            raise CommandError("The options of a policy need something to hide.", hint, USAGE)

    def policy(self, mode: redaction.RedactionMode) -> redaction.NamedPolicy:
        """Return the policy in a mode. Raises `PolicyRefused`."""
        return named(mode, self.presets, self.kinds, **self.options)


def _pattern(text: str) -> redaction.Pattern:
    name, separator, shape = text.partition("=")
    if not separator:
        raise CommandError(f"{text!r} is not a pattern.", "Write NAME=SHAPE, such as order=AB-999999.", USAGE)
    return redaction.Pattern(name.strip(), shape.strip())


def _choice(
    preset: Annotated[list[redaction.RedactionPreset] | None, typer.Option(help="What is hidden; repeatable.")] = None,
    kind: Annotated[list[redaction.EntityKind] | None, typer.Option(help="A further kind; repeatable.")] = None,
    pattern: Annotated[
        list[Any] | None,
        typer.Option(metavar="NAME=SHAPE", parser=_pattern, help="A is a letter, 9 a digit; repeatable."),
    ] = None,
    last_digits: Annotated[
        int, typer.Option(min=0, max=redaction.MAX_LAST_DIGITS, help="Of cards, accounts and numbers: stay readable.")
    ] = _DEFAULTS.last_digits,
    agents_exempt: Annotated[bool, typer.Option("--agents-exempt", help="Names of members stay.")] = False,
    guard_seconds: Annotated[
        float, typer.Option(min=0, max=redaction.MAX_GUARD_SECONDS, help="Sound hidden around each span.")
    ] = _DEFAULTS.guard_seconds,
    show_unchecked: Annotated[
        bool, typer.Option("--show-unchecked", help="Show calls that could not be checked, with a warning.")
    ] = False,
) -> PolicyChoice:
    options = {
        "patterns": tuple(pattern or ()),
        "last_digits": last_digits,
        "agents_exempt": agents_exempt,
        "guard_seconds": guard_seconds,
        "hold": not show_unchecked,
    }
    return PolicyChoice(tuple(preset or ()), tuple(kind or ()), options)


def with_policy(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the options of a policy, which it receives as `choice`."""
    added = inspect.signature(_choice).parameters

    def command(*scope: Any, **values: Any) -> Any:
        choice = _choice(**{name: values.pop(name) for name in added})
        return work(*scope, choice=choice, **values)

    parameters = [option for option in inspect.signature(work).parameters.values() if option.name != "choice"]
    at = 1 + max((n for n, option in enumerate(parameters) if option.default is option.empty), default=-1)
    parameters[at:at] = added.values()
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in parameters}
    command.__name__, command.__doc__, command.__module__ = work.__name__, work.__doc__, work.__module__
    return command
