import asyncio
from contextlib import suppress
from statistics import median
from typing import Any

from pipeline.runtime.task_limiter import PRESENT_SECONDS, TaskLimiter


class Crowd:
    """Tasks that record when they got their place and keep it until released."""

    def __init__(self, slots: TaskLimiter) -> None:
        self.slots = slots
        self.inside: list[int] = []
        self.leave: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def come(self, *names: int, owner: str = "a") -> None:
        for name in names:
            self.leave[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._one(name, owner))
        await settle()

    async def go(self, *names: int) -> None:
        for name in names:
            self.leave[name].set()
        await settle()

    async def _one(self, name: int, owner: str) -> None:
        async with self.slots.of(owner):
            self.inside.append(name)
            await self.leave[name].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_and_in_the_order_of_asking() -> None:
    crowd = Crowd(TaskLimiter(lambda: 2))
    await crowd.come(1, 2, 3, 4)
    assert crowd.inside == [1, 2]
    await crowd.go(2)
    assert crowd.inside == [1, 2, 3]
    await crowd.go(1)
    assert crowd.inside == [1, 2, 3, 4]


async def test_who_comes_later_does_not_pass_by() -> None:
    crowd = Crowd(TaskLimiter(lambda: 1))
    await crowd.come(1, 2)
    crowd.leave[1].set()
    await crowd.come(3)
    assert crowd.inside == [1, 2]


async def test_a_place_given_to_one_who_is_cancelled_meanwhile_is_not_lost() -> None:
    crowd = Crowd(TaskLimiter(lambda: 1))
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
    crowd = Crowd(TaskLimiter(lambda: 1))
    await crowd.come(1, 2, 3)
    crowd.tasks[2].cancel()
    await crowd.go(1)
    assert crowd.inside == [1, 3]


async def test_a_limit_that_grew_lets_in_as_many_at_the_next_leaving_and_a_failure_leaves_too() -> None:
    limit = 1
    slots = TaskLimiter(lambda: limit)
    crowd = Crowd(slots)
    await crowd.come(1, 2, 3, 4)
    limit = 3
    with suppress(ValueError):
        crowd.tasks[1].cancel()
        await settle()
    assert crowd.inside == [1, 2, 3, 4]


async def test_a_limit_below_one_lets_one_in() -> None:
    crowd = Crowd(TaskLimiter(lambda: 0))
    await crowd.come(1, 2)
    assert crowd.inside == [1]


async def test_one_that_is_alone_has_all_places_and_one_to_wait() -> None:
    crowd = Crowd(TaskLimiter(lambda: 2, ahead=1))
    await crowd.come(1, 2, 3, 4)
    assert crowd.inside == [1, 2, 3]


async def test_whoever_holds_none_is_next_however_many_wait_and_then_finds_a_place_free() -> None:
    now = 0.0
    crowd = Crowd(TaskLimiter(lambda: 2, ahead=1, now=lambda: now))
    await crowd.come(*range(1, 9))
    await crowd.come(11, owner="b")
    await crowd.go(1)
    assert crowd.inside == [1, 2, 3], "what was ahead of two is at work now"
    await crowd.go(2)
    assert crowd.inside[3:] == [11]
    await crowd.go(11)
    assert crowd.inside[4:] == [], "the last place is kept for one that holds none"
    await crowd.come(12, owner="b")
    assert crowd.inside[4:] == [12]
    await crowd.go(3)
    assert crowd.inside[5:] == [4], "and each has half of them"
    now = PRESENT_SECONDS + 1
    await crowd.go(12, 4)
    assert crowd.inside[6:] == [5, 6, 7], "the other one is not there any longer"


async def test_of_many_places_one_is_kept() -> None:
    crowd = Crowd(TaskLimiter(lambda: 8, ahead=1))
    await crowd.come(1, owner="b")
    await crowd.go(1)
    await crowd.come(*range(11, 31))
    assert len(crowd.inside[1:]) == 7
    await crowd.come(2, owner="b")
    assert crowd.inside[-1] == 2


async def test_owners_take_turns_also_where_there_is_one_place() -> None:
    crowd = Crowd(TaskLimiter(lambda: 1))
    await crowd.come(1, 2, 3)
    await crowd.come(11, 12, owner="b")
    await crowd.come(21, owner="c")
    for name in (1, 11, 21, 2, 12, 3):
        await crowd.go(name)
    assert crowd.inside == [1, 11, 21, 2, 12, 3]


async def test_the_owner_that_holds_fewest_comes_first() -> None:
    crowd = Crowd(TaskLimiter(lambda: 4))
    await crowd.come(11, owner="b")
    await crowd.come(1, 2, 3, 4)
    await crowd.come(21, owner="c")
    await crowd.come(12, owner="b")
    assert crowd.inside == [11, 1, 2, 21]
    await crowd.go(2)
    assert crowd.inside == [11, 1, 2, 21], "each holds one, and the last place is for one that holds none"
    await crowd.go(21)
    assert crowd.inside[4:] == [12], "b's last turn was longer ago"


class Leaping(asyncio.SelectorEventLoop):
    """A loop whose time is that of the next thing to do: hours pass at once, and on any machine alike."""

    at = 0.0

    def time(self) -> float:
        return self.at

    def _run_once(self) -> None:
        loop: Any = self
        if loop._scheduled and not loop._ready:
            self.at = max(self.at, loop._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


async def seconds_of_a_call(others: int) -> float:
    """Return the median of calls one after another, together with endless ones of another owner, on two processors.

    Behind the places there is a queue without turns, as in Ray. Tasks last as long as those of a call of a minute do,
    and those of a hostile one.
    """
    loop = asyncio.get_running_loop()
    slots, processors = TaskLimiter(lambda: 2, ahead=1, now=loop.time), asyncio.Semaphore(2)

    async def call(owner: str, *tasks: float) -> float:
        began = loop.time()
        for task in tasks:
            async with slots.of(owner), processors:
                await asyncio.sleep(task)
        return loop.time() - began

    async def without_end() -> None:
        while True:
            await call("a", 0.05, 0.9, 0.3, 0.1, 0.1, 0.1)

    crowd = [asyncio.create_task(without_end()) for _ in range(others)]
    await asyncio.sleep(1)
    median_seconds = median([await call("b", 0.03, 0.3, 0.25, 0.15, 0.1, 0.12, 0.1) for _ in range(20)])
    for task in crowd:
        task.cancel()
    return median_seconds


def test_a_call_beside_those_that_would_have_all_processors_takes_at_most_half_as_long_again() -> None:
    with asyncio.Runner(loop_factory=Leaping) as runner:
        alone = runner.run(seconds_of_a_call(0))
        assert 1.0 < alone < 1.1
        for others in (1, 2, 4, 16):
            assert runner.run(seconds_of_a_call(others)) <= 1.5 * alone
