"""A short form of `make fuzz`: the same generator, the real application, no sockets.

Framing needs a real server in front: `tests.fuzz` does that part.
"""

import httpx

from tests.fuzz.cases import Maker, oracle
from tests.fuzz.wire import fault_of
from tests.support.intake_in_memory import service, three_keys

COUNT = 400


def as_request(raw: bytes) -> httpx.Request:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = [tuple(line.split(": ", 1)) for line in lines if ": " in line]
    return httpx.Request(method, f"http://service{path}", headers=headers, content=body)


async def test_whatever_is_sent_gets_the_right_answer_in_the_right_form() -> None:
    maker = Maker(7, "sb_team", oracle())
    seen: set[int] = set()
    async with service(three_keys(), per_minute=1e9) as client:
        for _ in range(COUNT):
            case = maker.case()
            if "framing" in case.kind:
                continue
            answer = await client.send(as_request(case.raw))
            seen.add(answer.status_code)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            wrong = fault_of(case, (answer.status_code, headers, answer.content))
            assert wrong is None, case.raw[:2000]
    assert seen >= {202, 400, 401, 404, 405, 413, 415}
