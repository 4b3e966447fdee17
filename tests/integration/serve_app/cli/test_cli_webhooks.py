import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from standardwebhooks.webhooks import Webhook
from typer.testing import CliRunner, Result

from db.core.database import EVERY_WORKSPACE, Database
from db.events import outbox
from db.events.outbox import Attempt, DeliveryVerdict
from db.intake.group_commit import GroupCommitter
from db.workspace import keys
from pipeline.domain.call import Submission
from serve_app.cli import app
from serve_app.cli.ui import database as state
from serve_app.settings import Settings
from serve_app.webhooks import payload
from tests.receiver import Receiver, receiving

runner = CliRunner()


@pytest.fixture(autouse=True)
def settings(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    monkeypatch.setenv("SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS", '["127.0.0.1"]')


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Listen in a separate thread, since commands run event loops."""
    started, stop, receivers = threading.Event(), threading.Event(), []

    async def listen() -> None:
        async with receiving() as server:
            receivers.append(server)
            started.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    assert started.wait(60)
    yield receivers[0]
    stop.set()
    thread.join(10)


def switchboard(*arguments: str) -> Result:
    return runner.invoke(app, ["webhooks", *arguments], env={"COLUMNS": "400"})


def ok(*arguments: str) -> Any:
    result = switchboard(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def with_database(work: Callable[[Database], Awaitable[Any]]) -> Any:
    return state.run(work)


def workspace() -> str:
    created = runner.invoke(app, ["keys", "create", "--workspace", "acme", "--team", "support", "--json"])
    return str(json.loads(created.stdout)["secret"])


def submit(secret: str) -> UUID:
    call_id = uuid4()

    async def work(database: Database) -> None:
        sender = await keys.find(database, secret)
        assert sender is not None
        submission = Submission(call_id, "+49301234567", "+14155550123", datetime(2026, 11, 2, 9, 30, tzinfo=UTC))
        await GroupCommitter(database).submit(sender, submission, {})

    with_database(work)
    return call_id


def attempt(verdict: DeliveryVerdict, status: int = 500) -> None:
    """Record all due deliveries with this outcome."""

    async def work(database: Database) -> None:
        for delivery in await outbox.claim(database, 10, 10, {}, 30.0):
            attempt = Attempt(datetime.now(UTC), 0.2, status, f"status {status}", "out of order")
            await outbox.note(database, delivery, attempt, verdict, retry_in=3600)

    with_database(work)


def test_an_endpoint_is_added_tested_and_shown_and_its_secret_only_once(receiver: Receiver) -> None:
    workspace()
    added = ok("create", receiver.url, "--event", "call.completed", "--include", "record", "--team", "support")
    secret, endpoint_id = added["secret"], added["endpoint"]["endpointId"]
    assert added["endpoint"]["events"] == ["call.completed"]
    tested = ok("test", endpoint_id)
    assert tested["delivered"] and tested["status"] == 204
    (seen,) = receiver.seen
    assert Webhook(secret).verify(seen.body, seen.headers)["type"] == "webhook.test"
    payload.adapter().validate_json(seen.body)
    assert tested["webhookId"] == seen.message_id
    shown = switchboard("show", endpoint_id).output + switchboard("list").output + json.dumps(ok("list"))
    assert secret not in shown and "secret" not in shown
    assert receiver.url in shown


def test_the_secret_is_sealed_in_the_database(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", '["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="]')
    workspace()
    added = ok("create", receiver.url)

    async def stored(database: Database) -> str:
        async with database.transaction(EVERY_WORKSPACE) as connection:
            return str((await connection.execute(sa.text("SELECT secret FROM webhook_endpoints"))).scalar_one())

    sealed_secrets = with_database(stored)
    assert sealed_secrets.startswith("fernet:")
    assert added["secret"] not in sealed_secrets
    assert Settings().sealer().open(sealed_secrets) == added["secret"]
    rotated = ok("rotate-secret", added["endpoint"]["endpointId"], "--overlap-hours", "1")
    ok("test", added["endpoint"]["endpointId"])
    for secret in (added["secret"], rotated["secret"]):
        Webhook(secret).verify(receiver.seen[0].body, receiver.seen[0].headers)
    sealed = with_database(stored)
    assert sealed != sealed_secrets
    monkeypatch.setenv(
        "SWITCHBOARD_SECRETS_KEYS",
        '["QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU=", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="]',
    )
    assert ok("reseal") == {"resealed": 2, "unopened": 0, "sealed": True}  # the new one and the previous one
    assert ok("reseal") == {"resealed": 0, "unopened": 0, "sealed": True}
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", '["QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="]')
    assert Settings().sealer().open(with_database(stored)) == rotated["secret"]
    assert ok("test", added["endpoint"]["endpointId"])["delivered"]  # with both, the one before it as well


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://crm.example/hook", "by https only"),
        ("https://10.0.0.1/hook", "SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS"),
        ("https://user:pass@crm.example/hook", "user name or password"),
        ("ftp://crm.example/hook", "neither http nor https"),
        ("https://127.0.0.1:5432/hook", "Port 5432"),
        ("https://2130706433/hook", "form that is not accepted"),
        ("hook", "neither http nor https"),
    ],
)
def test_an_address_that_events_are_not_sent_to_is_refused_with_a_reason(url: str, reason: str) -> None:
    workspace()
    result = switchboard("create", url)
    assert result.exit_code == 1
    assert reason in " ".join(result.output.split())
    assert "recording" not in result.output
    assert ok("list") == []


def test_wrong_usage_says_what_there_is(receiver: Receiver) -> None:
    workspace()
    endpoint_id = ok("create", receiver.url)["endpoint"]["endpointId"]
    for arguments, message in (
        (["create", receiver.url, "--event", "call.begun"], "call.received, call.transcribing"),
        (["create", receiver.url, "--include", "audio"], "record, transcript"),
        (["create", "https://no-such-host.invalid/hook"], "has no address"),
        (["show", "x"], "not an id"),
        (["replay", endpoint_id], "--failed, --since"),
        (["replay", endpoint_id, "--since", "yesterday"], "not a time"),
        (["replay", endpoint_id, "--event", "evt_1"], "not an event id"),
        (["update", endpoint_id, "--thin", "--include", "record"], "exclude each other"),
    ):
        result = switchboard(*arguments)
        assert result.exit_code == 2, (arguments, result.output)
        assert message in result.output
    result = switchboard("show", str(uuid4()))
    assert (result.exit_code, "No endpoint has the id" in result.output) == (1, True)


def test_deliveries_tell_what_happened_and_replay_sends_again(receiver: Receiver) -> None:
    secret = workspace()
    endpoint_id = ok("create", receiver.url)["endpoint"]["endpointId"]
    call_id = submit(secret)
    attempt(DeliveryVerdict.RETRY)
    (waiting,) = ok("deliveries", endpoint_id, "--call", str(call_id))
    assert (waiting["status"], waiting["attempts"], waiting["log"][0]["answer"]) == ("waiting", 1, "out of order")
    listed = switchboard("deliveries").output
    assert str(call_id) in listed and "status 500, next try" in listed
    failing = switchboard("list").output
    assert "failing" in failing and "500" in failing
    assert ok("deliveries", "--failed") == []

    async def due(database: Database) -> None:
        async with database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text("UPDATE webhook_deliveries SET not_before = now()"))

    with_database(due)
    attempt(DeliveryVerdict.FAILED)
    (given_up,) = ok("deliveries", "--failed")
    assert given_up["webhookId"].startswith("evt_")
    assert ok("replay", endpoint_id, "--event", given_up["webhookId"])["replayed"] == 1
    assert ok("replay", endpoint_id, "--failed")["replayed"] == 0
    attempt(DeliveryVerdict.DELIVERED, 200)
    assert ok("replay", endpoint_id, "--since", "1h")["replayed"] == 1
    assert ok("replay", endpoint_id, "--since", "2099-01-01T00:00:00Z")["replayed"] == 0


def test_an_endpoint_that_ended_itself_shows_why_and_is_enabled_again(receiver: Receiver) -> None:
    secret = workspace()
    endpoint_id = ok("create", receiver.url)["endpoint"]["endpointId"]
    submit(secret)
    attempt(DeliveryVerdict.GONE, 410)
    assert ok("list")[0]["disabledReason"] == "The receiver accepts no more events: status 410."
    assert "disabled" in switchboard("list").output
    assert ok("enable", endpoint_id)["disabledAt"] is None
    assert ok("disable", endpoint_id, "--reason", "The CRM moves.")["disabledReason"] == "The CRM moves."
    assert ok("update", endpoint_id, "--url", receiver.url + "/v2", "--event", "call.failed")["events"] == [
        "call.failed"
    ]
    assert ok("delete", endpoint_id)["removed"]
    assert ok("deliveries") == []


def test_the_schema_is_printed() -> None:
    result = switchboard("schema")
    assert json.loads(result.stdout) == json.loads(payload.SCHEMA_FILE.read_text())


def test_listen_prints_signed_events_and_leaves_nothing_behind(postgres_url: str) -> None:
    workspace()
    command = [sys.executable, "-m", "serve_app.cli", "webhooks", "listen", "--count", "1"]
    listener = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert listener.stderr is not None
        assert any("with the secret whsec_" in line for line in listener.stderr)
        (hook,) = ok("list")
        assert ok("test", hook["endpointId"])["delivered"]
        printed, _ = listener.communicate(timeout=60)
    finally:
        listener.kill()
    event = json.loads(printed)
    assert event["body"]["type"] == "webhook.test" and event["headers"]["webhook-signature"].startswith("v1,")
    assert ok("list") == []
    hosts = runner.invoke(app, ["workspaces", "hosts", "--json"])
    assert json.loads(hosts.stdout)["allowedHosts"] == []
