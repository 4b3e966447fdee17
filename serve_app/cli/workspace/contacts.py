"""`switchboard contacts`: the people who call, as the workspace knows them."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, err, out, print_json, print_list, say
from serve_app.cli.workspace.managed import given

if TYPE_CHECKING:
    from db.core.database import Database
    from db.workspace.directory import Workspace
    from pipeline.domain.insight import Contact

COLUMNS = ("name", "company", "email", "phone")
NUMBERS = "Write numbers in international form (+49 30 123456), or give the workspace a country."
OTHER_NAMES = {
    "full name": "name",
    "organisation": "company",  # terms: ok
    "organization": "company",
    "e-mail": "email",
    "email address": "email",
    "telephone": "phone",
    "phone number": "phone",
    "number": "phone",
}

app = command_group("""Contacts: who calls. A call whose number or named person is known is linked to its contact.

    Examples:

      switchboard contacts add "Ana Costa" --phone +14155550100 --company Costa

      switchboard contacts import people.csv
""")


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The name as people say it on the phone.")],
    workspace: lookup.Workspace = None,
    company: Annotated[str | None, typer.Option(show_default=False)] = None,
    email: Annotated[str | None, typer.Option(show_default=False)] = None,
    phone: Annotated[
        str | None, typer.Option(help="Preferably in international form (+49...).", show_default=False)
    ] = None,
    json_: Json = False,
) -> None:
    """Add a contact.

    Example:

      switchboard contacts add "Ana Costa" --phone +14155550100 --email ana@example.com
    """

    async def work(database: "Database", home: "Workspace") -> "Contact":
        from db.workspace import directory

        try:
            return await directory.add_contact(database, home.workspace_id, name, company, email, phone)
        except ValueError as error:
            raise CommandError(f"{error}.", NUMBERS, USAGE) from error

    made = lookup.run(workspace, work, writes=True)
    say(f"Created contact {made.name!r}: {made.contact_id}", made, json_)


Named = Annotated[str, typer.Argument(metavar="NAME|ID", help="The contact.")]


@app.command()
def update(
    contact: Named,
    workspace: lookup.Workspace = None,
    name: Annotated[str | None, typer.Option(help="The new name.", show_default=False)] = None,
    company: Annotated[str | None, typer.Option(help='"" removes it.', show_default=False)] = None,
    email: Annotated[str | None, typer.Option(help='"" removes it.', show_default=False)] = None,
    phone: Annotated[str | None, typer.Option(help='"" removes it.', show_default=False)] = None,
    json_: Json = False,
) -> None:
    """Change a contact's name, company, email or number. What calls said of it stays in the calls.

    Example:

      switchboard contacts update "Ana Costa" --phone +14155550101 --company ""
    """
    if name == "":
        raise CommandError("A contact has a name.", "", USAGE)
    changes = {key: value or None for key, value in given(name=name, company=company, email=email, phone=phone).items()}

    async def work(database: "Database", home: "Workspace") -> "Contact":
        from db.workspace import directory

        found = await lookup.contact(database, home.workspace_id, contact)
        try:
            return await directory.update_contact(database, home.workspace_id, UUID(found.contact_id), changes)
        except ValueError as error:
            raise CommandError(f"{error}.", NUMBERS, USAGE) from error

    changed = lookup.run(workspace, work, writes=True)
    told = ", ".join(value for value in (changed.company, changed.email, changed.phone) if value)
    say(f"Contact {changed.name!r}{f': {told}' if told else ''}", changed, json_)


@app.command()
def remove(contact: Named, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Remove a contact. Calls keep what was said in them, and are no longer linked to it.

    Example:

      switchboard contacts remove "Ana Costa"
    """

    async def work(database: "Database", home: "Workspace") -> "Contact":
        from db.workspace import directory

        found = await lookup.contact(database, home.workspace_id, contact)
        await directory.remove_contact(database, home.workspace_id, UUID(found.contact_id))
        return found

    gone = lookup.run(workspace, work, writes=True)
    say(f"Removed contact {gone.name!r}.", {"removed": gone}, json_)


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List the contacts of a workspace.

    Example:

      switchboard contacts list --workspace acme
    """
    from db.workspace import directory

    print_list(
        lookup.run(workspace, lambda database, home: directory.list_contacts(database, home.workspace_id)),
        json_,
        ("name", "!id", "!phone", "company", "email"),
        lambda one: (one.name or "", one.contact_id, one.phone or "", one.company or "", one.email or ""),
        "No contacts yet: `switchboard contacts add NAME` or `contacts import FILE`.",
    )


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="CSV", exists=True, dir_okay=False, readable=True)],
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Import contacts from a CSV file: columns name, company, email, phone (others are ignored), UTF-8.

    The whole file is read before anything is stored. A row that is already there, field by field, is skipped, so that
    an import may be repeated; a row whose number cannot be read is refused and named, and the others are stored.

    Example:

      switchboard contacts import people.csv --workspace acme
    """
    rows = read_rows(file)

    async def work(database: "Database", home: "Workspace") -> tuple[int, list[str]]:
        from db.workspace import directory

        known = {_key(_fields(one)) for one in await directory.list_contacts(database, home.workspace_id)}
        added, refused = 0, []
        for line, row in rows:
            if _key(row) in known:
                continue
            try:
                made = await directory.add_contact(
                    database, home.workspace_id, str(row["name"]), row["company"], row["email"], row["phone"]
                )
            except ValueError as error:
                refused.append(f"line {line}: {error}")
                continue
            known |= {_key(row), _key(_fields(made))}
            added += 1
        return added, refused

    added, refused = lookup.run(workspace, work, writes=True)
    skipped = len(rows) - added - len(refused)
    if json_:
        print_json({"added": added, "skipped": skipped, "refused": refused})
    else:
        out().print(f"{added} added, {skipped} known already, {len(refused)} refused.")
        for fault in refused:
            err().print(fault, style="red", markup=False)
    if refused:
        raise typer.Exit(FAILED)


