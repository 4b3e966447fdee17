import json
import pickle
from itertools import pairwise

import pytest
from pydantic import SecretStr

from pipeline.analysis import AnalysisOptions
from pipeline.analysis.llm.prompt import parts, tokens
from tests.llm_server import MODEL, error
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import ANSWER, KEY, LINES, SEND, answer, findings_of, options, q, task, without


@pytest.fixture(autouse=True)
def _answers(endpoint):
    endpoint.answers(ANSWER)


def test_the_schema_and_the_settings_are_sent(endpoint):
    endpoint.key = KEY
    findings_of(call(*LINES), options(endpoint, api_key=f" {KEY}\n", max_tokens=777, language="de"))
    (asked,) = endpoint.asked
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == (MODEL, 777, 0.0)
    assert asked["response_format"]["json_schema"]["strict"] is True
    assert "in the language de" in asked["messages"][0]["content"]
    assert endpoint.authorizations == [f"Bearer {KEY}"]


def test_numbers_contacts_and_members_are_not_sent(endpoint):
    material = call(*LINES)
    findings_of(material, options(endpoint))
    sent = json.dumps(endpoint.asked[0]["messages"])
    assert material.call.from_number not in sent
    assert all(name not in sent for name in ("Lindqvist", "Petra", "peter@miller.example", "Miller & Sons"))


@pytest.mark.parametrize("refused", ["json_schema", "json_object"])
def test_a_server_without_structured_output_is_asked_more_plainly(endpoint, refused):
    formats = ["json_schema", "json_object", None]
    expected = formats[formats.index(refused) + 1]

    def old(body):
        kind = (body.get("response_format") or {}).get("type")
        if formats.index(kind) <= formats.index(refused):
            return error(400, f"response_format {kind} is not supported", None, "response_format")
        return f"<think>What now? {{}}</think>Here it is:\n```json\n{json.dumps(ANSWER)}\n```\nAnything else?"

    endpoint.answers(old)
    findings = findings_of(call(*LINES), options(endpoint))
    assert findings["tasks"].value["engine"] == f"llm {MODEL}"
    assert (endpoint.asked[-1].get("response_format") or {}).get("type") == expected


def test_a_server_that_renames_or_refuses_a_parameter_gets_its_way(endpoint):
    def picky(body):
        if "max_tokens" in body:
            return error(400, "Use 'max_completion_tokens' instead.", "unsupported_parameter", "max_tokens")
        if "temperature" in body:
            return error(400, "Only the default is supported.", "unsupported_value", "temperature")
        return ANSWER

    endpoint.answers(picky)
    assert findings_of(call(*LINES), options(endpoint))["tasks"].value["engine"] == f"llm {MODEL}"
    assert len(endpoint.asked) == 3
    assert endpoint.asked[-1]["max_completion_tokens"] == 4096


def test_the_schema_says_how_long_lists_and_texts_may_be_and_a_server_without_such_limits_gets_its_way(endpoint):
    def strict(body):
        if "maxLength" in json.dumps(body["response_format"]):
            return error(400, "Invalid schema: 'maxLength' is not permitted.", None, "response_format")
        return ANSWER

    endpoint.answers(strict)
    assert findings_of(call(*LINES), options(endpoint))["tasks"].value["engine"] == f"llm {MODEL}"
    limited, free = (request["response_format"]["json_schema"]["schema"] for request in endpoint.asked)
    assert limited["properties"]["tasks"]["maxItems"] == 20
    assert "maxItems" not in json.dumps(free)


def test_an_answer_that_cannot_be_read_may_be_fixed_once(endpoint):
    wrong = json.dumps(without(tasks=[task(2, SEND, kind="promise")]))
    endpoint.answers(wrong, ANSWER)
    assert findings_of(call(*LINES), options(endpoint))["tasks"].value["engine"] == f"llm {MODEL}"
    *_, spoken, repair_message = endpoint.asked[1]["messages"]
    assert spoken == {"role": "assistant", "content": wrong}
    assert "tasks.0.kind" in repair_message["content"]


def test_long_calls_are_asked_about_in_parts_that_overlap(endpoint):
    lines = [
        (("rep", "customer")[at % 2], f"Sentence number {at} of a long call, it has nothing in it.") for at in range(60)
    ]
    lines[20] = ("rep", SEND)
    lines[45] = ("rep", "I will call you back on Monday.")

    def reads(body):
        text = body["messages"][1]["content"]
        stated = []
        if f"[20] rep (rep): {SEND}" in text:
            stated.append(task(20, SEND, due="before Saturday"))
        if "[45] rep" in text:
            stated.append(task(45, "I will call you back on Monday.", "Call back", due="on Monday", kind="follow-up"))
        return answer(tasks=stated, outcome={"name": "follow_up", "quote": q(45, "I will call you back on Monday.")})

    endpoint.answers(reads)
    finding = findings_of(call(*lines), options(endpoint, max_transcript_tokens=300))["tasks"]
    assert len(endpoint.asked) >= 4
    assert [(task["title"], task["due_date"]) for task in finding.value["tasks"]] == [
        ("Send the corrected invoice", "2025-04-18"),
        ("Call back", "2025-04-21"),
    ]


@pytest.mark.parametrize("most", [200, 350, 1000, 100_000])
def test_parts_hold_every_word_and_are_not_larger_than_told(most):
    long_turn = " ".join(f"word{at}" for at in range(400))
    lines = [("rep", "Good morning."), ("customer", long_turn)] + [("rep", f"Line {at} is here.") for at in range(50)]
    transcript = call(*lines).transcript
    split = parts(transcript, most)
    sent = [line for part in split for line in part.lines]
    assert all(sum(map(tokens, part.lines)) <= most for part in split)
    for turn in transcript.turns:
        words = [
            word for line in dict.fromkeys(sent) if line.startswith(f"[{turn.index}] ") for word in line.split()[3:]
        ]
        assert words == turn.text.split()
    assert all(set(before.lines) & set(after.lines) for before, after in pairwise(split))


def test_a_key_is_neither_shown_nor_written_and_travels_between_processes(endpoint):
    chosen = options(endpoint, api_key=KEY)
    shown = repr(chosen) + str(chosen) + chosen.model_dump_json() + repr(chosen.model_dump())
    assert KEY not in shown
    assert pickle.loads(pickle.dumps(chosen)).api_key == SecretStr(KEY)


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": "magic"},
        {"engine": "llm"},
        {"engine": "llm", "base_url": "http://127.0.0.1/v1"},
        {"engine": "llm", "model": "m"},
        {"engine": "llm", "base_url": "ftp://host/v1", "model": "m"},
        {"engine": "llm", "base_url": "https://me:hush@host/v1", "model": "m"},
        {"engine": "llm", "base_url": "https://host/v1?key=hush", "model": "m"},
        {"engine": "llm", "base_url": "https://host:99999/v1", "model": "m"},
        {"api_key": "hush hush"},
        {"api_key": "hüsh"},
        {"language": "in the style of a pirate"},
        {"apikey": "hush"},
    ],
)
def test_options_that_cannot_work_are_refused_without_showing_them(settings):
    with pytest.raises(ValueError) as refused:
        AnalysisOptions(**settings)
    assert "hush" not in str(refused.value)
