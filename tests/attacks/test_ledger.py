"""The ledger of erasures is complete, and nothing changes it unnoticed."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from db.core.database import EVERY_WORKSPACE
from db.records import erase, ledger
from db.records.ledger import BrokenLedger, Entry
from db.workspace import keys
from db.workspace.admin_log import Actor
from pipeline.speakers.profile import Voices
from tests.finished import finished
from tests.postgres import World


async def entries(world: World) -> list[Entry]:
    async with world.database.transaction(world.workspace_id) as connection:
        return await ledger.entries(connection, world.workspace_id)


async def chain(world: World, count: int = 3) -> list[Entry]:
    """Append entries, and return them."""
    for number in range(count):
        async with world.database.transaction(world.workspace_id) as connection:
            await ledger.append(connection, world.workspace_id, "number", "operator", {"calls": number}, [bytes(32)])
    return await entries(world)


async def test_an_erasure_is_in_the_ledger_without_names(world: World) -> None:
    call_id, other = await finished(world), await finished(world)
    key, _ = await keys.create(world.database, world.workspace_id, None, ["admin"], "Confidential name")
    await erase.erase_call(world.database, world.workspace_id, call_id, Voices(), Actor("x", key.key_id))
    await erase.erase_call(world.database, world.workspace_id, other, Voices())
    await erase.erase_call(world.database, world.workspace_id, other, Voices())
    first, second = await entries(world)
    assert (first.kind, first.who, second.who) == ("call", str(key.key_id), "operator")
    assert first.counts["transcripts"] == 1
    (row,) = await world.rows(
        "SELECT call_digest(:workspace, :call) AS digest", workspace=world.workspace_id, call=call_id
    )
    assert first.digests == [row["digest"]]
    assert "Confidential" not in str(await world.rows("SELECT * FROM erasure_ledger"))
    ledger.verify_chain([first, second])
    for entry in (first, second):
        assert Entry.from_content(entry.content()) == entry


async def test_an_erasure_that_fails_is_not_in_the_ledger(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    call_id = await finished(world)

    async def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("db.records.ledger._lock", fail)
    with pytest.raises(OSError):
        await erase.erase_call(world.database, world.workspace_id, call_id, Voices())
    assert await entries(world) == []
    assert len(await world.rows("SELECT * FROM calls")) == 1


async def test_concurrent_erasures_are_one_chain(world: World) -> None:
    async def several() -> None:
        await chain(world, 5)

    await asyncio.gather(*(several() for _ in range(4)))
    written = await entries(world)
    assert [entry.sequence for entry in written] == list(range(1, 21))
    ledger.verify_chain(written)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE erasure_ledger SET who = 'other'", "DELETE FROM erasure_ledger", "TRUNCATE erasure_ledger"],
)
async def test_the_database_refuses_to_change_it(world: World, statement: str) -> None:
    await chain(world)
    with pytest.raises(DBAPIError, match="append-only"):
        async with world.database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text("SET LOCAL ROLE NONE"))  # the owner
            await connection.execute(sa.text("SET LOCAL switchboard.erasure = 'on'"))
            await connection.execute(sa.text(statement))
    assert len(await entries(world)) == 3


async def test_a_changed_chain_is_detected(world: World) -> None:
    first, second, third = await chain(world)
    changed = [
        [first, replace(second, who="other"), third],
        [first, replace(second, who="other").with_hash(), third],
        [first, replace(second, counts={"calls": 7}), third],
        [first, third],
        [second, third],
        [first, third, second],
        [first, second, second, third],
        [first, replace(third, sequence=2).with_hash()],
        [replace(first, previous=b"x").with_hash(), second, third],
        [first, second, replace(third, digests=[])],
    ]
    for wrong in changed:
        with pytest.raises(BrokenLedger):
            ledger.verify_chain(wrong)
    ledger.verify_chain([first, second, third])
    ledger.verify_chain([])
