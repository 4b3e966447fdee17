"""Twilio: its signed callbacks become submissions to the real intake."""

import asyncio
import base64
import hashlib
import hmac
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlencode

import httpx
import pytest

from tests.telephony_site import SCRIPTS, Site, script, site, submit

__all__ = ["site"]  # a fixture

TOKEN, PUBLIC = "12345", "https://hooks.example.com"
CALL_SID, RECORDING = "CA" + "4" * 32, "https://api.twilio.com/2010-04-01/Accounts/AC1/Recordings/RE1"
CALLBACK = {  # as Twilio sends it
    "AccountSid": "AC1",
    "CallSid": CALL_SID,
    "ErrorCode": "0",
    "RecordingChannels": "2",
    "RecordingDuration": "184",
    "RecordingSid": "RE1",
    "RecordingSource": "StartCallRecordingAPI",
    "RecordingStartTime": "Fri, 20 Nov 2026 09:30:00 +0000",
    "RecordingStatus": "completed",
    "RecordingTrack": "both",
    "RecordingUrl": RECORDING,
}


def test_the_signature_is_the_one_that_twilio_publishes() -> None:
    """The example of "Validating Signatures from Twilio", which Twilio's own libraries are tested with."""
    parameters = {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234"}
    parameters |= {"From": "+14158675309", "To": "+18005551212"}
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert script("twilio").signature("12345", url, list(parameters.items())) == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


@pytest.fixture
def receiver(site: Site) -> Iterator[str]:
    kept = socket.socket()  # the port, for a server that listens on it
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = kept.getsockname()[1]
    environment = {"PORT": str(port), "SPOOL": str(site.spool), "TWILIO_AUTH_TOKEN": TOKEN, "PUBLIC_URL": PUBLIC}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "twilio.py")], env={"PATH": os.environ["PATH"], **environment}
    )
    while process.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
        kept.close()


def call_back(receiver: str, form: dict[str, str], path: str, token: str = TOKEN) -> int:
    """What Twilio does: it signs the address it was given and the form."""
    text = PUBLIC + path + "".join(name + form[name] for name in sorted(form))
    signed = base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha1).digest()).decode()
    return httpx.post(receiver + path, data=form, headers={"X-Twilio-Signature": signed}, timeout=60).status_code


def recorded(outgoing: str, first: str) -> str:
    query = {"from": "+493012345678", "to": "+4940987654", "outgoing": outgoing, "first": first}
    return f"/recorded?{urlencode(query)}"


@pytest.mark.parametrize(("outgoing", "first"), [("false", "customer"), ("true", "rep")])
async def test_a_recording_of_twilio_is_submitted(site: Site, receiver: str, outgoing: str, first: str) -> None:
    assert await asyncio.to_thread(call_back, receiver, CALLBACK, recorded(outgoing, first)) == 204
    assert [one["recordingUrl"] for one in site.bodies()] == [f"{RECORDING}.wav?RequestedChannels=2"]
    assert await site.send(site.spool / f"{first}-first") == 0
    record = await site.call(submit.call_id(f"twilio://{CALL_SID}"))
    assert record.call.state == "transcribing"
    assert (record.call.from_number, record.call.to_number) == ("+493012345678", "+4940987654")
    assert (record.call.outgoing, record.call.declared_duration) == (outgoing == "true", 184)
    assert record.call.start_time == datetime.fromisoformat("2026-11-20T09:30:00Z")


def test_what_twilio_did_not_sign_is_refused(site: Site, receiver: str) -> None:
    path = recorded("false", "customer")
    assert call_back(receiver, CALLBACK, path, token="another") == 403
    assert httpx.post(receiver + path, data=CALLBACK, timeout=60).status_code == 403
    assert site.bodies() == []


def test_an_address_that_does_not_say_who_comes_first_is_refused(site: Site, receiver: str) -> None:
    for first in ("", "../customer"):
        assert call_back(receiver, CALLBACK, recorded("false", first)) == 400
    assert site.bodies() == []


async def test_a_call_is_announced_when_its_recording_begins_and_completed_when_it_is_there(
    site: Site, receiver: str
) -> None:
    states = []
    begun = {name: value for name, value in CALLBACK.items() if name not in ("RecordingDuration", "RecordingUrl")}
    for form in ({**begun, "RecordingStatus": "in-progress"}, CALLBACK):
        assert await asyncio.to_thread(call_back, receiver, form, recorded("false", "customer")) == 204
        assert await site.send(site.spool / "customer-first") == 0
        record = await site.call(submit.call_id(f"twilio://{CALL_SID}"))
        states.append((record.call.state, record.call.declared_duration, record.submissions))
        assert record.call.start_time == datetime.fromisoformat("2026-11-20T09:30:00Z")
    assert states == [("received", None, 1), ("transcribing", 184, 2)]


def test_a_recording_that_failed_is_not_submitted(site: Site, receiver: str) -> None:
    assert call_back(receiver, {**CALLBACK, "RecordingStatus": "absent"}, recorded("false", "customer")) == 204
    assert site.bodies() == []
