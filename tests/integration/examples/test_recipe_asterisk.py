"""Asterisk: the AGI script gets what Asterisk documents, and the intake what becomes of it."""

import asyncio
import os
import re
import time
import uuid

import pytest

from tests.telephony_site import FILES, SCRIPTS, Site, body, run, site, submit

__all__ = ["site"]  # a fixture

AGENT = "6f1c0a52-3f0e-4d59-9a43-5b1f0c8de210"
AGI = """agi_request: /opt/switchboard/asterisk.py
agi_channel: PJSIP/trunk-00000007
agi_language: en
agi_type: PJSIP
agi_uniqueid: 1795167000.42
agi_callerid: +493012345678
agi_calleridname: Meier, "A" & Co
agi_dnid: 4940987654
agi_context: switchboard
agi_extension: ended
agi_priority: 2
agi_enhanced: 0.0

"""


@pytest.mark.parametrize(("outgoing", "rep", "customer"), [("true", "caller", "called"), ("false", "called", "caller")])
async def test_asterisk_sends_the_file_of_the_rep_first(site: Site, outgoing: str, rep: str, customer: str) -> None:
    for side in ("caller", "called"):
        (site.recordings / f"1795167000.42-{side}.wav").write_bytes(b"RIFF" + bytes(200))
    start = int(time.time()) - 184
    answers = f"200 result=1 ({outgoing})\nHANGUP\n200 result=1 ({start})\n200 result=1 (+4940987654)\n"
    answers += f"200 result=1 ({AGENT})\n"
    agi = await asyncio.to_thread(run, "asterisk", stdin=AGI + answers, PBX="pbx1", **site.environment())
    assert (agi.returncode, agi.stderr) == (0, "")
    assert agi.stdout == "GET VARIABLE SB_OUTGOING\nGET VARIABLE SB_START\nGET VARIABLE SB_TO\nGET VARIABLE SB_USER\n"
    assert await site.send() == 0
    record = await site.call(str(uuid.uuid5(uuid.NAMESPACE_URL, "asterisk://pbx1/1795167000.42")))
    assert record.recording_url == f"{FILES}/1795167000.42-{rep}.wav"
    assert record.recording_url2 == f"{FILES}/1795167000.42-{customer}.wav"
    assert (record.call.from_number, record.call.to_number) == ("+493012345678", "+4940987654")
    assert record.call.outgoing is (outgoing == "true")
    assert str(record.agent_user_id) == AGENT
    assert record.call.start_time.timestamp() == start
    assert record.call.declared_duration in range(184, 244)


async def test_a_call_through_asterisk_is_announced_when_it_begins_and_completed_when_it_ends(site: Site) -> None:
    start = int(time.time()) - 2
    answers = f"200 result=1 (true)\n200 result=1 ({start})\n200 result=1 (+4940987654)\n200 result=1\n"
    states = []
    for argument in ("agi_arg_1: begins\n", ""):
        stdin = AGI.replace("\n\n", f"\n{argument}\n") + answers
        agi = await asyncio.to_thread(run, "asterisk", stdin=stdin, PBX="pbx1", **site.environment())
        assert (agi.returncode, agi.stderr) == (0, "")
        assert await site.send() == 0
        record = await site.call(submit.call_id("asterisk://pbx1/1795167000.42"))
        states.append((record.call.state, record.call.declared_duration is None, record.submissions))
        assert (record.call.outgoing, record.call.start_time.timestamp()) == (True, start)
        for side in ("caller", "called"):
            (site.recordings / f"1795167000.42-{side}.wav").write_bytes(b"RIFF" + bytes(200))
    assert states == [("received", True, 1), ("transcribing", False, 2)]


async def test_a_call_through_asterisk_that_nobody_answered_is_submitted_without_a_recording(site: Site) -> None:
    (site.recordings / "1795167000.42-caller.wav").write_bytes(b"RIFF" + bytes(40))  # a header, and no sound
    answers = "200 result=1 (false)\n200 result=1 (1795167000)\n200 result=1 (100)\n"
    await asyncio.to_thread(run, "asterisk", stdin=AGI + answers, PBX="pbx1", **site.environment())
    assert await site.send() == 0
    record = await site.call(submit.call_id("asterisk://pbx1/1795167000.42"))
    assert (record.call.state, record.recording_url) == ("received", None)


async def test_a_recording_waits_for_the_url_of_its_folder_and_other_calls_do_not(site: Site) -> None:
    (site.recordings / "1795167000.42-called.wav").write_bytes(b"RIFF" + bytes(200))
    answers = "200 result=1 (false)\n200 result=1 (1795167000)\n200 result=1 (100)\n200 result=1 (not an id)\n"
    agi = await asyncio.to_thread(run, "asterisk", stdin=AGI + answers, PBX="pbx1", **site.environment())
    assert (agi.returncode, agi.stderr) == (0, "asterisk.py: the userId 'not an id' is not a UUID\n")
    unanswered = submit.call_id("asterisk://pbx1/1795167001.1")
    submit.put(site.spool, body(unanswered))
    assert await site.send(RECORDINGS_URL="") == 1
    assert (await site.call(unanswered)).call.state == "received"
    assert await site.send() == 0
    record = await site.call(submit.call_id("asterisk://pbx1/1795167000.42"))
    assert (record.recording_url, record.agent_user_id) == (f"{FILES}/1795167000.42-called.wav", None)


def test_the_dialplan_of_asterisk_names_what_the_script_reads() -> None:
    assert os.access(SCRIPTS / "asterisk.py", os.X_OK)  # Asterisk starts it without an interpreter
    dialplan, reads = ((SCRIPTS / name).read_text() for name in ("extensions.conf", "asterisk.py"))
    assert set(re.findall(r"Set\((SB_\w+)=", dialplan)) - {"SB_CHANNEL"} == set(
        re.findall(r'variable\("(\w+)"\)', reads)
    )
    assert re.findall(r"AGI\(/opt/switchboard/asterisk.py(.*)\)", dialplan) == [",begins", ""]
    assert re.findall(r"[rt]\(\$\{UNIQUEID\}-(\w+)\.wav\)", dialplan) == ["caller", "called"]
