import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import CliRunner, Result

from db.core.database import EVERY_WORKSPACE, Database
from db.core.tables import metadata
from db.workspace import keys
from serve_app.cli import app
from serve_app.cli.ui import database as state
from tests.integration.db.intake.test_submit_over_http import served

AUDIO = "https://pbx.example/1.wav"


@pytest.fixture(autouse=True)
def settings(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)


def switchboard(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def ok(*arguments: str) -> Any:
    """Return the JSON output of a command."""
    result = switchboard(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    result = switchboard(*arguments)
    assert result.exit_code != 0, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def answer(base: str, secret: str, **fields: Any) -> httpx.Response:
    body = {"callId": str(uuid4()), "from": "1", "to": "2", "startTime": "2026-11-20T09:30:00Z", **fields}
    return httpx.post(f"{base}/submit", json=body, headers={"Authorization": f"Bearer {secret}"}, timeout=60)


def test_a_workspace_is_renamed_and_moved_to_another_time_zone() -> None:
    created = ok("workspaces", "create", "acme", "--country", "DE", "--time-zone", "Europe/Berlin")
    changed = ok("workspaces", "update", "acme", "--time-zone", "America/New_York", "--country", "US")
    assert changed == created | {"timeZone": "America/New_York", "defaultCountry": "US"}
    assert ok("workspaces", "update", "ACME", "--name", "Acme Inc")["name"] == "Acme Inc"
    assert ok("workspaces", "list") == [changed | {"name": "Acme Inc"}]
    assert "not a time zone" in refused("workspaces", "update", "Acme Inc", "--time-zone", "Mars/Base")
    assert "Nothing to change" in refused("workspaces", "update", "Acme Inc")


def test_a_team_a_member_and_a_contact_are_changed_and_removed() -> None:
    ok("workspaces", "create", "acme", "--country", "DE")
    team = ok("teams", "create", "support")
    assert ok("teams", "update", "support", "--name", "care") == team | {"name": "care"}
    ok("members", "create", "Dana Wolf", "--team", "care", "--alias", "Dana")
    assert ok("members", "update", "dana wolf", "--name", "Dana Berg", "--alias", "D")["aliases"] == ["D"]
    updated = ok("members", "update", "Dana Berg", "--no-team", "--no-alias")
    assert (updated["teamId"], updated["aliases"], updated["name"]) == (None, [], "Dana Berg")
    assert ok("members", "update", "Dana Berg", "--team", "care")["teamId"] == team["teamId"]
    assert "Did you mean 'dana berg'?" in refused("members", "delete", "Dana Bergs")
    ok("members", "delete", updated["userId"])
    assert ok("members", "list") == []
    ann = ok("contacts", "create", "Ann Lee", "--phone", "030 123456", "--company", "Lee")
    changed = ok("contacts", "update", "ann lee", "--phone", "+14155550101", "--company", "")
    assert changed == ann | {"phone": "+14155550101", "company": None}
    assert "phone number is invalid" in refused("contacts", "update", "Ann Lee", "--phone", "call me")
    ok("contacts", "delete", ann["contactId"])
    assert ok("contacts", "list") == []
    ok("teams", "delete", "care")
    assert ok("teams", "list") == []


def in_use(base: str) -> tuple[str, str]:
    """Create a workspace with a team, a member, a contact, two keys, an endpoint and two calls."""
    ok("workspaces", "create", "acme")
    wide = ok("keys", "create", "--workspace", "acme")["secret"]
    secret = ok("keys", "create", "--workspace", "acme", "--team", "support")["secret"]
    (other, team) = sorted(ok("teams", "list"), key=lambda entry: str(entry["name"]))
    ok("members", "create", "Dana Wolf", "--team", "support")
    ok("contacts", "create", "Ann Lee")
    assert answer(base, secret, recordingUrl=AUDIO).status_code == 202
    assert answer(base, wide, teamId=other["teamId"], recordingUrl=AUDIO).status_code == 202
    return wide, team["teamId"]


def test_a_team_with_calls_is_removed_only_on_purpose(postgres_url: str) -> None:
    with served(postgres_url) as base:
        wide, team = in_use(base)
        message = refused("teams", "delete", "support")
        for part in ("1 call with all its results", "1 key", "1 member (not deleted)", "--yes"):
            assert part in message
        assert len(ok("calls", "list")) == 2
        deleted = ok("teams", "delete", "support", "--yes")
        assert (deleted["calls"], deleted["keys"]) == (1, 1)
        assert [entry["name"] for entry in ok("teams", "list")] == ["default"]
        assert [entry["teamId"] for entry in ok("members", "list")] == [None]
        assert len(ok("calls", "list")) == len(ok("keys", "list")) == 1
        assert answer(base, wide, teamId=team).status_code == 400


def test_a_workspace_is_removed_only_on_purpose_and_nothing_of_it_is_left(postgres_url: str) -> None:
    with served(postgres_url) as base:
        in_use(base)
    ok("workspaces", "create", "other")
    message = refused("workspaces", "delete", "acme")
    for part in ("2 calls with all their results", "2 teams", "1 contact", "2 keys", "1 member"):
        assert part in message
    assert len(ok("workspaces", "list")) == 2
    assert ok("workspaces", "delete", "acme", "--yes")["calls"] == 2
    assert [entry["name"] for entry in ok("workspaces", "list")] == ["other"]
    rows = state.run(counted)
    of_ledger = {"erasure_ledger": 3, "erasure_ledger_copies": 3}  # two calls and the workspace
    left = {name: count for name, count in rows.items() if count}
    assert left == {"workspaces": 1, "admin_changes": 1} | of_ledger


async def counted(database: Database) -> dict[str, int]:
    import sqlalchemy as sa

    async with database.transaction(EVERY_WORKSPACE) as connection:
        return {
            name: (await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one()
            for name, table in metadata.tables.items()
        }


def test_a_key_of_a_pbx_may_submit_and_no_more() -> None:
    assert ok("keys", "create")["key"]["scopes"] == ["submit"]
    assert ok("keys", "create", "--scope", "read", "--scope", "submit")["key"]["scopes"] == ["read", "submit"]


def test_a_rotated_key_has_two_secrets_for_a_day(postgres_url: str) -> None:
    created = ok("keys", "create", "--team", "support", "--name", "pbx", "--channels-swapped")
    with served(postgres_url) as base:
        done = ok("keys", "rotate", created["key"]["keyId"])
        assert [answer(base, secret).status_code for secret in (created["secret"], done["secret"])] == [202, 202]
        grace = datetime.fromisoformat(done["old"]["expiresAt"]) - datetime.now(UTC)
        assert timedelta(hours=23, minutes=50) < grace <= timedelta(hours=24)
        same = ("workspaceId", "teamId", "name", "scopes", "channelsSwapped")
        assert {name: done["key"][name] for name in same} == {name: created["key"][name] for name in same}
        at_once = ok("keys", "rotate", done["key"]["keyId"], "--now")
    with served(postgres_url) as base:  # another replica, which remembers no key
        secrets = (created["secret"], done["secret"], at_once["secret"])
        assert [answer(base, secret).status_code for secret in secrets] == [202, 401, 202]
    assert "No valid key" in refused("keys", "rotate", done["key"]["keyId"])


def test_an_expired_key_answers_401_and_the_log_says_why(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    created = ok("keys", "create", "--team", "support", "--name", "trial", "--expires", "90d")
    lifetime = datetime.fromisoformat(created["key"]["expiresAt"]) - datetime.now(UTC)
    assert timedelta(days=89) < lifetime <= timedelta(days=90)
    with served(postgres_url) as base:
        assert answer(base, created["secret"]).status_code == 202
        state.run(expire)
        assert answer(base, created["secret"]).status_code == 401, "the transaction of the submission looks again"
        assert answer(base, created["secret"]).status_code == 401
    assert f"key {created['key']['keyId']} (trial) expired at " in caplog.text
    assert created["secret"] not in caplog.text
    (listed,) = ok("keys", "list")
    assert listed["lastUsedAt"] is not None
    assert "expired 20" in switchboard("keys", "list").stdout
    assert "is in the past" in refused("keys", "create", "--expires", "2020-01-01")


async def expire(database: Database) -> None:
    import sqlalchemy as sa

    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("UPDATE api_keys SET expires_at = now() - interval '1 second'"))


def test_the_use_of_a_key_is_noted_once_a_minute() -> None:
    created = ok("keys", "create", "--team", "support")

    async def used(database: Database) -> list[Any]:
        moments = []
        for _ in range(2):
            assert await keys.find(database, created["secret"]) is not None
            moments.append((await keys.list_keys(database))[0].last_used_at)
        return moments

    assert ok("keys", "list")[0]["lastUsedAt"] is None
    first, second = state.run(used)
    assert first == second is not None


def test_channels_are_swapped_by_key_and_by_team() -> None:
    key = ok("keys", "create", "--team", "support")["key"]
    assert key["channelsSwapped"] is None
    assert ok("keys", "update", key["keyId"], "--channels-swapped")["channelsSwapped"] is True
    assert ok("keys", "update", key["keyId"], "--channels-as-sent")["channelsSwapped"] is False
    assert ok("keys", "update", key["keyId"], "--channels-as-team")["channelsSwapped"] is None
    assert "exclude each other" in refused("keys", "update", key["keyId"], "--channels-swapped", "--channels-as-team")
    assert ok("teams", "update", "support", "--channels-swapped")["channelsSwapped"] is True
    assert "swapped" in switchboard("teams", "list").stdout
    assert ok("teams", "create", "sales", "--channels-swapped")["channelsSwapped"] is True


def test_an_admin_key_is_made_renamed_and_every_change_is_listed() -> None:
    ok("workspaces", "create", "acme")
    created = ok("keys", "create", "--workspace", "acme", "--scope", "read", "--scope", "admin", "--name", "Ana")
    assert created["key"]["scopes"] == ["admin", "read"]
    assert ok("keys", "update", created["key"]["keyId"], "--name", "Ana [bold]")["name"] == "Ana [bold]"
    shown = switchboard("keys", "update", created["key"]["keyId"], "--channels-swapped").output
    assert "Ana [bold]" in shown and "swapped" in shown
    assert ok("keys", "update", created["key"]["keyId"], "--channels-as-team")["channelsSwapped"] is None
    assert "Nothing to change" in refused("keys", "update", created["key"]["keyId"])
    ok("keys", "revoke", created["key"]["keyId"])
    lines = ok("workspaces", "changes")
    latest, *_, first = [(entry["action"], entry["kind"]) for entry in lines]
    assert (first, latest) == (("created", "workspace"), ("revoked", "key"))
    assert created["secret"] not in json.dumps(lines)
    assert "revoked" in switchboard("workspaces", "changes").output


def test_the_budget_of_the_language_model_is_shown_and_changed() -> None:
    ok("workspaces", "create", "acme")
    nothing = {"requests": None, "tokens": None, "cost": None}
    shown = ok("workspaces", "budget")
    assert (shown["requests"], shown["cost"], shown["budget"], shown["reached"]) == (0, 0.0, nothing, [])
    set_ = ok(
        "workspaces", "budget", "--tokens", "2,000,000", "--cost", "4.5", "--requests", "0", "--workspace", "acme"
    )
    assert set_["budget"] == {"requests": 0, "tokens": 2_000_000, "cost": 4.5} and set_["reached"] == ["requests"]
    output = " ".join(switchboard("workspaces", "budget").output.split())
    assert "requests 0 of 0" in output and "tokens 0 of 2,000,000" in output and "cost 0.0000 of 4.5" in output
    assert "Reached: requests. Calls are analyzed by rules until the next day." in output
    assert ok("workspaces", "budget", "--requests", "none")["budget"] == set_["budget"] | {"requests": None}
    for wrong in ("-1", "many", "1.5", "nan", str(2**63)):
        assert "is not a limit" in refused("workspaces", "budget", f"--tokens={wrong}"), wrong
    assert "is not a limit" in refused("workspaces", "budget", "--cost=inf")


def test_a_budget_of_money_without_prices_is_said_to_count_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ok("workspaces", "create", "acme")
    without = "no prices are set"
    assert without not in switchboard("workspaces", "budget", "--tokens", "100").output
    assert "SWITCHBOARD_PROCESSING__MODEL_PRICES" in switchboard("workspaces", "budget", "--cost", "5").stderr
    for shown in (switchboard("workspaces", "budget"), switchboard("workspaces", "budget", "--json")):
        assert without in shown.stderr and without not in shown.stdout
    monkeypatch.setenv("SWITCHBOARD_PROCESSING__MODEL_PRICES", "0,0.6")
    assert without not in switchboard("workspaces", "budget", "--cost", "4").output
    monkeypatch.delenv("SWITCHBOARD_PROCESSING__MODEL_PRICES")
    assert without not in switchboard("workspaces", "budget", "--cost", "none").output
