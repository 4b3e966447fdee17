#!/usr/bin/env python3
"""Send the calls that wait in a folder to Switchboard: none is lost, and those of one call stay in order.

A script that learns of a call writes it to the folder with `put`. This process sends what it finds, oldest first:

    BASE_URL=https://switchboard.example.com KEY=sb_... python3 submit.py /var/spool/switchboard

It runs until it is stopped. With --once it makes one pass and exits with 0 if nothing waits any more, else with 1.
"""

import http.client
import json
import logging
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

BODY_AT_FAULT = {400, 413, 415}  # the same body would be refused again
THIS_CALL_ONLY = {403, 500}  # other calls may be accepted all the same
LONGEST_WAIT = 300.0


def call_id(name: str) -> str:
    """Return the UUID for a system's own call id: the same one each time and on every machine."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def put(spool: Path, body: dict) -> None:
    """Write a submission to the folder. Once this returns, it survives a restart."""
    spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = spool / f"{time.time_ns():020d}.{body['callId']}.json"
    unfinished = waiting.with_suffix(".tmp")
    with open(unfinished, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(body, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(waiting)


def post(body: bytes, base_url: str, key: str) -> tuple[int, float, str]:
    """Return the status of the answer (0: none came), the seconds it asks to wait, and its text."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base_url.rstrip('/')}/submit", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, 0.0, ""
    except urllib.error.HTTPError as error:
        wait = error.headers.get("Retry-After", "")
        return error.code, float(wait) if wait.isdigit() else 0.0, error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, 0.0, repr(error)


def send_all(spool: Path, base_url: str, key: str) -> float | None:
    """Send what waits; return None if nothing waits any more, else the seconds that an answer asked to wait."""
    behind: set[str] = set()  # calls with a submission that was not accepted: later ones must not overtake it
    asked: float | None = None
    for waiting in sorted(spool.glob("*.json")):
        call = waiting.name.split(".")[1]
        if call in behind:
            continue
        status, wait, text = post(waiting.read_bytes(), base_url, key)
        if status == 202:
            waiting.unlink()
            continue
        logging.warning("%s: %s %s", waiting.name, status or "no answer", text)
        if status in BODY_AT_FAULT:
            (spool / "refused").mkdir(mode=0o700, exist_ok=True)
            waiting.rename(spool / "refused" / waiting.name)
            continue
        behind.add(call)
        asked = max(wait, asked or 0.0)
        if status not in THIS_CALL_ONLY:
            break
    return asked


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(message)s")
    spool, base_url, key = Path(sys.argv[1]), os.environ["BASE_URL"], os.environ["KEY"]
    failures = 0
    while True:
        asked = send_all(spool, base_url, key)
        if "--once" in sys.argv:
            return 0 if asked is None else 1
        failures = 0 if asked is None else failures + 1
        time.sleep(1.0 if asked is None else min(max(asked, 2.0 ** min(failures, 9)), LONGEST_WAIT))


if __name__ == "__main__":
    sys.exit(main())
