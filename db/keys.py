"""API keys. Only the SHA-256 of a secret is stored: it has 256 random bits, so there is nothing to guess or to salt.

Nor is there anything to learn from the time a look-up takes. What is compared, in memory or by PostgreSQL's index, is
the hash: how far a hash agrees with a stored one says nothing about how to change the secret to agree further.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from db.database import EVERY_WORKSPACE, Database
from db.rows import read, within
from db.tables import api_keys
from pipeline.domain.call import Sender
from pipeline.errors import UnknownTeam

SCOPES = frozenset({"submit", "read"})
SECRET_BYTES = 32
SECRET_LENGTH = 52  # "sb_", 43 characters of 32 random bytes, and 6 of a checksum over what stands before them
PREFIX_LENGTH = 9  # of the secret, shown to recognize a key by: "sb_" and six characters


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key as it may be shown."""

    key_id: UUID
    workspace_id: UUID
    team_id: UUID | None  # None: workspace-wide
    name: str
    prefix: str
    scopes: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None


async def create(
    database: Database, workspace_id: UUID, team_id: UUID | None, scopes: Iterable[str], name: str
) -> tuple[KeyInfo, str]:
    """A new key and its secret, which is shown this once.

    Raises ValueError for no or unknown scopes, UnknownTeam where the workspace or its team
    does not exist.
    """
    wanted = set(scopes)
    if not wanted or not wanted <= SCOPES:
        raise ValueError(f"the scopes of a key are one or more of {', '.join(sorted(SCOPES))}")
    drawn = "sb_" + secrets.token_urlsafe(SECRET_BYTES)
    secret = drawn + _checksum(drawn)
    values = {
        "workspace_id": workspace_id,
        "team_id": team_id,
        "name": name,
        "secret_sha256": _digest(secret),
        "prefix": secret[:PREFIX_LENGTH],
        "scopes": sorted(wanted),
    }
    try:
        async with database.transaction(workspace_id) as connection:
            row = (await connection.execute(sa.insert(api_keys).values(**values).returning(*_SHOWN))).one()
    except IntegrityError as error:
        raise UnknownTeam from error
    return _info(row), secret


def is_no_key(secret: str) -> bool:
    """Whether a secret has the length of ours and a checksum that does not fit: mistyped, cut, or guessed.

    The checksum is no protection, for anybody can compute it. It spares the database the look-up.
    """
    if len(secret) != SECRET_LENGTH:  # of another kind: only the database knows
        return False
    return secret[-6:] != _checksum(secret[:-6])


async def find(database: Database, secret: str) -> Sender | None:
    """Whom a secret speaks for; None for an unknown or revoked one. Raises psycopg.OperationalError."""
    row = await database.fetch_one(_FIND, (_digest(secret),))
    if row is None:
        return None
    key_id, workspace_id, team_id, scopes, default_country = row
    return Sender(key_id, workspace_id, team_id, frozenset(scopes), default_country)


async def list_keys(database: Database, workspace_id: UUID | None = None) -> list[KeyInfo]:
    """All keys, revoked ones too, oldest first."""
    query = within(sa.select(*_SHOWN), api_keys.c.workspace_id, workspace_id).order_by(api_keys.c.created_at)
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        return [_info(row) for row in await connection.execute(query)]


async def revoke(database: Database, key_id: UUID, workspace_id: UUID | None = None) -> bool:
    """No submission with this key is taken from now on. False where there is no such key, or it was revoked before.

    With a workspace, only a key of it.
    """
    live = sa.and_(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
    async with database.transaction(workspace_id or EVERY_WORKSPACE) as connection:
        done = await connection.execute(sa.update(api_keys).where(live).values(revoked_at=sa.func.now()))
    return done.rowcount == 1


_SHOWN = (
    api_keys.c.id.label("key_id"),
    *(api_keys.c[name] for name in ("workspace_id", "team_id", "name", "prefix", "scopes", "created_at", "revoked_at")),
)

_FIND = "SELECT key_id, workspace_id, team_id, scopes, default_country FROM find_key(%s)"


def _checksum(drawn: str) -> str:
    return sha256(b"switchboard key " + drawn.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _info(row: sa.Row[Any]) -> KeyInfo:
    return read(KeyInfo, row, scopes=tuple(row.scopes))
