"""Summaries by the template of a workspace: parts, order, headings and length, without a model and with one."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.analysis import analyze
from pipeline.domain.insight import Finding
from pipeline.domain.summaries import SummaryTemplate, SummaryTemplateInvalid, TemplatePart, checked
from tests.support.calls_by_hand import ROSTER, call
from tests.support.llm_by_hand import answer, found, options, q

LINES = (
    ("rep", "Northwind Energy, this is Anna, how can I help you?"),
    ("customer", "I'm calling about my bill, it is twice as high as last year. I pay by transfer."),
    ("rep", "I'll send you the corrected bill by Friday."),
    ("customer", "And I'll read the meter tomorrow."),
    ("rep", "I'll call you again next Wednesday."),
)


def summary(*parts: TemplatePart, language: str = "en", lines: Any = LINES) -> Finding:
    own = checked(parts) if parts else None
    findings = analyze(call(*lines, language=language, roster=replace(ROSTER, summary=own)))
    return next(one for one in findings if one.step == "summary")


def parts_of(finding: Finding) -> list[str]:
    return [one["part"] for one in finding.value["sentences"]]


def test_without_a_template_it_is_that_of_the_language() -> None:
    assert parts_of(summary()) == ["reason", "open", "next_step"]
    assert summary().value["text"].count("Next: ") == 1


def test_parts_stand_in_the_order_of_the_template_and_others_are_left_out() -> None:
    found = summary(TemplatePart("next_step"), TemplatePart("reason"))
    assert parts_of(found) == ["next_step", "reason"]
    assert found.value["text"].startswith("Next: ") and "twice as high" in found.value["text"]
    assert "corrected bill" not in found.value["text"]


def test_a_heading_is_as_given_as_in_the_language_or_none() -> None:
    told = [one["text"] for one in summary(TemplatePart("open", "To do")).value["sentences"]]
    assert told[0].startswith("To do: Anna")
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
    ("parts", "told"),
    [
        ([], "needs at least one part. Parts: reason, agreed, open, next_step, ending"),
        ([TemplatePart("open"), TemplatePart("open")], "'open' is repeated. Name it once"),
        ([TemplatePart("why")], "Unknown part 'why'. Parts: reason"),  # type: ignore[arg-type]
        ([TemplatePart("open", most=0)], "must be 1 to 10, not 0"),
        ([TemplatePart("open", "x" * 61)], "plain text of at most 60 characters"),
        ([TemplatePart("open", "a\x07b")], "plain text"),
        ([TemplatePart("open", "{reason}")], "without braces. Change it"),
    ],
)
def test_what_is_no_template_is_refused_with_what_to_do(parts: list[TemplatePart], told: str) -> None:
    with pytest.raises(SummaryTemplateInvalid, match=told):
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
    told = answer(tasks=[stated], summary=[sentence], topics=[{"text": "Bill", "quote": q(1, "my bill")}])
    endpoint.answers(told)
    plain = found(call(*LINES), options(endpoint))["summary"]
    assert plain.value["text"] == "The bill is twice as high as last year."
    endpoint.answers(told)
    own = checked([TemplatePart("open", "To do"), TemplatePart("reason", most=1)])
    made = found(call(*LINES, roster=replace(ROSTER, summary=own)), options(endpoint))["summary"]
    assert parts_of(made) == ["open", "reason"]
    assert made.value["text"].startswith("To do: Anna") and "Send the corrected bill for March" in made.value["text"]
    assert made.value["topics"][0]["text"] == "Bill" and made.value["engine"].startswith("llm")
