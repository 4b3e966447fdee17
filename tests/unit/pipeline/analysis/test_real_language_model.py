"""The engine against llama.cpp's own server and a real, very small model: protocol, schema, truncation, restart.

The quality of its answers does not matter here: whatever it states, the transcript must support the findings.
"""

import json

import pytest

from pipeline.analysis.evidence import fault
from pipeline.analysis.llm.answer import complete_items, parsed, schema
from pipeline.analysis.llm.asking import blocking
from pipeline.analysis.llm.client import ModelClient
from tests.llama_server import MODEL
from tests.support.calls_by_hand import call
from tests.support.injected_calls import PLANTED, injected_calls
from tests.support.llm_by_hand import LINES, MINE, findings_of, options

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ASKED = [{"role": "user", "content": "State one task: Anna sends the invoice. Leave every other list empty."}]
SECONDS = 600  # for one call, on a crowded machine


@pytest.fixture
def server(llama_server):
    """Yield the server, and restart it afterwards."""
    yield llama_server
    llama_server.stop()
    llama_server.start()


def asking(server, **given):
    return options(server, **{"model": MODEL, "timeout_seconds": SECONDS, "max_tokens": 512, **given})


def test_its_answers_keep_to_the_schema(llama_server):
    """llama.cpp derives a grammar from the schema, including the maximum lengths."""
    completion = blocking(lambda: ModelClient(asking(llama_server, max_tokens=2048)).ask(ASKED))
    assert completion.prompt_tokens
    if completion.cut_off:  # a model so small may go on until there is no more room
        assert complete_items(completion.text)[1] or completion.text.startswith("{")
    else:
        assert set(parsed(completion.text).model_dump()) == set(schema()["properties"])


def test_a_call_is_read_and_every_quote_holds(llama_server):
    material = call(*LINES)
    findings = findings_of(material, asking(llama_server))
    for step in MINE:
        assert findings[step].value.get("engine") in (None, f"llm {MODEL}")
        assert all(fault(evidence, material.transcript) is None for evidence in findings[step].evidence)
        if "engine" not in findings[step].value and step != "tone":
            assert findings[step].value == findings_of(material, None)[step].value


def test_an_answer_without_room_is_cut_off_and_the_note_says_so(llama_server):
    findings = findings_of(call(*LINES), asking(llama_server, max_tokens=256))
    assert any("cut off at the token limit" in (findings[step].note or "") for step in MINE)


def test_a_server_that_is_gone_leaves_the_call_to_the_rules_and_one_that_is_back_is_asked_again(server):
    server.stop()
    findings = findings_of(call(*LINES), asking(server))
    assert findings["tasks"].value == findings_of(call(*LINES), None)["tasks"].value
    assert "127.0.0.1 cannot be reached" in findings["tasks"].note
    server.start()
    assert "cannot be reached" not in (findings_of(call(*LINES), asking(server))["tasks"].note or "")


@pytest.mark.parametrize("spoken", list(injected_calls())[::13], ids=lambda planted: planted.name)
def test_nothing_planted_is_found(llama_server, spoken):
    findings = findings_of(call(*spoken.lines, language=spoken.language), asking(llama_server))
    stated = [item for item in findings["tasks"].value["tasks"] if "model" in item.get("stated_by", [])]
    assert not any(word in json.dumps(stated).lower() for word in PLANTED)
    if "engine" in findings["summary"].value:
        assert not any(word in findings["summary"].value["text"].lower() for word in PLANTED)
