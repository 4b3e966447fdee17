"""Phone systems as the recipes connect them: a folder that is watched, and Asterisk with two SIP telephones."""

import json
import os
import random
import re
import shutil
import subprocess
import time
import wave
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from pipeline.checkpoints.lock import default_store
from tests.acceptance.conftest import free_port
from tests.asterisk import RECIPES
from tests.journeys.pages import ROOT, named
from tests.journeys.person import SECONDS, Person
from tests.telephones import COMPANY, CUSTOMER, RATE, Telephones, telephones
from tests.telephony_site import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SAMPLES = ROOT / "tests/fixtures/calls"
AGENT = "6f1c0a52-3f0e-4d59-9a43-5b1f0c8de210"
PASSWORD = "only on the loopback address"
CALL_SECONDS = 18.5  # of the sample call: both parties have said who they are
SILENCE = 3.0  # seconds in which the customer's telephone sends nothing
FREEPBX = "{outgoing}-{to}-{from}-{startTime:%Y%m%d-%H%M%S}-{callId}"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_each_file_that_a_phone_system_drops_becomes_one_call_although_the_watcher_is_killed(folder: Path) -> None:
    operator = Person(folder)
    watch = f"switchboard watch calls --name-pattern '{FREEPBX}.*' --move-to done --settle 1.5 --every 0.3"
    names = [f"external-101-+4930{n:06}-20261120-0930{n:02}-1795167000.{n}.flac" for n in range(12)]
    recordings = [SAMPLES / name / "call.flac" for name in ("01_invoice_stereo", "03_repair_mono", "07_hold_stereo")]
    generator = random.Random(48)
    try:
        operator.starts("switchboard up")
        (folder / "calls").mkdir()
        shutil.copy(recordings[0], folder / "calls" / "voicemail.flac")
        kills = 0
        for n, name in enumerate(names):
            drop(recordings[n % len(recordings)], folder / "calls" / name, renamed=n % 2 == 0)
            if n % 2:
                with operator.beside(watch) as process:
                    assert process.stdout is not None
                    assert any("Watching" in line for line in iter(process.stdout.readline, ""))
                    time.sleep(generator.uniform(0.0, 3.0))
                    process.kill()
                    kills += 1
        with operator.beside(watch) as process:
            assert process.stdout is not None
            assert any("Watching" in line for line in iter(process.stdout.readline, ""))
            deadline = time.monotonic() + SECONDS
            while any((folder / "calls" / name).exists() for name in names):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.5)
            process.terminate()
            output = process.stdout.read()
            assert process.wait(60) == 0 and output.endswith("Stopped.\n"), output
        assert kills == 6
        assert sorted(path.name for path in (folder / "done").iterdir()) == sorted(names)
        assert [path.name for path in (folder / "calls").iterdir()] == ["voicemail.flac"]
        assert_each_completed_once(operator, len(names))
        done = operator.types(f"{watch} --once")
        assert done == "0 calls submitted, 0 refused; 0 files not matched, 0 waiting.\n"
    finally:
        operator.leaves()


