from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Workspace
from serve_app.cli.ui.output import Json, counted, err, fields
from serve_app.cli.ui.resource import Result, sentence

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records.person import Person
    from db.workspace import directory
    from serve_app.records import person_archive
    from serve_app.records.person_archive import Archived
else:
    directory, person_archive = lazy("db.workspace.directory", "serve_app.records.person_archive")

Number = Annotated[str | None, typer.Option("--number", help="A telephone number, in any form.")]
ContactOption = Annotated[str | None, typer.Option("--contact", metavar="NAME|ID", help="A contact.")]
MemberOption = Annotated[str | None, typer.Option("--member", metavar="NAME|ID", help="A member.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE.zip", dir_okay=False, help="The archive.")]

FREE_SPACE = "Free space there, or choose another --output."


def export(
    output: Output,
    number: Number = None,
    contact: ContactOption = None,
    member: MemberOption = None,
    workspace: Workspace = None,
    json_: Json = False,
) -> None:
    """Write everything held about a person into one ZIP file: recordings, transcripts, findings, corrections, logs.

    It covers all teams of the workspace. Calls are included as a whole, with the other party; index.html in the archive
    is its table of contents and says which recordings are missing. The access log of each call and the log of changes
    record the export.

    Example:

      switchboard export --number +4930123456 --output person.zip
    """
    from rich.progress import Progress

    if len([value for value in (number, contact, member) if value is not None]) != 1:
        raise CommandError("Which person?", "Pass one of --number, --contact and --member.", USAGE)
    if output.exists():
        raise CommandError(f"{output} exists.", "Choose another file.", USAGE)

    async def work(database: "Database") -> "Archived":
        home = (await lookup.workspace(database, workspace)).workspace_id
        person = await _person(database, home, number, contact, member)
        with Progress(console=err(), transient=True, disable=json_ or not err().is_terminal) as bar:
            task = bar.add_task("calls", total=None)
            return await person_archive.write(
                *(database, home, person, output),
                lambda done, total: bar.update(task, completed=done, total=total),
            )

    try:
        archived = databases.run(work, writes=True)
    except OSError as error:
        raise CommandError(f"{output}: {error.strerror}. No archive was written.", FREE_SPACE) from error
    Result({"file": str(output), **fields(archived)}, _lines(output, archived)).print(json_)


def _lines(output: Path, archived: "Archived") -> list[str]:
    lines = [f"{output}: {counted(archived.calls, 'call')}, {archived.size / 1e6:.1f} MB."]
    if archived.incomplete:
        lines.append(f"{counted(archived.incomplete, 'call')} without a stored recording: index.html says which.")
    return lines


async def _person(
    database: "Database", home: UUID, number: str | None, contact: str | None, member: str | None
) -> "Person":
    """Return the person. Raises `CommandError`."""
    from db.records.person import Person

    if contact is not None:
        return Person("contact", contact, id=UUID((await lookup.contact(database, home, contact)).contact_id))
    if member is not None:
        return Person("member", member, id=(await lookup.member(database, home, member)).user_id)
    try:
        e164 = await directory.number(database, home, number)
    except directory.UnreadableNumber as error:
        raise CommandError(sentence(error), "", USAGE) from None
    return Person("number", str(e164), e164)
