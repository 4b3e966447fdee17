"""What commands say that change something, and what they refuse, can be read on a narrow terminal."""

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
OF_THE_SERVICE = {"demo", "up", "status", "down", "doctor"}  # they need one, or say how it stands: tests/journeys
OF_MODELS = {
    "process",
    "backfill",
    "checkpoints fetch",
    "voiceprints calibrate",
}  # they need models, and say so: likewise
DATA = {"calls export", "webhooks schema"}  # JSON, for programs


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
    """Commands with arguments that they take, and with some that they refuse, in an order that works."""
    key = str(json.loads(CliRunner().invoke(app, ["keys", "list", "--json"]).stdout)[0]["keyId"])
    call, failed, waiting = str(filled.completed), str(filled.failed), str(filled.waiting)
    named = ("--workspace", WORKSPACE)
    return [
        ("migrate", ()),
        ("plan", ("--calls-per-day", "250000", "--minutes", "3.5", "--mono-share", "0.25")),
        ("backup create", (str(people.parent / "backups"),)),
        ("backup verify", (str(people.parent / "backups"),)),
        ("restore", (str(people.parent / "backups"),)),
        ("submit", ("call.wav", "--url", "http://127.0.0.1:9/submit")),
        ("checkpoints verify", ("--folder", str(people.parent))),
        ("calls reseal", ()),
        ("calls show", (key,)),
        ("calls answer", (call, "anger", "said", "--comment", "Das war im letzten Satz zu hören", *named)),
        ("calls answer", (key, "anger", "said", "--comment", "Das war im letzten Satz zu hören", *named)),
        ("calls undo", (call, key, *named)),
        ("jobs retry", ("--all", "--dry-run")),
        ("jobs retry", ("--waiting", "--dry-run")),
        ("jobs retry", (waiting,)),
        ("jobs retry", (failed,)),
        ("jobs retry", (key,)),
        ("jobs retry", ()),
        ("keys create", (*named, "--team", TEAM, "--name", "Telefonanlage Zentrale, Serverraum 2", "--expires", "30d")),
        ("keys update", (key, "--channels-swapped")),
        ("keys rotate", (key,)),
        ("keys revoke", (key,)),
        ("keys revoke", (key,)),
        ("console link", (*named, "--team", TEAM, "--for", "Johanna Katharina Freifrau von Hohenstein")),
        ("console sessions", ()),
        ("console revoke", (key,)),
        ("credentials add", (RECORDING.split("/")[2], "--user", "recordings", "--secret-env", "TOKEN")),
        ("credentials reseal", ()),
        ("credentials remove", (RECORDING.split("/")[2],)),
        ("credentials remove", (RECORDING.split("/")[2],)),
        ("workspaces create", ("Stadtwerke Unterföhring Netzbetrieb und Einspeisung", "--country", "DE")),
        ("workspaces create", ("acme", "--country", "Germany")),
        ("workspaces update", (WORKSPACE, "--time-zone", "America/Argentina/ComodRivadavia")),
        ("workspaces budget", ("--requests", "200", "--tokens", "2000000", "--cost", "none", *named)),
        ("workspaces digits", ("--keep", *named)),
        ("workspaces hosts", ("pbx local", *named)),
        ("workspaces priority", ("4", "--team", TEAM, *named)),
        ("workspaces summary", ("reason:1", "next_step=What has to happen next", "open", *named)),
        ("workspaces summary", ("why", *named)),
        ("workspaces summary", ("--default", "--team", TEAM, *named)),
        ("workspaces delete", (WORKSPACE,)),
        ("questions try", (str(people.with_name("questions.toml")), "--call", call, *named)),
        ("questions try", (str(people.with_name("questions.toml")), "--call", failed, *named)),
        ("questions set", (str(people.with_name("questions.toml")), *named)),
        ("questions set", (str(people.with_name("wrong.toml")), *named)),
        ("questions scores", ("anger", *named)),
        ("questions scores", ("nothing", *named)),
        ("questions delete", ("anger", *named)),
        ("questions delete", ("anger", *named)),
        ("teams create", (f"{TEAM} am Wochenende", *named)),
        ("teams update", (TEAM, "--channels-swapped", *named)),
        ("teams delete", (TEAM, *named)),
        ("members create", (f"{MEMBER}-Lindenberg", "--team", TEAM, *named)),
        ("members update", (MEMBER, "--alias", "Maxi", "--alias", "Frau Schwarzenberger", *named)),
        ("members delete", (f"{MEMBER}-Lindenberg", *named)),
        ("contacts create", ("Johanna Katharina Freifrau von Hohenstein", "--phone", "12", *named)),
        ("contacts update", ("Bo Lind", "--company", f"{WORKSPACE} GmbH", "--email", "bo@lind.example", *named)),
        ("contacts import", (str(people), *named)),
        ("contacts delete", ("Bo Lind", *named)),
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
        ("runs create", ("the-small-checkpoint.on-billing-questions", "--set", "asr.model=whisper-tiny.en", *named)),
        ("runs create", ("the-small-checkpoint.on-billing-questions", "--set", "asr.mdel=whisper-tiny.en", *named)),
        ("runs show", ("the-small-checkpoint.on-billing-questions", *named)),
        ("runs compare", ("the-small-checkpoint.on-billing-questions", *named)),
        ("runs promote", ("the-small-checkpoint.on-billing-questions", *named)),
        ("runs rollback", ("the-small-checkpoint.on-billing-questions", *named)),
        ("runs cancel", ("the-small-checkpoint.on-billing-questions", *named)),
        ("runs delete", ("the-small-checkpoint.on-billing-questions", *named)),
        ("gold delete", ("checked",)),
        ("voiceprints approve", (call,)),
        ("voiceprints assign", (call, filled.user)),
        ("voiceprints show", (call,)),
        ("voiceprints remove", (call,)),
        ("voiceprints restore", (call,)),
        ("voiceprints restore", (failed,)),
        ("webhooks create", ("https://127.0.0.1:18443/hooks/operations-center/switchboard?tenant=a", *named)),
        ("webhooks create", ("http://crm.stadtwerke.example/hooks/switchboard", *named)),
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
    known = {
        f"{entry.name} {name}".strip() for entry in COMMANDS for name in getattr(entry.load(), "commands", None) or [""]
    }
    assert known - tried - set(SHOWN) == OF_THE_SERVICE | OF_MODELS | DATA


def is_too_wide(line: str) -> bool:
    """Whether something could have been wrapped: a lone path or id, a command and a header are left whole."""
    return cell_len(line.rstrip()) > WIDTH and " " in re.sub(r"`[^`]*`\S*|-H '[^']*' \\", "", line).strip()
