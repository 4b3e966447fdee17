import json
import stat
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import jsonschema
import psycopg
import pytest
from typer.testing import CliRunner, Result

from db.core.database import Database, Reader
from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from db.records.complete import complete as complete_call
from db.records.views import CallRecord
from db.server import embedded, migrate
from db.workspace import access_log, keys
from pipeline.analysis import analyze
from pipeline.domain.call import Submission
from pipeline.errors import NotAudio
from serve_app import openapi
from serve_app.cli import app
from serve_app.cli.calls.submit import follow_calls
from serve_app.cli.ui import database as state
from serve_app.cli.ui.errors import CommandError
from serve_app.cli.ui.output import camel
from serve_app.cli.ui.this_machine import LocalService, key_and_team
from serve_app.service import run_folder
from serve_app.settings import Settings
from tests.support.calls_by_hand import call as call_by_hand

runner = CliRunner()
Work = Callable[[Database], Awaitable[Any]]


@pytest.fixture(autouse=True)
def settings(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)


def switchboard(*arguments: str) -> Result:
    return runner.invoke(app, list(arguments), env={"COLUMNS": "200"})


def ok(*arguments: str) -> Any:
    """Return the JSON output of a command."""
    result = switchboard(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def with_database(work: Work) -> Any:
    return state.run(work)


def make_key() -> tuple[str, dict[str, Any]]:
    created = ok("keys", "create", "--workspace", "acme", "--team", "support")
    return created["secret"], created["key"]


def submit(secret: str, call_id: UUID) -> None:
    async def work(database: Database) -> None:
        sender = await keys.find(database, secret)
        assert sender is not None
        submission = Submission(
            call_id,
            "+49301234567",
            "+14155550123",
            datetime(2026, 11, 2, 9, 30, tzinfo=UTC),
            "https://pbx.example/1.wav",
        )
        await GroupCommitter(database).submit(sender, submission, {})

    with_database(work)


def end(call_id: UUID, failed: bool = False) -> None:
    """Complete the call with a small transcript, or fail it."""

    async def work(database: Database) -> None:
        for fetch in await jobs.claim_fetches(database, "w", 100, 60, 100, 100):
            await jobs.fetched(database, fetch)
        (lease,) = [claim for claim in await jobs.claim(database, "w", 1, 60) if claim.call.call_id == call_id]
        if failed:
            await jobs.fail(database, lease, NotAudio())
            return
        material = call_by_hand(("rep", "I will send you a router tomorrow."), ("customer", "Thank you, wonderful."))
        assert await complete_call(database, lease, material.transcript, analyze(material), None, ["careful"]) is None

    with_database(work)


def test_a_workspace_a_team_and_a_key_are_made_and_listed() -> None:
    workspace = ok("workspaces", "create", "acme", "--country", "DE", "--time-zone", "Europe/Berlin")
    team = ok("teams", "create", "support")  # the only workspace need not be named
    assert ok("workspaces", "list") == [workspace]
    assert ok("teams", "list", "--workspace", "ACME") == [team]
    created = ok("keys", "create", "--team", team["teamId"], "--scope", "submit", "--name", "pbx")
    assert created["key"]["teamId"] == team["teamId"]
    assert created["key"]["scopes"] == ["submit"]
    assert ok("keys", "list", "--workspace", workspace["workspaceId"]) == [created["key"]]


def test_the_first_key_makes_its_workspace_and_a_team_and_its_curl_line_names_it() -> None:
    result = switchboard("keys", "create")
    assert result.exit_code == 0, result.output
    assert "Created workspace 'default'." in result.stderr
    (team,) = ok("teams", "list")
    assert "curl -i http://127.0.0.1:8000/submit" in result.stdout
    assert team["teamId"] in result.stdout


def test_a_secret_is_shown_once_and_works_until_it_is_revoked() -> None:
    secret, key = make_key()
    assert with_database(lambda database: keys.find(database, secret)) is not None
    assert secret not in switchboard("keys", "list").output
    assert ok("keys", "revoke", key["keyId"])["revoked"] is True
    assert with_database(lambda database: keys.find(database, secret)) is None
    again = switchboard("keys", "revoke", key["keyId"])
    assert again.exit_code == 1
    assert ok("keys", "list")[0]["revokedAt"] is not None


def test_a_name_that_looks_misspelt_makes_nothing() -> None:
    make_key()
    result = switchboard("keys", "create", "--workspace", "acmee")
    assert result.exit_code == 1
    assert "Did you mean 'acme'?" in result.output
    assert len(ok("workspaces", "list")) == 1


def test_with_several_workspaces_one_must_be_named() -> None:
    ok("workspaces", "create", "acme")
    ok("workspaces", "create", "umbrella")
    result = switchboard("teams", "create", "support")
    assert result.exit_code == 2
    assert "'acme', 'umbrella'" in result.output
    ids = [ok("workspaces", "create", "twin")["workspaceId"] for _ in range(2)]
    for workspace in ("twin", "initech"):
        result = switchboard("teams", "create", "support", "--workspace", workspace)
        assert all(id_ in "".join(result.output.split()) for id_ in ids), "two of the same name have their ids"


def test_a_workspaces_own_terms_are_added_replaced_and_removed() -> None:
    created = ok("workspaces", "create", "acme", "--term", "Metro  Cable")
    assert created["terms"] == ["Metro Cable"]
    assert ok("workspaces", "terms", "Gigabox", "Metro Cable")["terms"] == ["Metro Cable", "Gigabox"]
    assert ok("workspaces", "terms", "gigabox", "--remove")["terms"] == ["Metro Cable"]
    assert switchboard("workspaces", "terms").stdout == "Metro Cable\n"
    assert ok("workspaces", "terms", "Alpha", "--replace") == ok("workspaces", "list")[0]
    assert ok("workspaces", "terms", "--replace")["terms"] == []


def test_a_workspace_that_asks_keeps_which_keys_were_pressed_and_may_have_them_removed() -> None:
    ok("workspaces", "create", "acme")
    assert "only the number of pressed keys" in switchboard("workspaces", "digits").stdout
    assert ok("workspaces", "digits", "--keep")["keepDigits"] is True
    assert ok("workspaces", "digits") == ok("workspaces", "list")[0]
    assert ok("workspaces", "digits", "--drop")["keepDigits"] is False


def test_a_workspace_has_hosts_of_its_own() -> None:
    ok("workspaces", "create", "acme")
    assert ok("workspaces", "hosts")["allowedHosts"] == []
    ok("workspaces", "hosts", "pbx.local:8088", "10.1.0.0/16")
    assert ok("workspaces", "hosts", "10.1.0.0/16", "--remove")["allowedHosts"] == ["pbx.local:8088"]
    assert "pbx.local:8088" in switchboard("workspaces", "hosts").stdout
    refused = switchboard("workspaces", "hosts", "http://pbx.local/")
    assert refused.exit_code != 0
    assert "not a host name" in refused.output


def test_terms_that_are_too_long_or_too_many_are_refused_and_change_nothing() -> None:
    ok("workspaces", "create", "acme", "--term", "Gigabox")
    for arguments in (("x" * 61,), ("--remove",), [f"term {at}" for at in range(500)]):
        result = switchboard("workspaces", "terms", *arguments)
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
    assert ok("workspaces", "terms")["terms"] == ["Gigabox"]


def test_members_and_contacts_are_kept_and_an_import_may_be_repeated(tmp_path: Path) -> None:
    ok("workspaces", "create", "acme")
    user = str(uuid4())
    assert ok("members", "create", "Dana Wolf", "--user", user, "--alias", "Dana")["userId"] == user
    assert [member["aliases"] for member in ok("members", "list")] == [["Dana"]]
    file = tmp_path / "people.csv"
    file.write_text("Name;Company;Phone\nAna Costa;Costa;+1 415 555 0100\nBo Lind;;\n", encoding="utf-8")
    assert ok("contacts", "import", str(file)) == {"added": 2, "skipped": 0, "refused": []}
    assert ok("contacts", "import", str(file)) == {"added": 0, "skipped": 2, "refused": []}
    assert {contact["name"]: contact["phone"] for contact in ok("contacts", "list")} == {
        "Ana Costa": "+14155550100",
        "Bo Lind": None,
    }


def test_a_completed_call_is_listed_shown_and_exported() -> None:
    secret, _ = make_key()
    call_id = uuid4()
    submit(secret, call_id)
    assert [(call["callId"], call["status"]) for call in ok("calls", "list")] == [(str(call_id), "transcribing")]
    end(call_id)
    shown = switchboard("calls", "show", str(call_id), "--workspace", "acme")
    assert shown.exit_code == 0, shown.output
    for part in ("completed", "I will send you a router tomorrow.", "rep, commitment", "careful", "submitted"):
        assert part in shown.stdout
    assert ok("calls", "show", str(call_id))["transcript"]["turns"][0]["speaker"] == "rep"
    assert switchboard("calls", "export", str(call_id)).stdout.startswith("[00:00:00] rep: I will send")
    exported = switchboard("calls", "export", str(call_id), "--format", "json").stdout
    for record in (ok("calls", "show", str(call_id)), json.loads(exported)):
        jsonschema.validate(record, {**openapi.api_document(), "$ref": "#/components/schemas/CallRecord"})
        assert set(record) - {"expected"} == {camel(name) for name in CallRecord.__dataclass_fields__}
        assert "talkRatio" in record["findings"][0]["value"]["parties"]["rep"]
    assert ok("calls", "list", "--status", "failed") == []


def test_who_read_a_call_is_listed_by_the_name_of_the_key_or_its_id_once_the_key_is_gone() -> None:
    secret, _ = make_key()
    call_id, deleted = uuid4(), uuid4()
    submit(secret, call_id)
    assert ok("calls", "reads", str(call_id)) == []
    assert f"No reads of call {call_id}." in switchboard("calls", "reads", str(call_id)).output

    async def read(database: Database) -> None:
        sender = await keys.find(database, secret)
        assert sender is not None
        reader = Reader(sender.workspace_id)
        await access_log.note(database, reader, sender.key_id, [call_id], "record", request_id="r-1")
        await access_log.note(database, reader, deleted, [call_id], "audio", "channel 0")

    state.run(read)
    listened, seen = ok("calls", "reads", str(call_id), "--workspace", "acme")
    assert (listened["what"], listened["detail"], listened["name"], listened["keyId"]) == (
        "audio",
        "channel 0",
        None,
        str(deleted),
    )
    assert (seen["what"], seen["name"], seen["requestId"]) == ("record", ok("keys", "list")[0]["name"], "r-1")
    shown = switchboard("calls", "reads", str(call_id)).stdout
    assert seen["name"] in shown
    assert str(deleted) in shown


def test_a_failed_call_and_its_job_say_why() -> None:
    secret, _ = make_key()
    call_id = uuid4()
    submit(secret, call_id)
    assert ok("jobs", "list", "--failed") == []
    end(call_id, failed=True)
    assert "not_audio" in switchboard("calls", "list", "--status", "failed").stdout
    assert "will not help" in switchboard("calls", "show", str(call_id)).stdout
    (job,) = ok("jobs", "list", "--failed")
    assert job["error"]["code"] == "not_audio"
    assert switchboard("calls", "export", str(call_id)).exit_code == 1


def test_an_unknown_call_is_said_to_be_unknown() -> None:
    result = switchboard("calls", "show", str(uuid4()))
    assert result.exit_code == 1
    assert "No call" in result.output


def test_following_ends_when_every_call_has_ended() -> None:
    secret, _ = make_key()
    first, second = uuid4(), uuid4()
    submit(secret, first)
    end(first)
    submit(secret, second)
    with pytest.raises(CommandError, match="some calls have not finished"):
        follow_calls([first, second], secret, timeout=0.1)
    end(second, failed=True)
    assert [str(record.call.state) for record in follow_calls([first, second], secret, 60)] == ["completed", "failed"]


def test_a_database_without_tables_is_migrated_by_the_first_command_that_writes_and_by_none_that_reads(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", empty_postgres_url)
    refused = switchboard("workspaces", "list")
    assert refused.exit_code == 3
    assert "switchboard migrate" in refused.output
    ok("workspaces", "create", "acme")
    assert [workspace["name"] for workspace in ok("workspaces", "list")] == ["acme"]


READING = (
    *(("calls", "list"), ("calls", "show", str(UUID(int=1))), ("calls", "export", str(UUID(int=1))), ("queue",)),
    *(("jobs", "list"), ("jobs", "failed"), ("jobs", "show", str(UUID(int=1)))),
    *(("keys", "list"), ("workspaces", "list"), ("teams", "list"), ("members", "list"), ("contacts", "list")),
    *(("workspaces", name) for name in ("terms", "hosts", "digits", "priority")),
    *(
        ("webhooks", "list"),
        ("webhooks", "deliveries"),
        ("webhooks", "show", str(UUID(int=1))),
        ("credentials", "list"),
    ),
    *(("voiceprints", "list"), ("status",)),
)


def test_a_command_that_reads_makes_no_database_and_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.delenv("SWITCHBOARD_DATABASE_URL")
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(run_folder, "running", list)
    for command in READING:
        with subtests.test(" ".join(command)):
            result = switchboard(*command)
            assert result.exit_code == 3, result.output
            assert "`switchboard up`" in result.output
            assert not (tmp_path / "data").exists()


def test_a_command_that_writes_starts_the_database_and_says_so_and_down_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWITCHBOARD_DATABASE_URL")
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(run_folder, "running", list)
    try:
        result = switchboard("workspaces", "create", "acme")
        assert result.exit_code == 0, result.output
        assert f"Starting the embedded PostgreSQL in {tmp_path}" in result.stderr
        assert "Starting" not in switchboard("teams", "create", "support").stderr
        result = switchboard("status", "--json")
        assert result.exit_code == 3
        assert json.loads(result.stdout)["database"].startswith("embedded PostgreSQL, process")
        stopped = switchboard("down")
        assert stopped.stdout == f"Stopped the embedded PostgreSQL in {tmp_path}.\n"
        assert embedded.postmaster(tmp_path) is None
        assert switchboard("down").stdout == f"Nothing runs in {tmp_path}.\n"
        assert switchboard("workspaces", "list").exit_code == 3
        assert embedded.postmaster(tmp_path) is None
    finally:
        embedded.stop(tmp_path)


def test_no_second_database_is_made_beside_that_of_a_running_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, here = tmp_path / "theirs", tmp_path / "here"
    service = run_folder.Running(tmp_path, {"pid": 1, "url": "http://127.0.0.1:8000", "data_dir": str(theirs)})
    monkeypatch.setattr(run_folder, "running", lambda: [service])
    monkeypatch.delenv("SWITCHBOARD_DATABASE_URL")
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(here))
    embedded.start(theirs)
    try:
        for command in (("keys", "create"), ("calls", "list")):
            result = switchboard(*command)
            assert result.exit_code == 3, result.output
            assert f"http://127.0.0.1:8000 keeps its data in {theirs}" in result.output
            assert f"SWITCHBOARD_DATA_DIR={theirs}" in result.output
        assert not here.exists()
    finally:
        embedded.stop(theirs)


def test_waiting_needs_a_database_that_runs_and_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWITCHBOARD_DATABASE_URL")
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path))
    with pytest.raises(CommandError) as raised:
        follow_calls([uuid4()], "sb_x", 1)
    assert raised.value.explanation.exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_this_machines_own_key_is_made_once_with_a_workspace_and_replaced_once_it_is_revoked(
    postgres_url: str, tmp_path: Path
) -> None:
    service = LocalService({"url": "http://127.0.0.1:8000"}, Settings(data_dir=tmp_path, database_url=postgres_url))
    key, team = key_and_team(service, None, None)
    (only,) = ok("teams", "list")
    assert team == only["teamId"]
    assert key_and_team(service, None, "default") == (key, team)
    assert stat.S_IMODE((tmp_path / "submit.key").stat().st_mode) == 0o600
    (listed,) = ok("keys", "list")
    assert listed["scopes"] == ["submit"]
    ok("keys", "revoke", listed["keyId"])
    again, _ = key_and_team(service, None, None)
    assert again != key
    ok("teams", "create", "sales")
    with pytest.raises(CommandError, match="2 teams"):
        key_and_team(service, again, None)
    (tmp_path / "submit.key").unlink()
    ok("workspaces", "create", "umbrella")
    with pytest.raises(CommandError, match="several workspaces"):
        key_and_team(service, None, None)


