"""The batcher: batches form when the device is free, and one bad item fails alone."""

import asyncio
import threading
import time

import pytest

from pipeline.batching import Batcher


def doubled(items: list[int]) -> list[int]:
    return [2 * item for item in items]


async def test_results_come_back_in_the_order_of_the_items() -> None:
    assert await Batcher(doubled, size=2).submit([3, 1, 2]) == [6, 2, 4]


async def test_items_of_several_callers_share_a_batch_while_the_device_is_busy() -> None:
    sizes: list[int] = []
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        sizes.append(len(items))
        device_is_free.wait(5)
        return doubled(items)

    batcher = Batcher(run, size=8)
    first = asyncio.create_task(batcher.submit([1]))
    await asyncio.sleep(0.05)  # the first batch is at work now
    others = [asyncio.create_task(batcher.submit([n])) for n in (2, 3, 4)]
    await asyncio.sleep(0.05)
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


async def test_it_says_how_long_a_batch_has_been_at_work() -> None:
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        device_is_free.wait(5)
        return doubled(items)

    batcher = Batcher(run, size=1)
    assert batcher.busy_seconds == 0
    stuck = asyncio.create_task(batcher.submit([1]))
    await asyncio.sleep(0.2)
    assert 0.1 < batcher.busy_seconds < 5
    device_is_free.set()
    await stuck
    assert batcher.busy_seconds == 0


async def test_a_caller_that_goes_away_takes_its_waiting_items_with_it() -> None:
    seen: list[int] = []
    device_is_free = threading.Event()

    def run(items: list[int]) -> list[int]:
        seen.extend(items)
        device_is_free.wait(5)
        return doubled(items)

    batcher = Batcher(run, size=1)
    first = asyncio.create_task(batcher.submit([1]))
    await asyncio.sleep(0.05)
    gone = asyncio.create_task(batcher.submit([2]))
    await asyncio.sleep(0.05)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    device_is_free.set()
    assert await first == [2]
    assert await batcher.submit([3]) == [6]
    assert seen == [1, 3]


async def test_a_run_that_answers_for_too_few_items_fails_and_keeps_nobody_waiting() -> None:
    batcher: Batcher[int, int] = Batcher(lambda items: doubled(items)[1:], size=8)
    with pytest.raises(ValueError, match="shorter"):
        await asyncio.wait_for(batcher.submit([1, 2]), 2)
