#!/usr/bin/env python3
"""Asterisk: an AGI script that extensions.conf runs when a call begins and ends. submit.py sends the submissions.

RECORDINGS, SPOOL and PBX (a name for this Asterisk: a UNIQUEID is unique on one system only) have the defaults below.
The environment of submit.py has RECORDINGS_URL.
"""

import os
import socket
import sys
import time
import uuid
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
    """Return the name of one party's file, or None if nothing was recorded, for example in an unanswered call."""
    file = RECORDINGS / f"{unique_id}-{side}.wav"
    return file.name if file.exists() and file.stat().st_size > WAV_HEADER else None


def user_id() -> str | None:
    """Return the userId of the agent's extension; None without a valid one, which would be refused."""
    text = variable("SB_USER")
    try:
        return str(uuid.UUID(text)) if text else None
    except ValueError:
        print(f"asterisk.py: the userId {text!r} is not a UUID", file=sys.stderr)
        return None


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
        submission["userId"] = user_id()
        submission["recordingUrl"] = rep or customer
        submission["recordingUrl2"] = customer if rep and customer else None
    put(SPOOL, submission)


if __name__ == "__main__":
    main()