def drop(recording: Path, target: Path, *, renamed: bool) -> None:
    """Write a file as phone systems do: under a hidden name that is then changed, or in place, in two halves."""
    content = recording.read_bytes()
    if renamed:
        part = target.with_name(f".{target.name}")
        part.write_bytes(content)
        part.rename(target)
        return
    with target.open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        time.sleep(1.0)
        file.write(content[len(content) // 2 :])


def assert_each_completed_once(operator: Person, calls: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        listed = json.loads(operator.types("switchboard calls list --limit 100 --json"))
        states = Counter(call["status"] for call in listed)
        if states["completed"] == len(listed):
            break
        assert time.monotonic() < deadline and not states["failed"], states
        time.sleep(5)
    assert len(listed) == calls
    for call in listed:
        record = json.loads(operator.types(f"switchboard calls show {call['callId']} --json"))
        assert len(record["jobs"]) == 1, record["jobs"]


@contextmanager
def served_by_nginx(recordings: Path, folder: Path) -> Iterator[str]:
    """Serve a folder with the recipe's configuration and a password; yield the URL of the folder."""
    port, folder = free_port(), folder / "nginx"
    folder.mkdir()
    hashed = subprocess.run(["openssl", "passwd", "-apr1", PASSWORD], capture_output=True, text=True, check=True)
    (folder / "recordings.htpasswd").write_text(f"recordings:{hashed.stdout}")
    site = (RECIPES / "nginx.conf").read_text().replace("/var/spool/asterisk/monitor", str(recordings))
    site = site.replace("/etc/nginx/recordings.htpasswd", str(folder / "recordings.htpasswd"))
    bodies = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"user root; daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log {folder}/access.log; {bodies} server {{ listen 127.0.0.1:{port};\n{site} }} }}\n"
    )
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    with subprocess.Popen(command) as process:
        try:
            yield f"http://127.0.0.1:{port}/recordings"
        finally:
            process.terminate()


def speech() -> dict[str, npt.NDArray[np.int16]]:
    """Return what the parties of a sample call say; the customer's from the moment that the stream begins."""
    with av.open(str(SAMPLES / "01_invoice_stereo" / "call.flac")) as container:
        frames = [frame.to_ndarray().reshape(-1, 2) for frame in container.decode(audio=0)]
    samples = np.concatenate(frames)[: round(CALL_SECONDS * RATE)]
    return {"agent": samples[:, 0], "customer": samples[round(SILENCE * RATE) :, 1]}


def onset(samples: npt.NDArray[np.int16]) -> float:
    """Return the second of the first sound."""
    return float(np.flatnonzero(np.abs(samples.astype(int)) > 300)[0]) / RATE


def steps(monitor: Path) -> dict[str, float]:
    """Return, for each call, by how many seconds the customer's file is late, compared with the agent's.

    A file that lacks what was not sent is early by that time.
    """
    said, late = speech(), {}
    for file in sorted(monitor.rglob("*-caller.wav")):
        heard = {}
        for side in ("caller", "called"):
            with wave.open(str(file.with_name(file.name.replace("caller", side)))) as wav:
                heard[side] = np.frombuffer(wav.readframes(wav.getnframes()), np.int16)
        agent, customer = sorted(heard.values(), key=onset)  # the agent speaks first
        expected = onset(said["customer"]) + SILENCE - onset(said["agent"])
        late[file.name] = onset(customer) - onset(agent) - expected
    return late


def place_calls(systems: Telephones) -> None:
    systems.system.types(f"database put switchboard 101 {AGENT}")
    for call in (systems.customer_calls, systems.agent_calls):
        call()
        systems.hang_up(CALL_SECONDS + 60)


def test_mixmonitor_keeps_both_files_in_step_only_as_the_recipe_uses_it(folder: Path) -> None:
    dialplan = (RECIPES / "extensions.conf").read_text(encoding="utf-8")
    dialplan = re.sub(r" same => n,AGI.*\n", "", dialplan)
    shown = ""
    for name, options in (("recipe", "bSr("), ("without", "br("), ("disabled", "bnr(")):
        changed = dialplan.replace("bSr(", options)
        with telephones(folder / name, speech(), SILENCE, {}, changed) as systems:
            shown = systems.system.types("core show application MixMonitor")
            systems.customer_calls()
            systems.hang_up(CALL_SECONDS + 60)
        (late,) = steps(systems.system.monitor).values()
        fills = name == "recipe" or (name == "without" and "\n    n: " in shown)  # by itself in newer versions
        assert abs(late - (0.0 if fills else -SILENCE)) < SILENCE / 2, (name, late)
        if "\n    S: " in shown and name == "without":
            break  # an older version, which has no option n


def test_a_call_through_asterisk_is_recorded_submitted_and_completed_by_the_recipe(folder: Path) -> None:
    engineer = Person(
        folder,
        SWITCHBOARD_ASR__MODEL="auto",
        SWITCHBOARD_DIARIZATION__PIPELINE="auto",
        SWITCHBOARD_CHECKPOINTS=str(default_store()),
        SWITCHBOARD_FETCH__ALLOWED_HOSTS="127.0.0.1",
    )
    dialplan = (RECIPES / "extensions.conf").read_text(encoding="utf-8").replace("/opt/switchboard", str(RECIPES))
    monitor, spool = folder / "pbx/system/spool/monitor", folder / "spool"
    environment = {"SPOOL": str(spool), "RECORDINGS": str(monitor), "PBX": "pbx1"}
    try:
        engineer.starts("switchboard up")
        (key,) = re.findall(r"^ +(\S+)$", engineer.types(named("docs/contract.md", "switchboard keys create")), re.M)
        engineer.types(f"switchboard members create 'Anna Meier' --user {AGENT} --workspace acme")
        with telephones(folder / "pbx", speech(), SILENCE, environment, dialplan) as systems:
            place_calls(systems)
        assert all(abs(late) < SILENCE / 2 for late in steps(monitor).values())
        with served_by_nginx(monitor, folder) as url:
            host = url.split("/")[2]
            add = f"switchboard credentials add {host} --user recordings --secret-env SECRET --workspace acme"
            engineer.types(add, SECRET=PASSWORD)
            sent = run(
                "submit",
                str(spool),
                "--once",
                BASE_URL=f"http://127.0.0.1:{engineer.port}",
                KEY=key,
                RECORDINGS_URL=url,
            )
            assert (sent.returncode, sent.stderr, list(spool.glob("*.json"))) == (0, "", [])
            assert_each_completed_once(engineer, 2)
        for call in json.loads(engineer.types("switchboard calls list --json")):
            assert_agent_and_customer(json.loads(engineer.types(f"switchboard calls show {call['callId']} --json")))
    finally:
        engineer.leaves()


def assert_agent_and_customer(record: dict[str, Any]) -> None:
    """Assert that the record has the parties of the call, and on the agent's channel what the agent said."""
    outgoing = record["call"]["outgoing"]
    numbers = ("101", CUSTOMER) if outgoing else (CUSTOMER, COMPANY)
    assert (record["call"]["from"], record["call"]["to"]) == numbers
    assert record["agentUserId"] == AGENT
    assert record["transcript"]["layout"]["kind"] == "two_files", record["transcript"]["layout"]
    for party, words in (("rep", {"northwind", "energy", "customer", "number"}), ("customer", {"peter", "miller"})):
        turns = [turn for turn in record["transcript"]["turns"] if turn["speaker"] == party]
        heard = {re.sub(r"\W", "", word["text"].lower()) for turn in turns for word in turn["words"]}
        assert len(heard & words) > len(words) / 2, (party, heard)
        others = {"peter", "miller"} if party == "rep" else {"northwind", "energy"}
        assert not heard & others, (party, heard)


def test_freepbx_hooks_record_both_parties_for_the_watcher(folder: Path) -> None:
    operator = Person(folder)
    dialplan = (RECIPES / "extensions_custom.conf").read_text(encoding="utf-8")
    dialplan = dialplan.replace("/var/spool/asterisk/switchboard", str(folder / "recorded"))
    hook = "macro-dialout-one-predial-hook,s,1"
    with telephones(folder / "pbx", speech(), SILENCE, {}, dialplan, hook) as systems:
        systems.customer_calls()
        systems.hang_up(CALL_SECONDS + 60)
    assert all(abs(late) < SILENCE / 2 for late in steps(folder / "recorded").values())
    (caller,) = (folder / "recorded").rglob("*-caller.wav")
    assert re.fullmatch(rf"in-101-{CUSTOMER}-\d{{8}}-\d{{6}}-[\d.]+-caller\.wav", caller.name), caller
    for file in caller.parent.iterdir():
        os.utime(file, (time.time() - 60,) * 2)
    try:
        operator.starts("switchboard up")
        operator.types(f"switchboard watch recorded --name-pattern '{FREEPBX}-{{party}}.wav' --once")
        assert_each_completed_once(operator, 1)
        (call,) = json.loads(operator.types("switchboard calls list --json"))
        record = json.loads(operator.types(f"switchboard calls show {call['callId']} --json"))
        assert record["transcript"]["layout"]["kind"] == "stereo"
        assert (record["call"]["outgoing"], record["call"]["to"]) == (False, "101")
    finally:
        operator.leaves()
