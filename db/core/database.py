"""Connections and transactions. `Database.transaction` is the only commit in SQLAlchemy code.

A server that is silent, neither answering nor hanging up, is as good as one that is away: TCP notices it where packets
are lost, and a deadline where something on the way takes them and nothing comes back.

Two pools: SQLAlchemy's for the pipeline's writes and the reads, and a raw psycopg one for the hot path of `/submit`.
A restart of PostgreSQL costs the first request nothing: SQLAlchemy's pool looks at a connection before it lends
it, and `fetch_all` tries again on a fresh one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, Self
from uuid import UUID

import psycopg
import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from db.core import isolation
from db.core.clock import Clock
from db.core.rows import dump_json

log = logging.getLogger(__name__)

OUTAGES: tuple[type[Exception], ...] = (psycopg.OperationalError, OperationalError, InterfaceError, sa.exc.TimeoutError)
"""What a lost, restarting or overloaded PostgreSQL raises here: never the fault of the call being worked on."""

CONNECT_SECONDS = 5
SOCKET: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "application_name": "switchboard",
    # A server that vanished without a word is noticed in seconds: while we send, and while we wait for its answer.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""For a new connection: a commit is on disk before it is reported, whatever the server, database or role says.

What is stricter (`on` with a synchronous standby, `remote_apply`), or waits for the local disk alone (`local`), is left
as it is.
"""
SERVER_SIDE = """
    SET idle_in_transaction_session_timeout = '10s';
    SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '10s'
"""
"""For a new connection: what a node that vanished, or was frozen, held in the server does not outlive it for long, its
locks above all. Left alone, the server would keep its sessions for hours."""
ANSWER_SECONDS = 30.0  # for a whole transaction; those of the service take milliseconds

WORKSPACE_SETTING = "switchboard.workspace"  # what the policies of row-level security compare with


class _Everywhere(Enum):
    EVERY_WORKSPACE = "*"


EVERY_WORKSPACE: Final = _Everywhere.EVERY_WORKSPACE
"""For the queue and for operators, who stand above workspaces; nothing a sender or a reader does needs it."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A scope for people and programs that read: a workspace, or one team of it.

    Each statement ends after `seconds`, with psycopg's QueryCanceled inside one of `OUTAGES`.
    """

    workspace_id: UUID
    team_id: UUID | None = None  # set: what belongs to this team's calls, and what teams share
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class PoolState:
    """Connections of a pool, and statements that wait for one where the pool counts them."""

    used: int
    idle: int
    limit: int
    waiting: int = 0


Scope = UUID | Reader | Literal[_Everywhere.EVERY_WORKSPACE]

_NOT_THE_CALLS = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout)

RawPool = AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]]

_SNAPSHOT = sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
_SET_SCOPE = sa.text(f"SELECT set_config('{WORKSPACE_SETTING}', :scope, true)")  # until the transaction ends
_SET_READER = sa.text(
    f"SELECT set_config('{WORKSPACE_SETTING}', :workspace, true), set_config('switchboard.team', :team, true),"
    " set_config('statement_timeout', :milliseconds, true)"
)


