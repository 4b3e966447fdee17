import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError
from ray.serve.exceptions import BackPressureError

from pipeline.errors import WorkerLost
from pipeline.runtime.actors import RayWorkers, TranscriberReplica
from pipeline.runtime.batching import Batcher
from pipeline.runtime.diarizer import DiarizerReplica
from pipeline.runtime.replica import BEGUN, Exclusive
from pipeline.runtime.workers import RemoteRef

DIES, BUSY = ActorDiedError(), BackPressureError(num_queued_requests=1, max_queued_requests=1)


class Replicas:
    """A handle with prepared answers, `shared` and alone (in which BEGUN may come first)."""

    def __init__(self, shared: list[Any], alone: list[list[Any]] | None = None) -> None:
        self.shared, self.alone_answers = shared, alone or []
        self.asked: list[str] = []

    def options(self, stream: bool) -> "Replicas":
        assert stream
        return self

    @property
    def diarize(self) -> "Replicas":
        return self

    @property
    def alone(self) -> "Alone":
        return Alone(self)

    async def remote(self, *_: Any, work: Any) -> Any:
        self.asked.append("shared")
        return _said(self.shared.pop(0))


class Alone:
    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def remote(self, *_: Any, work: Any) -> AsyncIterator[Any]:
        self._replicas.asked.append("alone")
        for word in self._replicas.alone_answers.pop(0):
            yield _said(word)


def _said(word: Any) -> Any:
    if isinstance(word, Exception):
        raise word
    return word


async def diarize(replicas: Replicas) -> Any:
    workers: Any = RayWorkers(replicas, replicas, pause=0.0)  # type: ignore[arg-type]
    return await asyncio.wait_for(workers.diarize(RemoteRef(None)), 60)


async def test_a_request_whose_replica_died_once_is_retried_with_others() -> None:
    replicas = Replicas([DIES, "result"])
    assert await diarize(replicas) == "result"
    assert replicas.asked == ["shared"] * 2


async def test_after_two_deaths_it_is_asked_alone_and_may_turn_out_innocent() -> None:
    replicas = Replicas([DIES, ActorUnavailableError("gone", None)], [[BEGUN, "result"]])
    assert await diarize(replicas) == "result"
    assert replicas.asked == ["shared"] * 2 + ["alone"]


async def test_what_kills_its_replica_twice_with_nothing_else_at_work_is_to_blame() -> None:
    replicas = Replicas([DIES, DIES], [[BEGUN, DIES], [BEGUN, DIES]])
    with pytest.raises(WorkerLost):
        await diarize(replicas)
    assert replicas.asked == ["shared"] * 2 + ["alone"] * 2


async def test_whoever_only_waited_for_its_turn_is_not_to_blame_however_often_the_replica_dies() -> None:
    replicas = Replicas([DIES, DIES], [[DIES]] * 20 + [[BEGUN, DIES], [DIES], [BEGUN, "result"]])
    assert await diarize(replicas) == "result"


async def test_a_full_queue_is_no_death() -> None:
    replicas = Replicas([BUSY] * 10 + ["result"])
    assert await diarize(replicas) == "result"
    assert replicas.asked == ["shared"] * 11


async def test_while_one_request_is_alone_others_wait_and_what_was_at_work_ends_first() -> None:
    log: list[str] = []

    def run(items: list[str]) -> list[str]:
        log.extend(items)
        return items

    queue = Batcher(run, size=4)
    exclusive = Exclusive(queue)
    async with exclusive.alone():
        other = asyncio.create_task(queue.submit(["other"]))
        second = asyncio.create_task(_alone(exclusive, queue, "second"))
        await asyncio.sleep(0.05)
        assert await queue.submit_alone(["suspect", "of two"]) == ["suspect", "of two"]
        assert log == ["suspect", "of two"]
    assert await asyncio.wait_for(other, 20) == ["other"]
    assert await asyncio.wait_for(second, 20) == ["second"]


async def _alone(exclusive: Exclusive, queue: Batcher[str, str], item: str) -> list[str]:
    async with exclusive.alone():
        return await queue.submit_alone([item])


def test_cpu_tasks_are_divided_among_the_processes_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.runtime.actors.ray.cluster_resources", lambda: {"CPU": 8.0})
    workers: Any = RayWorkers(Replicas([]), Replicas([]), cpus_per_task=2.0)  # type: ignore[arg-type]
    assert workers._part() == 4
    workers.set_peer_count(3)
    assert workers._part() == 2


@pytest.mark.parametrize(
    ("replica", "method"),
    [
        (TranscriberReplica, "transcribe"),
        (DiarizerReplica, "diarize"),
        (DiarizerReplica, "voiceprint"),
        (DiarizerReplica, "voices"),
    ],
)
def test_an_actor_takes_what_the_work_of_a_request_belongs_to(replica: type, method: str) -> None:
    """Ray refuses what the signature lacks, of the actors of runs; handles of Serve look at none."""
    assert "work" in inspect.signature(getattr(replica, method)).parameters
