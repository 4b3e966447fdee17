"""A statement prepared by a name of its own, and run past what psycopg does for any statement.

For the hot path of `/submit`, whose parameters are all text: finding types, the cache of prepared statements and a
cursor cost this process more there than sending and reading do.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakSet

import psycopg
from psycopg import generators, pq, waiting
from psycopg.abc import PQGen

_LOOK_SECONDS = 0.1  # between two looks at a connection that says nothing
_CANCEL_AGAIN_SECONDS = 0.5
Connection = psycopg.AsyncConnection[tuple[object, ...]]


class PreparedStatement:
    """A statement of one row. `text` numbers its parameters ($1); each is text or NULL, as PostgreSQL reads it."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name.encode()
        self._text = text.encode()
        self._known: WeakSet[Connection] = WeakSet()

    async def row(self, connection: Connection, values: Sequence[str | None]) -> list[str | None]:
        """Its row, as text. Raises what psycopg raises for the server's refusal.

        Ends at once when it is canceled, and leaves the statement running: see `stop`.
        """
        return await waiting.wait_async(self._run(connection, values), connection.pgconn.socket, _LOOK_SECONDS)

    def _run(self, connection: Connection, values: Sequence[str | None]) -> PQGen[list[str | None]]:
        pgconn = connection.pgconn
        if connection not in self._known:
            pgconn.send_prepare(self._name, self._text)
            with suppress(psycopg.errors.DuplicatePreparedStatement):  # the server had made it when we were canceled
                yield from _result(connection)
            self._known.add(connection)
        pgconn.send_query_prepared(self._name, [None if value is None else value.encode() for value in values])
        result = yield from _result(connection)
        found = [result.get_value(0, column) for column in range(result.nfields)]
        return [None if value is None else value.decode() for value in found]


def is_running(connection: Connection) -> bool:
    """Whether a statement was left running on it."""
    return connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE


async def stop(connection: Connection, seconds: float) -> None:
    """Cancel what was left running, and read what is still to come of it. Raises psycopg.Error if that fails.

    Canceled again until it ends: a server that is about to read the statement takes a cancel for one of the statement
    before, and ignores it.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = max(deadline - time.monotonic(), _LOOK_SECONDS)
        await connection.cancel_safe(timeout=left)
        try:
            await connection.wait(generators.execute(connection.pgconn), timeout=min(left, _CANCEL_AGAIN_SECONDS))
        except psycopg.Error:
            if is_running(connection) and time.monotonic() < deadline:
                continue
            raise
        return


def _result(connection: Connection) -> PQGen[pq.abc.PGresult]:
    results: list[pq.abc.PGresult] = yield from generators.execute(connection.pgconn)
    for result in results:  # of a connection that the server ends: its reason, and that it ended
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
    if not results:
        raise psycopg.InternalError("no result")
    return results[0]
