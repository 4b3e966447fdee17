"""Commands that write, and their errors, are readable on a narrow terminal."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from serve_app.cli import COMMANDS, app
from tests.integration.serve_app.cli.test_cli_width import (
    MEMBER,
    QUESTIONS,
    RECORDING,
    SHOWN,
    TEAM,
    WORKSPACE,
    Filled,
)
from tests.postgres import fresh_database

WIDTH = 80
OF_THE_SERVICE = {
    "demo",
    "up",
    "status",
    "down",
    "doctor",
    "install-service",
    "webhooks listen",
    "ask",
    "mcp",
}  # tested with a service in tests/journeys
OF_MODELS = {
    "process",
    "backfill",
    "checkpoints fetch",
    "voiceprints calibrate",
}  # they need models, and say so: likewise
DATA = {"calls export", "webhooks schema", "access-log export"}  # JSON, for programs


@pytest.fixture(scope="module")
def filled(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with pytest.MonkeyPatch.context() as patch:
        for url in fresh_database(postgres_server, "switchboard"):
            patch.setenv("SWITCHBOARD_DATABASE_URL", url)
            patch.setenv("SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS", '["127.0.0.1:18443"]')
            patch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path_factory.mktemp("data")))
            patch.setenv("TOKEN", "a secret")
            patch.setenv("TZ", "UTC")
            yield Filled()


def commands(filled: Filled, people: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Return commands with valid and with invalid arguments, in an order that works."""
    key = str(json.loads(CliRunner().invoke(app, ["keys", "list", "--json"]).stdout)[0]["keyId"])
    call, failed, waiting = str(filled.completed), str(filled.failed), str(filled.waiting)
    workspace_option = ("--workspace", WORKSPACE)
    return [
        ("migrate", ()),
        ("plan", ("--calls-per-day", "250000", "--minutes", "3.5", "--mono-share", "0.25")),
        ("backup create", (str(people.parent / "backups"),)),
        ("backup verify", (str(people.parent / "backups"),)),
        ("backup list", (str(people.parent / "backups"),)),
        ("backup prune", (str(people.parent / "backups"), "--older-than", "30d")),
        ("restore", (str(people.parent / "backups"),)),
        ("submit", ("call.wav", "--url", "http://127.0.0.1:9/submit")),
        ("watch", ("calls", "--name-pattern", "{uniqueId}.wav")),
        ("watch", (str(people.parent), "--name-pattern", "{callId}.wav", "--once", "--url", "http://127.0.0.1:9")),
        ("checkpoints verify", ("--folder", str(people.parent))),
        ("calls reseal", ()),
        ("access-log verify", workspace_option),
        ("erase", ("--number", "+49 30 123456789", "--dry-run", *workspace_option)),
        ("erase", ("--team", TEAM, *workspace_option)),
        ("export", ("--member", MEMBER, "--output", str(people.with_name("member.zip")), *workspace_option)),
        ("export", ("--number", "12", "--output", str(people.with_name("number.zip")), *workspace_option)),
        ("calls show", (key,)),
        ("calls answer", (call, "anger", "said", "--comment", "Das war im letzten Satz zu hören", *workspace_option)),
        ("calls answer", (key, "anger", "said", "--comment", "Das war im letzten Satz zu hören", *workspace_option)),
        ("calls undo", (call, key, *workspace_option)),
        ("jobs retry", ("--all", "--dry-run")),
        ("jobs retry", ("--waiting", "--dry-run")),
        ("jobs retry", (waiting,)),
        ("jobs retry", (failed,)),
        ("jobs retry", (key,)),
        ("jobs retry", ()),
        (
            "keys create",
            (*workspace_option, "--team", TEAM, "--name", "Telefonanlage Zentrale, Serverraum 2", "--expires", "30d"),
        ),
        ("keys update", (key, "--channels-swapped")),
        ("keys rotate", (key,)),
        ("keys revoke", (key,)),
        ("keys revoke", (key,)),
        ("console link", (*workspace_option, "--team", TEAM, "--for", "Johanna Katharina Freifrau von Hohenstein")),
        ("console sessions", ()),
        ("console revoke", (key,)),
        ("credentials add", (RECORDING.split("/")[2], "--user", "recordings", "--secret-env", "TOKEN")),
        ("credentials reseal", ()),
        ("credentials remove", (RECORDING.split("/")[2],)),
        ("credentials remove", (RECORDING.split("/")[2],)),
        ("workspaces create", ("Stadtwerke Unterföhring Netzbetrieb und Einspeisung", "--country", "DE")),
        ("workspaces create", ("acme", "--country", "Germany")),
        ("workspaces update", (WORKSPACE, "--time-zone", "America/Argentina/ComodRivadavia")),
        ("workspaces budget", ("--requests", "200", "--tokens", "2000000", "--cost", "none", *workspace_option)),
        ("workspaces digits", ("--keep", *workspace_option)),
        ("workspaces hosts", ("pbx local", *workspace_option)),
        ("workspaces priority", ("4", "--team", TEAM, *workspace_option)),
        ("workspaces summary", ("reason:1", "next_step=What has to happen next", "open", *workspace_option)),
        ("workspaces summary", ("why", *workspace_option)),
        ("workspaces summary", ("--default", "--team", TEAM, *workspace_option)),
        ("workspaces delete", (WORKSPACE,)),
        ("questions try", (str(people.with_name("questions.toml")), "--call", call, *workspace_option)),
        ("questions try", (str(people.with_name("questions.toml")), "--call", failed, *workspace_option)),
        ("questions set", (str(people.with_name("questions.toml")), *workspace_option)),
        ("questions set", (str(people.with_name("wrong.toml")), *workspace_option)),
        ("questions scores", ("anger", *workspace_option)),
        ("questions scores", ("nothing", *workspace_option)),
        ("questions delete", ("anger", *workspace_option)),
        ("questions delete", ("anger", *workspace_option)),
        ("teams create", (f"{TEAM} am Wochenende", *workspace_option)),
        ("teams update", (TEAM, "--channels-swapped", *workspace_option)),
        ("teams delete", (TEAM, *workspace_option)),
        ("members create", (f"{MEMBER}-Lindenberg", "--team", TEAM, *workspace_option)),
        ("members update", (MEMBER, "--alias", "Maxi", "--alias", "Frau Schwarzenberger", *workspace_option)),
        ("members consent", (MEMBER, "--text", "2026-01", "--expires", "2100-01-31", *workspace_option)),
        ("members consent", (MEMBER, "--withdraw", *workspace_option)),
        ("workspaces voiceprints", ("consented", "--yes", *workspace_option)),
        ("members delete", (f"{MEMBER}-Lindenberg", *workspace_option)),
        ("contacts create", ("Johanna Katharina Freifrau von Hohenstein", "--phone", "12", *workspace_option)),
        (
            "contacts update",
            ("Bo Lind", "--company", f"{WORKSPACE} GmbH", "--email", "bo@lind.example", *workspace_option),
        ),
        ("contacts import", (str(people), *workspace_option)),
        ("contacts delete", ("Bo Lind", *workspace_option)),
        ("retention set", ("access_log", "120", "--team", TEAM, *workspace_option)),
        ("retention set", ("access_log", "a year", *workspace_option)),
        ("redact", ("--dry-run", *workspace_option)),
        ("redaction set", ("mask", "--preset", "privacy", "--pattern", "order=AB-999999", *workspace_option)),
        ("redaction set", ("mask", *workspace_option)),
        ("redaction set", ("hidden", *workspace_option)),
        ("redaction set", ("mask", "--pattern", "AB-999999", *workspace_option)),
        ("redaction set", ("none", "--team", TEAM, *workspace_option)),
        (
            "holds create",
            ("--number", "+49 30 1234567", "--reason", "The dispute about the bill of May", *workspace_option),
        ),
        ("holds create", ("--reason", "The dispute about the bill of May", *workspace_option)),
        ("holds release", (key, *workspace_option)),
        ("search status", ()),
        ("search index", ()),
        ("search remove", ()),
        ("gold create", ("checked", "--call", call)),
        ("gold create", ("checked",)),
        ("gold create", ("two words",)),
        ("gold import", ("checked", str(people))),
        ("gold export", ("checked", "--out", str(people.parent / "the-calls-that-two-people-have-checked.jsonl"))),
        ("gold export", ("nothing@3", "--out", "x")),
        ("gold score", ("checked",)),
        ("gold score", ("checked", "--by", "bleu")),
        (
            "runs create",
            ("the-small-checkpoint.on-billing-questions", "--set", "asr.model=whisper-tiny.en", *workspace_option),
        ),
        (
            "runs create",
            ("the-small-checkpoint.on-billing-questions", "--set", "asr.mdel=whisper-tiny.en", *workspace_option),
        ),
        ("runs show", ("the-small-checkpoint.on-billing-questions", *workspace_option)),
        ("runs compare", ("the-small-checkpoint.on-billing-questions", *workspace_option)),
        ("runs promote", ("the-small-checkpoint.on-billing-questions", *workspace_option)),
        ("runs rollback", ("the-small-checkpoint.on-billing-questions", *workspace_option)),
        ("runs cancel", ("the-small-checkpoint.on-billing-questions", *workspace_option)),
        ("runs delete", ("the-small-checkpoint.on-billing-questions", *workspace_option)),
        ("gold delete", ("checked",)),
        ("voiceprints approve", (call,)),
        ("voiceprints assign", (call, filled.user)),
        ("voiceprints show", (call,)),
        ("voiceprints remove", (call,)),
        ("voiceprints restore", (call,)),
        ("voiceprints restore", (failed,)),
        (
            "webhooks create",
            ("https://127.0.0.1:18443/hooks/operations-center/switchboard?tenant=a", *workspace_option),
        ),
        ("webhooks create", ("http://crm.stadtwerke.example/hooks/switchboard", *workspace_option)),
        ("webhooks update", (filled.endpoint, "--description", "to the tickets of the operations center")),
        ("webhooks disable", (filled.endpoint,)),
        ("webhooks replay", (filled.endpoint,)),
        ("webhooks enable", (filled.endpoint,)),
        ("webhooks rotate-secret", (filled.endpoint,)),
        ("webhooks test", (filled.endpoint,)),
        ("webhooks reseal", ()),
        ("webhooks delete", (filled.endpoint,)),
    ]


