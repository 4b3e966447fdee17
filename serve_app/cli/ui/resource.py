"""Commands on what a workspace manages: a command is a coroutine that returns an `Answer`; `Group` does the rest.

The first parameter of a command is the open `Database`, or a `Home`: then the command has `--workspace`. Its other
parameters are typer's. `--json` is added, and prints the data of the answer instead of its lines.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import typer
from rich.console import RenderableType
from rich.text import Text

from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup, options
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, err, fields, out, print_json
from serve_app.cli.ui.table import Table, table

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace.directory import Team, Workspace
    from db.workspace.removal import Contents

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Awaitable["Answer"]])
VERBS = ("create", "add", "list", "show", "update", "delete", "remove")  # their order in every group's help
Refusals = Mapping[type[Exception], tuple[str, int]]  # what an error of `db` means here: advice, exit code


@dataclass(frozen=True, slots=True)
class Home:
    """The open database, and the workspace that a command is about."""

    database: "Database"
    workspace: "Workspace"

    @property
    def id(self) -> UUID:
        return self.workspace.workspace_id

    async def team(self, named: str) -> "Team":
        return await lookup.team(self.database, self.id, named)

    async def team_id(self, named: str | None) -> UUID | None:
        return await lookup.team_id(self.database, self.id, named)

    async def team_names(self) -> dict[UUID, str]:
        return await lookup.team_names(self.database, self.id)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints. `notes` go to stderr, without --json; `warnings` in any case. `failed`: exit code 1."""

    data: Any
    lines: RenderableType | Sequence[RenderableType] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    failed: bool = False

    def print(self, as_json: bool) -> None:
        if as_json:
            print_json(self.data)
        else:
            for line in self.lines if isinstance(self.lines, list | tuple) else (self.lines,):
                whole: dict[str, Any] = {"soft_wrap": True} if isinstance(line, Text) and line.no_wrap else {}
                out().print(line, markup=False, **whole)
        for note in (*(() if as_json else self.notes), *self.warnings):
            err().print(note, markup=False, style="yellow" if note in self.warnings else "")
        if self.failed:
            raise typer.Exit(FAILED)


def listing(
    items: Sequence[T],
    columns: Sequence[str],
    cells: Callable[[T], Sequence[str | Text]],
    when_empty: str,
    data: Any = None,
) -> Answer:
    """Return `items` as a table; in JSON as `data`, or as they are."""
    lines = table(*columns)
    for item in items:
        lines.add_row(*cells(item))
    return Answer(items if data is None else data, lines if items else (), () if items else (when_empty,))


