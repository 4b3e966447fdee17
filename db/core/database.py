"""Connections and transactions. `Database.transaction` is the only commit in SQLAlchemy code.

A server that neither responds nor closes the connection counts as down. TCP detects it if packets are lost, and a
timeout detects it if something on the way accepts packets and returns none.

There are two pools: SQLAlchemy's for the pipeline's writes and the reads, and a raw psycopg pool for the hot path of
`/submit`. A restart of PostgreSQL does not fail the next request: SQLAlchemy's pool checks a connection before it lends
it, and `fetch_all` retries on a new one.

Row-level security (`schema/policies.sql`) binds every login except superusers and roles with BYPASSRLS. Connections of
such logins switch to `SERVICE_ROLE`, which is neither and may access the isolated tables only.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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

from db.core.rows import dump_json

SERVICE_ROLE: Final = "switchboard_service"

STEP_DOWN: Final = """
    SELECT set_config('role', service.rolname, false)
    FROM pg_roles AS login, pg_roles AS service
    WHERE login.rolname = session_user AND (login.rolsuper OR login.rolbypassrls)
        AND service.rolname = 'switchboard_service' AND pg_has_role(session_user, service.oid, 'MEMBER')
        AND has_table_privilege(service.oid, to_regclass('calls'), 'INSERT')
"""
"""For a new connection: no effect if the login is bound anyway, or the role is missing or not granted to it."""

IS_ISOLATED: Final = "SELECT row_security_active(to_regclass('calls')::oid), session_user"
"""After `STEP_DOWN`: whether the policies apply (null: there are no tables yet), and the login."""


def isolation_problem(isolated: bool | None, login: str) -> str | None:
    """Return how to fix a connection on which workspaces are not isolated; None if they are."""
    if isolated or isolated is None:
        return None
    return (
        "PostgreSQL does not isolate workspaces on these connections: the schema is of another version, or the login "
        f"{login} bypasses row-level security and may not act as {SERVICE_ROLE}. Run `switchboard migrate`; if that "
        "does not help, log in as a role without SUPERUSER and BYPASSRLS, or let a superuser run "
        f"CREATE ROLE {SERVICE_ROLE} NOLOGIN; GRANT {SERVICE_ROLE} TO {login}; and migrate again."
    )


log = logging.getLogger(__name__)

OUTAGES: tuple[type[Exception], ...] = (psycopg.OperationalError, OperationalError, InterfaceError, sa.exc.TimeoutError)
"""Exceptions of a lost, restarting or overloaded PostgreSQL; the call being processed did not cause them."""

CONNECT_SECONDS = 5
SOCKET: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "application_name": "switchboard",
    # Detect a server that vanished within seconds, while sending and while waiting for its response.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""For a new connection: a commit is on disk before it is reported, whatever the server, database or role configures.

Stricter settings (`on` with a synchronous standby, `remote_apply`) and `local` (the local disk alone) stay unchanged.
"""
SERVER_SIDE = """
    SET idle_in_transaction_session_timeout = '10s';
    SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '10s'
"""
"""For a new connection: the server soon ends the sessions of a node that vanished or froze, and releases their locks.
By default it would keep them for hours."""
ANSWER_SECONDS = 30.0  # for a whole transaction; those of the service take milliseconds

WORKSPACE_SETTING = "switchboard.workspace"  # the policies of row-level security compare with it


class _Everywhere(Enum):
    EVERY_WORKSPACE = "*"


EVERY_WORKSPACE: Final = _Everywhere.EVERY_WORKSPACE
"""For the queue and for operators, which are not limited to a workspace; senders and readers never need it."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Scope of reads: a workspace, or one team of it.

    Each statement ends after `seconds`, with psycopg's QueryCanceled inside one of `OUTAGES`.
    """

    workspace_id: UUID
    team_id: UUID | None = None  # set: only data of this team's calls, and data that teams share
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class PoolState:
    """Connections of a pool, and the seconds that all statements have waited for one if the pool counts them."""

    used: int
    idle: int
    limit: int
    seconds_waited: float = 0.0


Scope = UUID | Reader | Literal[_Everywhere.EVERY_WORKSPACE]

_SERVER_FAULTS = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout)

RawPool = AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]]

_SNAPSHOT = sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
_SET_SCOPE = sa.text(f"SELECT set_config('{WORKSPACE_SETTING}', :scope, true)")  # until the transaction ends
_SET_READER = sa.text(
    f"SELECT set_config('{WORKSPACE_SETTING}', :workspace, true), set_config('switchboard.team', :team, true),"
    " set_config('statement_timeout', :milliseconds, true)"
)


