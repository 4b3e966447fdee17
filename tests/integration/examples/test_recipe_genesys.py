"""Genesys Cloud: what its API answers, by its documented models, becomes submissions to the real intake."""

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from tests.telephony_site import Answer, Site, answering, run, site

__all__ = ["site"]  # a fixture

CONVERSATION, RECORDING_ID = str(uuid4()), str(uuid4())
STILL_ON, WITHOUT = str(uuid4()), str(uuid4())
SIGNED = "https://api-downloads.mypurecloud.de/1.ogg?Expires=1&Signature=x&Key-Pair-Id=y"


def conversation(call: str, **fields: str) -> dict[str, Any]:
    session = {"mediaType": "voice", "direction": "inbound", "ani": "tel:+493012345678", "dnis": "tel:+4940987654"}
    return {
        "conversationId": call,
        "conversationStart": "2026-11-20T09:30:00.250Z",
        "originatingDirection": "inbound",
        "participants": [{"purpose": "workflow", "sessions": []}, {"purpose": "customer", "sessions": [session]}],
        **fields,
    }


class Genesys:
    """What the API answers, by its documented models."""

    def __init__(self) -> None:
        self.asked_for_job = 0

    def __call__(self, method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        if path == "/oauth/token":
            assert parse_qs(sent.decode()) == {"grant_type": ["client_credentials"]}
            assert headers["Authorization"] == "Basic Y2xpZW50OnNlY3JldA=="
            return self.json({"access_token": "t", "token_type": "bearer", "expires_in": 86399})
        assert headers["Authorization"] == "Bearer t"
        if path == "/api/v2/analytics/conversations/details/query":
            ended = {"conversationEnd": "2026-11-20T09:33:04.900Z"}
            page = [conversation(CONVERSATION, **ended), conversation(STILL_ON), conversation(WITHOUT, **ended)]
            return self.json({"conversations": page} if json.loads(sent)["paging"]["pageNumber"] == 1 else {})
        if method == "POST" and path == "/api/v2/recording/batchrequests":
            wanted = {one["conversationId"] for one in json.loads(sent)["batchDownloadRequestList"]}
            assert wanted == {CONVERSATION, WITHOUT}
            return self.json({"id": "job-1"})
        assert (method, path) == ("GET", "/api/v2/recording/batchrequests/job-1")
        result = {"conversationId": CONVERSATION, "recordingId": RECORDING_ID, "contentType": "audio/ogg"}
        missing = {"conversationId": WITHOUT, "errorMsg": "No recordings"}
        results = [{**result, "resultUrl": SIGNED}, missing]
        return self.json({"jobId": "job-1", "expectedResultCount": 2, "resultCount": 2, "results": results})

    @staticmethod
    def json(answer: Any) -> Answer:
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


async def test_recordings_of_genesys_are_submitted(site: Site) -> None:
    with answering(Genesys()) as url:
        environment = {"GENESYS_API": url, "GENESYS_LOGIN": url, "GENESYS_CLIENT": "client", "GENESYS_SECRET": "secret"}
        interval = "2026-11-20T09:00:00Z/2026-11-20T10:00:00Z"
        got = await asyncio.to_thread(run, "genesys", interval, SPOOL=str(site.spool), **environment)
    assert (got.returncode, got.stderr) == (0, f"{WITHOUT}: No recordings\n")
    assert await site.send() == 0
    record = await site.call(RECORDING_ID)
    assert record.recording_url is not None
    assert record.recording_url.startswith("https://api-downloads.mypurecloud.de/1.ogg")
    assert (record.call.from_number, record.call.to_number) == ("+493012345678", "+4940987654")
    assert (record.call.outgoing, record.call.declared_duration) == (False, 184)
