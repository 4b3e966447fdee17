#!/usr/bin/env python3
"""FreeSWITCH: announce the calls that freeswitch.xml records when they are answered. submit.py sends the submissions.

    ESL_PASSWORD=... python3 freeswitch_begins.py

It listens to mod_event_socket (ESL, by default 127.0.0.1:8021) and reconnects after a restart of FreeSWITCH.
freeswitch.py submits calls that were answered during the restart when they end. With --once this script exits when the
connection ends.
"""

import json
import os
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from submit import put

SPOOL = Path(os.environ.get("SPOOL", "/var/spool/switchboard"))
HOST, _, PORT = os.environ.get("ESL", "127.0.0.1:8021").partition(":")


def read(stream: BinaryIO) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a message. Raises `ConnectionError` at the end of the connection."""
    lines = []
    while (line := stream.readline()) not in (b"\n", b""):
        lines.append(line.decode().rstrip("\n"))
    if not line:
        raise ConnectionError("FreeSWITCH closed the connection")
    headers = dict(header.split(": ", 1) for header in lines if ": " in header)
    return headers, stream.read(int(headers.get("Content-Length", 0)))


def listen() -> None:
    with socket.create_connection((HOST, int(PORT)), timeout=10) as connection, connection.makefile("rb") as stream:
        read(stream)  # auth/request
        for command in (f"auth {os.environ['ESL_PASSWORD']}", "event json CHANNEL_ANSWER"):
            connection.sendall(f"{command}\n\n".encode())
            reply = read(stream)[0].get("Reply-Text", "")
            if not reply.startswith("+OK"):
                sys.exit(f"FreeSWITCH refuses {command.split()[0]!r}: {reply}")
        connection.settimeout(None)
        while True:
            headers, body = read(stream)
            if headers.get("Content-Type") == "text/event-json":
                announce(json.loads(body))


def announce(event: dict[str, str]) -> None:
    if "variable_switchboard_to" not in event:
        return  # the other leg, or a call that is not recorded
    put(
        SPOOL,
        {
            "callId": event["Unique-ID"],
            "from": event.get("variable_switchboard_from") or "anonymous",
            "to": event["variable_switchboard_to"],
            "startTime": datetime.fromtimestamp(
                int(event["Caller-Channel-Created-Time"]) // 1_000_000, UTC
            ).isoformat(),
            "outgoing": event["variable_switchboard_outgoing"] == "true",
        },
    )


if __name__ == "__main__":
    while True:
        try:
            listen()
        except OSError as error:
            print(error, file=sys.stderr)
        if "--once" in sys.argv:
            break
        time.sleep(5)
