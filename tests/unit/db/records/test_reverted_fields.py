from datetime import UTC, datetime, timedelta
from typing import Any

from db.records.corrections import reversion_warnings

START = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


def sentences(*bodies: dict[str, Any]) -> tuple[str, ...]:
    return reversion_warnings((START + timedelta(seconds=at), body) for at, body in enumerate(bodies))


def test_a_late_older_body_is_named_with_its_fields_and_its_moment() -> None:
    old = {"duration": 60, "from": "1", "userId": None}
    (sentence,) = sentences(old, {"duration": 61, "from": "2", "userId": "u"}, old)
    assert sentence.startswith("The submission of 2026-11-22 09:00:02 UTC set from, duration back")
    assert "userId" not in sentence, "it was not carried"


def test_what_only_grows_is_not_reported() -> None:
    assert sentences({"duration": 60}, {"duration": 60}, {"userId": "u"}, {"duration": 61}, {"duration": 61}) == ()


def test_what_was_put_right_with_a_new_value_is_no_longer_reported() -> None:
    assert sentences({"duration": 60}, {"duration": 61}, {"duration": 60}, {"duration": 62}) == ()


def test_addresses_are_not_repeated() -> None:
    first, second = {"recordingUrl": "https://x/a?sig=1"}, {"recordingUrl": "https://x/b?sig=2"}
    (sentence,) = sentences(first, second, first)
    assert "recordingUrl" in sentence and "sig" not in sentence
