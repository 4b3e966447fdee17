"""Commands on the resources of a workspace: each is a coroutine that returns a `Result`; `Group` does the rest.

The first parameter of a command is the open `Database`, or a `Scope` or `AnyScope`, which adds the option
`--workspace`. The other parameters are typer's. `--json` prints the data of the result instead of its lines.
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
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.output import Json, err, fields, out, print_json
from serve_app.cli.ui.table import Table, table

if TYPE_CHECKING:
    from db.core import database as core
    from db.core.database import Database, Reader
    from db.records.erasures import Erasure
    from db.workspace.directory import Team, Workspace
    from db.workspace.removal import Contents
else:
    (core,) = lazy("db.core.database")

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Awaitable["Result"]])
VERBS = ("create", "add", "list", "show", "update", "delete", "remove")  # their order in the help of a group
RELEASE = "`switchboard holds release ID` releases it; `holds list` shows the ids."
Refusals = Mapping[type[Exception], tuple[str, int]]  # error of `db` -> advice and exit code


@dataclass(frozen=True, slots=True)
class Scope:
    database: "Database"
    workspace: "Workspace"

    @property
    def id(self) -> UUID:
        return self.workspace.workspace_id

    @property
    def reader(self) -> "Reader":
        return core.Reader(self.id)

    async def team(self, name_or_id: str) -> "Team":
        return await lookup.team(self.database, self.id, name_or_id)

    async def team_id(self, name_or_id: str | None) -> UUID | None:
        return await lookup.team_id(self.database, self.id, name_or_id)

    async def team_names(self) -> dict[UUID, str]:
        return await lookup.team_names(self.database, self.id)


@dataclass(frozen=True, slots=True)
class AnyScope:
    """The workspace that `--workspace` names; None: all of them."""

    database: "Database"
    id: UUID | None


@dataclass(frozen=True, slots=True)
class Result:
    """The output of a command. stderr: `warnings`, and `notes` without --json. `failed`: exit code 1."""

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
    cells: Callable[[T], Sequence[Any]],
    when_empty: str,
    data: Any = None,
) -> Result:
    """Return `items` as a table; in JSON as `data` if set."""
    lines = table(*columns)
    for item in items:
        lines.add_row(*cells(item))
    return Result(items if data is None else data, lines if items else (), () if items else (when_empty,))


def details(rows: Iterable[tuple[str, Any]]) -> Table:
    """Return a table of names and values without a header."""
    lines = table("!what", "value")
    lines.show_header = False
    for name, value in rows:
        lines.add_row(name.replace("_", " "), value)
    return lines


def data_line(text: str, style: str = "") -> Text:
    """Return a line that is never wrapped, since it is copied or read by a program."""
    return Text(text, style, no_wrap=True)


class Group(typer.Typer):
    """Commands on one kind of resource. A command has the name of its function, without a trailing underscore."""

    def __init__(self, help_: str, refusals: Refusals | None = None) -> None:
        super().__init__(help=help_, no_args_is_help=True, add_completion=False)
        self._refusals = refusals or {}

    def reads(self, *exclusive: str) -> Callable[[Command], Command]:
        """Add a command that starts and migrates no database. `exclusive`: options such as "alias no_alias"."""
        return lambda work: self._add(work, exclusive, lambda _: False)

    def writes(self, *exclusive: str) -> Callable[[Command], Command]:
        return lambda work: self._add(work, exclusive, lambda _: True)

    def updates(self, *exclusive: str) -> Callable[[Command], Command]:
        """Add a command that writes and needs at least one of its options."""
        return lambda work: self._add(work, exclusive, _require_some)

    def setting(self, *changes: str, exclusive: Sequence[str] = ()) -> Callable[[Command], Command]:
        """Add a command that shows a setting, and writes if one of the options `changes` is present."""
        return lambda work: self._add(work, exclusive, lambda present: bool(present & set(changes)))

    def checked(self, writes: Callable[[set[str]], bool]) -> Callable[[Command], Command]:
        """Add a command; `writes` receives the names of the options that are present, and may reject them."""
        return lambda work: self._add(work, (), writes)

    def _add(self, work: Command, exclusive: Sequence[str], writes: Callable[[set[str]], bool]) -> Command:
        first, *parameters = inspect.signature(work).parameters.values()
        defaults = {option.name: option.default for option in parameters if option.default is not option.empty}
        has_scope = first.annotation in (Scope, AnyScope)

        def command(**values: Any) -> None:
            as_json, workspace = values.pop("json_"), values.pop("workspace") if has_scope else None
            present = {name for name, default in defaults.items() if values[name] not in (default, [])}
            _refuse_together(exclusive, present)

            async def run(database: "Database") -> Result:
                scope = await _first(first.annotation, database, workspace)
                try:
                    return await work(scope, **values)
                except tuple(self._refusals) as error:
                    raise self._refused(error) from error

            databases.run(run, writes(present)).print(as_json)

        added = [("workspace", options.Workspace, None)] if has_scope else []
        parameters = [option.replace(kind=option.KEYWORD_ONLY) for option in parameters] + [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, kind, default in (*added, ("json_", Json, False))
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {option.name: option.annotation for option in parameters}
        command.__doc__ = work.__doc__
        self.command(work.__name__.rstrip("_").replace("_", "-"))(command)
        self.registered_commands.sort(key=lambda info: VERBS.index(info.name) if info.name in VERBS else len(VERBS))
        return work

    def _refused(self, error: Exception) -> CommandError:
        advice, exit_code = next(value for kind, value in self._refusals.items() if isinstance(error, kind))
        return CommandError(sentence(error), advice, exit_code)


async def _first(kind: Any, database: "Database", workspace: str | None) -> Any:
    if kind is Scope:
        return Scope(database, await lookup.workspace(database, workspace))
    return AnyScope(database, await lookup.workspace_id(database, workspace)) if kind is AnyScope else database


def sentence(error: Exception) -> str:
    text = str(error)
    starts_with_word = text.partition(" ")[0].isalpha()  # a file name stays as it is
    return (text[:1].upper() + text[1:] if starts_with_word else text) + ("" if text.endswith(".") else ".")


def drop_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def confirm(what: str, contents: "Contents", yes: bool) -> None:
    """Raise `CommandError` with the contents that would be deleted, unless `yes`."""
    if not yes:
        has = f"has {text}" if (text := contents_text(contents)) else "is empty"
        advice = "Nothing was deleted. --yes deletes it with all of this; that cannot be undone."
        raise CommandError(f"{what} {has}.", advice, USAGE)


def contents_text(contents: "Contents") -> str:
    counts = (
        (contents.calls, "call with all its results", "calls with all their results"),
        *((getattr(contents, name), name[:-1], name) for name in ("teams", "contacts", "keys", "endpoints")),
        (contents.credentials, "credential", "credentials"),
        (contents.members, *((name + ("" if contents.teams else " (not deleted)")) for name in ("member", "members"))),
        (contents.recordings, "stored recording", "stored recordings"),
    )
    return ", ".join(f"{count} {singular if count == 1 else plural}" for count, singular, plural in counts if count)


def deleted(kind: str, name: str, contents: "Contents", erasure: "Erasure") -> Result:
    if on_hold := erasure.counts.get("held", 0):
        raise CommandError(f"A legal hold keeps {on_hold} calls.", f"The {kind} {name!r} stays, without keys.", FAILED)
    text = contents_text(contents)
    data = {"removed": name, **fields(contents)}
    return Result(data, f"Deleted {kind} {name!r}{f' with {text}' if text else ''}.")


def _require_some(present: set[str]) -> bool:
    if not present:
        raise CommandError("Nothing to change.", "`--help` lists the options.", USAGE)
    return True


def _refuse_together(exclusive: Sequence[str], present: set[str]) -> None:
    for names in exclusive:
        if len(present & set(names.split())) > 1:
            shown = ", ".join(f"--{name.strip('_').replace('_', '-')}" for name in names.split())
            raise CommandError(f"{shown} exclude each other.", "Use one of them.", USAGE)