def read_rows(file: Path) -> list[tuple[int, dict[str, str | None]]]:
    """The rows as contacts, each with its line number. Raises `CommandError` for a file that is no list of contacts."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as source:
            sample = source.read(4096)
            source.seek(0)
            delimiter = ";" if sample.split("\n", 1)[0].count(";") > sample.split("\n", 1)[0].count(",") else ","
            reader = csv.DictReader(source, delimiter=delimiter)
            columns = {heading: _column(heading) for heading in reader.fieldnames or []}
            if "name" not in columns.values():
                raise CommandError(
                    f"{file} has no column `name`.", f"Its first line names columns: {', '.join(COLUMNS)}.", USAGE
                )
            rows = []
            for row in reader:
                contact: dict[str, str | None] = dict.fromkeys(COLUMNS)
                contact |= {columns[h]: (row[h] or "").strip() or None for h in columns if columns[h] in COLUMNS}
                if contact["name"] is None:
                    raise CommandError(f"{file}, line {reader.line_num}: no name.", "Every contact needs one.", USAGE)
                rows.append((reader.line_num, contact))
            return rows
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} is not UTF-8 (byte {error.start}).", "Save it as CSV UTF-8.", USAGE) from error


def _column(heading: str) -> str:
    plain = (heading or "").strip().lower()
    return OTHER_NAMES.get(plain, plain)


def _fields(contact: "Contact") -> dict[str, str | None]:
    return {column: getattr(contact, column) for column in COLUMNS}


def _key(row: dict[str, str | None]) -> tuple[str, ...]:
    """What makes two contacts the same; numbers are compared by their digits, as the directory rewrites them."""
    phone = "".join(c for c in row["phone"] or "" if c.isdigit()).lstrip("0")
    return (*((row[column] or "").casefold() for column in COLUMNS[:3]), phone)
