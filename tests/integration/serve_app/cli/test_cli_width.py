"""Commands that list or show something are readable on a narrow terminal: no word is broken."""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from db.core.database import Database, Reader
from db.events import outbox
from db.events.outbox import Attempt, DeliveryVerdict
from db.experiments import calibrations
from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from db.records import correct
from db.records.complete import complete as complete_call
from db.records.correct import WantedEdit
from db.records.corrections import Editor
from db.workspace import access_log, keys
from pipeline.analysis import analyze
from pipeline.domain.call import Submission
from pipeline.domain.edits import EditKind
from pipeline.domain.speech import Voiceprint
from pipeline.errors import NotAudio, RecordingUnreachable
from pipeline.speakers.profile import Voices
from pipeline.speakers.roles import RoleOptions
from serve_app.cli import COMMANDS, app
from serve_app.cli.doctor import command as doctor
from serve_app.cli.doctor.command import bad, good, warn
from serve_app.cli.run import demo, up
from serve_app.cli.ui import database as state
from serve_app.cli.ui.output import out
from serve_app.cli.ui.table import table
from serve_app.service.service import Endpoints
from serve_app.settings import Settings
from tests.postgres import fresh_database
from tests.support.calls_by_hand import call as call_by_hand

WIDTH = 80
WIDE = 4000  # a terminal on which everything fits on one line
WORKSPACE = "Stadtwerke Unterföhring Kundenservice"
TEAM = "Störungsannahme und Entstörungsdienst"
MEMBER = "Maximiliane Schwarzenberger-Hohenlohe"
HOST = "recordings.telephony-gateway.internal.stadtwerke.example"
RECORDING = f"https://{HOST}/2026/11/02/7c4a8d09ca3762af61e59520943dc26494f8941b.wav?signature=9b74c9897bac770ffc029102"


def switchboard(*arguments: str, columns: int = WIDE) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.stdout


def made(*arguments: str) -> Any:
    return json.loads(switchboard(*arguments, "--json"))


QUESTIONS = """
[[questions]]
key = "appointment_offered.by_the_service_desk"
question = "Did the person at the service desk offer an appointment for the installation of the house connection?"
phrases = ["offer you an appointment for the installation", "Glasfaserhausanschluss"]

[[trackers]]
key = "anger"
party = "customer"
phrases = ["I am very angry", "third time"]

[[scorecards]]
key = "service_quality.of_the_service_desk"
title = "Quality of service at the service desk for house connections"
items = [{question = "appointment_offered.by_the_service_desk"}]
"""
ASKED = "appointment_offered.by_the_service_desk"
CARD, CALIBRATION = "service_quality.of_the_service_desk", "calibration-of-the-service-desk.third-quarter"


