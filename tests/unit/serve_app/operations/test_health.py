import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve.schema import DeploymentStatus

from serve_app.operations import cluster, readiness
from serve_app.operations.readiness import IDLE, Parts, PartsCheck, PartState
from tests.support.intake_in_memory import service, three_keys


async def test_healthz_needs_no_key_and_no_part() -> None:
    memory = three_keys()
    memory.told = {"database": PartState(False, "PostgreSQL does not respond")}
    async with service(memory) as client:
        answer = await client.get("/healthz", headers={"Authorization": ""})
    assert (answer.status_code, answer.json()) == (200, {"alive": True})


async def test_readyz_says_which_part_is_not_ready_and_why() -> None:
    memory = three_keys()
    async with service(memory) as client:
        answer = await client.get("/readyz", headers={"Authorization": ""})
        assert (answer.status_code, answer.json()["ready"]) == (200, True)
        memory.told["Diarizer"] = PartState(False, "not deployed")
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "ready": False,
        "parts": {"database": {"ready": True}, "Diarizer": {"ready": False, "why": "not deployed"}},
    }


async def test_a_part_can_be_left_out_and_a_misspelt_one_is_told() -> None:
    memory = three_keys()
    memory.told["Diarizer"] = PartState(False, "not deployed")
    async with service(memory) as client:
        assert (await client.get("/readyz?exclude=Diarizer")).status_code == 200
        wrong = await client.get("/readyz?exclude=diariser")
    assert wrong.status_code == 400
    assert "database, Diarizer" in wrong.json()["detail"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_only_read(path: str) -> None:
    async with service(three_keys()) as client:
        answer = await client.post(path, json={})
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


async def test_a_part_that_hangs_is_not_ready_and_is_not_asked_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(readiness, "CACHE_SECONDS", 0.0)
    asked, answered = 0, asyncio.Event()

    async def ask() -> Parts:
        nonlocal asked
        asked += 1
        await answered.wait()
        return {"database": PartState(True)}

    check = PartsCheck(["database"], ask)
    for _ in range(3):
        assert not (await check.parts())["database"].ready
    assert asked == 1
    answered.set()
    await asyncio.sleep(0)
    assert (await check.parts())["database"].ready


async def test_an_answer_is_given_again_for_a_while_to_many_who_ask_at_once() -> None:
    asked = 0

    async def ask() -> Parts:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        return {"database": PartState(True)}

    check = PartsCheck(["database"], ask)
    assert all(parts["database"].ready for parts in await asyncio.gather(*(check.parts() for _ in range(50))))
    assert asked == 1


async def test_a_question_that_fails_tells_nothing_of_the_error() -> None:
    async def ask() -> Parts:
        raise RuntimeError("postgresql://user:password@host")

    assert await PartsCheck(["database"], ask).parts() == {"database": PartState(False, "the check failed")}


Deployed = Callable[[dict[str, tuple[str, int]], str | None], dict[str, int]]


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """Replace Serve's controller, and engines that report `problem`; return how often each was queried."""
    from ray import serve

    def put(deployments: dict[str, tuple[str, int]], problem: str | None) -> dict[str, int]:
        asked: dict[str, int] = {}
        there = {
            name: SimpleNamespace(status=DeploymentStatus(status), replica_states={"RUNNING": count} if count else {})
            for name, (status, count) in deployments.items()
        }

        def handle(name: str, _: str) -> Any:
            asked[name] = asked.get(name, 0) + 1
            response = SimpleNamespace(result=lambda timeout_s: problem)
            return SimpleNamespace(problem=SimpleNamespace(remote=lambda: response))

        applications = {"calls": SimpleNamespace(deployments=there)}
        monkeypatch.setattr(serve, "status", lambda: SimpleNamespace(applications=applications))
        monkeypatch.setattr(serve, "get_deployment_handle", handle)
        return asked

    return put


WELL = {"Conductor": ("HEALTHY", 1), "Transcriber": ("HEALTHY", 2), "Diarizer": ("UPSCALING", 1)}


async def test_an_engine_that_has_its_model_is_asked_once_so_that_an_idle_one_can_leave(deployed: Deployed) -> None:
    asked = deployed(WELL, None)
    cluster_ = cluster.Cluster()
    for _ in range(3):
        assert await cluster_.parts() == dict.fromkeys(WELL, PartState(True))
    assert asked == {"Transcriber": 1, "Diarizer": 1}


async def test_an_engine_without_a_model_is_not_ready_until_it_has_one(deployed: Deployed) -> None:
    deployed(WELL, "no such folder: /srv/secret")
    cluster_ = cluster.Cluster()
    parts = await cluster_.parts()
    assert not parts["Transcriber"].ready
    assert "/srv" not in parts["Transcriber"].why
    deployed(WELL, None)
    assert (await cluster_.parts())["Transcriber"].ready


async def test_a_deployment_that_is_starting_dead_missing_or_scaled_to_zero_is_told_apart(deployed: Deployed) -> None:
    deployed({"Conductor": ("UPDATING", 0), "Transcriber": ("HEALTHY", 0)}, None)
    assert await cluster.Cluster().parts() == {
        "Conductor": PartState(False, "no replica runs (updating)"),
        "Transcriber": IDLE,
        "Diarizer": PartState(False, "not deployed"),
    }
