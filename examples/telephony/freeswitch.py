#!/usr/bin/env python3
"""FreeSWITCH: convert the call records (mod_json_cdr) of recorded calls into submissions.

    python3 freeswitch.py

It reads the folder CDRS each second until it is stopped; with --once it reads it once. It deletes the records that it
has read, so use a separate folder (`json_cdr_base` in freeswitch.xml). submit.py, whose environment has RECORDINGS_URL,
sends the submissions in SPOOL.
"""

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from submit import put

RECORDINGS = Path(os.environ.get("RECORDINGS", "/var/lib/freeswitch/recordings"))
CDRS = Path(os.environ.get("CDRS", "/var/spool/switchboard-cdr"))
SPOOL = Path(os.environ.get("SPOOL", "/var/spool/switchboard"))


def submission(variables: dict[str, str]) -> dict:
    """Return the submission for the channel variables of a call. The id of FreeSWITCH is a UUID."""
    file = RECORDINGS / f"{variables['uuid']}.wav"
    return {
        "callId": variables["uuid"],
        "from": variables.get("switchboard_from") or "anonymous",
        "to": variables["switchboard_to"],
        "startTime": datetime.fromtimestamp(int(variables["start_epoch"]), UTC).isoformat(),
        "outgoing": variables["switchboard_outgoing"] == "true",
        "duration": int(variables["duration"]),
        "recordingUrl": file.name if file.exists() else None,
    }


def convert() -> None:
    for file in sorted(CDRS.rglob("*.json")):
        try:
            variables = json.loads(file.read_text())["variables"]
        except json.JSONDecodeError:
            continue  # FreeSWITCH is still writing it
        put(SPOOL, submission(variables))
        file.unlink()


if __name__ == "__main__":
    convert()
    while "--once" not in sys.argv:
        time.sleep(1)
        convert()