class Filled:
    """A database after some weeks of use, and the ids for `show` commands."""

    def __init__(self) -> None:
        switchboard(
            "workspaces", "create", WORKSPACE, "--country", "DE", "--time-zone", "America/Argentina/Buenos_Aires"
        )
        terms = ("Glasfaserhausanschluss", "Photovoltaikeinspeisevergütung", "Zählerstand", "Gigabox 6690", "Ost")
        switchboard("workspaces", "terms", *terms, "Nahwärme")
        switchboard("workspaces", "voiceprints", "consented", "--yes")
        switchboard("workspaces", "hosts", f"{HOST}:8443", "10.17.0.0/16")
        self.secret = made("keys", "create", "--team", TEAM, "--name", "Telefonanlage Zentrale, Serverraum 2")["secret"]
        made("keys", "create", "--name", "read only, for the reporting warehouse", "--scope", "read")
        self.user = made(
            "members", "create", MEMBER, "--team", TEAM, "--alias", "Maxi", "--alias", "Frau Schwarzenberger"
        )["userId"]
        switchboard("members", "consent", MEMBER, "--text", "privacy notice of the works council, 2026-01")
        made(
            *("contacts", "create", "Ana Beatriz Costa de Albuquerque", "--phone", "+4930123456789"),
            *("--company", "Costa & Albuquerque Importações Ltda.", "--email", "ana.beatriz@costa-albuquerque.example"),
        )
        made("contacts", "create", "Bo Lind")
        made("credentials", "add", f"{HOST}:8443", "--header", "X-Recording-Server-Token", "--secret-env", "TOKEN")
        self.endpoint = made(
            *(
                "webhooks",
                "create",
                "https://127.0.0.1:18443/hooks/network-operations-center/switchboard/events?tenant=unterfoehring",
            ),
            *("--description", "to the ticket system of the network operations center"),
        )["endpoint"]["endpointId"]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "questions.toml").write_text(QUESTIONS)
            switchboard("questions", "set", f"{folder}/questions.toml")
        self.failed, self.completed, self.waiting = (state.run(self._submit) for _ in range(3))
        state.run(self._work)
        self.queued = state.run(self._submit)
        self.job = made("jobs", "list", "--failed")[0]["jobId"]
        state.run(self._deliver)
        state.run(self._read)
        state.run(self._review)
        made("retention", "set", "transcripts", "3650")
        made("retention", "set", "voiceprints", "365", "--team", TEAM)
        made("redaction", "set", "mask", "--preset", "pci", "--preset", "privacy", "--kind", "health")
        made("holds", "create", "--call", str(self.completed), "--reason", "The dispute about the bill of May")
        made("holds", "create", "--number", "+4930123456789", "--reason", "Case 12")
        made("gold", "create", "frequent-billing-questions.checked-by-two", "--call", str(self.completed))
        made(
            "runs", "create", "the-small-checkpoint.on-frequent-billing-questions", "--set", "asr.model=whisper-tiny.en"
        )

    async def _submit(self, database: Database) -> UUID:
        sender = await keys.find(database, self.secret)
        assert sender is not None
        submission = Submission(
            *(uuid4(), "+4930123456789", "+5491123456789", datetime(2026, 11, 2, 9, 30, tzinfo=UTC), RECORDING),
            user_id=UUID(self.user),
        )
        await GroupCommitter(database).submit(sender, submission, {})
        return submission.call_id

    async def _work(self, database: Database) -> None:
        """Create a failed call, a completed one, and one that waits for its recording."""
        for fetch in await jobs.claim_fetches(database, "w", 10, 60, 10, 10):
            if fetch.call.call_id == self.waiting:
                away = RecordingUnreachable(f"{HOST} answered 503 Service Temporarily Unavailable for {RECORDING}.")
                await jobs.retry(database, fetch, away, 600.0, False)
            else:
                await jobs.fetched(database, fetch)
        for lease in await jobs.claim(database, "ray-worker-17.eu-central-1.compute.internal:48211", 10, 60):
            if lease.call.call_id == self.failed:
                page = "The server sent a web page (text/html, 18 kB) that begins with <title>Sign in to continue"
                await jobs.fail(database, lease, NotAudio(page))
            else:
                spoken = call_by_hand(
                    ("rep", "Hello, this is Maxi from Metro Cable, how can I help you?"),
                    (
                        "customer",
                        "My internet is terrible, I am very angry, and I call you for the third time.",
                    ),
                    ("rep", "I am sorry. I will send you a new router tomorrow, and I will call you back on Friday."),
                    ("customer", "Thank you, that is wonderful."),
                )
                voice = Voiceprint(tuple(float(x) for x in np.eye(8)[0]), "m", 4.0, 0.2, ("short", "several_voices"))
                await complete_call(
                    *(database, lease, spoken.transcript, analyze(spoken), voice),
                    *(["The recording is 3 s shorter than announced."], Voices(RoleOptions())),
                )

    async def _read(self, database: Database) -> None:
        key = await keys.find(database, self.secret)
        assert key is not None
        reader = Reader(key.workspace_id)
        await access_log.note(database, reader, key.key_id, [self.completed], "record", request_id=str(UUID(int=7)))
        await access_log.note(database, reader, UUID(int=8), [self.completed], "audio", "channel 0 from 12.5 s")
        person = Editor(key.key_id, None, "Johanna Katharina Freifrau von Hohenstein")
        swapped = WantedEdit(EditKind.ROLES, False, True)
        outcome = await correct.make(database, reader, person, self.completed, swapped)
        await correct.undo(database, reader, person, self.completed, outcome.edit.edit_id)

    async def _review(self, database: Database) -> None:
        key = await keys.find(database, self.secret)
        assert key is not None
        march = await calibrations.create(database, key.workspace_id, CALIBRATION, CARD, [self.completed])
        scope = (database, key.workspace_id, Editor(None, None, MEMBER), march.calibration_id)
        await calibrations.answer(*scope, self.completed, {ASKED: "yes"})

    async def _deliver(self, database: Database) -> None:
        for delivery in await outbox.claim(database, 10, 10, {}, 30.0):
            answer = "<html><head><title>503 Service Temporarily Unavailable</title></head>"
            tried = Attempt(datetime.now(UTC), 9.8, 503, "status 503", answer)
            await outbox.note(database, delivery, tried, DeliveryVerdict.RETRY, retry_in=3600)

    def commands(self) -> dict[str, tuple[str, ...]]:
        return {
            "calls list": (),
            "calls show": (str(self.completed),),
            "calls reads": (str(self.completed),),
            "calls edits": (str(self.completed),),
            "jobs list": (),
            "jobs failed": (),
            "jobs show": (self.job,),
            "queue": (),
            "keys list": (),
            "credentials list": (),
            "workspaces changes": (),
            "workspaces list": (),
            "workspaces terms": (),
            "workspaces hosts": (),
            "workspaces priority": (),
            "workspaces digits": (),
            "questions list": (),
            "questions show": ("anger",),
            "teams list": (),
            "members list": (),
            "members consent": (MEMBER,),
            "workspaces voiceprints": (),
            "contacts list": (),
            "retention list": (),
            "retention status": (),
            "redaction list": (),
            "redaction status": (),
            "holds list": (),
            "gold list": (),
            "gold show": ("frequent-billing-questions.checked-by-two",),
            "runs list": (),
            "runs show": ("the-small-checkpoint.on-frequent-billing-questions",),
            "webhooks list": (),
            "webhooks show": (self.endpoint,),
            "webhooks deliveries": (),
            "voiceprints list": (),
            "voiceprints show": (str(self.completed),),
            "checkpoints list": (),
        }


