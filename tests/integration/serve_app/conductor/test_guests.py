from uuid import uuid4

from db.queue import jobs
from tests.postgres import World, new_world


async def submit(world: World, count: int, **fields: str) -> None:
    for _ in range(count):
        world.call_id = uuid4()
        await world.submit(recording_url=f"https://store.example/{uuid4()}.wav", **fields)
    await world.all_fetched()


async def taken(world: World, room: int, guests: int = 1, ttl: float = 60.0) -> list[bool]:
    """Return whether each claimed call is one of `world`."""
    leases = await jobs.claim(world.database, "w", room, ttl, guests=guests)
    return sorted(lease.workspace_id == world.workspace_id for lease in leases)


async def test_a_workspace_that_is_alone_takes_all_places_and_is_no_guest_of_its_own(world: World) -> None:
    await submit(world, 10)
    assert await taken(world, 4) == [True] * 4
    assert await taken(world, 0) == []
    assert await taken(world, 2) == [True] * 2


async def test_whoever_comes_beside_one_that_took_all_places_finds_one_at_once(world: World) -> None:
    other = await new_world(world.database)
    await submit(world, 10)
    await taken(world, 4)
    await submit(other, 3)
    assert await taken(world, 0, guests=0) == [], "no place of any kind"
    assert await taken(world, 0) == [False]
    assert await taken(world, 0) == [], "it is no guest any longer"


async def test_places_that_are_free_count_first(world: World) -> None:
    other, third = await new_world(world.database), await new_world(world.database)
    for each in (world, other, third):
        await submit(each, 5)
    assert len(await taken(world, 2, guests=1)) == 3, "two find a place, the third one is a guest"
    assert await taken(world, 0, guests=2) == []


async def test_a_guest_is_found_behind_any_number_of_calls_of_those_at_work(world: World) -> None:
    other = await new_world(world.database)
    for _ in range(3):
        await submit(world, 5)
        world.scoped, world.other_scoped = world.other_scoped, world.scoped
    await taken(world, 4)
    await submit(other, 1)
    assert await taken(world, 0) == [False]


async def test_who_ended_its_call_may_be_a_guest_again_and_so_may_one_whose_worker_died(world: World) -> None:
    other = await new_world(world.database)
    await submit(world, 10)
    await taken(world, 4)
    await submit(other, 2)
    (lease,) = await jobs.claim(world.database, "w", 0, 60, guests=1)
    await jobs.release(world.database, [lease])
    assert await taken(world, 0) == [False]
    await world.execute("UPDATE jobs SET lease_until = now() - interval '2 minutes' WHERE state = 'running'")
    assert len(await taken(world, 0)) == 1


async def test_a_guest_pays_for_its_turn(world: World) -> None:
    other = await new_world(world.database)
    await submit(world, 10)
    await taken(world, 1)
    await submit(other, 2)
    await taken(world, 0)
    assert await taken(world, 1) == [True]
