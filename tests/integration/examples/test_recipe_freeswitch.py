"""FreeSWITCH: its call records and events become submissions to the real intake."""

import asyncio
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

import pytest

from tests.telephony_site import FILES, SCRIPTS, Site, run, script, site

__all__ = ["site"]  # a fixture


def test_the_dialplan_of_freeswitch_swaps_incoming_calls_and_names_the_folders_of_the_script() -> None:
    swapped = {}
    for extension in ElementTree.parse(SCRIPTS / "freeswitch.xml").iter("extension"):
        done = [(one.attrib["application"], one.attrib["data"]) for one in extension.iter("action")]
        told = dict(data.split("=", 1) for application, data in done if application == "set")
        (file,) = [data for application, data in done if application == "record_session"]
        freeswitch = script("freeswitch")
        assert (told["json_cdr_base"], file) == (str(freeswitch.CDRS), str(freeswitch.RECORDINGS / "${uuid}.wav"))
        assert told["RECORD_STEREO"] == "true"
        swapped[told["switchboard_outgoing"]] = told.get("RECORD_STEREO_SWAP")
    assert swapped == {"false": "true", "true": None}


@pytest.mark.parametrize("outgoing", ["true", "false"])
async def test_a_call_record_of_freeswitch_becomes_a_submission(site: Site, outgoing: str) -> None:
    call = str(uuid4())
    record = {
        "core-uuid": str(uuid4()),
        "switchname": "pbx1",
        "channel_data": {"state": "CS_REPORTING", "direction": "inbound"},
        "variables": {
            "direction": "inbound",
            "uuid": call,
            "switchboard_from": "+493012345678",
            "switchboard_to": "+4940987654",
            "switchboard_outgoing": outgoing,
            "RECORD_STEREO": "true",
            "start_epoch": "1795167000",
            "end_epoch": "1795167184",
            "duration": "184",
            "billsec": "180",
        },
    }
    cdrs = site.spool.parent / "cdrs"
    (cdrs / "json_cdr").mkdir(parents=True)
    (cdrs / "json_cdr" / f"{call}.cdr.json").write_text(json.dumps(record))
    (cdrs / "json_cdr" / f"{uuid4()}.cdr.json").write_text('{"core-uuid": "half a rec')
    (site.recordings / f"{call}.wav").write_bytes(b"RIFF")
    look = await asyncio.to_thread(run, "freeswitch", "--once", CDRS=str(cdrs), **site.environment())
    assert (look.returncode, look.stderr) == (0, "")
    assert len(list(cdrs.rglob("*.json"))) == 1  # what is still being written waits
    assert await site.send() == 0
    shown = await site.call(call)
    assert (shown.recording_url, shown.recording_url2) == (f"{FILES}/{call}.wav", None)
    assert (shown.call.outgoing, shown.call.declared_duration) == (outgoing == "true", 184)
    assert shown.call.start_time == datetime.fromisoformat("2026-11-20T09:30:00Z")


@contextmanager
def event_socket(*events: dict[str, str], password: str = "ClueCon") -> Iterator[str]:
    """mod_event_socket as it is documented: it asks for a password, answers commands, sends events, and goes."""

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"Content-Type: auth/request\n\n")
            if self.command() != f"auth {password}":
                self.wfile.write(b"Content-Type: command/reply\nReply-Text: -ERR invalid\n\n")
                return
            self.wfile.write(b"Content-Type: command/reply\nReply-Text: +OK accepted\n\n")
            assert self.command() == "event json CHANNEL_ANSWER"
            self.wfile.write(b"Content-Type: command/reply\nReply-Text: +OK event listener enabled json\n\n")
            for event in events:
                sent = json.dumps(event, ensure_ascii=False).encode()
                self.wfile.write(f"Content-Length: {len(sent)}\nContent-Type: text/event-json\n\n".encode() + sent)
            self.wfile.write(b"Content-Type: text/disconnect-notice\nContent-Length: 13\n\nDisconnected\n")

        def command(self) -> str:
            line = self.rfile.readline().decode().rstrip("\n")
            assert self.rfile.readline() == b"\n"
            return line

    with socketserver.TCPServer(("127.0.0.1", 0), Session) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        thread.join(10)


async def test_a_call_that_freeswitch_answers_is_announced_and_its_other_leg_is_not(site: Site) -> None:
    call = str(uuid4())
    common = {"Event-Name": "CHANNEL_ANSWER", "Caller-Channel-Created-Time": "1795167000250000"}
    ours = {
        **common,
        "Unique-ID": call,
        "Caller-Caller-ID-Name": "Jürgen",
        "variable_switchboard_from": "+493012345678",
        "variable_switchboard_to": "+4940987654",
        "variable_switchboard_outgoing": "true",
    }
    with event_socket({**common, "Unique-ID": str(uuid4())}, ours) as address:
        environment = {"SPOOL": str(site.spool), "ESL": address, "ESL_PASSWORD": "ClueCon"}
        done = await asyncio.to_thread(run, "freeswitch_begins", "--once", **environment)
    assert (done.returncode, done.stderr) == (0, "FreeSWITCH closed the connection\n")
    assert len(site.bodies()) == 1
    assert await site.send() == 0
    shown = await site.call(call)
    assert (shown.call.state, shown.call.outgoing, shown.call.declared_duration) == ("received", True, None)
    assert (shown.call.from_number, shown.call.to_number) == ("+493012345678", "+4940987654")
    assert shown.call.start_time == datetime.fromisoformat("2026-11-20T09:30:00Z"), "the start_epoch of its call record"


def test_a_wrong_password_is_said_and_not_tried_for_ever(tmp_path: Path) -> None:
    with event_socket() as address:
        done = run("freeswitch_begins", SPOOL=str(tmp_path), ESL=address, ESL_PASSWORD="another")
    assert (done.returncode, done.stderr) == (1, "FreeSWITCH refuses 'auth': -ERR invalid\n")