SHOWN = (*Filled.commands(type("Names", (), dict.fromkeys(("completed", "job", "endpoint"), ""))()),)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def filled(postgres_server: str) -> Iterator[Filled]:
    with pytest.MonkeyPatch.context() as patch:
        for url in fresh_database(postgres_server, "switchboard"):
            patch.setenv("SWITCHBOARD_DATABASE_URL", url)
            patch.setenv("SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS", '["127.0.0.1:18443"]')
            patch.setenv("TOKEN", "a secret")
            patch.setenv("TZ", "UTC")
            patch.setenv("SWITCHBOARD_SCALING__TRANSCRIBER__PRICE_PER_HOUR", "1.2")
            yield Filled()


def test_every_command_that_lists_or_shows_is_tried_here() -> None:
    broken = {
        f"{entry.name} {name}"
        for entry in COMMANDS
        for name in getattr(entry.load(), "commands", {})
        if name in ("list", "show", "failed", "deliveries", "changes")
    }
    assert broken - {"backup list"} <= set(SHOWN)  # it needs a folder: test_cli_sentences


def test_no_command_breaks_a_word_or_prints_a_line_wider_than_the_terminal(filled: Filled) -> None:
    faults = {}
    for command, ids in filled.commands().items():
        arguments = (*command.split(), *ids)
        wide, narrow = (switchboard(*arguments, columns=columns) for columns in (WIDE, WIDTH))
        if complaint(words(wide), narrow):  # an age may have changed in between
            unchanged = words(wide) & words(switchboard(*arguments))
            if fault := complaint(unchanged, narrow):
                faults[command] = fault
    assert not faults, "\n".join(f"{command}: {fault}" for command, fault in faults.items())


