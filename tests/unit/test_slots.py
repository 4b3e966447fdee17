"""Few at once, in order."""

import asyncio
from contextlib import suppress

from pipeline.slots import Slots


class Crowd:
    """Tasks that note when they got their place and keep it until told to leave."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.inside: list[int] = []
        self.leave: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def come(self, *names: int) -> None:
        for name in names:
            self.leave[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._one(name))
        await settle()

    async def go(self, name: int) -> None:
        self.leave[name].set()
        await settle()

    async def _one(self, name: int) -> None:
        async with self.slots:
            self.inside.append(name)
            await self.leave[name].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_and_in_the_order_of_asking() -> None:
    crowd = Crowd(Slots(lambda: 2))
    await crowd.come(1, 2, 3, 4)
    assert crowd.inside == [1, 2]
    await crowd.go(2)
    assert crowd.inside == [1, 2, 3]
    await crowd.go(1)
    assert crowd.inside == [1, 2, 3, 4]


async def test_who_comes_later_does_not_pass_by() -> None:
    crowd = Crowd(Slots(lambda: 1))
    await crowd.come(1, 2)
    crowd.leave[1].set()
    await crowd.come(3)
    assert crowd.inside == [1, 2]


async def test_a_place_given_to_one_who_is_cancelled_meanwhile_is_not_lost() -> None:
    crowd = Crowd(Slots(lambda: 1))
    await crowd.come(1, 2, 3)
    crowd.leave[1].set()
    while crowd.tasks[1].done() is False:
        await asyncio.sleep(0)
    crowd.tasks[2].cancel()
    with suppress(asyncio.CancelledError):
        await crowd.tasks[2]
    await settle()
    assert crowd.inside[-1] == 3
    await crowd.go(3)
    await crowd.come(4)
    assert crowd.inside[-1] == 4


async def test_one_who_is_cancelled_while_waiting_is_left_out() -> None:
    crowd = Crowd(Slots(lambda: 1))
    await crowd.come(1, 2, 3)
    crowd.tasks[2].cancel()
    await crowd.go(1)
    assert crowd.inside == [1, 3]


async def test_a_limit_that_grew_lets_in_as_many_at_the_next_leaving_and_a_failure_leaves_too() -> None:
    limit = 1
    slots = Slots(lambda: limit)
    crowd = Crowd(slots)
    await crowd.come(1, 2, 3, 4)
    limit = 3
    with suppress(ValueError):
        crowd.tasks[1].cancel()
        await settle()
    assert crowd.inside == [1, 2, 3, 4]


async def test_a_limit_below_one_lets_one_in() -> None:
    crowd = Crowd(Slots(lambda: 0))
    await crowd.come(1, 2)
    assert crowd.inside == [1]
