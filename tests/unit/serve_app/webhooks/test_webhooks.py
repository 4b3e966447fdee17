import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook

from db.events.outbox import Attempt, DeliveryVerdict, Event
from pipeline.errors import AddressForbidden
from serve_app.conductor.webhooks import DeliveryDecision, judge
from serve_app.webhooks import payload, signing
from serve_app.webhooks.options import RETRY_SECONDS, WebhookOptions
from serve_app.webhooks.post import ANSWER_CHARACTERS, EndpointResponse, Poster, clean

NOW = datetime(2026, 11, 2, 10, 30, 0, 250, tzinfo=timezone(timedelta(hours=1)))
RECORD = {"summary": "rep: I will send it."}
TRANSCRIPT = [{"text": "x" * 6000}]


def answered(status: int | None, retry_after: float | None = None) -> EndpointResponse:
    return EndpointResponse(Attempt(NOW, 0.1, status, "..."), retry_after)


@given(st.binary(max_size=200), st.integers(24, 64))
def test_signatures_are_those_of_the_official_library(body: bytes, length: int) -> None:
    secret = "whsec_" + b64encode(bytes(range(length))).decode()
    text = body.decode("utf-8", "replace")
    ours = signing.sign([secret], "evt_1", 1_700_000_000, text.encode())
    assert ours == Webhook(secret).sign("evt_1", datetime.fromtimestamp(1_700_000_000, UTC), text)


