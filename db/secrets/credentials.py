"""Credentials that a workspace presents to recording servers, one for each server.

Secrets are stored sealed (`encryption.py`) and opened only by `find`, in the process that fetches.
"""

import base64
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from db.core.database import Database
from db.core.tables import host_credentials
from db.secrets.encryption import Sealer
from pipeline.domain.credentials import Credential

Kind = Literal["basic", "bearer", "header"]

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # the name of a header (RFC 9110, 5.6.2)
RESERVED_HEADERS = frozenset(
    {"host", "range", "if-range", "accept", "accept-encoding", "user-agent", "connection", "content-length", "te"}
    | {"transfer-encoding", "upgrade", "expect"}
)  # headers that the fetcher sets, or that would change the meaning of a request


class CredentialUnfit(ValueError):
    """The credential cannot be sent in a request."""


@dataclass(frozen=True, slots=True)
class Server:
    """Exactly one server: a host as in a URL, in lower case without a trailing dot, and its port."""

    host: str
    port: int = 443


@dataclass(frozen=True, slots=True)
class CredentialInfo:
    """The public part of a stored credential. `fresh`: sealed with the first key."""

    server: Server
    kind: Kind
    name: str | None
    created_at: datetime
    fresh: bool


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to store. `name`: the user of "basic", the header of "header", None for "bearer"."""

    kind: Kind
    name: str | None
    secret: str = field(repr=False)


async def put(database: Database, workspace_id: UUID, server: Server, new: NewCredential, sealer: Sealer) -> bool:
    """Store a credential for `server` and return whether it replaced one. Raises `CredentialUnfit`."""
    _as_header(new.kind, new.name, new.secret)
    key = {"workspace_id": workspace_id, "host": server.host, "port": server.port}
    values = {"kind": new.kind, "name": new.name, "secret": sealer.seal(new.secret), "created_at": sa.func.now()}
    async with database.transaction(workspace_id) as connection:
        previous = (await connection.execute(sa.select(sa.literal(1)).where(*_at(workspace_id, server)))).first()
        await connection.execute(
            insert(host_credentials)
            .values(**key, **values)
            .on_conflict_do_update(index_elements=["workspace_id", "host", "port"], set_=values)
        )
    return previous is not None


async def list_credentials(database: Database, workspace_id: UUID, sealer: Sealer) -> list[CredentialInfo]:
    """Return all credentials of a workspace, by host and port."""
    query = sa.select(host_credentials).where(host_credentials.c.workspace_id == workspace_id)
    query = query.order_by(host_credentials.c.host, host_credentials.c.port)
    return [
        CredentialInfo(Server(row.host, row.port), row.kind, row.name, row.created_at, sealer.is_fresh(row.secret))
        for row in await database.rows(workspace_id, query)
    ]


async def remove(database: Database, workspace_id: UUID, server: Server) -> bool:
    """Remove the credential for `server`; return False if there is none."""
    return await database.change(workspace_id, sa.delete(host_credentials).where(*_at(workspace_id, server))) == 1


async def find(database: Database, workspace_id: UUID, sealer: Sealer, host: str, port: int) -> Credential | None:
    """Return the opened credential that the workspace presents to exactly this server. Raises `SecretSealed`."""
    columns = (host_credentials.c.kind, host_credentials.c.name, host_credentials.c.secret)
    row = await database.first(workspace_id, sa.select(*columns).where(*_at(workspace_id, Server(host, port))))
    return None if row is None else _as_header(row.kind, row.name, sealer.open(row.secret))


def _at(workspace_id: UUID, server: Server) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        host_credentials.c.workspace_id == workspace_id,
        host_credentials.c.host == server.host,
        host_credentials.c.port == server.port,
    )


def _as_header(kind: Kind, name: str | None, secret: str) -> Credential:
    """Return the request header (RFC 7617, RFC 6750). Raises `CredentialUnfit`, which never contains the secret."""
    if not secret:
        raise CredentialUnfit("The secret is empty.")
    if kind == "basic":
        if not name or ":" in name or _has_controls(name + secret):
            raise CredentialUnfit(
                "The user name must not contain a colon, and user name and password no control characters or "
                "invalid UTF-8."
            )
        pair = base64.b64encode(f"{name}:{secret}".encode()).decode("ascii")
        return Credential("Authorization", f"Basic {pair}")
    if not all(" " <= character <= "~" for character in secret) or secret != secret.strip():
        raise CredentialUnfit("The secret has characters not allowed in a header: use printable ASCII only.")
    if kind == "bearer":
        return Credential("Authorization", f"Bearer {secret}")
    if not name or not TOKEN.fullmatch(name) or name.lower() in RESERVED_HEADERS:
        raise CredentialUnfit("Not a header name that can be set: use one such as X-Api-Key.")
    return Credential(name, secret)


def _has_controls(text: str) -> bool:
    """Return whether the text has control characters or half a surrogate pair (undecodable bytes)."""
    return any(
        ord(character) < 0x20 or ord(character) == 0x7F or 0xD800 <= ord(character) < 0xE000 for character in text
    )
