"""What is sent to /submit is in no log and forges no line of one: the whole application, every logger."""

import json
import logging

import pytest
from psycopg.errors import UniqueViolation

from pipeline.errors import StateUnavailable
from tests.support.intake_in_memory import FINISHED, JSON, service, three_keys

MARK = "hush5f1c"
FORGED = "\r\nERROR forged\x1b[31m\u202e"


def requests() -> list[tuple[str, dict[str, str], bytes]]:
    """Path, headers and body, each with something that no log may hold."""
    url = f"https://pbx.example.com/a.wav?X-Amz-Signature={MARK}"
    body = {**FINISHED, "recordingUrl": url}
    return [
        ("/submit", {}, json.dumps(body).encode()),
        ("/submit", {}, json.dumps(body | {"from": f"{MARK}{FORGED}", MARK: FORGED}).encode()),
        ("/submit", {"X-Request-Id": f"{MARK} forged"}, json.dumps(body).encode()),
        ("/submit", {"Authorization": f"Bearer sb_{MARK}"}, json.dumps(body).encode()),
        ("/submit", {"Authorization": f"Basic {MARK}"}, json.dumps(body).encode()),
        (f"/submit?token={MARK}", {"User-Agent": MARK, "Cookie": MARK}, b"{"),
        (f"/{MARK}%0d%0aERROR%20forged", {}, b""),
        ("/submit", {"Content-Type": f"text/{MARK}"}, b"{"),
        ("/submit", {}, MARK.encode() + b"\xff\0"),
    ]


CRASH = RuntimeError(f"of {MARK}{FORGED}")


@pytest.mark.parametrize("fault", [None, StateUnavailable(), CRASH, UniqueViolation(f"Key (a)=({MARK})")], ids=repr)
async def test_nothing_that_is_sent_reaches_a_log_or_an_answer(
    caplog: pytest.LogCaptureFixture, fault: Exception | None
) -> None:
    caplog.set_level(logging.DEBUG)
    memory = three_keys()
    memory.fault = fault
    async with service(memory) as client:
        answers = [await client.post(path, headers=JSON | headers, content=body) for path, headers, body in requests()]
    formatter = logging.Formatter("%(name)s %(levelname)s %(message)s %(exc_info)s")
    ours = [record for record in caplog.records if record.name.split(".")[0] not in ("httpx", "httpcore", "asyncio")]
    lines = [formatter.format(record) for record in ours]
    if isinstance(fault, RuntimeError | UniqueViolation):
        assert any("crashed" in line for line in lines)
    for text in (*lines, *(answer.text + str(answer.headers) for answer in answers)):
        assert MARK not in text
        assert "ERROR forged" not in text
    assert all("\r" not in record.getMessage() and "\n" not in record.getMessage() for record in ours)
