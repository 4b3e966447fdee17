"""`switchboard contacts`: the people who call, as the workspace knows them."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from db.workspace import directory
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.options import Rename
from serve_app.cli.ui.resource import Answer, Group, Home, given, listing

if TYPE_CHECKING:
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

app = Group(
    """Contacts: who calls. A call whose number or named person is known is linked to its contact.

    Examples:

      switchboard contacts create "Ana Costa" --phone +14155550100 --company Costa

      switchboard contacts import people.csv
""",
    {ValueError: (NUMBERS, USAGE)},
)

Named = Annotated[str, typer.Argument(metavar="NAME|ID", help="The contact.")]
Detail = Annotated[str | None, typer.Option(show_default=False)]
Phone = Annotated[str | None, typer.Option(help="Preferably in international form (+49...).")]


@app.writes()
async def create(
    home: Home,
    name: Annotated[str, typer.Argument(help="The name as people say it on the phone.")],
    company: Detail = None,
    email: Detail = None,
    phone: Phone = None,
) -> Answer:
    """Create a contact.

    Example:

      switchboard contacts create "Ana Costa" --phone +14155550100 --email ana@example.com
    """
    contact = await directory.add_contact(home.database, home.id, name, company, email, phone)
    return Answer(contact, f"Created contact {contact.name!r}: {contact.contact_id}")


@app.updates()
async def update(
    home: Home, contact: Named, name: Rename = None, company: Detail = None, email: Detail = None, phone: Phone = None
) -> Answer:
    """Change a contact's name, company, email or number; "" removes one. Calls keep what was said in them.

    Example:

      switchboard contacts update "Ana Costa" --phone +14155550101 --company ""
    """
    if name == "":
        raise CommandError("A contact has a name.", "", USAGE)
    options = given(name=name, company=company, email=email, phone=phone)
    changes = {field: value or None for field, value in options.items()}
    contact_id = UUID((await lookup.contact(home.database, home.id, contact)).contact_id)
    changed = await directory.update_contact(home.database, home.id, contact_id, changes)
    facts = ", ".join(filter(None, (changed.company, changed.email, changed.phone)))
    return Answer(changed, f"Contact {changed.name!r}{f': {facts}' if facts else ''}")


@app.writes()
async def delete(home: Home, contact: Named) -> Answer:
    """Delete a contact. Calls keep what was said in them, and are no longer linked to it.

    Example:

      switchboard contacts delete "Ana Costa"
    """
    match = await lookup.contact(home.database, home.id, contact)
    await directory.remove_contact(home.database, home.id, UUID(match.contact_id))
    return Answer({"removed": match}, f"Deleted contact {match.name!r}.")


@app.reads()
async def list_(home: Home) -> Answer:
    """List the contacts of a workspace.

    Example:

      switchboard contacts list --workspace acme
    """
    return listing(
        await directory.list_contacts(home.database, home.id),
        ("name", "!id", "!phone", "company", "email"),
        lambda one: (one.name or "", one.contact_id, one.phone or "", one.company or "", one.email or ""),
        "No contacts yet: `switchboard contacts create NAME` or `contacts import FILE`.",
    )


@app.writes()
async def import_(
    home: Home, file: Annotated[Path, typer.Argument(metavar="CSV", exists=True, dir_okay=False, readable=True)]
) -> Answer:
    """Import contacts from a CSV file: columns name, company, email, phone (others are ignored), UTF-8.

    The whole file is read before anything is stored. A row that is already stored, field by field, is skipped, so that
    an import may be repeated; a row with an invalid number is rejected, and the others are stored.

    Example:

      switchboard contacts import people.csv --workspace acme
    """
    rows = read_rows(file)
    stored = {_key(_fields(contact)) for contact in await directory.list_contacts(home.database, home.id)}
    added, rejected = 0, []
    for line, row in rows:
        if _key(row) in stored:
            continue
        try:
            contact = await directory.add_contact(
                home.database, home.id, str(row["name"]), row["company"], row["email"], row["phone"]
            )
        except ValueError as error:
            rejected.append(f"line {line}: {error}")
            continue
        stored |= {_key(row), _key(_fields(contact))}
        added += 1
    skipped = len(rows) - added - len(rejected)
    return Answer(
        {"added": added, "skipped": skipped, "refused": rejected},
        f"{added} added, {skipped} already stored, {len(rejected)} rejected.",
        notes=rejected,
        failed=bool(rejected),
    )


def read_rows(file: Path) -> list[tuple[int, dict[str, str | None]]]:
    """Return contacts with their line numbers. Raises `CommandError` for a file that is no list of contacts."""
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
