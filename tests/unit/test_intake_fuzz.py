"""A short form of bench/fuzz_submit.py: the same generator, the real application, no sockets.

Framing needs a real server in front: the bench does that part.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from tests.unit.intake_in_memory import service, three_keys

COUNT = 1500


@pytest.fixture(scope="module")
def fuzzing() -> ModuleType:
    path = Path(__file__).parents[2] / "bench" / "fuzz_submit.py"
    spec = importlib.util.spec_from_file_location("fuzz_submit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["fuzz_submit"] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def as_request(raw: bytes) -> httpx.Request:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = [tuple(line.split(": ", 1)) for line in lines if ": " in line]
    return httpx.Request(method, f"http://service{path}", headers=headers, content=body)


async def test_whatever_is_sent_gets_the_right_answer_in_the_right_form(fuzzing: ModuleType) -> None:
    maker = fuzzing.Maker(7, "sb_team", fuzzing.oracle())
    seen: set[int] = set()
    async with service(three_keys(), per_minute=1e9, burst=10**9) as client:
        for _ in range(COUNT):
            case = maker.case()
            if "framing" in case.kind:
                continue
            answer = await client.send(as_request(case.raw))
            seen.add(answer.status_code)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            wrong = fuzzing.fault_of(case, (answer.status_code, headers, answer.content))
            assert wrong is None, case.raw[:2000]
    assert seen >= {202, 400, 401, 404, 405, 413, 415}