@dataclass(frozen=True, slots=True)
class Clock:
    """The database's time: `at`, plus the time since by this process's monotonic clock; the wall clock is never read.

    The clocks of nodes may differ. Decisions about times that the database wrote (a deadline, a retry, an age) use this
    clock. It lags behind the server by the latency of one response.
    """

    at: datetime
    since: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        """Return the present time of the database."""
        return self.at + timedelta(seconds=time.monotonic() - self.since)


class Database:
    """The two pools, opened with `await Database.open(url)`. Belongs to the event loop it was opened in."""

    def __init__(self, url: str, pool: RawPool, engine: AsyncEngine, answer_seconds: float | None) -> None:
        self.url = url
        self._answer_seconds = answer_seconds
        self.pool = pool
        self.engine = engine
        self._background_tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        url: str,
        pool_size: int = 8,
        wait_seconds: float = 2.0,
        answer_seconds: float | None = ANSWER_SECONDS,
        call_keys: Any = None,
    ) -> Self:
        """Open both pools, each with up to `pool_size` connections, which are created when first needed.

        An unreachable server is no error here, so that a replica can start before its database. A request that gets no
        connection within `wait_seconds` raises one of `OUTAGES`, and so does a transaction that takes longer than
        `answer_seconds`. None sets no limit, for commands run by a person. `call_keys`: a
        `db.secrets.call_keys.CallKeys`, to read and write sealed calls.
        """
        engine = create_async_engine(
            sqlalchemy_url(url),
            pool_pre_ping=True,
            pool_size=pool_size,
            pool_use_lifo=True,  # few connections, which have planned the statements, rather than all in turns
            max_overflow=0,
            pool_timeout=30,
            connect_args={**SOCKET, "prepare_threshold": 1},  # planning takes longer than most statements
            json_serializer=dump_json,
            hide_parameters=True,  # a logged statement must not contain signed addresses and transcripts
            execution_options={"call_keys": call_keys},
        )
        sa.event.listen(engine.sync_engine, "connect", _prepare)
        pool: RawPool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=pool_size,
            open=False,
            timeout=wait_seconds,
            # Fail early: the next request retries, while the pool's attempts back off.
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
        """Run a READ COMMITTED transaction: committed at the end of the block, rolled back if the block raises.

        `scope`: the workspace whose rows it may see and write, a `Reader` of it, or `EVERY_WORKSPACE`. A `snapshot`
        only reads, and all its statements see the same state. `seconds`: raises the time limit of this transaction.

        A read-only server raises one of `OUTAGES`, and its connection is not reused. The same holds for a server that
        ended the transaction because this process was suspended for too long.
        """
        async with self._time_limit(seconds), self.engine.connect() as connection:
            try:
                async with connection.begin():
                    if snapshot:  # must be the first statement of a transaction
                        await connection.execute(_SNAPSHOT)
                    await _set_scope(connection, scope)
                    yield connection
            except InternalError as error:
                if not isinstance(error.orig, _SERVER_FAULTS):
                    raise
                await connection.invalidate()
                raise OperationalError(error.statement, None, error.orig, hide_parameters=True) from None

    async def rows(
        self, scope: Scope, statement: sa.Executable, values: Mapping[str, Any] | None = None, snapshot: bool = False
    ) -> Sequence[sa.Row[Any]]:
        """Return the rows of a statement that runs in a separate transaction; see `transaction`."""
        async with self.transaction(scope, snapshot) as connection:
            return (await connection.execute(statement, values)).all()

    async def first(self, scope: Scope, statement: sa.Executable, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first row as `rows` does, or None."""
        rows = await self.rows(scope, statement, values)
        return rows[0] if rows else None

    async def column(
        self, scope: Scope, statement: sa.Executable, values: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Return the first column as `rows` does."""
        return [row[0] for row in await self.rows(scope, statement, values)]

    async def change(
        self, scope: Scope, statement: sa.Executable, values: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> int:
        """Run a statement without results in a separate transaction; return the number of rows that it changed."""
        async with self.transaction(scope) as connection:
            return (await connection.execute(statement, values)).rowcount

    async def wakes(self, channel: str) -> AsyncIterator[None]:
        """Yield once at the start and at each notification on `channel`, over a separate connection.

        Notifications can get lost: poll as well. Raises psycopg.OperationalError when the connection is lost.
        """
        connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True, **SOCKET)
        async with connection:
            await connection.execute(f"LISTEN {channel}".encode())
            yield
            async for _ in connection.notifies():
                yield

    @asynccontextmanager
    async def _time_limit(self, seconds: float | None = None) -> AsyncIterator[None]:
        allowed = self._answer_seconds and max(self._answer_seconds, seconds or 0.0)
        try:
            async with asyncio.timeout(allowed) as deadline:
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            raise _no_response(allowed) from None

    def pools(self) -> dict[str, PoolState]:
        """Return the states of both pools: "statements", the raw pool, and "transactions"."""
        stats = self.pool.get_stats()
        size, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        waited = stats.get("requests_wait_ms", 0) / 1000.0
        transactions: Any = self.engine.pool
        return {
            "statements": PoolState(size - idle, idle, self.pool.max_size, waited),
            "transactions": PoolState(transactions.checkedout(), transactions.checkedin(), transactions.size()),
        }

    async def clock(self) -> Clock:
        """Return a clock that runs from the server's present time."""
        (at,) = await self.fetch_one("SELECT now()", ())
        return Clock(at)

    async def fetch_one(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Return the first row as `fetch_all` does, or None."""
        rows = await self.fetch_all(statement, values)
        return rows[0] if rows else None

    async def fetch_all(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """Run one statement in a separate transaction on the raw pool and return its rows.

        It runs again if the connection turns out to be dead, so the statement must be safe to run twice.
        """
        async with self._time_limit():
            return await self._fetch(statement, values)

    async def _fetch(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        for last in (False, False, True):
            connection = await self.pool.getconn()  # in autocommit: no transaction to end before it is returned
            try:
                return await (await connection.execute(statement, values)).fetchall()
            except psycopg.errors.ReadOnlySqlTransaction as error:
                await connection.close()  # a read-only server counts as down
                if last:
                    raise psycopg.OperationalError("the server is read-only") from error
            except psycopg.OperationalError:
                if last or not connection.closed:
                    raise
            finally:
                await self.pool.putconn(connection)
            # The others are dead as well: replace them all. A canceled request does not wait for it.
            await asyncio.shield(self._in_background(self.pool.check()))
        raise AssertionError

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start background work that outlives the caller and ends before the pools close."""
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        return task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close both pools; connections in use close at the end of their block."""
        await asyncio.gather(*self._background_tasks, return_exceptions=True)
        await self.pool.close()
        await self.engine.dispose()


def _no_response(seconds: float | None) -> psycopg.OperationalError:
    return psycopg.OperationalError(f"no answer within {seconds:g} s")


async def _set_scope(connection: AsyncConnection, scope: Scope) -> None:
    if isinstance(scope, Reader):
        values = {"workspace": str(scope.workspace_id), "team": str(scope.team_id or "")}
        await connection.execute(_SET_READER, values | {"milliseconds": str(round(scope.seconds * 1000))})
    else:
        await connection.execute(_SET_SCOPE, {"scope": str(scope) if isinstance(scope, UUID) else "*"})


def sqlalchemy_url(url: str) -> sa.URL:
    """Return a `postgresql://` URL in SQLAlchemy's form for psycopg 3. Raises ValueError for other databases."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ValueError(
            f"The database URL must begin with postgresql://, not {parsed.drivername}://: Switchboard needs PostgreSQL."
        )
    return parsed.set(drivername="postgresql+psycopg")


async def _bound_waiting(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
    """Limit waits, so that a submission that cannot be stored in time gets a 503 instead of hanging."""
    await connection.execute("SET lock_timeout = '5s'")
    await connection.execute("SET statement_timeout = '10s'")
    await connection.execute(SERVER_SIDE)
    # The functions called here look up rows by key; by default, PostgreSQL plans their statements each time.
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(DURABLE)
    await connection.execute(STEP_DOWN)
    _warn_unless_isolated(await (await connection.execute(IS_ISOLATED)).fetchone())


class _Text(StrDumperUnknown):
    """Text that PostgreSQL accepts: a NUL or half a surrogate pair in a transcript must not lose the record."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\x00", "").encode("utf-8", "replace").decode())


def _prepare(connection: Any, _: object) -> None:
    connection.adapters.register_dumper(str, _Text)
    with connection.cursor() as cursor:
        cursor.execute(SERVER_SIDE)
        cursor.execute(DURABLE)
        cursor.execute(STEP_DOWN)
        cursor.execute(IS_ISOLATED)
        _warn_unless_isolated(cursor.fetchone())
    connection.commit()


def _warn_unless_isolated(row: Any) -> None:
    problem = isolation_problem(*row)
    if problem is not None:
        _log_once(problem)


@cache  # log once per process, not per connection
def _log_once(problem: str) -> None:
    log.error(problem)
