import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

HELP = """Turns recorded phone calls into transcripts, speakers, tone and tasks.

First steps:

  switchboard demo                           everything, with sample calls

  switchboard process call.wav               one file, no service

  switchboard up                             the service

  switchboard submit call.wav --wait         a call to the service

  switchboard keys create --workspace acme   a key for phone systems
"""

EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 service or database not reachable. `--debug` shows tracebacks."


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its target (`module:function` or `module:typer_app`) and its line in the overview."""

    name: str
    target: str
    help: str
    panel: str

    def load(self) -> Any:
        module, attribute = self.target.split(":")
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(name=self.name)(target)
            target = single
        command = typer.main.get_command(target)
        command.name = self.name
        for subcommand in (command, *getattr(command, "commands", {}).values()):
            subcommand.help = _flowing(subcommand.help or "")
        return command


def _flowing(text: str) -> str:
    """Return paragraphs without line breaks, which would show on a narrow terminal; examples unchanged."""
    first, *others = (
        part if part.startswith(" ") else " ".join(line.strip() for line in part.splitlines())
        for part in text.split("\n\n")
    )
    return "\n\n".join((first, "", *others)) if others else first  # without "", typer removes the indent of examples


class LazyGroup(TyperGroup):
    """A command group that imports only the command that is called."""

    entries: ClassVar[dict[str, Entry]] = {}

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        entry = self.entries.get(cmd_name)
        return entry and TyperCommand(name=entry.name, help=entry.help, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = {name: self.get_command(ctx, name) for name in self.entries}  # typer compares a typo with these
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.entries[str(name)].load(), rest

    def invoke(self, ctx: Any) -> Any:
        from serve_app.cli.ui import errors

        try:
            return super().invoke(ctx)
        except errors.PASS_ON:
            raise
        except KeyboardInterrupt:
            print("Stopped.", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader closed the pipe, for example `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            if debugging():
                raise
            raise typer.Exit(errors.report(error)) from None


class LazyModule(ModuleType):
    """A module that is imported when a command first uses it, so that help and wrong usage stay fast."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def lazy(*names: str) -> tuple[LazyModule, ...]:
    return tuple(map(LazyModule, names))


def debugging() -> bool:
    return os.environ.get("SWITCHBOARD_DEBUG", "").lower() not in ("", "0", "false")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"switchboard {version('switchboard-calls')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    if debug:
        os.environ["SWITCHBOARD_DEBUG"] = "1"


def make_app(entries: Sequence[Entry]) -> typer.Typer:
    group = type("Commands", (LazyGroup,), {"entries": {entry.name: entry for entry in entries}})
    app = typer.Typer(
        name="switchboard",
        cls=group,
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    return app
