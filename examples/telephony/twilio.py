#!/usr/bin/env python3
"""Twilio: receive recording status callbacks on 127.0.0.1:8090, behind your TLS proxy. submit.py sends the submissions.

    TWILIO_AUTH_TOKEN=... PUBLIC_URL=https://hooks.example.com python3 twilio.py

Set recordingStatusCallback to an address with the facts that a callback lacks:

    https://hooks.example.com/recorded?from=%2B4930123456&to=%2B4940987654&outgoing=false&first=customer

With recordingStatusCallbackEvent="in-progress completed" a call is announced at the start of its recording.

`first` is the party of the call that is recorded (Twilio's parent call). Calls are written to SPOOL/rep-first and to
SPOOL/customer-first: run a submit.py for each, the second with a key that was created with --channels-swapped.
"""

import base64
import hmac
import os
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from submit import call_id, put

SPOOL = Path(os.environ.get("SPOOL", "/var/spool/switchboard"))
PORT = int(os.environ.get("PORT", "8090"))


def signature(token: str, url: str, parameters: list[tuple[str, str]]) -> str:
    """Return the X-Twilio-Signature of a form: HMAC-SHA1 of the address and the sorted names and values."""
    signed = url + "".join(name + value for name, value in sorted(set(parameters)))
    return base64.b64encode(hmac.digest(token.encode(), signed.encode(), "sha1")).decode()


def submission(query: dict[str, str], form: dict[str, str]) -> dict:
    call = {
        "callId": call_id(f"twilio://{form['CallSid']}"),
        "from": query["from"],
        "to": query["to"],
        "startTime": parsedate_to_datetime(form["RecordingStartTime"]).isoformat(),
        "outgoing": query["outgoing"] == "true",
    }
    if form["RecordingStatus"] == "in-progress":
        return call
    dual = "?RequestedChannels=2" if form["RecordingChannels"] == "2" else ""
    return call | {"duration": int(form["RecordingDuration"]), "recordingUrl": f"{form['RecordingUrl']}.wav{dual}"}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 65536)).decode()
        parameters = parse_qsl(body, keep_blank_values=True)
        expected = signature(os.environ["TWILIO_AUTH_TOKEN"], os.environ["PUBLIC_URL"] + self.path, parameters)
        if not hmac.compare_digest(expected, self.headers.get("X-Twilio-Signature", "")):
            return self.reply(403)
        form, query = dict(parameters), dict(parse_qsl(urlsplit(self.path).query))
        if not query.keys() >= {"from", "to", "outgoing"} or query.get("first") not in ("customer", "rep"):
            return self.reply(400)
        if form.get("RecordingStatus") in ("in-progress", "completed"):
            put(SPOOL / f"{query['first']}-first", submission(query, form))
        return self.reply(204)

    def log_request(self, *_: object) -> None:
        """Log nothing: the URL contains the numbers of the call."""

    def reply(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
