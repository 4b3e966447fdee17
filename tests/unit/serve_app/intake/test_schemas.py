"""The body of POST /submit: every field, every rule, every fault at once."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.call import Sender, Submission
from serve_app.http.json_body import InvalidBody
from serve_app.intake.schemas import FIELDS, MAX_FAULTS, SubmitBody, parse_body

WORKSPACE_WIDE = Sender(uuid4(), uuid4(), None, frozenset({"submit"}))
TEAM_SCOPED = Sender(uuid4(), uuid4(), uuid4(), frozenset({"submit"}))
TEAM = "0d5a8a4e-52c1-4f57-8d0c-3b1f6b0a9c11"
BODY: dict[str, Any] = {
    "callId": "7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210",
    "from": "+493012345678",
    "to": "+4940987654",
    "startTime": "2026-11-20T09:30:00Z",
}
REQUIRED = sorted(BODY)
OPTIONAL = sorted(set(FIELDS) - set(BODY))
SECRET = "kept-quiet"  # stands in every refused value: no answer may hold it


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


def submission(sender: Sender = TEAM_SCOPED, **fields: Any) -> Submission:
    return parse_body(encoded({**BODY, **fields}), sender).submission


def pointers(raw: bytes, sender: Sender = TEAM_SCOPED) -> list[str]:
    with pytest.raises(InvalidBody) as refused:
        parse_body(raw, sender)
    assert all(SECRET not in fault.detail + fault.pointer for fault in refused.value.faults)
    return [fault.pointer for fault in refused.value.faults]


def faulty(sender: Sender = TEAM_SCOPED, **fields: Any) -> list[str]:
    return pointers(encoded({**BODY, **fields}), sender)


def test_every_field_of_the_contract_is_known_and_no_other() -> None:
    assert set(FIELDS) == {
        *("callId", "recordingUrl", "recordingUrl2", "from", "to", "startTime"),
        *("outgoing", "duration", "teamId", "userId"),
    }


def test_the_fields_of_a_submission_arrive_as_sent() -> None:
    full = {
        "recordingUrl": "https://pbx.example.com/a.wav?X-Amz-Signature=1",
        "recordingUrl2": "http://pbx.example.com:8080/b.wav",
        "outgoing": False,
        "duration": 0,
        "teamId": TEAM,
        "userId": "C0A8F5DE-1B7D-4F2B-8F39-6A2F4E1D7B90",
    }
    assert submission(WORKSPACE_WIDE, **full) == Submission(
        call_id=UUID(BODY["callId"]),
        from_number=BODY["from"],
        to_number=BODY["to"],
        start_time=datetime(2026, 11, 20, 9, 30, tzinfo=UTC),
        recording_url=full["recordingUrl"],  # type: ignore[arg-type]
        recording_url2=full["recordingUrl2"],  # type: ignore[arg-type]
        outgoing=False,
        duration=0,
        team_id=UUID(TEAM),
        user_id=UUID("c0a8f5de-1b7d-4f2b-8f39-6a2f4e1d7b90"),
    )


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_field_may_neither_be_missing_nor_null(name: str) -> None:
    assert pointers(encoded({key: value for key, value in BODY.items() if key != name})) == [f"/{name}"]
    assert faulty(**{name: None}) == [f"/{name}"]


@pytest.mark.parametrize("name", OPTIONAL)
def test_null_for_an_optional_field_means_not_carried(name: str) -> None:
    assert submission(**{name: None}) == submission()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("outgoing", "true"),
        ("outgoing", 1),
        ("outgoing", 0),
        ("duration", "60"),
        ("duration", 60.0),
        ("duration", True),
        ("duration", -1),
        ("duration", 2**31),
        ("duration", 10**40),
        ("from", 493012345678),
        ("from", ""),
        ("from", SECRET + "x" * 256),
        ("to", ["+49"]),
        ("to", ""),
        ("callId", 1),
        ("callId", SECRET),
        ("callId", "7f1c6a523f0e4d599a435b1f0c8de210"),
        ("callId", "{7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210}"),
        ("callId", "urn:uuid:7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210"),
        ("callId", "7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210\n"),
        ("callId", "７f1c6a52-3f0e-4d59-9a43-5b1f0c8de210"),
        ("userId", "nobody"),
        ("startTime", 1763631000),
        ("startTime", "2026-11-20"),
        ("startTime", "09:30:00Z"),
        ("startTime", "2026-11-20 09:30:00"),
        ("startTime", "2026-11-20T09Z"),
        ("startTime", "2026-W47-5T09:30:00"),
        ("startTime", "2026-02-30T09:30:00Z"),
        ("startTime", "2026-11-20T24:00:00Z"),
        ("startTime", "2026-11-20T09:30:60Z"),
        ("startTime", "2026-11-20T09:30:00+24:00"),
        ("startTime", "2026-11-20T09:30:00+01:60"),
        ("startTime", "2026-11-20T09:30:00+01:00[Europe/Berlin]"),
        ("startTime", "0001-01-01T00:00:00+14:00"),
        ("startTime", "9999-12-31T23:59:59-14:00"),
        ("recordingUrl", SECRET),
        ("recordingUrl", "/recordings/a.wav"),
        ("recordingUrl", "//pbx.example.com/a.wav"),
        ("recordingUrl", "ftp://pbx.example.com/a.wav"),
        ("recordingUrl", "file:///etc/passwd"),
        ("recordingUrl", "https:///a.wav"),
        ("recordingUrl", "https://:443/a.wav"),
        ("recordingUrl", "https://user@/a.wav"),
        ("recordingUrl", "https://pbx.example.com:99999/a.wav"),
        ("recordingUrl", "https://pbx.example.com:port/a.wav"),
        ("recordingUrl", "https://[::1/a.wav"),
        ("recordingUrl", "https://pbx.example.com/a b.wav"),
        ("recordingUrl", "https://pbx.example.com/a\nHost: x"),
        ("recordingUrl", "https:\\\\pbx.example.com\\a.wav"),
        ("recordingUrl", " https://pbx.example.com/a.wav"),
        ("recordingUrl", "https://pbx.example.com/" + "a" * 8192),
        ("recordingUrl", True),
    ],
)
def test_a_value_of_another_kind_is_refused_and_not_turned_into_something(name: str, value: Any) -> None:
    assert faulty(**{name: value}) == [f"/{name}"]


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("2026-11-20T09:30:00Z", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("2026-11-20T09:30:00", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("2026-11-20T09:30", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("2026-11-20t09:30:00z", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("2026-11-20T09:30:00+05:45", datetime(2026, 11, 20, 3, 45, tzinfo=UTC)),
        ("2026-11-20T09:30:00-0330", datetime(2026, 11, 20, 13, 0, tzinfo=UTC)),
        ("2026-11-20T00:30:00+01", datetime(2026, 11, 19, 23, 30, tzinfo=UTC)),
        ("20261120T093000Z", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("2026-11-20T09:30:00.25Z", datetime(2026, 11, 20, 9, 30, 0, 250000, tzinfo=UTC)),
        ("2026-11-20T09:30:00,123456789Z", datetime(2026, 11, 20, 9, 30, 0, 123456, tzinfo=UTC)),
    ],
)
def test_a_start_time_is_iso_8601_and_stored_in_utc(sent: str, stored: datetime) -> None:
    read = submission(startTime=sent).start_time
    assert (read, read.tzinfo) == (stored, UTC)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.timezones() | st.none()))
def test_any_moment_that_a_program_writes_is_read_back(moment: datetime) -> None:
    text = moment.isoformat()
    if len(text.split("+")[-1].split("-")[-1]) == 8 and moment.tzinfo:  # local mean time, offsets to the second
        return
    # In UTC: Python never calls a time in the hour that a clock change repeats equal to one of another zone.
    meant = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    assert submission(startTime=text).start_time == meant


@pytest.mark.parametrize("number", ["anonymous", "sip:desk@pbx.example.com;user=phone", "  ", "+49 (30) 1234 #12", "☎"])
def test_a_number_is_kept_as_sent(number: str) -> None:
    assert submission(**{"from": number}).from_number == number


def test_an_address_is_kept_as_sent() -> None:
    for url in ("HTTPS://PBX.example.com/a.wav", "http://[::1]:8080/a", "https://u:p@pbx.example.com/ä.wav#x"):
        assert submission(recordingUrl=url).recording_url == url


def test_a_second_recording_needs_a_first_in_the_same_request() -> None:
    assert faulty(recordingUrl2="https://pbx.example.com/b.wav") == ["/recordingUrl2"]
    assert faulty(recordingUrl2="https://pbx.example.com/b.wav", recordingUrl=None) == ["/recordingUrl2"]


def test_team_id_is_required_with_a_workspace_wide_key() -> None:
    assert faulty(WORKSPACE_WIDE) == ["/teamId"]
    assert faulty(WORKSPACE_WIDE, teamId=None) == ["/teamId"]
    assert faulty(WORKSPACE_WIDE, teamId="Sales") == ["/teamId"]
    assert submission(WORKSPACE_WIDE, teamId=TEAM).team_id == UUID(TEAM)


@pytest.mark.parametrize("value", [TEAM, "Sales", 1, None, {"a": [1, 2.5]}, True])
def test_team_id_is_ignored_with_a_team_scoped_key_whatever_it_holds_and_kept_as_sent(value: Any) -> None:
    parsed = parse_body(encoded({**BODY, "teamId": value}), TEAM_SCOPED)
    assert parsed.submission.team_id is None
    assert parsed.sent == {**BODY, "teamId": value}


def test_an_unknown_key_is_refused_and_told_by_its_place_alone() -> None:
    with pytest.raises(InvalidBody) as refused:
        parse_body(encoded({**BODY, SECRET: SECRET}), TEAM_SCOPED)
    [fault] = refused.value.faults
    assert fault == ("", "Unknown field at position 5.")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("recording_url", "recordingUrl"),
        ("RecordingURL2", "recordingUrl2"),
        ("starttime", "startTime"),
        ("From", "from"),
    ],
)
def test_a_key_that_is_nearly_a_field_gets_a_suggestion(key: str, meant: str) -> None:
    with pytest.raises(InvalidBody) as refused:
        parse_body(encoded({**BODY, key: 1}), TEAM_SCOPED)
    assert refused.value.faults[0].detail.endswith(f"Did you mean {meant}?")


def test_every_fault_is_found_and_not_only_the_first() -> None:
    body = {"callId": 1, "to": "", "outgoing": "no", "recordingUrl2": "x", "colour": 1, "size": 2}
    found = pointers(encoded(body), WORKSPACE_WIDE)
    assert sorted(set(found)) == ["", "/callId", "/from", "/outgoing", "/recordingUrl2", "/startTime", "/teamId", "/to"]
    assert found.count("") == 2


def test_a_thousand_faults_make_a_bounded_answer() -> None:
    faults = pointers(encoded({**BODY, **{f"k{number}": number for number in range(1000)}}))
    assert len(faults) == MAX_FAULTS + 1


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", [""]),
        (b"null", [""]),
        (b"[]", [""]),
        (b'"text"', [""]),
        (b"{} {}", [""]),
        (b"\xef\xbb\xbf{}", [""]),
        (b'{"callId":', [""]),
        (b"{'callId': 1}", [""]),
        (b'{"from":"\xff"}', [""]),
        (b'{"from":"\xed\xa0\x80"}', [""]),
        (b'{"from":"a\x00b"}', [""]),
        (b'{"duration":NaN}', [""]),
        (b'{"duration":-Infinity}', [""]),
        (b'{"teamId":1e999}', [""]),
        (b'{"teamId":' + b"9" * 5000 + b"}", [""]),
        (b"[" * 60000, [""]),
        (b'{"teamId":' * 6000, [""]),
        (b'{"teamId":' + b"[" * 40 + b"]" * 40 + b"}", [""]),
    ],
)
def test_a_body_that_is_no_json_object_has_one_fault(raw: bytes, expected: list[str]) -> None:
    assert pointers(raw) == expected


def with_extra(member: str) -> bytes:
    return (json.dumps(BODY)[:-1] + "," + member + "}").encode()


def test_a_repeated_key_is_refused() -> None:
    assert pointers(with_extra('"to":"+4940987654"')) == ["/to"]
    assert pointers(with_extra('"teamId":1,"teamId":2')) == ["/teamId"]
    assert pointers(with_extra('"teamId":{"a":1,"a":1}')) == [""]
    assert pointers(with_extra(f'"{SECRET}":1,"{SECRET}":1')) == ["", ""]  # repeated, and unknown


@pytest.mark.parametrize("escape", [r"\u0000", r"\ud800", r"\udc00x"])
def test_nul_and_half_a_surrogate_pair_are_refused_wherever_they_stand(escape: str) -> None:
    assert pointers(with_extra(f'"userId":"{escape}"')) == ["/userId", "/userId"]
    assert pointers(with_extra(f'"teamId":"{escape}"')) == ["/teamId"]
    assert pointers(with_extra(f'"teamId":[{{"a":"{escape}"}}]')) == ["/teamId"]
    assert pointers(with_extra(f'"teamId":{{"{escape}":1}}')) == ["/teamId"]
    assert pointers(with_extra(f'"a{escape}":1')) == ["", ""]


def test_a_whole_surrogate_pair_is_one_character() -> None:
    raw = with_extra(r'"userId":null').replace(b'"+493012345678"', rb'"\ud83d\ude00"')
    assert parse_body(raw, TEAM_SCOPED).submission.from_number == "😀"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.binary(max_size=200) | json_values.map(encoded), st.sampled_from([WORKSPACE_WIDE, TEAM_SCOPED]))
def test_any_bytes_are_read_or_refused_and_nothing_else_happens(raw: bytes, sender: Sender) -> None:
    try:
        parse_body(raw, sender)
    except InvalidBody as refused:
        assert refused.faults


@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), json_values), st.sampled_from([WORKSPACE_WIDE, TEAM_SCOPED]))
def test_what_is_accepted_can_be_kept(fields: dict[str, Any], sender: Sender) -> None:
    try:
        parsed = parse_body(encoded({**BODY, **fields}), sender)
    except InvalidBody:
        return
    json.dumps(parsed.sent, allow_nan=False).encode()
    assert SubmitBody.model_fields.keys() == set(Submission.__dataclass_fields__)
