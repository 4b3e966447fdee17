from dataclasses import fields as fields_of
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Time, Workspace, moment_of, parse_time
from serve_app.cli.ui.output import counted, err, fields, moment
from serve_app.cli.ui.resource import Group, Result, Scope

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace import access_chain, access_log
    from db.workspace.access_chain import Verified
else:
    access_chain, access_log = lazy("db.workspace.access_chain", "db.workspace.access_log")

PAGE = 1000  # rows per transaction

app = Group("The access log: who read, played, exported, corrected or erased which calls.")


class LogFormat(StrEnum):
    NDJSON = "ndjson"
    CSV = "csv"


Since = Annotated[
    Time | None, typer.Option("--since", metavar="TIME", parser=parse_time, help="From this time on: 30d, 2026-11-01.")
]
Until = Annotated[
    Time | None, typer.Option("--until", metavar="TIME", parser=parse_time, help="Before this time: 1d, 2026-12-01.")
]


@app.command()
def export(
    format_: Annotated[
        LogFormat, typer.Option("--format", "-f", help="ndjson: a line of JSON per row; csv: with a header.")
    ] = LogFormat.NDJSON,
    since: Since = None,
    until: Until = None,
    workspace: Workspace = None,
) -> None:
    """Print the access log of a workspace, the latest hour first, for other programs.

    The last line of ndjson, and a line on stderr, says whether its chain of hashes holds; exit code 1 if it does not.

    Example:

      switchboard access-log export --since 90d > access-log.ndjson
    """
    from serve_app.http.camel_json import to_json

    async def work(database: "Database") -> "Verified":
        home = (await lookup.workspace(database, workspace)).workspace_id
        filter_ = access_log.ReadFilter(since=await moment_of(database, since), until=await moment_of(database, until))
        await _print_rows(database, home, filter_, format_)
        return await access_chain.verify(database, home, home)

    verified = databases.run(work)
    if format_ is LogFormat.NDJSON:
        print(to_json({"chain": _data(verified)}).decode())
    err().print(_sentence(verified), markup=False, style="" if verified.problem is None else "yellow")
    if verified.problem is not None:
        raise typer.Exit(FAILED)


async def _print_rows(database: "Database", home: UUID, filter_: "access_log.ReadFilter", format_: LogFormat) -> None:
    from serve_app.api.export_rows import csv_lines, csv_table
    from serve_app.http.camel_json import to_json

    names = [field.name for field in fields_of(access_log.Read)]
    if format_ is LogFormat.CSV:
        print(csv_table(names, ()).decode(), end="")
    cursor: str | None = None
    while True:
        page = await access_log.list_all(database, home, home, filter_, cursor, PAGE)
        if format_ is LogFormat.CSV:
            print(csv_lines([getattr(row, name) for name in names] for row in page.items).decode(), end="")
        else:
            print("".join(f"{to_json(row).decode()}\n" for row in page.items), end="")
        if (cursor := page.next) is None:
            return


@app.reads()
async def verify(
    scope: Scope,
    contains: Annotated[
        str | None,
        typer.Option("--contains", metavar="HASH", help="A hash that an earlier export or verification printed."),
    ] = None,
) -> Result:
    """Check whether rows of past hours have been changed, added or removed; exit code 1 if so.

    Keep the hash that it prints in another place, and pass it with --contains later: then a chain that was rewritten
    as a whole is found too.

    Example:

      switchboard access-log verify --contains 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
    """
    verified = await access_chain.verify(scope.database, scope.id, scope.id, contains)
    return Result(_data(verified), _sentence(verified), failed=verified.problem is not None)


def _data(verified: "Verified") -> dict[str, Any]:
    return {"holds": verified.problem is None, **fields(verified)}


def _sentence(verified: "Verified") -> str:
    if verified.problem is not None:
        return f"The access log does not hold from {moment(verified.hour)} on: {verified.problem}."
    if verified.head is None:
        return "The access log has no sealed hour yet: the service seals each hour ten minutes after its end."
    until = f" until {moment(verified.sealed_until)}" if verified.sealed_until else ""
    return f"The access log holds: {counted(verified.rows, 'row')} sealed{until}. Hash: {verified.head}"
