import json
import logging
import socket
import time

import pytest
from starlette.responses import RedirectResponse, Response, StreamingResponse

from pipeline.analysis.llm.answer import complete_items
from tests.llm_server import MODEL, completion, error
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, KEY, LINES, MINE, findings_of, options

pytestmark = pytest.mark.cases(3)


@pytest.fixture(autouse=True)
def _answers(endpoint):
    endpoint.answers(ANSWER)


def forever(body):
    time.sleep(3)
    return ANSWER


def drips(body):
    def bytes_by_and_by():
        for _ in range(30):
            time.sleep(0.1)
            yield b" "

    return StreamingResponse(bytes_by_and_by(), media_type="application/json")


TROUBLE = {
    "slow": (forever, "did not respond within 1 s"),
    "drips": (drips, "did not respond within 1 s"),
    "500": (lambda body: error(500, f"oops {KEY}"), "returned 500"),
    "400": (
        lambda body: error(400, "maximum context length is 4096", "context_length_exceeded"),
        "returned 400 (context_length_exceeded)",
    ),
    "404": (lambda body: error(404, "no such model", "model_not_found"), "returned 404 (model_not_found)"),
    "redirect": (lambda body: RedirectResponse("http://127.0.0.1:1/elsewhere", 307), "returned 307"),
    "refusal": (lambda body: completion(None, refusal="I cannot help with that."), "the model refused to answer"),
    "filter": (lambda body: completion("", "content_filter"), "the model refused to answer"),
    "cut off": (lambda body: completion(json.dumps(ANSWER)[:150], "length"), "was cut off"),
    "empty": (lambda body: completion(""), "answer is empty"),
    "no choice": (lambda body: Response('{"choices": []}'), "contains no choice"),
    "no completion": (lambda body: Response('{"object": "list"}'), "not a chat completion"),
    "choices of another kind": (lambda body: Response('{"choices": {"0": 1}}'), "not a chat completion"),
    "message of another kind": (lambda body: Response('{"choices": [{"message": "hi"}]}'), "not a chat completion"),
    "html": (lambda body: Response("<html>Welcome</html>"), "not a chat completion"),
    "not text": (lambda body: Response(b"\xff\xfe\x00"), "not a chat completion"),
    "prose": (lambda body: "I think the rep did well.", "does not fit the schema"),
    "half": (lambda body: json.dumps(ANSWER)[:-40], "does not fit the schema"),
    "other shape": (lambda body: {"tasks": "none"}, "does not fit the schema"),
    "nothing": (lambda body: {}, "does not fit the schema"),
    "a list": (lambda body: [1, 2], "does not fit the schema"),
    "deep": (lambda body: '{"a":' * 5000, "does not fit the schema"),
    "huge": (lambda body: "x" * (5 << 20), "larger than 4 MiB"),
    "context too small": (lambda body: completion(ANSWER, prompt_tokens=20), "its context is too small"),
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_whatever_goes_wrong_the_rules_findings_stand_and_the_note_says_why(endpoint, trouble, caplog):
    script, why = TROUBLE[trouble]
    endpoint.answers(script)
    deadline = 1 if trouble in ("slow", "drips") else 30  # a crowded machine answers late, too
    material, chosen = call(*LINES), options(endpoint, timeout_seconds=deadline, api_key=KEY)
    built = findings_of(material, None)
    with caplog.at_level(logging.DEBUG):
        findings = findings_of(material, chosen)
    for step, finding in findings.items():
        assert (finding.value, finding.evidence) == (built[step].value, built[step].evidence)
        if step in MINE:
            by_rule = (finding.note or "").removeprefix(f"{built[step].note}; ")
            assert by_rule.startswith("analyzed by rules, not by the language model: ")
            assert why in by_rule
            assert "\n" not in finding.note
        else:
            assert finding == built[step]
    assert KEY not in repr(findings) + caplog.text + repr(chosen)


def test_of_an_answer_that_is_cut_off_what_is_whole_is_used_and_the_note_says_so(endpoint):
    """Its tokens are paid for, and a second request would be truncated as well."""
    stated = json.dumps({"tasks": ANSWER["tasks"], "contact": ANSWER["contact"], **ANSWER})
    endpoint.answers(lambda body: completion(stated.partition('"topics"')[0][:-30], "length"))
    material = call(*LINES)
    findings, built = findings_of(material, options(endpoint)), findings_of(material, None)
    assert len(endpoint.asked) == 1
    assert [item["title"] for item in findings["tasks"].value["tasks"]] == ["Send the corrected invoice"]
    assert findings["contacts"].value["heard"]["name"]["engine"] == "llm"
    assert findings["summary"].value["text"] == "Peter Miller was charged twice."
    assert findings["tone"].value == built["tone"].value
    assert all("cut off at the token limit; its complete parts are used" in findings[step].note for step in MINE)


def test_a_cut_answer_never_gives_half_a_statement():
    answer = json.dumps(ANSWER)
    whole, _ = complete_items(answer)
    for length in range(0, len(answer), 7):
        cut, statements = complete_items(answer[:length])
        for name in ("tasks", "summary", "topics", "tones"):
            assert getattr(cut, name) == getattr(whole, name)[: len(getattr(cut, name))], length
        for name in type(cut.contact).model_fields:
            assert getattr(cut.contact, name) in (None, getattr(whole.contact, name)), length
        assert cut.outcome in (None, whole.outcome), length
        assert statements == 0 or cut.tasks, length


def test_a_wrong_key_is_told_without_the_key_or_the_address(endpoint, caplog):
    endpoint.key = "another"
    with caplog.at_level(logging.DEBUG):
        findings = findings_of(call(*LINES), options(endpoint, api_key=KEY))
    assert "127.0.0.1 returned 401 (invalid_api_key)" in findings["tasks"].note
    assert len(endpoint.authorizations) == 1
    assert KEY not in repr(findings) + caplog.text
    assert endpoint.base_url not in repr(findings)


def test_an_endpoint_that_is_not_there(endpoint):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    chosen = options(endpoint, base_url=f"http://127.0.0.1:{port}/v1", retries=1)
    assert "127.0.0.1 cannot be reached" in findings_of(call(*LINES), chosen)["summary"].note


def test_a_connection_that_breaks(endpoint):
    def cut(body):
        def half():
            yield b'{"choices": '
            raise RuntimeError("gone")

        return StreamingResponse(half(), headers={"content-length": "100"})

    endpoint.answers(cut)
    assert (
        "the connection to the endpoint 127.0.0.1 was lost"
        in findings_of(call(*LINES), options(endpoint))["tasks"].note
    )


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(endpoint, status):
    endpoint.answers(lambda body: error(status, "busy", retry_after="1"), ANSWER)
    started = time.monotonic()
    findings = findings_of(call(*LINES), options(endpoint))
    assert findings["tasks"].value["engine"] == f"llm {MODEL}"
    assert 1.0 <= time.monotonic() - started < 30
    assert len(endpoint.asked) == 2


def test_nobody_waits_longer_than_the_time_there_is(endpoint):
    endpoint.answers(lambda body: error(429, "busy", "rate_limit_exceeded", retry_after="3600"))
    started = time.monotonic()
    findings = findings_of(call(*LINES), options(endpoint, timeout_seconds=300))
    assert time.monotonic() - started < 30
    assert "returned 429 (rate_limit_exceeded)" in findings["tasks"].note


def test_a_server_that_stays_busy_is_given_up(endpoint):
    endpoint.answers(lambda body: error(503, "busy", retry_after="0"))
    assert "returned 503" in findings_of(call(*LINES), options(endpoint, retries=3))["tasks"].note
    assert len(endpoint.asked) == 4
