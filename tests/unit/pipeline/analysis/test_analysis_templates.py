from dataclasses import replace
from typing import Any

import pytest

from pipeline.analysis import analyze
from pipeline.domain.insight import Finding
from pipeline.domain.summaries import SummaryTemplate, SummaryTemplateInvalid, TemplatePart, checked
from tests.support.calls_by_hand import ROSTER, call
from tests.support.llm_by_hand import answer, findings_of, options, q

LINES = (
    ("rep", "Northwind Energy, this is Anna, how can I help you?"),
    ("customer", "I'm calling about my bill, it is twice as high as last year. I pay by transfer."),
    ("rep", "I'll send you the corrected bill by Friday."),
    ("customer", "And I'll read the meter tomorrow."),
    ("rep", "I'll call you again next Wednesday."),
)


def summary(*parts: TemplatePart, language: str = "en", lines: Any = LINES) -> Finding:
    template = checked(parts) if parts else None
    findings = analyze(call(*lines, language=language, roster=replace(ROSTER, summary=template)))
    return next(finding for finding in findings if finding.step == "summary")


def parts_of(finding: Finding) -> list[str]:
    return [sentence["part"] for sentence in finding.value["sentences"]]


def test_without_a_template_it_is_that_of_the_language() -> None:
    assert parts_of(summary()) == ["reason", "open", "next_step"]
    assert summary().value["text"].count("Next: ") == 1


def test_parts_stand_in_the_order_of_the_template_and_others_are_left_out() -> None:
    finding = summary(TemplatePart("next_step"), TemplatePart("reason"))
    assert parts_of(finding) == ["next_step", "reason"]
    assert finding.value["text"].startswith("Next: ") and "twice as high" in finding.value["text"]
    assert "corrected bill" not in finding.value["text"]


def test_a_heading_is_as_given_as_in_the_language_or_none() -> None:
    texts = [sentence["text"] for sentence in summary(TemplatePart("open", "To do")).value["sentences"]]
    assert texts[0].startswith("To do: Anna")
    assert summary(TemplatePart("open", "")).value["text"].startswith("Anna")
    lines = (("rep", "Ich schicke Ihnen die Rechnung bis Freitag."),)
    assert summary(TemplatePart("open"), language="de", lines=lines).value["text"].startswith("Offen: ")


def test_a_task_that_is_due_first_is_open_where_no_next_step_is_told() -> None:
    text = summary(TemplatePart("open")).value["text"]
    assert "meter" in text and "corrected bill" in text


def test_a_part_has_at_most_so_many_items() -> None:
    assert len(summary(TemplatePart("open", most=1)).evidence) == 1
    assert len(summary(TemplatePart("open", most=5)).evidence) == 3
    alone = summary(TemplatePart("reason", most=1)).value["text"]
    both = summary(TemplatePart("reason", most=2)).value["text"]
    assert "twice as high" in alone and len(alone) <= len(both)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "needs at least one part. Parts: reason, done, agreed, open, next_step, ending"),
        ([TemplatePart("open"), TemplatePart("open")], "'open' is repeated. Name it once"),
        ([TemplatePart("why")], "Unknown part 'why'. Parts: reason"),  # type: ignore[arg-type]
        ([TemplatePart("open", most=0)], "must be 1 to 10, not 0"),
        ([TemplatePart("open", "x" * 61)], "plain text of at most 60 characters"),
        ([TemplatePart("open", "a\x07b")], "plain text"),
        ([TemplatePart("open", "{reason}")], "without braces. Change it"),
    ],
)
def test_what_is_no_template_is_refused_with_what_to_do(parts: list[TemplatePart], message: str) -> None:
    with pytest.raises(SummaryTemplateInvalid, match=message):
        checked(parts)


def test_headings_have_single_spaces_and_no_colon_of_their_own() -> None:
    assert checked([TemplatePart("open", "  To   do: ")]) == SummaryTemplate((TemplatePart("open", "To do"),))


def test_with_a_model_the_template_holds_its_tasks(endpoint: Any) -> None:
    stated = {
        "title": "Send the corrected bill for March",
        "owner": "rep",
        "beneficiary": "customer",
        "kind": "commitment",
        "due": None,
        "quote": q(2, "I'll send you the corrected bill"),
    }
    sentence = {"text": "The bill is twice as high as last year.", "quote": q(1, "twice as high as last year")}
    stated_answer = answer(tasks=[stated], summary=[sentence], topics=[{"text": "Bill", "quote": q(1, "my bill")}])
    endpoint.answers(stated_answer)
    plain = findings_of(call(*LINES), options(endpoint))["summary"]
    assert plain.value["text"] == "The bill is twice as high as last year."
    endpoint.answers(stated_answer)
    template = checked([TemplatePart("open", "To do"), TemplatePart("reason", most=1)])
    finding = findings_of(call(*LINES, roster=replace(ROSTER, summary=template)), options(endpoint))["summary"]
    assert parts_of(finding) == ["open", "reason"]
    assert (
        finding.value["text"].startswith("To do: Anna") and "send the corrected bill for March" in finding.value["text"]
    )
    assert finding.value["topics"][0]["text"] == "Bill" and finding.value["engine"].startswith("llm")