@pytest.mark.slow
def test_every_sentence_fits_the_terminal(filled: Filled, tmp_path: Path) -> None:
    people = tmp_path / "the-people-whom-the-service-desk-of-the-public-utility-knows.csv"
    people.write_text("name,phone\nAna,12\nBo,+493012345\n")
    people.with_name("questions.toml").write_text(QUESTIONS.replace("third time", "terrible"))
    people.with_name("wrong.toml").write_text(
        QUESTIONS.replace("party", "partei").replace("[[trackers]]", "[[questions]]")
    )
    tried, wide = set(), []
    for command, arguments in commands(filled, people):
        done = CliRunner().invoke(app, [*command.split(), *arguments], env={"COLUMNS": str(WIDTH)})
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        assert done.output.strip(), command
        print(f"$ switchboard {command} {' '.join(arguments)}\n{done.output}")
        tried.add(command)
        wide += [f"{command}: {line}" for line in done.output.splitlines() if is_too_wide(line)]
    assert not wide, "\n".join(wide)
    exempt = {
        f"{entry.name} {name}".strip() for entry in COMMANDS for name in getattr(entry.load(), "commands", None) or [""]
    }
    assert exempt - tried - set(SHOWN) == OF_THE_SERVICE | OF_MODELS | DATA


def is_too_wide(line: str) -> bool:
    """Return whether a line could be wrapped; single paths and ids, commands and headers cannot."""
    return cell_len(line.rstrip()) > WIDTH and " " in re.sub(r"`[^`]*`\S*|-H '[^']*' \\", "", line).strip()
