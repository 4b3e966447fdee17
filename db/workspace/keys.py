"""API keys. Only the SHA-256 of a secret is stored: it has 256 random bits, so it needs no salt and cannot be guessed.

A look-up leaks nothing through its time either. The compared value, in memory or in PostgreSQL's index, is the hash:
its agreement with a stored one does not help to find the secret.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.core.rows import filter_by, read
from db.core.tables import api_keys, webhook_endpoints
from db.workspace.admin_log import ADMIN, KEY_IS_VALID, Actor, Changing, NotInDirectory, changing
from pipeline.domain.call import Sender
from pipeline.errors import UnknownTeam

UNREDACTED = "unredacted"  # reads what a policy of redaction has sealed; each read is logged
SCOPES = frozenset({"submit", "read", "edit", ADMIN, UNREDACTED})
SECRET_BYTES = 32
SECRET_LENGTH = 52  # "sb_", 43 characters of 32 random bytes, and 6 of a checksum over the rest
PREFIX_LENGTH = 9  # of the secret, shown to identify a key: "sb_" and six characters


class LastAdminKey(ValueError):
    """No other key of the workspace could create keys."""


class KeyOutlivesParent(ValueError):
    """A key must not expire after the key that creates it."""


class KeyExists(ValueError):
    """A key with this id exists."""


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """The public data of a key."""

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
    channels_swapped: bool | None = None  # None: as for its team
    created_by: UUID | None = None  # the key that created it; None: an operator


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
    """Create a key and return it with its secret, which is shown only once.

    `expires`: a time, or a duration from now; None: when the key that creates it expires. `channels_swapped`: whether
    calls submitted with it have the customer on the first channel; None: as for the team. Raises ValueError for no or
    unknown scopes, UnknownTeam if the workspace or its team does not exist, KeyOutlivesParent, and KeyExists if the id
    `key_id` is used.
    """
    requested = set(scopes)
    if not requested or not requested <= SCOPES:
        raise ValueError(f"a key needs one or more scopes of {', '.join(sorted(SCOPES))}")
    secret, stored = _new_secret()
    values = stored | {
        "workspace_id": workspace_id,
        "team_id": team_id,
        "name": name,
        "scopes": sorted(requested),
        "channels_swapped": channels_swapped,
        "expires_at": sa.func.now() + expires if isinstance(expires, timedelta) else expires,
        "created_by": by and by.key_id,
    }
    if key_id is not None:
        values["id"] = key_id
    try:
        async with changing(database, workspace_id, by) as change:
            return await _insert(change, values), secret
    except (IntegrityError, NotInDirectory) as error:
        raise UnknownTeam from error


async def _insert(change: Changing, values: dict[str, Any]) -> KeyInfo:
    end = await _end_of_creator(change)
    if values["expires_at"] is None:
        values["expires_at"] = end
    insertion = insert(api_keys).values(**values).on_conflict_do_nothing(index_elements=["id"])
    rows = await change.run(insertion.returning(*_COLUMNS))
    if not rows:
        raise KeyExists
    key = _info(rows[0])
    if end is not None and (key.expires_at is None or key.expires_at > end):
        raise KeyOutlivesParent
    await _note(change, "created", key, f"scopes {', '.join(key.scopes)}")
    return key


async def rotate(
    database: Database, key_id: UUID, grace: timedelta, by: Actor | None = None
) -> tuple[KeyInfo, KeyInfo, str] | None:
    """Return the ending key, its replacement, and the secret, shown only once; None: there is no such valid key.

    The old secret works for `grace` more, or until it expires anyway. The replacement counts as the creator of the old
    key from now on, so that revoking it also revokes the old key and the keys that this one created.
    """
    workspace_id = await _workspace_of(database, key_id)
    if workspace_id is None:
        return None
    end = sa.func.least(api_keys.c.expires_at, sa.func.now() + grace)
    copied = ("workspace_id", "team_id", "name", "scopes", "channels_swapped", "created_by")
    secret, stored = _new_secret()
    new_id = uuid4()
    async with changing(database, workspace_id, by) as change:
        valid = sa.and_(api_keys.c.id == key_id, KEY_IS_VALID)
        current = await change.run(sa.select(*_COLUMNS).where(valid))
        if not current:
            return None
        values = stored | {"id": new_id} | {name: current[0]._mapping[name] for name in copied}
        new = _info((await change.run(sa.insert(api_keys).values(**values).returning(*_COLUMNS)))[0])
        update = sa.update(api_keys).where(api_keys.c.id == key_id).values(expires_at=end, created_by=new_id)
        old = _info((await change.run(update.returning(*_COLUMNS)))[0])
        await _note(change, "rotated", old, f"by {new.key_id}")
        await _note(change, "created", new, f"scopes {', '.join(new.scopes)}")
    return old, new, secret


def is_malformed(secret: str) -> bool:
    """Return whether a secret has the right length but a wrong checksum: mistyped, cut, or guessed.

    The checksum is no protection, since anyone can compute it. It saves a database look-up.
    """
    if len(secret) != SECRET_LENGTH:  # of another format: look it up
        return False
    return secret[-6:] != _checksum(secret[:-6])


async def find(database: Database, secret: str) -> Sender | None:
    """Return the sender of a secret; None for an unknown, revoked or expired one. Raises psycopg.OperationalError."""
    row = await database.fetch_one(_FIND, (digest(secret),))
    if row is None:
        return None
    key_id, workspace_id, team_id, scopes, default_country = row
    return Sender(key_id, workspace_id, team_id, frozenset(scopes), default_country)


async def refusal(database: Database, secret: str) -> str | None:
    """Return why `find` rejects a secret, for the log; None if no key ever had it."""
    row = await database.fetch_one(_REFUSED, (digest(secret),))
    if row is None:
        return None
    key_id, name, revoked_at, expires_at = row
    what = f"was revoked at {revoked_at.isoformat()}" if revoked_at else f"expired at {expires_at.isoformat()}"
    return f"key {key_id} ({name}) {what}"


async def update(
    database: Database, key_id: UUID, changes: Mapping[str, Any], by: Actor | None = None
) -> KeyInfo | None:
    """Change `name` or `channels_swapped`, for calls submitted from now on; see `create`. None: there is no such key.

    Scopes cannot change: create another key instead.
    """
    workspace_id = await _workspace_of(database, key_id)
    if workspace_id is None:
        return None
    async with changing(database, workspace_id, by) as change:
        statement = sa.update(api_keys).where(api_keys.c.id == key_id).values(**changes).returning(*_COLUMNS)
        key = _info((await change.run(statement))[0])
        await _note(change, "changed", key, ", ".join(changes))
    return key


async def list_keys(
    database: Database, scope: Reader | UUID | None = None, key_id: UUID | None = None
) -> list[KeyInfo]:
    """Return keys, revoked ones too, oldest first: all, a workspace's, or those visible to a reader.

    `key_id`: only this one.
    """
    workspace_id = scope.workspace_id if isinstance(scope, Reader) else scope
    query = filter_by(sa.select(*_COLUMNS), api_keys.c.workspace_id, workspace_id).order_by(api_keys.c.created_at)
    rows = await database.rows(scope or EVERY_WORKSPACE, filter_by(query, api_keys.c.id, key_id))
    return [_info(row) for row in rows]


async def revoke(
    database: Database,
    key_id: UUID,
    workspace_id: UUID | None = None,
    by: Actor | None = None,
    keep_created: bool = False,
) -> tuple[KeyInfo, ...]:
    """Revoke a key permanently, and unless `keep_created` the keys that it created, those that they created, and so on.

    Return the keys that it revoked; none if there is no such key, or all of them are revoked already. Sessions end with
    their key. Webhooks that the revoked keys created are disabled, unless `keep_created`. With a workspace, only a key
    of it. The holder of a key cannot revoke the workspace's last key with the scope `admin` (LastAdminKey): without it,
    only an operator could create another one.
    """
    home = await _workspace_of(database, key_id)
    if home is None or workspace_id not in (None, home):
        return ()
    chosen = sa.select(api_keys.c.id).where(api_keys.c.id == key_id)
    if not keep_created:
        line = chosen.cte("line", recursive=True)
        line = line.union(sa.select(api_keys.c.id).join(line, api_keys.c.created_by == line.c.id))
        chosen = sa.select(line.c.id)
    async with changing(database, home, by) as change:
        live = sa.and_(api_keys.c.id.in_(chosen), api_keys.c.revoked_at.is_(None))
        rows = await change.run(sa.update(api_keys).where(live).values(revoked_at=sa.func.now()).returning(*_COLUMNS))
        revoked = tuple(sorted(map(_info, rows), key=lambda key: (key.key_id != key_id, key.created_at)))
        if change.by.key_id is not None and any(ADMIN in key.scopes and key.team_id is None for key in revoked):
            await _require_other_admin_key(change)
        for key in revoked:
            await _note(change, "revoked", key, "" if key.key_id == key_id else f"created by key {key.created_by}")
        if not keep_created:
            await _disable_webhooks(change, chosen)
    return revoked


async def _disable_webhooks(change: Changing, creators: sa.Select[Any]) -> None:
    """Disable the webhooks that these keys created: otherwise they send records to its holder from now on."""
    hooks = webhook_endpoints
    enabled = sa.and_(hooks.c.created_by.in_(creators), hooks.c.disabled_at.is_(None))
    update = sa.update(hooks).where(enabled).values(disabled_at=sa.func.now(), disabled_reason="Its key was revoked.")
    for hook in await change.run(update.returning(hooks.c.id, hooks.c.description, hooks.c.team_id)):
        await change.note("disabled", "webhook", hook.id, hook.description, "its key was revoked", hook.team_id)


async def _require_other_admin_key(change: Changing) -> None:
    workspace_wide = sa.and_(api_keys.c.workspace_id == change.workspace_id, api_keys.c.team_id.is_(None))
    others = sa.select(api_keys.c.id).where(workspace_wide, sa.any_(api_keys.c.scopes) == ADMIN, KEY_IS_VALID).limit(1)
    if not await change.run(others):
        raise LastAdminKey


async def _end_of_creator(change: Changing) -> datetime | None:
    """Return when the key that makes the change expires; None: never, or an operator makes it."""
    query = sa.select(api_keys.c.expires_at).where(api_keys.c.id == change.by.key_id)
    return next((row.expires_at for row in await change.run(query)), None)


async def _note(change: Changing, action: str, key: KeyInfo, detail: str = "") -> None:
    await change.note(action, "key", key.key_id, key.name, detail, key.team_id)


async def _workspace_of(database: Database, key_id: UUID) -> UUID | None:
    query = sa.select(api_keys.c.workspace_id).where(api_keys.c.id == key_id)
    return next(iter(await database.column(EVERY_WORKSPACE, query)), None)


_COLUMNS = (
    api_keys.c.id.label("key_id"),
    *(api_keys.c[name] for name in KeyInfo.__dataclass_fields__ if name != "key_id"),
)

_FIND = "SELECT key_id, workspace_id, team_id, scopes, default_country FROM find_key(%s)"
_REFUSED = "SELECT key_id, key_name, revoked_at, expires_at FROM refused_key(%s)"


def _new_secret() -> tuple[str, dict[str, Any]]:
    random_part = "sb_" + secrets.token_urlsafe(SECRET_BYTES)
    secret = random_part + _checksum(random_part)
    return secret, {"secret_sha256": digest(secret), "prefix": secret[:PREFIX_LENGTH]}


def _checksum(random_part: str) -> str:
    return sha256(b"switchboard key " + random_part.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def digest(secret: str) -> bytes:
    """Return what is stored of a secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _info(row: sa.Row[Any]) -> KeyInfo:
    return read(KeyInfo, row, scopes=tuple(row.scopes))
