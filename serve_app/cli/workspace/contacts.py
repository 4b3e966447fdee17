import csv
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from db.workspace.legal_holds import OnHold
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Rename
from serve_app.cli.ui.resource import RELEASE, Group, Result, Scope, drop_none, listing

if TYPE_CHECKING:
    from db.workspace import directory
    from pipeline.domain.insight import Contact
else:
    (directory,) = lazy("db.workspace.directory")

COLUMNS = ("name", "company", "email", "phone")
NUMBERS = "Write numbers in international form (+49 30 123456), or set the country of the workspace."
OTHER_NAMES = {
    "full name": "name",
    "organisation": "company",  # language: ok
    "organization": "company",
    "e-mail": "email",
    "email address": "email",
    "telephone": "phone",
    "phone number": "phone",
    "number": "phone",
}

app = Group(
    "Contacts: people who call. A call is linked to a contact by its number or a name mentioned in it.",
    {ValueError: (NUMBERS, USAGE), OnHold: (RELEASE, FAILED)},
)

ContactArgument = Annotated[str, typer.Argument(metavar="NAME|ID", help="The contact.")]
Detail = Annotated[str | None, typer.Option(show_default=False)]
Phone = Annotated[str | None, typer.Option(help="Preferably in international form (+49...).")]


@app.writes()
async def create(
    scope: Scope,
    name: Annotated[str, typer.Argument(help="Name, as spoken on the phone.")],
    company: Detail = None,
    email: Detail = None,
    phone: Phone = None,
) -> Result:
    """Create a contact.

    Example:

      switchboard contacts create "Ana Costa" --phone +14155550100 --email ana@example.com
    """
    contact = await directory.add_contact(scope.database, scope.id, name, company, email, phone)
    return Result(contact, f"Created contact {contact.name!r}: {contact.contact_id}")


@app.updates()
async def update(
    scope: Scope,
    contact: ContactArgument,
    name: Rename = None,
    company: Detail = None,
    email: Detail = None,
    phone: Phone = None,
) -> Result:
    """Change a contact's name, company, email or number; "" removes one. Calls do not change.

    Example:

      switchboard contacts update "Ana Costa" --phone +14155550101 --company ""
    """
    if name == "":
        raise CommandError("A contact needs a name.", "", USAGE)
    options = drop_none(name=name, company=company, email=email, phone=phone)
    changes = {field: value or None for field, value in options.items()}
    contact_id = UUID((await lookup.contact(scope.database, scope.id, contact)).contact_id)
    changed = await directory.update_contact(scope.database, scope.id, contact_id, changes)
    facts = ", ".join(filter(None, (changed.company, changed.email, changed.phone)))
    return Result(changed, f"Contact {changed.name!r}{f': {facts}' if facts else ''}")


@app.writes()
async def delete(scope: Scope, contact: ContactArgument) -> Result:
    """Delete a contact. Calls keep their content but lose the link."""
    match = await lookup.contact(scope.database, scope.id, contact)
    await directory.remove_contact(scope.database, scope.id, UUID(match.contact_id))
    return Result({"removed": match}, f"Deleted contact {match.name!r}.")


@app.reads()
async def list_(scope: Scope) -> Result:
    """List the contacts of a workspace."""
    return listing(
        await directory.list_contacts(scope.database, scope.id),
        ("name", "!id", "!phone", "company", "email"),
        attrgetter("name", "contact_id", "phone", "company", "email"),
        "No contacts yet: `switchboard contacts create NAME` or `contacts import FILE`.",
    )


@app.writes()
async def import_(
    scope: Scope, file: Annotated[Path, typer.Argument(metavar="CSV", exists=True, dir_okay=False, readable=True)]
) -> Result:
    """Import contacts from a CSV file: columns name, company, email, phone (others are ignored), UTF-8.

    The whole file is read before anything is stored. Rows identical to a stored contact are skipped, so an import can
    be repeated. Rows with an invalid number are rejected; the others are stored.
    """
    rows = read_rows(file)
    stored = {_key(_fields(contact)) for contact in await directory.list_contacts(scope.database, scope.id)}
    added, rejected = 0, []
    for line, row in rows:
        if _key(row) in stored:
            continue
        try:
            contact = await directory.add_contact(
                scope.database, scope.id, str(row["name"]), row["company"], row["email"], row["phone"]
            )
        except ValueError as error:
            rejected.append(f"line {line}: {error}")
            continue
        stored |= {_key(row), _key(_fields(contact))}
        added += 1
    skipped = len(rows) - added - len(rejected)
    return Result(
        {"added": added, "skipped": skipped, "refused": rejected},
        f"{added} added, {skipped} already stored, {len(rejected)} rejected.",
        notes=rejected,
        failed=bool(rejected),
    )


def read_rows(file: Path) -> list[tuple[int, dict[str, str | None]]]:
    """Return contacts with their line numbers. Raises `CommandError` for an invalid file."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as source:
            sample = source.read(4096)
            source.seek(0)
            delimiter = ";" if sample.split("\n", 1)[0].count(";") > sample.split("\n", 1)[0].count(",") else ","
            reader = csv.DictReader(source, delimiter=delimiter)
            columns = {heading: _column(heading) for heading in reader.fieldnames or []}
            if "name" not in columns.values():
                raise CommandError(
                    f"{file} has no column `name`.", f"Columns in the first line: {', '.join(COLUMNS)}.", USAGE
                )
            rows = []
            for row in reader:
                contact: dict[str, str | None] = dict.fromkeys(COLUMNS)
                contact |= {columns[h]: (row[h] or "").strip() or None for h in columns if columns[h] in COLUMNS}
                if contact["name"] is None:
                    raise CommandError(f"{file}, line {reader.line_num}: no name.", "Add a name.", USAGE)
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
    """Return the identity of a contact. Numbers are compared by digits, since the directory normalizes them."""
    phone = "".join(c for c in row["phone"] or "" if c.isdigit()).lstrip("0")
    return (*((row[column] or "").casefold() for column in COLUMNS[:3]), phone)