Printed = Callable[[Callable[[], object]], str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """Call a function that prints on a wide and on a narrow terminal; return the narrow output."""

    def both(function: Callable[[], object]) -> str:
        outputs = []
        for columns in (WIDE, WIDTH):
            monkeypatch.setenv("COLUMNS", str(columns))
            function()
            outputs.append(capsys.readouterr().out)
        wide, narrow = outputs
        assert not (fault := complaint(words(wide), narrow)), fault
        return narrow

    return both


def test_the_table_of_the_demo_can_be_read(printed: Printed) -> None:
    row = {"state": "completed", "layout": "one_sided", "language": "en", "voices": "synthetic", "tasks": 2}
    figures = {"words_wrong": 121, "words_said": 180, "words_doubtful": 109}
    shown = printed(lambda: out().print(demo._summary([{"name": "05_centralita_es", **row, **figures}])))
    assert len(shown.splitlines()) == 2, "a heading and a row"


def test_what_the_doctor_says_can_be_read(printed: Printed) -> None:
    path = f"/srv/{'recordings-of-the-telephony-gateway/' * 3}haproxy"
    checks = [
        good("checkpoint store", f"whisper-base, segmentation-3.0, campplus in {path}"),
        warn("secrets", "stored unsealed", "Set SWITCHBOARD_SECRETS_KEYS on every node, then restart the service."),
        bad("recognition model", f"small is not in {path}", "Bring the cache (HF_HOME) here."),
    ]
    assert "1 problem, 1 warning, 1 ok" in printed(lambda: doctor._show(checks))


def test_what_up_says_can_be_read(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"/srv/{'telephony-gateway/' * 6}switchboard"
    endpoints = Endpoints(
        *("http://127.0.0.1:8000/submit", "postgresql:///x", "127.0.0.1:52113", True, 31.4),
        *("http://127.0.0.1:8000/console", f"{folder}/ray/session_latest/logs/serve"),
        *("http://127.0.0.1:9102/metrics", "127.0.0.1:8265", False),
    )
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", f"{folder}/ray_token")
    assert "another Ray" in printed(
        lambda: up._print_ready(endpoints, Settings(data_dir=folder, log_format="text"), events=None)
    )


def complaint(expected: Counter[str], narrow: str) -> str:
    """Return the faults of a narrow output. `expected`: the words of the same output unwrapped."""
    lines = [line.rstrip() for line in narrow.splitlines()]
    too_long = [line for line in lines if cell_len(line) > WIDTH and not is_whole(line.strip())]
    broken = expected - words(narrow)
    if lines and not too_long and not broken:
        return ""
    return f"too long: {too_long}, broken: {list(broken)} in\n{narrow}"


def words(text: str) -> Counter[str]:
    """Count words without punctuation: a narrow table repeats column names with a colon."""
    return Counter(word.strip(":,") for word in text.split())


def is_whole(line: str) -> bool:
    """Return whether a line is one address, path or command, which is never broken."""
    return " " not in line or bool(re.fullmatch(r"`[^`]*`\S*", line))


def test_a_table_that_fits_stays_one_and_figures_are_to_the_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = table("!id", "#tries", "about")
    lines.add_row("a1", "5", "waits")
    lines.add_row("b2", "1000", "word " * 30)
    out().print(lines)
    shown = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in shown[:2]] == ["id  tries  about", "a1      5  waits"]
    assert shown[2].startswith("b2   1000  word word")
    assert shown[3].startswith(" " * 11 + "word")


def test_what_does_not_fit_beside_follows_below_with_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = table("!id", "!state", "!call", "why")
    lines.add_row("i" * 20, "failed", "c" * 20, "no [audio] in it")
    lines.add_row("j" * 20, "failed", "d" * 20, "")
    out().print(lines)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "id                    state",
        "i" * 20 + "  failed",
        f"  call: {'c' * 20}",
        "  why: no [audio] in it",
        "j" * 20 + "  failed",
        f"  call: {'d' * 20}",
    ]
