import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.runtime.batching import Batcher


def doubled(items: list[int]) -> list[int]:
    return [2 * item for item in items]


async def until(condition: Callable[[], bool]) -> None:
    """Threads begin when the machine lets them."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_results_come_back_in_the_order_of_the_items() -> None:
    assert await Batcher(doubled, size=2).submit([3, 1, 2]) == [6, 2, 4]


async def test_items_of_several_callers_share_a_batch_while_the_device_is_busy() -> None:
    sizes: list[int] = []
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        sizes.append(len(items))
        device_is_free.wait(60)
        return doubled(items)

    batcher = Batcher(run, size=8)
    first = asyncio.create_task(batcher.submit([1]))
    await until(lambda: sizes == [1])
    others = [asyncio.create_task(batcher.submit([n])) for n in (2, 3, 4)]
    await until(lambda: batcher.waiting == 3)
    device_is_free.set()
    assert await asyncio.gather(first, *others) == [[2], [4], [6], [8]]
    assert sizes == [1, 3]


async def test_no_batch_is_larger_than_its_size_and_no_more_are_in_flight_than_allowed() -> None:
    running, most, sizes = 0, 0, []
    lock = threading.Lock()

    def run(items: list[int]) -> list[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            sizes.append(len(items))
        time.sleep(0.02)
        with lock:
            running -= 1
        return doubled(items)

    batcher = Batcher(run, size=3, in_flight=2)
    assert await batcher.submit(list(range(20))) == doubled(list(range(20)))
    assert max(sizes) <= 3
    assert most == 2


async def test_what_waits_is_divided_among_the_batches_that_can_begin() -> None:
    """Else one worker of the device would be idle while another has all of a call."""
    sizes: list[int] = []
    go_on = threading.Event()

    def run(items: list[int]) -> list[int]:
        sizes.append(len(items))
        go_on.wait(60)
        return doubled(items)

    batcher = Batcher(run, size=8, in_flight=2, ahead=1)
    first = asyncio.create_task(batcher.submit([1, 2, 3, 4, 5]))
    await until(lambda: sorted(sizes) == [2, 3])
    second = asyncio.create_task(batcher.submit(list(range(9))))  # a full batch ahead, and one that has to wait
    await until(lambda: sorted(sizes) == [2, 3, 8])
    go_on.set()
    await asyncio.gather(first, second)
    assert sorted(sizes) == [1, 2, 3, 8]


async def test_an_item_that_breaks_its_batch_fails_alone() -> None:
    def run(items: list[int]) -> list[int]:
        if 13 in items:
            raise ValueError("poison")
        return doubled(items)

    batcher = Batcher(run, size=8)
    good, bad, other = await asyncio.gather(
        batcher.submit([1, 2]), batcher.submit([13]), batcher.submit([3]), return_exceptions=True
    )
    assert (good, other) == ([2, 4], [6])
    assert isinstance(bad, ValueError)


async def test_what_breaks_a_batch_is_found_by_halves() -> None:
    sizes: list[int] = []

    def run(items: list[int]) -> list[int]:
        sizes.append(len(items))
        if 13 in items:
            raise ValueError("poison")
        return doubled(items)

    batcher = Batcher(run, size=32)
    batcher.pause()
    asked = asyncio.gather(*(batcher.submit([n]) for n in (13, *range(100, 131))), return_exceptions=True)
    await asyncio.sleep(0)
    batcher.resume()
    results = await asked
    assert isinstance(results[0], ValueError)
    assert results[1:] == [[2 * n] for n in range(100, 131)]
    assert sizes == [32, 16, 8, 4, 2, 1, 1, 2, 4, 8, 16]


async def test_what_a_caller_has_left_is_not_tried_again_when_its_batch_broke() -> None:
    seen: list[int] = []

    def run(items: list[int]) -> list[int]:
        seen.extend(items)
        if 13 in items:
            raise ValueError("poison")
        return doubled(items)

    with pytest.raises(ValueError, match="poison"):
        await Batcher(run, size=8).submit([13, 1, 2, 3, 4, 5, 6, 7])
    await asyncio.sleep(0.05)
    assert seen.count(7) == 1


async def test_a_caller_with_a_few_items_does_not_wait_for_one_with_many() -> None:
    batches: list[list[int]] = []
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        batches.append(items)
        device_is_free.wait(60)
        return doubled(items)

    batcher = Batcher(run, size=4)
    long = asyncio.create_task(batcher.submit(list(range(100))))
    await until(lambda: len(batches) == 1)
    short = [asyncio.create_task(batcher.submit([n, n + 1])) for n in (1000, 2000)]
    await until(lambda: batcher.waiting == 100)
    device_is_free.set()
    assert await asyncio.gather(*short) == [[2000, 2002], [4000, 4002]]
    assert await long == doubled(list(range(100)))
    assert batches[:4] == [[0, 1, 2, 3], [4, 1000, 2000, 5], [1001, 2001, 6, 7], [8, 9, 10, 11]]


@given(
    st.lists(st.lists(st.integers(), max_size=12), max_size=12), st.integers(1, 8), st.integers(1, 3), st.integers(0, 2)
)
async def test_every_item_is_run_once_and_no_caller_is_passed_over(
    callers: list[list[int]], size: int, in_flight: int, ahead: int
) -> None:
    batches: list[list[tuple[int, int]]] = []

    def run(items: list[tuple[int, int]]) -> list[tuple[int, int]]:
        batches.append(items)
        return items

    batcher = Batcher(run, size, in_flight, ahead)
    batcher.pause()
    asked = [[(at, caller) for at in range(len(items))] for caller, items in enumerate(callers)]
    answers = asyncio.gather(*map(batcher.submit, asked))
    await asyncio.sleep(0)
    batcher.resume()
    assert await answers == asked
    order = [item for batch in batches for item in batch]
    turns = sorted(item for items in asked for item in items)  # the first item of each caller, the second of each, ...
    if in_flight + ahead == 1:  # several threads begin in any order
        assert order == turns
    assert sorted(order) == turns
    assert all(len(batch) <= size for batch in batches)


async def test_a_batch_is_begun_ahead_only_if_it_is_full() -> None:
    sizes: list[int] = []
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        sizes.append(len(items))
        device_is_free.wait(60)
        return doubled(items)

    batcher = Batcher(run, size=3, in_flight=1, ahead=1)
    asked = [asyncio.create_task(batcher.submit([1]))]
    await until(lambda: sizes == [1])
    asked.append(asyncio.create_task(batcher.submit([2, 3])))
    await asyncio.sleep(0.05)
    assert (sizes, batcher.waiting) == ([1], 2)  # more may come to share their batch
    asked.append(asyncio.create_task(batcher.submit([4, 5])))
    await until(lambda: (sizes, batcher.waiting) == ([1, 3], 1))
    asked.append(asyncio.create_task(batcher.submit([6, 7, 8])))
    await asyncio.sleep(0.05)
    assert (sizes, batcher.waiting) == ([1, 3], 4)  # one ahead is enough
    device_is_free.set()
    assert await asyncio.gather(*asked) == [[2], [4, 6], [8, 10], [12, 14, 16]]
    assert sizes == [1, 3, 3, 1]


async def test_it_says_how_long_a_batch_has_been_at_work() -> None:
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        device_is_free.wait(60)
        return doubled(items)

    batcher = Batcher(run, size=1)
    assert batcher.busy_seconds == 0
    stuck = asyncio.create_task(batcher.submit([1]))
    await until(lambda: batcher.busy_seconds > 0.1)
    device_is_free.set()
    await stuck
    assert batcher.busy_seconds == 0


async def test_a_caller_that_goes_away_takes_its_waiting_items_with_it() -> None:
    seen: list[int] = []
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        seen.extend(items)
        device_is_free.wait(60)
        return doubled(items)

    batcher = Batcher(run, size=1)
    first = asyncio.create_task(batcher.submit([1]))
    await until(lambda: seen == [1])
    canceled = asyncio.create_task(batcher.submit([2]))
    await until(lambda: batcher.waiting == 1)
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled
    device_is_free.set()
    assert await first == [2]
    assert await batcher.submit([3]) == [6]
    assert seen == [1, 3]


async def test_a_run_that_answers_for_too_few_items_fails_and_keeps_nobody_waiting() -> None:
    batcher: Batcher[int, int] = Batcher(lambda items: doubled(items)[1:], size=8)
    with pytest.raises(ValueError, match="shorter"):
        await asyncio.wait_for(batcher.submit([1, 2]), 60)