def details(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Return a table of names and values."""
    lines = table("!what", "value")
    lines.show_header = False
    for name, value in rows:
        lines.add_row(name.replace("_", " "), value)
    return lines


def data_line(text: str, style: str = "") -> Text:
    """Return a line that is never wrapped: it is to be copied, or read by a program."""
    return Text(text, style, no_wrap=True)


class Group(typer.Typer):
    """Commands on one kind of thing. A command is called as its function is, without a trailing underscore."""

    def __init__(self, help_: str, refusals: Refusals | None = None) -> None:
        super().__init__(help=help_, no_args_is_help=True, add_completion=False)
        self._refusals = refusals or {}

    def reads(self, *exclusive: str) -> Callable[[Command], Command]:
        """Add a command that starts and migrates no database. `exclusive`: options, as in "alias no_alias"."""
        return lambda work: self._add(work, exclusive, lambda _: False)

    def writes(self, *exclusive: str) -> Callable[[Command], Command]:
        return lambda work: self._add(work, exclusive, lambda _: True)

    def updates(self, *exclusive: str) -> Callable[[Command], Command]:
        """Add a command that writes, and needs at least one of its options."""
        return lambda work: self._add(work, exclusive, _require_some)

    def setting(self, *changes: str, exclusive: Sequence[str] = ()) -> Callable[[Command], Command]:
        """Add a command that shows a setting, and writes where one of the options `changes` is given."""
        return lambda work: self._add(work, exclusive, lambda given: bool(given & set(changes)))

    def checked(self, writes: Callable[[set[str]], bool]) -> Callable[[Command], Command]:
        """Add a command; `writes` receives the names of the options that are given, and may refuse them."""
        return lambda work: self._add(work, (), writes)

    def _add(self, work: Command, exclusive: Sequence[str], writes: Callable[[set[str]], bool]) -> Command:
        first, *parameters = inspect.signature(work).parameters.values()
        defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
        with_home = first.annotation is Home

        def command(**values: Any) -> None:
            as_json, named = values.pop("json_"), values.pop("workspace") if with_home else None
            given = {name for name, default in defaults.items() if values[name] not in (default, [])}
            _refuse_together(exclusive, given)

            async def answer(database: "Database") -> Answer:
                scope = Home(database, await lookup.workspace(database, named)) if with_home else database
                try:
                    return await work(scope, **values)
                except tuple(self._refusals) as error:
                    raise self._refused(error) from error

            databases.run(answer, writes(given)).print(as_json)

        added = [("workspace", options.Workspace, None)] if with_home else []
        parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters] + [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, kind, default in (*added, ("json_", Json, False))
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__doc__ = work.__doc__
        self.command(work.__name__.rstrip("_").replace("_", "-"))(command)
        self.registered_commands.sort(key=lambda one: VERBS.index(one.name) if one.name in VERBS else len(VERBS))
        return work

    def _refused(self, error: Exception) -> CommandError:
        advice, exit_code = next(value for kind, value in self._refusals.items() if isinstance(error, kind))
        return CommandError(sentence(error), advice, exit_code)


def sentence(error: Exception) -> str:
    """Return the message of an error, with a capital letter and a full stop."""
    text = str(error)
    begins_with_word = text.partition(" ")[0].isalpha()  # a file name stays as it is
    return (text[:1].upper() + text[1:] if begins_with_word else text) + ("" if text.endswith(".") else ".")


def given(**values: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def confirm(what: str, contents: "Contents", yes: bool) -> None:
    """Raise `CommandError` that names what would be deleted, unless `yes`."""
    if not yes:
        has = f"has {text}" if (text := contents_text(contents)) else "is empty"
        advice = "Nothing was deleted. --yes deletes it with all of this; that cannot be undone."
        raise CommandError(f"{what} {has}.", advice, USAGE)


def contents_text(contents: "Contents") -> str:
    """Return what is deleted with a workspace or team, in words."""
    counts = (
        (contents.calls, "call with all its results", "calls with all their results"),
        *((getattr(contents, name), name[:-1], name) for name in ("teams", "contacts", "keys", "endpoints")),
        (contents.credentials, "credential", "credentials"),
        (contents.members, *((name + ("" if contents.teams else " (not deleted)")) for name in ("member", "members"))),
        (contents.recordings, "stored recording (the file stays)", "stored recordings (the files stay)"),
    )
    return ", ".join(f"{count} {singular if count == 1 else plural}" for count, singular, plural in counts if count)


def deleted(kind: str, name: str, contents: "Contents") -> Answer:
    text = contents_text(contents)
    data = {"removed": name, **fields(contents)}
    return Answer(data, f"Deleted {kind} {name!r}{f' with {text}' if text else ''}.")


def _require_some(given: set[str]) -> bool:
    if not given:
        raise CommandError("Say what to change.", "`--help` lists the options.", USAGE)
    return True


def _refuse_together(exclusive: Sequence[str], given: set[str]) -> None:
    for names in exclusive:
        if len(given & set(names.split())) > 1:
            shown = ", ".join(f"--{name.strip('_').replace('_', '-')}" for name in names.split())
            raise CommandError(f"{shown}: these exclude each other.", "Give one of them.", USAGE)
