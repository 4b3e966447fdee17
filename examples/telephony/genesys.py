#!/usr/bin/env python3
"""Genesys Cloud: submit the recordings of the voice conversations of an interval. submit.py sends the submissions.

    GENESYS_API=https://api.mypurecloud.de GENESYS_LOGIN=https://login.mypurecloud.de \\
    GENESYS_CLIENT=... GENESYS_SECRET=... python3 genesys.py 2026-11-20T09:00:00Z/2026-11-20T10:00:00Z

Run it each hour for the previous hour; submitting a recording twice does not process it twice. The URLs of Genesys are
signed and expire: run submit.py at the same time.
"""

import base64
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from submit import put

SPOOL = Path(os.environ.get("SPOOL", "/var/spool/switchboard"))
API, LOGIN = os.environ["GENESYS_API"], os.environ["GENESYS_LOGIN"]
PAGE = 100


def request(url: str, authorization: str, body: bytes | None = None, kind: str = "application/json") -> dict:
    headers = {"Authorization": authorization, "Content-Type": kind}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as response:
        return json.load(response)


def log_in() -> str:
    """Return the Authorization header for the client credentials."""
    pair = base64.b64encode(f"{os.environ['GENESYS_CLIENT']}:{os.environ['GENESYS_SECRET']}".encode()).decode()
    form = "application/x-www-form-urlencoded"
    response = request(f"{LOGIN}/oauth/token", f"Basic {pair}", b"grant_type=client_credentials", form)
    return f"Bearer {response['access_token']}"


def conversations(interval: str, authorization: str) -> Iterator[list[dict]]:
    """Yield the voice conversations of the interval, page by page."""
    voice = {"type": "and", "predicates": [{"dimension": "mediaType", "value": "voice"}]}
    page = 1
    while True:
        query = {"interval": interval, "segmentFilters": [voice], "paging": {"pageSize": PAGE, "pageNumber": page}}
        url = f"{API}/api/v2/analytics/conversations/details/query"
        batch = request(url, authorization, json.dumps(query).encode()).get("conversations", [])
        if not batch:
            return
        yield batch
        page += 1


def recordings(conversations: list[dict], authorization: str) -> list[dict]:
    """Return the results of a batch download, which have a URL for each recording."""
    url = f"{API}/api/v2/recording/batchrequests"
    ids = [{"conversationId": conversation["conversationId"]} for conversation in conversations]
    job = request(url, authorization, json.dumps({"batchDownloadRequestList": ids}).encode())["id"]
    while True:
        status = request(f"{url}/{job}", authorization)
        if status["resultCount"] >= status["expectedResultCount"]:
            return status["results"]
        time.sleep(5)


def submission(conversation: dict, recording: dict) -> dict:
    """Return the submission of a recording. Its id is a UUID; a conversation can have several recordings."""
    sessions = (session for participant in conversation["participants"] for session in participant["sessions"])
    session = next(session for session in sessions if session["mediaType"] == "voice" and session.get("dnis"))
    start, end = (datetime.fromisoformat(conversation[f"conversation{side}"]) for side in ("Start", "End"))
    return {
        "callId": recording["recordingId"],
        "from": session.get("ani", "anonymous").removeprefix("tel:"),
        "to": session["dnis"].removeprefix("tel:"),
        "startTime": conversation["conversationStart"],
        "outgoing": conversation["originatingDirection"] == "outbound",
        "duration": int((end - start).total_seconds()),
        "recordingUrl": recording["resultUrl"],
    }


def main() -> None:
    authorization = log_in()
    for batch in conversations(sys.argv[1], authorization):
        ended = {call["conversationId"]: call for call in batch if call.get("conversationEnd")}
        for recording in recordings(list(ended.values()), authorization) if ended else []:
            if recording.get("resultUrl"):
                put(SPOOL, submission(ended[recording["conversationId"]], recording))
            else:
                print(f"{recording['conversationId']}: {recording.get('errorMsg')}", file=sys.stderr)


if __name__ == "__main__":
    main()
