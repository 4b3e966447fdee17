"""The wire cuts where it says: before, during and after a commit, and only there."""

from pathlib import Path

import psycopg
import pytest

from tests.chaos.wire import WAYS, Wire


@pytest.mark.parametrize("way", WAYS)
async def test_a_cut_strikes_a_commit_and_nothing_else(way: str, postgres_url: str) -> None:
    server = Path(postgres_url.partition("host=")[2])
    wire = Wire(server)
    async with wire.strung():
        through = wire.through(postgres_url)
        async with await psycopg.AsyncConnection.connect(through) as connection:
            await connection.execute("CREATE TABLE kept (value integer)")
            await connection.commit()
            wire.arm(way)
            await connection.execute("INSERT INTO kept VALUES (1)")
            with pytest.raises(psycopg.OperationalError):
                await connection.commit()
        assert wire.cuts == {way: 1}
        async with await psycopg.AsyncConnection.connect(through) as connection:
            rows = await (await connection.execute("SELECT count(*) FROM kept")).fetchone()
    assert rows is not None
    if way != "during":  # then it may be either
        assert rows[0] == (1 if way == "after" else 0)