def test_a_new_secret_is_one_of_the_standard_and_never_the_same() -> None:
    secrets = {signing.new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert {len(signing.key(secret)) for secret in secrets} == {32}


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_AAAA", "sb_" + "A" * 44, "whsec_!" + "A" * 43, "whsec_" + "A" * 200]
)
def test_what_is_no_secret_is_refused_without_being_told(secret: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes") as caught:
        signing.key(secret)
    assert secret[6:] not in str(caught.value) or not secret[6:]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_success(status: int) -> None:
    assert judge(answered(status), 9, WebhookOptions()) == DeliveryDecision(DeliveryVerdict.DELIVERED)


def test_410_is_the_end_of_the_endpoint() -> None:
    assert judge(answered(410), 0, WebhookOptions()) == DeliveryDecision(DeliveryVerdict.GONE)


@pytest.mark.parametrize("status", [None, 100, 199, 301, 302, 307, 400, 401, 404, 408, 500, 502, 504])
def test_anything_else_is_tried_again_by_the_schedule_of_the_standard(status: int | None) -> None:
    pauses = [judge(answered(status), failures, WebhookOptions(), 0.5).retry_in for failures in range(9)]
    assert pauses == pytest.approx([5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400])
    assert sum(pauses) == pytest.approx(75 * 3600 + 35 * 60 + 5)
    assert judge(answered(status), 9, WebhookOptions()) == DeliveryDecision(DeliveryVerdict.FAILED)


@given(st.integers(0, 8))
def test_pauses_are_jittered_by_a_tenth(failures: int) -> None:
    drawn = {judge(answered(500), failures, WebhookOptions()).retry_in for _ in range(20)}
    assert len(drawn) > 10
    assert all(abs(pause / RETRY_SECONDS[failures] - 1) <= 0.1 for pause in drawn)


def test_retry_after_lengthens_a_pause_and_never_shortens_it() -> None:
    assert judge(answered(500, 60), 0, WebhookOptions()) == DeliveryDecision(DeliveryVerdict.RETRY, 60, 0)
    assert judge(answered(500, 1), 1, WebhookOptions(), 0.5).retry_in == pytest.approx(300)


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_asks_for_time_is_left_alone(status: int) -> None:
    assert judge(answered(status, 90), 0, WebhookOptions()) == DeliveryDecision(DeliveryVerdict.RETRY, 90, 90)
    assert judge(answered(status, 90), 9, WebhookOptions()) == DeliveryDecision(DeliveryVerdict.FAILED, 0, 90)
    assert judge(answered(status), 0, WebhookOptions()).pause == 0


def event(**parts: object) -> Event:
    return Event(uuid4(), "call.completed", NOW, {"callId": "1"}, **parts)  # type: ignore[arg-type]


def test_an_event_says_its_type_its_time_in_utc_and_the_call() -> None:
    body = payload.body(event(record=RECORD, transcript=TRANSCRIPT), (), 1 << 20)
    assert json.loads(body) == {
        "type": "call.completed",
        "timestamp": "2026-11-02T09:30:00.000250Z",
        "data": {"callId": "1"},
    }
    assert b" " not in body


def test_parts_are_sent_only_where_they_are_asked_for_and_only_with_completed_calls() -> None:
    full = event(record=RECORD, transcript=TRANSCRIPT)
    assert json.loads(payload.body(full, ("record",), 1 << 20))["data"] == {"callId": "1", "record": RECORD}
    assert json.loads(payload.body(event(), ("record",), 1 << 20))["data"] == {"callId": "1", "record": None}
    received = Event(uuid4(), "call.received", NOW, {"callId": "1"})
    assert json.loads(payload.body(received, ("record",), 1 << 20))["data"] == {"callId": "1"}


def test_what_would_make_an_event_too_large_is_left_out_and_named() -> None:
    full = event(record=RECORD, transcript=TRANSCRIPT)
    both = ("record", "transcript")
    assert json.loads(payload.body(full, both, 4096))["data"] == {
        "callId": "1",
        "record": RECORD,
        "omitted": ["transcript"],
    }
    large = event(record={"summary": "y" * 5000}, transcript=TRANSCRIPT)
    assert json.loads(payload.body(large, both, 4096))["data"] == {"callId": "1", "omitted": ["transcript", "record"]}


def test_an_event_is_found_by_its_webhook_id_and_by_its_uuid() -> None:
    event_id = uuid4()
    assert payload.event_id(payload.message_id(event_id)) == payload.event_id(str(event_id)) == event_id
    assert "." not in payload.message_id(event_id)  # the separator of what is signed
    with pytest.raises(ValueError, match="hexadecimal"):
        payload.event_id("evt_1")


def test_the_readmes_examples_are_events() -> None:
    text = payload.SCHEMA_FILE.with_name("README.md").read_text()
    examples = [block.split("```")[0] for block in text.split("```json\n")[1:]]
    assert len(examples) >= 2
    for example in examples:
        payload.adapter().validate_json(example)


def test_an_answer_is_kept_as_one_short_line_without_control_characters() -> None:
    assert clean(b"<b>no</b>\r\n\tway\x1b[2J\x00 \xe2\x80\xae!\xff") == "<b>no</b> way [2J !\ufffd"
    assert len(clean(b"x" * 5000)) == ANSWER_CHARACTERS


@pytest.mark.parametrize(
    ("url", "allowed", "message"),
    [
        ("http://crm.example/x", (), "by https only"),
        ("http://crm.example/x", ("crm.example:8080",), "by https only"),
        ("https://crm.example:22/x", (), "Port 22"),
        ("https://crm.example:6379/x", (), "Port 6379"),
        ("gopher://crm.example/x", (), "neither http nor https"),
        ("https://0x7f.1/x", (), "form that is not accepted"),
        ("https://crm.example/x y", (), "characters"),
    ],
)
def test_an_address_is_refused_by_its_text_with_a_sentence_about_receivers(
    url: str, allowed: tuple[str, ...], message: str
) -> None:
    with pytest.raises(AddressForbidden, match=message) as caught:
        Poster(WebhookOptions(allowed_hosts=allowed)).check(url)
    assert "recording" not in caught.value.message
    assert "FETCH" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://crm.example/x?y=z", ()),
        ("https://crm.example:8443/x", ()),
        ("http://crm.local/x", ("crm.local",)),
        ("http://10.1.2.3:8080/x", ("10.0.0.0/8",)),
        ("http://crm.local:22/x", ("crm.local:22",)),
    ],
)
def test_other_addresses_pass(url: str, allowed: tuple[str, ...]) -> None:
    assert Poster(WebhookOptions(allowed_hosts=allowed)).check(url).path.startswith(b"/x")


@pytest.mark.parametrize("wrong", [{"allowed_hosts": ["a b"]}, {"retry_seconds": [-1]}, {"retention_days": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WebhookOptions(**wrong)  # type: ignore[arg-type]