class Database:
    """Made with `await Database.open(url)`; belongs to the event loop it was opened in."""

    def __init__(self, url: str, pool: RawPool, engine: AsyncEngine, answer_seconds: float | None) -> None:
        self.url = url
        self._answer_seconds = answer_seconds
        self.pool = pool
        self.engine = engine
        self._besides: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, url: str, pool_size: int = 8, wait_seconds: float = 2.0, answer_seconds: float | None = ANSWER_SECONDS
    ) -> Self:
        """Open both pools, each of at most `pool_size` connections, made when first needed.

        An unreachable server is no error here, so that a replica may start before its database; a request that gets
        no connection within `wait_seconds` raises one of `OUTAGES`. So does a transaction that has not ended after
        `answer_seconds`; None, for a person's commands, waits as long as it takes.
        """
        engine = create_async_engine(
            sqlalchemy_url(url),
            pool_pre_ping=True,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            connect_args=SOCKET,
            json_serializer=dump_json,
            hide_parameters=True,  # a statement in a log must not bring signed addresses and transcripts along
        )
        sa.event.listen(engine.sync_engine, "connect", _prepare)
        pool: RawPool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=pool_size,
            open=False,
            timeout=wait_seconds,
            # Fail early: the next request tries again, while the pool's own attempts wait ever longer.
            reconnect_timeout=2.0,
            configure=_bound_waiting,
            kwargs={**SOCKET, "autocommit": True},
        )
        await pool.open(wait=False)
        return cls(url, pool, engine, answer_seconds)

    @asynccontextmanager
    async def transaction(
        self, scope: Scope, snapshot: bool = False, seconds: float | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """One transaction, READ COMMITTED: committed at the end of the block, rolled back when it raises.

        `scope`: the workspace whose rows it may see and write, a `Reader` of it, or `EVERY_WORKSPACE`. A `snapshot`
        only reads, and all its statements see the same state. `seconds`: how long this one may take, where that is
        longer than others may.

        A server that only reads is as good as none (`OUTAGES`), and its connection is not used again; and so is one
        that ended the transaction because this process was away for too long.
        """
        async with self._answered(seconds), self.engine.connect() as connection:
            try:
                async with connection.begin():
                    if snapshot:  # has to be a transaction's first statement
                        await connection.execute(_SNAPSHOT)
                    await _set_scope(connection, scope)
                    yield connection
            except InternalError as error:
                if not isinstance(error.orig, _NOT_THE_CALLS):
                    raise
                await connection.invalidate()
                raise OperationalError(error.statement, None, error.orig, hide_parameters=True) from None

    async def rows(
        self, scope: Scope, statement: sa.Executable, values: Mapping[str, Any] | None = None, snapshot: bool = False
    ) -> Sequence[sa.Row[Any]]:
        """The rows of a statement in a transaction of its own; see `transaction`."""
        async with self.transaction(scope, snapshot) as connection:
            return (await connection.execute(statement, values)).all()

    async def wakes(self, channel: str) -> AsyncIterator[None]:
        """Yield once at the start and at each notification on `channel`, over a connection of its own.

        A hint, not a promise: poll as well. Raises psycopg.OperationalError when the connection is lost.
        """
        connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True, **SOCKET)
        async with connection:
            await connection.execute(f"LISTEN {channel}".encode())
            yield
            async for _ in connection.notifies():
                yield

    @asynccontextmanager
    async def _answered(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Raise one of `OUTAGES` where the block lasts longer than the server has time to answer."""
        allowed = self._answer_seconds and max(self._answer_seconds, seconds or 0.0)
        try:
            async with asyncio.timeout(allowed) as deadline:
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            raise _silent(allowed) from None

    def pools(self) -> dict[str, PoolState]:
        """How the two pools stand: "statements", the raw one, and "transactions"."""
        found = self.pool.get_stats()
        there, idle = found.get("pool_size", 0), found.get("pool_available", 0)
        waiting = found.get("requests_waiting", 0)
        transactions: Any = self.engine.pool
        return {
            "statements": PoolState(there - idle, idle, self.pool.max_size, waiting),
            "transactions": PoolState(transactions.checkedout(), transactions.checkedin(), transactions.size()),
        }

    async def clock(self) -> Clock:
        """The server's time, from now on."""
        (at,) = await self.fetch_one("SELECT now()", ())
        return Clock(at)

    async def fetch_one(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Any:
        """As `fetch_all`: the first row, or None."""
        rows = await self.fetch_all(statement, values)
        return rows[0] if rows else None

    async def fetch_all(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """One statement in its own transaction on the raw pool; its rows.

        Run again if the connection turns out to be dead, so it must be one that may run twice.
        """
        try:
            async with asyncio.timeout(self._answer_seconds) as deadline:
                return await self._fetch(statement, values)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise _silent(self._answer_seconds) from None

    async def _fetch(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        for last in (False, False, True):
            connection = await self.pool.getconn()  # it commits by itself: nothing to end before it goes back
            try:
                return await (await connection.execute(statement, values)).fetchall()
            except psycopg.errors.ReadOnlySqlTransaction as error:
                await connection.close()  # a server that only reads is as good as none
                if last:
                    raise psycopg.OperationalError("the server is read-only") from error
            except psycopg.OperationalError:
                if last or not connection.closed:
                    raise
            finally:
                await self.pool.putconn(connection)
            # The others are dead as well: have them all replaced. Who is canceled meanwhile does not wait.
            await asyncio.shield(self._beside(self.pool.check()))
        raise AssertionError

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that goes on though nobody waits for it, and ends before the pools do."""
        task = asyncio.create_task(work)
        self._besides.add(task)
        task.add_done_callback(self._besides.discard)
        return task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close both pools; connections in use end with their block."""
        await asyncio.gather(*self._besides, return_exceptions=True)
        await self.pool.close()
        await self.engine.dispose()


def _silent(seconds: float | None) -> psycopg.OperationalError:
    return psycopg.OperationalError(f"no answer within {seconds:g} s")


async def _set_scope(connection: AsyncConnection, scope: Scope) -> None:
    if isinstance(scope, Reader):
        values = {"workspace": str(scope.workspace_id), "team": str(scope.team_id or "")}
        await connection.execute(_SET_READER, values | {"milliseconds": str(round(scope.seconds * 1000))})
    else:
        await connection.execute(_SET_SCOPE, {"scope": str(scope) if isinstance(scope, UUID) else "*"})


def sqlalchemy_url(url: str) -> sa.URL:
    """A `postgresql://` URL as SQLAlchemy wants it for psycopg 3; ValueError for another kind of database."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ValueError(
            f"Switchboard keeps its state in PostgreSQL only, and {parsed.drivername!r} is something else."
        )
    return parsed.set(drivername="postgresql+psycopg")


async def _bound_waiting(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
    """A submission that cannot be taken in time is answered 503 rather than kept hanging."""
    await connection.execute("SET lock_timeout = '5s'")
    await connection.execute("SET statement_timeout = '10s'")
    await connection.execute(SERVER_SIDE)
    # The functions called here find everything by its key; left alone, PostgreSQL plans their statements each time.
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(DURABLE)
    await connection.execute(isolation.STEP_DOWN)
    _complain(await (await connection.execute(isolation.IS_ISOLATED)).fetchone())


class _Text(StrDumperUnknown):
    """Text as PostgreSQL takes it: a NUL or half a surrogate pair in what was heard must not withhold the record."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\x00", "").encode("utf-8", "replace").decode())


def _prepare(connection: Any, _: object) -> None:
    connection.adapters.register_dumper(str, _Text)
    with connection.cursor() as cursor:
        cursor.execute(SERVER_SIDE)
        cursor.execute(DURABLE)
        cursor.execute(isolation.STEP_DOWN)
        cursor.execute(isolation.IS_ISOLATED)
        _complain(cursor.fetchone())
    connection.commit()


def _complain(found: Any) -> None:
    trouble = isolation.trouble(*found)
    if trouble is not None:
        _log_once(trouble)


@cache  # each process says it once, not each connection
def _log_once(trouble: str) -> None:
    log.error(trouble)
