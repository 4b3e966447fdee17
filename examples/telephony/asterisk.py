#!/usr/bin/env python3
"""Asterisk: an AGI script that extensions.conf runs when a call begins and ends. submit.py sends the submissions.

Set RECORDINGS_URL (the URL of RECORDINGS) in the environment of Asterisk. RECORDINGS, SPOOL and PBX (a name for this
Asterisk: a UNIQUEID is unique on one system only) have the defaults below.
"""

import os
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from submit import call_id, put

RECORDINGS = Path(os.environ.get("RECORDINGS", "/var/spool/asterisk/monitor"))
SPOOL = Path(os.environ.get("SPOOL", "/var/spool/switchboard"))
PBX = os.environ.get("PBX", socket.gethostname())
WAV_HEADER = 44


def read_environment() -> dict[str, str]:
    """Return the initial variables: Asterisk sends lines of `agi_name: value`, then an empty line."""
    lines = iter(sys.stdin.readline, "")
    return dict(line.rstrip("\n").split(": ", 1) for line in iter(lambda: next(lines, "\n"), "\n") if ": " in line)


def variable(name: str) -> str:
    """Return a variable of the channel."""
    print(f"GET VARIABLE {name}", flush=True)
    answer = sys.stdin.readline()
    while answer and not answer[:3].isdigit():  # HANGUP, for example
        answer = sys.stdin.readline()
    return answer.partition("(")[2].rpartition(")")[0]  # 200 result=1 (value)


def recording(unique_id: str, side: str) -> str | None:
    """Return the URL of one party's file, or None if nothing was recorded, for example in an unanswered call."""
    file = RECORDINGS / f"{unique_id}-{side}.wav"
    if not file.exists() or file.stat().st_size <= WAV_HEADER:
        return None
    return f"{os.environ['RECORDINGS_URL'].rstrip('/')}/{file.name}"


def main() -> None:
    agi = read_environment()
    unique_id, outgoing, start = agi["agi_uniqueid"], variable("SB_OUTGOING") == "true", int(variable("SB_START"))
    submission = {
        "callId": call_id(f"asterisk://{PBX}/{unique_id}"),
        "from": agi["agi_callerid"],
        "to": variable("SB_TO"),
        "startTime": datetime.fromtimestamp(start, UTC).isoformat(),
        "outgoing": outgoing,
    }
    if agi.get("agi_arg_1") != "begins":
        caller, called = recording(unique_id, "caller"), recording(unique_id, "called")
        rep, customer = (caller, called) if outgoing else (called, caller)  # the rep's file comes first
        submission["duration"] = int(time.time()) - start
        submission["recordingUrl"] = rep or customer
        submission["recordingUrl2"] = customer if rep and customer else None
    put(SPOOL, submission)


if __name__ == "__main__":
    main()
