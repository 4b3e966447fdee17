"""Sealed calls: each has a key, which its workspace's key seals, which the service's keys seal.

A sealed value is stored as text in a column of JSON: compressed, then encrypted by AES-256-GCM with a random nonce.
Only `CallKeys` opens it. Without its row in `call_keys` nothing sealed of a call can be read, in no copy.
"""

import asyncio
import base64
import logging
import os
import zlib
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic_core import from_json
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.database import Database
from db.core.rows import dump_json
from db.core.tables import call_keys, workspaces
from db.secrets.encryption import Sealer, SecretSealed

log = logging.getLogger(__name__)

KEY_BYTES, NONCE_BYTES = 32, 12
_WITH_KEY = '{"_key"'  # the first name of PostgreSQL's text of `readable`: names are sorted by their length
_NO_KEY = "The call is sealed and its key was deleted: the call was erased, or restored without its key."


class CallSealed(SecretSealed):
    """A sealed call cannot be opened with the keys that exist."""

    code = "call_sealed"
    retryable = False


@dataclass(frozen=True, slots=True)
class CallKeys:
    """Opens sealed values. `seals`: what is written from now on is sealed."""

    sealer: Sealer = field(default_factory=Sealer)
    seals: bool = False

    def open(self, value: Any) -> Any:
        """Return the JSON value of a column selected by `readable`. Raises `SecretSealed`."""
        if isinstance(value, str):
            raise CallSealed(_NO_KEY)
        if not isinstance(value, dict) or "_key" not in value:
            return value
        stored = value["_value"]
        return from_json(self._open_text(value)) if isinstance(stored, str) else stored

    def open_text(self, text: str | None) -> str | None:
        """Return the JSON text of a column selected by `readable` and cast to text. Raises `SecretSealed`."""
        if text is None or not text.startswith((_WITH_KEY, '"')):
            return text
        value = from_json(text)
        if isinstance(value, str):
            raise CallSealed(_NO_KEY)
        stored = value["_value"]
        return self._open_text(value).decode() if isinstance(stored, str) else stored and dump_json(stored)

    def sealed_again(self, value: dict[str, Any], changed: Any) -> str:
        """Return `changed` sealed by the key of the value that it replaces, as `readable` returned that."""
        return seal(self.key_in(value), changed)

    def key_in(self, value: dict[str, Any]) -> bytes:
        """Return the key of a call in a column selected by `with_key`. Raises `SecretSealed`."""
        if value["_sealed_by"] is None:
            raise CallSealed("The key of the workspace was deleted, so its sealed calls cannot be opened.")
        workspace_key = base64.b64decode(self.sealer.open(value["_sealed_by"]))
        return _decrypt(workspace_key, base64.b64decode(value["_key"]), UUID(value["_workspace"]).bytes)

    def key_of_row(self, row: Any) -> bytes | None:
        """Return the key in a row's column `with_key`; None if there is none, or none that can be opened."""
        try:
            return None if row.with_key is None else self.key_in(row.with_key)
        except SecretSealed as error:
            log.warning("the key of a call cannot be opened: %s", error.message)
            return None

    def _open_text(self, value: dict[str, Any]) -> bytes:
        return zlib.decompress(_decrypt(self.key_in(value), base64.b64decode(value["_value"]), b"value"))


def readable(column: sa.ColumnElement[Any], call_pk: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the expression of a column of JSON with what `CallKeys` needs to open it; the column without a key."""
    return sa.func.coalesce(with_key(call_pk, column), column, type_=JSONB())


def with_key(call_pk: sa.ColumnElement[Any], column: sa.ColumnElement[Any] | None = None) -> sa.ScalarSelect[Any]:
    """Return the expression of the wrapped key of a call, with a column that it opens; null without a key."""
    value = sa.func.jsonb_build_object(
        *("_key", sa.func.translate(sa.func.encode(call_keys.c.key, "base64"), "\n", "")),
        *("_workspace", workspaces.c.id, "_sealed_by", workspaces.c.data_key),
        *(() if column is None else ("_value", column)),
        type_=JSONB(),
    )
    query = sa.select(value).select_from(call_keys.join(workspaces, workspaces.c.id == call_keys.c.workspace_id))
    return query.where(call_keys.c.call_pk == call_pk).correlate_except(call_keys, workspaces).scalar_subquery()


def of(source: AsyncConnection | Database) -> CallKeys:
    """Return the keys that a database was opened with."""
    keys: CallKeys | None = source.engine.sync_engine.get_execution_options().get("call_keys")
    return keys or CallKeys()


async def find_key(connection: AsyncConnection, call_pk: int) -> bytes | None:
    """Return the key of a call, or None. Raises `SecretSealed`."""
    value = await connection.scalar(sa.select(with_key(sa.literal(call_pk))))
    return None if value is None else of(connection).key_in(value)


async def key_for_writing(
    connection: AsyncConnection, call_pk: int, workspace_id: UUID, force: bool = False
) -> bytes | None:
    """Return the key that seals what is written of a call, created with the first; None if nothing is sealed.

    `force`: even then: for what is never stored unsealed.
    """
    keys = of(connection)
    if not (keys.seals or force):
        return None
    key = await find_key(connection, call_pk)
    if key is not None:
        return key
    workspace_key = await _workspace_key(connection, workspace_id, keys.sealer)
    wrapped = _encrypt(workspace_key, os.urandom(KEY_BYTES), workspace_id.bytes)
    values = {"call_pk": call_pk, "workspace_id": workspace_id, "key": wrapped}
    await connection.execute(insert(call_keys).values(values).on_conflict_do_nothing())
    return await find_key(connection, call_pk)


async def sealed(connection: AsyncConnection, call_pk: int, workspace_id: UUID, value: Any) -> Any:
    """Return the value of a JSON column as it is stored: sealed, or unchanged if nothing is sealed."""
    key = await key_for_writing(connection, call_pk, workspace_id)
    if key is None or not of(connection).seals:
        return value
    return await asyncio.to_thread(seal, key, value)


def seal(key: bytes, value: Any) -> str:
    """Return a value as JSON, compressed and encrypted, in base64."""
    return base64.b64encode(_encrypt(key, zlib.compress(dump_json(value).encode(), 1), b"value")).decode("ascii")


async def _workspace_key(connection: AsyncConnection, workspace_id: UUID, sealer: Sealer) -> bytes:
    is_workspace = workspaces.c.id == workspace_id
    stored = await connection.scalar(sa.select(workspaces.c.data_key).where(is_workspace))
    if stored is None:
        fresh = sealer.seal(base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii"))
        first = sa.func.coalesce(workspaces.c.data_key, fresh)
        update = sa.update(workspaces).where(is_workspace).values(data_key=first).returning(workspaces.c.data_key)
        stored = await connection.scalar(update)
    return base64.b64decode(sealer.open(stored))


def _encrypt(key: bytes, data: bytes, purpose: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, purpose)


def _decrypt(key: bytes, sealed_data: bytes, purpose: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed_data[:NONCE_BYTES], sealed_data[NONCE_BYTES:], purpose)
    except (InvalidTag, ValueError):
        raise CallSealed("A sealed value was altered, or sealed with a key of the call that was deleted.") from None
