import json
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from typer.testing import CliRunner, Result

from db.core.database import EVERY_WORKSPACE, Database
from db.events import endpoints
from db.intake.group_commit import GroupCommitter
from db.secrets import call_keys
from db.secrets.encryption import Sealer
from db.workspace import keys
from pipeline.domain.call import Submission
from serve_app.cli import app
from serve_app.cli.doctor import service as checks_service
from serve_app.cli.ui import database as state
from serve_app.settings import Settings
from tests.paths import ROOT

runner = CliRunner()
OLD, NEW = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
URL = "https://pbx.example/1.wav?id=4711&pass=hush5f1c"


@pytest.fixture(autouse=True)
def settings(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)


def switchboard(*arguments: str) -> Result:
    return runner.invoke(app, list(arguments), env={"COLUMNS": "200"})


def use(monkeypatch: pytest.MonkeyPatch, *secrets: str) -> None:
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", json.dumps(secrets))


def submit(workspace: str = "acme") -> UUID:
    created = json.loads(switchboard("keys", "create", "--workspace", workspace, "--team", "support", "--json").stdout)
    call_id = uuid4()

    async def work(database: Database) -> None:
        sender = await keys.find(database, created["secret"])
        assert sender is not None
        sent = Submission(call_id, "1", "2", datetime(2026, 11, 2, tzinfo=UTC), URL)
        await GroupCommitter(database, urls=Settings().url_sealer()).submit(sender, sent, {"recordingUrl": URL})

    state.run(work)
    return call_id


def seal_the_call_and_add_a_webhook(call_id: UUID) -> None:
    async def work(database: Database) -> None:
        async with database.transaction(EVERY_WORKSPACE) as connection:
            query = sa.text("SELECT id, workspace_id FROM calls WHERE call_id = :call_id")
            call = (await connection.execute(query, {"call_id": call_id})).one()
            assert await call_keys.key_for_writing(connection, call.id, call.workspace_id)
        secret = Settings().sealer().seal("hush5f1c")
        await endpoints.add(database, call.workspace_id, "https://crm.example/hook", secret, None, (), None, "")

    state.run(work)


def doctor() -> list[Any]:
    return [(check.level, check.found) for check in checks_service.stale_secrets(Settings())]


def test_resealing_after_a_key_was_set_and_after_another_was_put_first(monkeypatch: pytest.MonkeyPatch) -> None:
    submit()
    assert doctor() == [], "without a key the check of secrets says it"
    refused = switchboard("calls", "reseal")
    assert refused.exit_code == 1
    for secrets in ((OLD,), (NEW, OLD)):
        use(monkeypatch, *secrets)
        assert [level for level, _ in doctor()] == ["warn"]
        assert json.loads(switchboard("calls", "reseal", "--json").stdout) == {
            "resealed": 2,
            "unopened": 0,
            "dataKeys": 0,
            "unopenedDataKeys": 0,
        }
        assert doctor() == [("good", "all sealed with the first key")]
    use(monkeypatch, NEW)
    assert json.loads(switchboard("calls", "reseal", "--json").stdout) == {
        "resealed": 0,
        "unopened": 0,
        "dataKeys": 0,
        "unopenedDataKeys": 0,
    }


STORED_TEXTS = """
SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables USING (table_name)
WHERE columns.table_schema = 'public' AND table_type = 'BASE TABLE' AND data_type IN ('text', 'jsonb')
"""


def sealed_values() -> dict[str, list[str]]:
    """Return every sealed secret in the database, by table and column."""

    async def work(database: Database) -> dict[str, list[str]]:
        values = {}
        async with database.transaction(EVERY_WORKSPACE) as connection:
            for table, column in (await connection.execute(sa.text(STORED_TEXTS))).all():
                query = f"SELECT {column} FROM {table} WHERE {column}::text LIKE 'fernet:%'"
                if rows := (await connection.execute(sa.text(query))).scalars().all():
                    values[f"{table}.{column}"] = list(rows)
        return values

    return state.run(work)


def test_a_key_is_replaced_in_all_workspaces_by_the_documented_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, OLD)
    monkeypatch.setenv("TOKEN", "hush5f1c")
    monkeypatch.setenv("SWITCHBOARD_SEAL_CALLS", "true")
    for workspace in ("acme", "birch"):
        call_id = submit(workspace)
        seal_the_call_and_add_a_webhook(call_id)
        add = ("credentials", "add", "pbx.example", "--bearer", "--secret-env", "TOKEN", "--workspace", workspace)
        assert switchboard(*add).exit_code == 0
    before = sealed_values()
    assert {name: len(values) for name, values in before.items()} == {
        "host_credentials.secret": 2,
        "webhook_endpoints.secret": 2,
        "workspaces.data_key": 2,
    }
    use(monkeypatch, NEW, OLD)
    page = (ROOT / "docs/operating.md").read_text()
    groups = re.findall(r"`switchboard (\w+) reseal`", page[page.index("To replace a key:") :].partition("\n3.")[0])
    for group in groups:
        (check,) = checks_service.stale_secrets(Settings())
        assert check.level == "warn" and f"switchboard {group} reseal" in check.advice
        done = switchboard(group, "reseal")
        assert done.exit_code == 0, done.output
    assert doctor() == [("good", "all sealed with the first key")]
    newest = Sealer([NEW])
    assert all(newest.open(value) for values in sealed_values().values() for value in values)


def test_a_secret_whose_key_is_gone_stays_and_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hush5f1c")
    switchboard("workspaces", "create", "acme")
    for key, host in ((OLD, "a.example"), (NEW, "b.example")):
        use(monkeypatch, key)
        switchboard("credentials", "add", host, "--bearer", "--secret-env", "TOKEN", "--workspace", "acme")
    lost, other = sealed_values()["host_credentials.secret"]
    newest = Fernet.generate_key().decode()
    use(monkeypatch, newest, NEW)
    done = switchboard("credentials", "reseal")
    assert done.exit_code == 1 and "1 more are sealed with a key" in done.output
    stored = sealed_values()["host_credentials.secret"]
    assert lost in stored and other not in stored
    assert [Sealer([newest]).is_fresh(secret) for secret in stored if secret != lost] == [True]


def test_urls_whose_key_is_gone_are_counted_and_end_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, OLD)
    submit()
    use(monkeypatch, NEW)
    result = switchboard("calls", "reseal")
    assert result.exit_code == 1
    assert "2 more are sealed with a key" in " ".join(str(result.exception).split()) + result.output
    assert [level for level, _ in doctor()] == ["warn"]


@pytest.mark.parametrize("secrets", [(), (OLD,)])
def test_no_command_shows_what_opens_the_door(monkeypatch: pytest.MonkeyPatch, secrets: tuple[str, ...]) -> None:
    use(monkeypatch, *secrets)
    call_id = str(submit())
    for command in (("calls", "show", call_id), ("calls", "export", call_id, "--format", "json"), ("jobs", "list")):
        output = switchboard(*command).output
        assert "hush5f1c" not in output and "siv:" not in output
    record = json.loads(switchboard("calls", "show", call_id, "--json").stdout)
    assert record["recordingUrl"] == "https://pbx.example/1.wav?..."
