"""API keys. Only the SHA-256 of a secret is stored: it has 256 random bits, so there is nothing to guess or to salt.

Nor is there anything to learn from the time a look-up takes. What is compared, in memory or by PostgreSQL's index, is
the hash: how far a hash agrees with a stored one says nothing about how to change the secret to agree further.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.core.rows import read, within
from db.core.tables import api_keys
from db.workspace.admin_log import ADMIN, KEY_IS_VALID, Actor, Changing, NotInDirectory, changing
from pipeline.domain.call import Sender
from pipeline.errors import UnknownTeam

SCOPES = frozenset({"submit", "read", "edit", ADMIN})
SECRET_BYTES = 32
SECRET_LENGTH = 52  # "sb_", 43 characters of 32 random bytes, and 6 of a checksum over what stands before them
PREFIX_LENGTH = 9  # of the secret, shown to recognize a key by: "sb_" and six characters


class LastAdminKey(ValueError):
    """Without this key no other of the workspace could make keys."""


class OutlivesItsMaker(ValueError):
    """A key with the scope `admin` ends no later than the key that makes it."""


class KeyExists(ValueError):
    """There is a key of this id."""


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
    expires_at: datetime | None = None
    last_used_at: datetime | None = None  # to the minute
    channels_swapped: bool | None = None  # None: as its team says


async def create(
    database: Database,
    workspace_id: UUID,
    team_id: UUID | None,
    scopes: Iterable[str],
    name: str,
    expires: datetime | timedelta | None = None,
    channels_swapped: bool | None = None,
    by: Actor | None = None,
    key_id: UUID | None = None,
) -> tuple[KeyInfo, str]:
    """A new key and its secret, which is shown this once.

    `expires`: when, or how long from now. `channels_swapped`: whether calls submitted with it have the customer on the
    first channel; None: as the team says. Raises ValueError for no or unknown scopes, UnknownTeam where the workspace
    or its team does not exist, OutlivesItsMaker, and KeyExists where there is a key `key_id`.
    """
    wanted = set(scopes)
    if not wanted or not wanted <= SCOPES:
        raise ValueError(f"the scopes of a key are one or more of {', '.join(sorted(SCOPES))}")
    secret, stored = _drawn()
    values = stored | {
        "workspace_id": workspace_id,
        "team_id": team_id,
        "name": name,
        "scopes": sorted(wanted),
        "channels_swapped": channels_swapped,
        "expires_at": sa.func.now() + expires if isinstance(expires, timedelta) else expires,
    }
    if key_id is not None:
        values["id"] = key_id
    try:
        async with changing(database, workspace_id, by) as change:
            made = insert(api_keys).values(**values).on_conflict_do_nothing(index_elements=["id"])
            rows = await change.run(made.returning(*_SHOWN))
            if not rows:
                raise KeyExists
            key = _info(rows[0])
            if ADMIN in wanted:
                await _check_end(change, key)
            await _note(change, "created", key, f"scopes {', '.join(key.scopes)}")
    except (IntegrityError, NotInDirectory) as error:
        raise UnknownTeam from error
    return key, secret


async def rotate(
    database: Database, key_id: UUID, grace: timedelta, by: Actor | None = None
) -> tuple[KeyInfo, KeyInfo, str] | None:
    """The key as it ends, another one that can do the same, and its secret, shown this once; None: no such valid key.

    The old secret works for `grace` more, or until it expires anyway.
    """
    workspace_id = await _home(database, key_id)
    if workspace_id is None:
        return None
    ends = sa.func.least(api_keys.c.expires_at, sa.func.now() + grace)
    kept = ("workspace_id", "team_id", "name", "scopes", "channels_swapped")
    secret, stored = _drawn()
    async with changing(database, workspace_id, by) as change:
        valid = sa.and_(api_keys.c.id == key_id, KEY_IS_VALID)
        rows = await change.run(sa.update(api_keys).where(valid).values(expires_at=ends).returning(*_SHOWN))
        if not rows:
            return None
        old = _info(rows[0])
        values = stored | {name: rows[0]._mapping[name] for name in kept}
        new = _info((await change.run(sa.insert(api_keys).values(**values).returning(*_SHOWN)))[0])
        await _note(change, "rotated", old, f"by {new.key_id}")
        await _note(change, "created", new, f"scopes {', '.join(new.scopes)}")
    return old, new, secret


def is_no_key(secret: str) -> bool:
    """Whether a secret has the length of ours and a checksum that does not fit: mistyped, cut, or guessed.

    The checksum is no protection, for anybody can compute it. It spares the database the look-up.
    """
    if len(secret) != SECRET_LENGTH:  # of another kind: only the database knows
        return False
    return secret[-6:] != _checksum(secret[:-6])


async def find(database: Database, secret: str) -> Sender | None:
    """Whom a secret speaks for; None for an unknown, revoked or expired one. Raises psycopg.OperationalError."""
    row = await database.fetch_one(_FIND, (_digest(secret),))
    if row is None:
        return None
    key_id, workspace_id, team_id, scopes, default_country = row
    return Sender(key_id, workspace_id, team_id, frozenset(scopes), default_country)


async def refusal(database: Database, secret: str) -> str | None:
    """Why `find` does not know a secret, for the log; None where no key ever had it."""
    row = await database.fetch_one(_REFUSED, (_digest(secret),))
    if row is None:
        return None
    key_id, name, revoked_at, expires_at = row
    what = f"was revoked at {revoked_at.isoformat()}" if revoked_at else f"expired at {expires_at.isoformat()}"
    return f"key {key_id} ({name}) {what}"


async def update(
    database: Database, key_id: UUID, changes: Mapping[str, Any], by: Actor | None = None
) -> KeyInfo | None:
    """Change `name` or `channels_swapped`, for calls submitted from now on; see `create`. None: there is no such key.

    What a key may do does not change: another key is made for that.
    """
    workspace_id = await _home(database, key_id)
    if workspace_id is None:
        return None
    async with changing(database, workspace_id, by) as change:
        changed = sa.update(api_keys).where(api_keys.c.id == key_id).values(**changes).returning(*_SHOWN)
        key = _info((await change.run(changed))[0])
        await _note(change, "changed", key, ", ".join(changes))
    return key


async def list_keys(database: Database, workspace_id: UUID | None = None) -> list[KeyInfo]:
    """All keys, revoked ones too, oldest first."""
    query = within(sa.select(*_SHOWN), api_keys.c.workspace_id, workspace_id).order_by(api_keys.c.created_at)
    return [_info(row) for row in await database.rows(workspace_id or EVERY_WORKSPACE, query)]


async def of_reader(database: Database, reader: Reader, key_id: UUID | None = None) -> list[KeyInfo]:
    """The keys that a reader may see, or that one of them: of its team, or of the whole workspace; oldest first."""
    query = within(sa.select(*_SHOWN), api_keys.c.workspace_id, reader.workspace_id).order_by(api_keys.c.created_at)
    query = within(query, api_keys.c.id, key_id)
    return [_info(row) for row in await database.rows(reader, query)]


async def revoke(database: Database, key_id: UUID, workspace_id: UUID | None = None, by: Actor | None = None) -> bool:
    """Nothing is done with this key from now on. False where there is no such key, or it was revoked before.

    With a workspace, only a key of it. Who has a key cannot take the last one of the workspace with the scope `admin`
    away (LastAdminKey): without it, nobody but an operator could make another one.
    """
    home = await _home(database, key_id)
    if home is None or workspace_id not in (None, home):
        return False
    async with changing(database, home, by) as change:
        live = sa.and_(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
        rows = await change.run(sa.update(api_keys).where(live).values(revoked_at=sa.func.now()).returning(*_SHOWN))
        if not rows:
            return False
        key = _info(rows[0])
        if ADMIN in key.scopes and key.team_id is None and change.by.key_id is not None:
            await _refuse_the_last(change)
        await _note(change, "revoked", key)
    return True


async def _refuse_the_last(change: Changing) -> None:
    wide = sa.and_(api_keys.c.workspace_id == change.workspace_id, api_keys.c.team_id.is_(None))
    others = sa.select(api_keys.c.id).where(wide, sa.any_(api_keys.c.scopes) == ADMIN, KEY_IS_VALID).limit(1)
    if not await change.run(others):
        raise LastAdminKey


async def _check_end(change: Changing, key: KeyInfo) -> None:
    """A key that ends makes none that could go on making others."""
    if change.by.key_id is None:
        return
    (maker,) = await change.run(sa.select(api_keys.c.expires_at).where(api_keys.c.id == change.by.key_id))
    if maker.expires_at is not None and (key.expires_at is None or key.expires_at > maker.expires_at):
        raise OutlivesItsMaker


async def _note(change: Changing, action: str, key: KeyInfo, detail: str = "") -> None:
    await change.note(action, "key", key.key_id, key.name, detail, key.team_id)


async def _home(database: Database, key_id: UUID) -> UUID | None:
    """The workspace of a key."""
    async with database.transaction(EVERY_WORKSPACE) as connection:
        query = sa.select(api_keys.c.workspace_id).where(api_keys.c.id == key_id)
        found: UUID | None = (await connection.execute(query)).scalar()
        return found


_SHOWN = (
    api_keys.c.id.label("key_id"),
    *(api_keys.c[name] for name in KeyInfo.__dataclass_fields__ if name != "key_id"),
)

_FIND = "SELECT key_id, workspace_id, team_id, scopes, default_country FROM find_key(%s)"
_REFUSED = "SELECT key_id, key_name, revoked_at, expires_at FROM refused_key(%s)"


def _drawn() -> tuple[str, dict[str, Any]]:
    """A new secret, and what is stored of it."""
    drawn = "sb_" + secrets.token_urlsafe(SECRET_BYTES)
    secret = drawn + _checksum(drawn)
    return secret, {"secret_sha256": _digest(secret), "prefix": secret[:PREFIX_LENGTH]}


def _checksum(drawn: str) -> str:
    return sha256(b"switchboard key " + drawn.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _info(row: sa.Row[Any]) -> KeyInfo:
    return read(KeyInfo, row, scopes=tuple(row.scopes))
