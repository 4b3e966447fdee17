import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner, Result

from db.core.database import Database
from db.intake.group_commit import GroupCommitter
from db.workspace import keys
from pipeline.domain.call import Submission
from serve_app.cli import app
from serve_app.cli.doctor import service as checks_service
from serve_app.cli.ui import database as state
from serve_app.settings import Settings

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


def submit() -> UUID:
    created = json.loads(switchboard("keys", "create", "--workspace", "acme", "--team", "support", "--json").stdout)
    call_id = uuid4()

    async def work(database: Database) -> None:
        sender = await keys.find(database, created["secret"])
        assert sender is not None
        sent = Submission(call_id, "1", "2", datetime(2026, 11, 2, tzinfo=UTC), URL)
        await GroupCommitter(database, urls=Settings().url_sealer()).submit(sender, sent, {"recordingUrl": URL})

    state.run(work)
    return call_id


def doctor() -> list[Any]:
    return [(check.level, check.found) for check in checks_service.recording_urls(Settings())]


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
