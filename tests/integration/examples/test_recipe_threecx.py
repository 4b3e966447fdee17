"""3CX: new recordings are fetched over its API once and become submissions to the real intake."""

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

from tests.telephony_site import FILES, Answer, Site, answering, run, site, submit

__all__ = ["site"]  # a fixture


async def test_new_recordings_of_3cx_are_fetched_once_and_submitted(site: Site) -> None:
    listed = [
        {
            "Id": number,
            "CallType": kind,
            "StartTime": "2026-11-20T09:30:00.5Z",
            "EndTime": "2026-11-20T09:33:04.9Z",
            "FromCallerNumber": caller,
            "FromDn": "101",
            "ToCallerNumber": "+4940987654",
            "ToDn": "10000",
        }
        for number, kind, caller in (
            (41, "OutboundExternal", None),
            (42, "InboundExternal", "+493012345678"),
            (43, "Local", "102"),
        )
    ]
    downloads: list[str] = []

    def pbx(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        if path == "/connect/token":
            form = {name: value for name, (value,) in parse_qs(sent.decode()).items()}
            assert form == {"client_id": "c", "client_secret": "s", "grant_type": "client_credentials"}
            return 200, {}, b'{"token_type": "Bearer", "expires_in": 3600, "access_token": "t"}'
        assert headers["Authorization"] == "Bearer t"
        if path.startswith("/xapi/v1/Recordings?"):
            last = int(parse_qs(urlsplit(path).query)["$filter"][0].removeprefix("Id gt "))
            return 200, {}, json.dumps({"value": [one for one in listed if int(str(one["Id"])) > last]}).encode()
        downloads.append(path)
        return 200, {}, b"RIFF"

    with answering(pbx) as url:
        environment = {**site.environment(), "PBX": url, "CLIENT_ID": "c", "CLIENT_SECRET": "s"}
        for _ in range(2):
            got = await asyncio.to_thread(run, "threecx", **environment)
            assert (got.returncode, got.stderr) == (0, "")
    assert downloads == [f"/xapi/v1/Recordings/Pbx.DownloadRecording(recId={number})" for number in (41, 42, 43)]
    assert await site.send() == 0
    calls = [await site.call(submit.call_id(f"3cx://127.0.0.1/{number}")) for number in (41, 42, 43)]
    assert [one.recording_url for one in calls] == [f"{FILES}/3cx-{number}.wav" for number in (41, 42, 43)]
    assert [one.call.outgoing for one in calls] == [True, False, None]
    assert [one.call.from_number for one in calls] == ["101", "+493012345678", "102"]
    assert {one.call.declared_duration for one in calls} == {184}
