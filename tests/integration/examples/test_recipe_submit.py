"""examples/telephony/submit.py: none of what waits in the folder is lost, and those of one call stay in order."""

import asyncio
import json
import socket
from pathlib import Path
from uuid import uuid4

from tests.telephony_site import FILES, Answer, Site, answering, body, run, site, submit

__all__ = ["site"]  # a fixture


async def test_what_waits_survives_an_outage_and_arrives_in_order(site: Site) -> None:
    call = str(uuid4())
    submit.put(site.spool, body(call, to="+1"))
    submit.put(site.spool, body(call, to="+2", recordingUrl=f"{FILES}/a.wav"))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        down = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        failed = await asyncio.to_thread(run, "submit", str(site.spool), "--once", BASE_URL=down, KEY=site.key)
    assert (failed.returncode, len(site.bodies())) == (1, 2)
    assert await site.send() == 0
    record = await site.call(call)
    assert (record.call.to_number, record.submissions, site.bodies()) == ("+2", 2, [])


def test_a_call_that_is_not_accepted_holds_back_its_own_submissions_only(tmp_path: Path) -> None:
    first, second = body(), body()
    for one in (first, second, {**first, "to": "+2"}):
        submit.put(tmp_path, one)
    came: list[str] = []

    def fail_the_first(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        came.append(json.loads(sent)["callId"])
        return (500 if came[-1] == first["callId"] else 202), {}, b"{}"

    with answering(fail_the_first) as url:
        assert submit.send_all(tmp_path, url, "sb_x") == 0
    assert came == [first["callId"], second["callId"]]
    assert [json.loads(file.read_text())["to"] for file in sorted(tmp_path.glob("*.json"))] == [first["to"], "+2"]


def test_a_full_service_is_asked_again_when_it_says(tmp_path: Path) -> None:
    for _ in range(3):
        submit.put(tmp_path, body())
    came: list[bytes] = []

    def full(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        came.append(sent)
        return 429, {"Retry-After": "7"}, b"{}"

    with answering(full) as url:
        assert submit.send_all(tmp_path, url, "sb_x") == 7
    assert len(came) == 1
    assert len(list(tmp_path.glob("*.json"))) == 3


async def test_a_body_that_the_service_refuses_is_set_aside_and_the_next_one_is_sent(site: Site) -> None:
    wrong, right = body(recording_url="a"), body()
    submit.put(site.spool, wrong)
    submit.put(site.spool, right)
    assert await site.send() == 0
    assert [json.loads(file.read_text()) for file in (site.spool / "refused").iterdir()] == [wrong]
    assert (await site.call(right["callId"])).submissions == 1


async def test_with_a_key_that_is_not_known_everything_waits(site: Site) -> None:
    submit.put(site.spool, body())
    site.key = "sb_" + "x" * 43
    assert await site.send() == 1
    assert len(site.bodies()) == 1


def test_what_waits_is_for_its_owner_only(tmp_path: Path) -> None:
    submit.put(tmp_path / "spool", body())
    (file,) = (tmp_path / "spool").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
