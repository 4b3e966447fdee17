#!/usr/bin/env python3
"""Send the submissions in a folder to Switchboard, without losing one and in order for each call.

A script writes a submission to the folder with `put`. This process sends them, oldest first:

    BASE_URL=https://switchboard.example.com KEY=sb_... \\
    RECORDINGS_URL=https://pbx.example.com/recordings python3 submit.py /var/spool/switchboard

RECORDINGS_URL comes before the recordings that a submission has by name; without it such a submission waits.
It runs until it is stopped. With --once it makes one pass and exits with 0 if the folder is empty, else with 1.
"""

import http.client
import json
import logging
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

BODY_AT_FAULT = {400, 413, 415}  # the same body would be rejected again
THIS_CALL_ONLY = {403, 500}  # other calls may be accepted
MAX_WAIT = 300.0


def call_id(name: str) -> str:
    """Return a UUID for a call id of the telephone system: the same each time and on every machine."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def put(spool: Path, body: dict) -> None:
    """Write a submission to the folder; it then survives a restart."""
    spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    submission = spool / f"{time.time_ns():020d}.{body['callId']}.json"
    unfinished = submission.with_suffix(".tmp")
    with open(unfinished, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(body, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(submission)


def with_urls(submission: bytes) -> bytes | None:
    """Return a submission with the URLs of its recordings; None if that needs RECORDINGS_URL."""
    folder = os.environ.get("RECORDINGS_URL", "").rstrip("/")
    try:
        body = dict(json.loads(submission))
    except (ValueError, TypeError):
        return submission  # the service refuses it
    for field in ("recordingUrl", "recordingUrl2"):
        if body.get(field) and "://" not in body[field]:
            if not folder:
                return None
            body[field] = f"{folder}/{urllib.parse.quote(body[field])}"
    return json.dumps(body).encode()


def post(body: bytes, base_url: str, key: str) -> tuple[int, float, str]:
    """Return the status of the response (0: none), the seconds to wait (Retry-After), and its text."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base_url.rstrip('/')}/submit", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, 0.0, ""
    except urllib.error.HTTPError as error:
        wait = error.headers.get("Retry-After", "")
        return error.code, float(wait) if wait.isdigit() else 0.0, error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, 0.0, repr(error)


def send_all(spool: Path, base_url: str, key: str) -> float | None:
    """Send all submissions. Return the seconds to wait before the next pass, or None if all were sent."""
    blocked: set[str] = set()  # calls with a submission that was not accepted: later ones must not overtake it
    delay: float | None = None
    for submission in sorted(spool.glob("*.json")):
        call = submission.name.split(".")[1]
        if call in blocked:
            continue
        body = with_urls(submission.read_bytes())
        if body is None:
            logging.warning("%s waits: set RECORDINGS_URL, the URL of the folder of recordings", submission.name)
            blocked.add(call)
            delay = delay or 0.0
            continue
        status, wait, text = post(body, base_url, key)
        if status == 202:
            submission.unlink()
            continue
        logging.warning("%s: %s %s", submission.name, status or "no response", text)
        if status in BODY_AT_FAULT:
            (spool / "refused").mkdir(mode=0o700, exist_ok=True)
            submission.rename(spool / "refused" / submission.name)
            continue
        blocked.add(call)
        delay = max(wait, delay or 0.0)
        if status not in THIS_CALL_ONLY:
            break
    return delay


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(message)s")
    spool, base_url, key = Path(sys.argv[1]), os.environ["BASE_URL"], os.environ["KEY"]
    failures = 0
    while True:
        delay = send_all(spool, base_url, key)
        if "--once" in sys.argv:
            return 0 if delay is None else 1
        failures = 0 if delay is None else failures + 1
        time.sleep(1.0 if delay is None else min(max(delay, 2.0 ** min(failures, 9)), MAX_WAIT))


if __name__ == "__main__":
    sys.exit(main())