def test_migrate_brings_an_empty_database_up_to_date_and_may_be_repeated(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", empty_postgres_url)
    for _ in range(2):
        result = switchboard("migrate")
        assert result.exit_code == 0, result.output
        assert result.stdout == "The database is up to date (SWITCHBOARD_DATABASE_URL).\n"
    assert migrate.is_current(empty_postgres_url)


def test_migrate_says_what_to_do_where_no_database_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://127.0.0.1:1/calls")
    result = switchboard("migrate")
    assert result.exit_code == 3
    assert "Check SWITCHBOARD_DATABASE_URL" in result.output


def test_migrate_leaves_the_database_of_a_newer_version_alone(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9999'")
        connection.execute("CREATE OR REPLACE FUNCTION serves_from() RETURNS text LANGUAGE sql AS $$ SELECT 'v9000' $$")
    result = switchboard("migrate")
    assert result.exit_code == 3
    assert "another version of Switchboard" in result.output


@pytest.mark.cases(2)
@pytest.mark.parametrize("command", [("migrate",), ("doctor",), ("calls", "list"), ("teams", "create", "sales")])
def test_commands_refuse_the_database_of_a_pre_release_version(postgres_url: str, command: tuple[str, ...]) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0135'")
    result = switchboard(*command)
    assert result.exit_code != 0
    output = " ".join(result.output.split())
    assert "created by a pre-release version of Switchboard (schema 0135), which cannot be upgraded" in output
    assert "Use an empty database" in output
