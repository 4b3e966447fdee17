from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Database
from db.core.tables import calls, host_credentials, submissions, webhook_endpoints, workspaces
from db.secrets.encryption import Sealer, SecretSealed
from db.secrets.recording_urls import BODY_FIELDS, UrlSealer, in_body

BATCH = 200  # rows in one transaction: a submission blocked by it waits for tens of milliseconds

_IN_CALLS = tuple(
    calls.c[name] for name in ("recording_url", "recording_url2", "recording_identity", "recording_identity2")
)
_IN_BODIES = tuple(submissions.c.body[name].astext for name in BODY_FIELDS)
_NOT_ALL_READABLE = r"[?#]|^[^/?#]*//[^/?#]*@"
_HAS_A_PATH = r"^[^/?#]*//[^/?#]*/[^ ]"


CREDENTIALS, WEBHOOKS, DATA_KEYS = host_credentials, webhook_endpoints, workspaces
SECRETS = {CREDENTIALS: ("secret",), WEBHOOKS: ("secret", "previous_secret"), DATA_KEYS: ("data_key",)}
"""The columns that a `Sealer` seals, by table."""


@dataclass(slots=True)
class Resealed:
    """Rows or secrets that were sealed with the first key, and how many could not be opened."""

    changed: int = 0
    unopened: int = 0


async def reseal(database: Database, sealer: UrlSealer) -> Resealed:
    """Seal the recording URLs of all calls and submissions with the first key, `BATCH` rows in a transaction.

    Rows whose key is missing stay unchanged. It may run repeatedly, and while the service runs.
    """
    counts = Resealed()
    if sealer.seals:
        for table, columns in ((calls, _IN_CALLS), (submissions, _IN_BODIES)):
            last: int | None = 0
            while last is not None:
                last = await _batch(database, sealer, table, columns, last, counts)
    return counts


async def reseal_secrets(database: Database, sealer: Sealer, table: sa.Table) -> Resealed:
    """Seal the secrets of one table of `SECRETS` with the first key, in every workspace.

    Secrets whose key is missing stay unchanged. It may run repeatedly, and while the service runs.
    """
    counts = Resealed()
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for column in (table.c[name] for name in SECRETS[table]):
            stored = (await connection.execute(sa.select(column).where(column.is_not(None)).distinct())).scalars().all()
            for secret in stored:
                if sealer.is_fresh(secret):
                    continue
                try:
                    fresh = sealer.reseal(secret)
                except SecretSealed:
                    counts.unopened += 1
                    continue
                update = sa.update(table).where(column == secret).values({column.name: fresh})
                counts.changed += (await connection.execute(update)).rowcount
    return counts


async def stale_secrets(database: Database, sealer: Sealer) -> set[sa.Table]:
    """Return the tables of `SECRETS` with a secret that is not sealed with the first key."""
    stale = set()
    for table, names in SECRETS.items():
        for row in await database.rows(EVERY_WORKSPACE, sa.select(*(table.c[name] for name in names))):
            if any(secret is not None and not sealer.is_fresh(secret) for secret in row):
                stale.add(table)
                break
    return stale


async def has_stale(database: Database, sealer: UrlSealer) -> bool:
    """Return whether a URL is not sealed with the first key."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        for table, columns in ((calls, _IN_CALLS), (submissions, _IN_BODIES)):
            rows = await connection.execute(sa.select(table.c.id).where(_stale(columns, sealer)).limit(1))
            if rows.first() is not None:
                return True
    return False


def _stale(columns: tuple[sa.ColumnElement[Any], ...], sealer: UrlSealer) -> sa.ColumnElement[bool]:
    """Return the condition of rows with a URL with secret parts that the first key has not sealed."""
    not_readable = _NOT_ALL_READABLE + (f"|{_HAS_A_PATH}" if sealer.seals_paths else "")
    return sa.or_(
        *(
            sa.and_(
                sa.or_(column.contains(" ", autoescape=True), column.regexp_match(not_readable)),
                sa.not_(column.contains(sealer.newest_mark, autoescape=True)),
            )
            for column in columns
        )
    )


async def _batch(
    database: Database,
    sealer: UrlSealer,
    table: sa.Table,
    columns: tuple[sa.ColumnElement[Any], ...],
    last: int,
    counts: Resealed,
) -> int | None:
    """Seal the first stale rows after the id `last`; return the id of the last of them, None if there are none."""
    stored: tuple[sa.Column[Any], ...] = _IN_CALLS if table is calls else (submissions.c.body,)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL switchboard.resealing = 'on'"))
        rows = await connection.execute(
            sa.select(table.c.id, *stored)
            .where(table.c.id > last, _stale(columns, sealer))
            .order_by(table.c.id)
            .limit(BATCH)
            .with_for_update(key_share=True)
        )
        end, fresh = None, []
        for row in rows.all():
            end = row.id
            try:
                fresh.append({"pk": row.id} | _resealed(row, sealer))
            except SecretSealed:
                counts.unopened += 1
        if fresh:
            parameters = {column.name: sa.bindparam(f"new_{column.name}", type_=column.type) for column in stored}
            await connection.execute(sa.update(table).where(table.c.id == sa.bindparam("pk")).values(parameters), fresh)
    counts.changed += len(fresh)
    return end


def _resealed(row: sa.Row[Any], sealer: UrlSealer) -> dict[str, Any]:
    stored = {name: value for name, value in row._mapping.items() if name != "id"}
    if "body" in stored:
        return {"new_body": in_body(stored["body"], sealer.reseal)}
    return {f"new_{name}": value if value is None else sealer.reseal(value) for name, value in stored.items()}
