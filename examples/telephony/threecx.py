#!/usr/bin/env python3
"""3CX (V20): fetch new recordings over the Configuration API and submit them. submit.py sends the submissions.

    PBX=https://pbx.example.com CLIENT_ID=... CLIENT_SECRET=... \\
    RECORDINGS=/srv/recordings python3 threecx.py

Run it each minute. 3CX serves a recording only with a token that expires after an hour. So this script stores it in
RECORDINGS, and Switchboard fetches it from RECORDINGS_URL (in the environment of submit.py), where your web server
serves that folder.
"""

import json
import os
import urllib.request
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from submit import call_id, put

PBX = os.environ["PBX"].rstrip("/")
RECORDINGS = Path(os.environ["RECORDINGS"])
SPOOL = Path(os.environ.get("SPOOL", "/var/spool/switchboard"))
LAST = SPOOL / "3cx-last-id"
OUTGOING = {"InboundExternal": False, "OutboundExternal": True}  # neither: an internal call


def fetch(path: str, token: str = "", body: bytes | None = None) -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(PBX + path, body, headers), timeout=60) as response:
        return response.read()


def log_in() -> str:
    client = {"client_id": os.environ["CLIENT_ID"], "client_secret": os.environ["CLIENT_SECRET"]}
    form = urlencode({**client, "grant_type": "client_credentials"}).encode()
    return json.loads(fetch("/connect/token", body=form))["access_token"]


def submission(recording: dict, file: Path) -> dict:
    start, end = (datetime.fromisoformat(recording[name]) for name in ("StartTime", "EndTime"))
    return {
        "callId": call_id(f"3cx://{urlsplit(PBX).hostname}/{recording['Id']}"),
        "from": recording["FromCallerNumber"] or recording["FromDn"] or "anonymous",
        "to": recording["ToCallerNumber"] or recording["ToDn"],
        "startTime": recording["StartTime"],
        "outgoing": OUTGOING.get(recording["CallType"]),
        "duration": int((end - start).total_seconds()),
        "recordingUrl": file.name,
    }


def main() -> None:
    token = log_in()
    last = int(LAST.read_text()) if LAST.exists() else 0
    query = urlencode({"$filter": f"Id gt {last}", "$orderby": "Id", "$top": 100})
    for recording in json.loads(fetch(f"/xapi/v1/Recordings?{query}", token))["value"]:
        file = RECORDINGS / f"3cx-{recording['Id']}.wav"
        file.write_bytes(fetch(f"/xapi/v1/Recordings/Pbx.DownloadRecording(recId={recording['Id']})", token))
        put(SPOOL, submission(recording, file))
        LAST.write_text(str(recording["Id"]))


if __name__ == "__main__":
    main()
