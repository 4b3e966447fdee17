import time
from dataclasses import replace
from typing import Any

import pytest

from pipeline.analysis.evidence import checked
from pipeline.analysis.questions.step import QuestionsStep
from pipeline.analysis.step import run_all
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.insight import Finding, Material
from pipeline.domain.questions import Question
from pipeline.domain.speech import Role
from tests.support.calls_by_hand import call, speakers
from tests.support.calls_by_hand import turn as turn_of

CALL = call(
    ("rep", "Northwind Energy, this is Anna. This call is being recorded."),
    ("customer", "I want to cancel, because the price went up. I pay 1,200 euros, twenty-five a week."),
    ("rep", "Could I offer you an appointment on Friday? We have the Gigabox. The Gigabox is nice."),
    ("customer", "No, I never wanted appointments. What about the Metro Cable?"),
)


def finding_of(material: Material, *questions: Question) -> Finding:
    asked = replace(material, roster=replace(material.roster, questions=questions))
    finding = QuestionsStep().run(asked)
    assert checked(finding, material.transcript) == finding, "each quote stands where it says"
    return finding


def answer(question: Question, material: Material = CALL) -> dict[str, Any]:
    (result,) = finding_of(material, question).value["answers"]
    assert set(result) == set(QuestionAnswer.__dataclass_fields__)
    return result


def tracked(question: Question, material: Material = CALL) -> dict[str, Any]:
    (result,) = finding_of(material, question).value["trackers"]
    assert set(result) == set(TrackerResult.__dataclass_fields__)
    return result


def quote_of(phrase: str, material: Material = CALL, **more: Any) -> str | None:
    """Return the quote that a phrase matches."""
    result = answer(Question("q", phrases=(phrase,), **more), material)
    return result["evidence"]["quote"] if result["state"] == "said" else None


def test_a_yes_carries_its_words_its_second_and_who_said_them() -> None:
    result = answer(
        Question("offered", question="Was one offered?", party="rep", phrases=("offer you an appointment",))
    )
    assert (result["state"], result["answer"], result["said_by"], result["found_by"]) == (
        "said",
        "yes",
        "rep",
        "phrases",
    )
    assert result["evidence"]["quote"] == "offer you an appointment" and 7.0 < result["evidence"]["start"] < 8.0
    assert result["confidence"] == 0.9, "how surely the words were recognized"


@pytest.mark.parametrize(
    ("phrase", "quote"),
    [
        ("OFFER you AN appointment", "offer you an appointment"),
        ("offering you appointments", None),
        ("offered ... appointments", "offer you an appointment"),
        ("the price went up I pay", "the price went up. I pay"),
        ("record*", "recorded."),
        ("recording", "recorded."),
        ("cancel", "cancel,"),
        ("can", None),
        ("offer ... cable", None),
    ],
)
def test_a_phrase_is_found_in_its_forms_and_not_in_parts_of_words(phrase: str, quote: str | None) -> None:
    assert quote_of(phrase) == quote


@pytest.mark.parametrize(
    ("language", "line", "phrase"),
    [
        ("de", "Wir haben die Verträge gekündigt.", "vertrag kündigen"),
        ("de", "Die Kündigung der Verträge ist da.", "kündigung der vertrag"),
        ("fr", "J'ai annulé les rendez-vous.", "annuler les rendez-vous"),
        ("es", "Quería cancelar las citas.", "cancelar la* cita"),
        ("it", "Vorrei disdire i contratti.", "disdire i contratto"),
        ("pt", "Quero cancelar os contratos.", "cancelar os contrato"),
        ("ja", "契約を解約したいです", "解約したい"),
        (None, "Cancel it.", "cancel it"),
    ],
)
def test_words_match_in_the_forms_of_their_language(language: str | None, line: str, phrase: str) -> None:
    expected = None if phrase == "vertrag kündigen" else True  # an infinitive's stem is another than the participle's
    assert bool(quote_of(phrase, call(("customer", line), language=language))) == bool(expected)


def test_only_the_party_that_is_asked_about_counts_and_no_machine() -> None:
    assert quote_of("appointment", party="customer") == "appointments."
    assert quote_of("appointment", party="rep") == "appointment"
    assert quote_of("cancel", party="rep") is None
    turns = (replace(CALL.transcript.turns[0], machine=True), *CALL.transcript.turns[1:])
    assert quote_of("recorded", replace(CALL, transcript=replace(CALL.transcript, turns=turns))) is None


def test_minutes_count_from_the_first_word_of_a_person_and_before_the_last() -> None:
    spoken = CALL.transcript.turns
    late = tuple(
        turn_of(spoken_turn.index, spoken_turn.speaker, spoken_turn.start + 60, spoken_turn.end + 60, spoken_turn.text)
        for spoken_turn in spoken
    )
    material = replace(CALL, transcript=replace(CALL.transcript, turns=late, duration=100.0))
    assert quote_of("recorded", material, first=0.05) == "recorded."
    assert quote_of("offer", material, first=0.05) is None
    assert quote_of("cable", material, last=0.05) == "Cable?"
    assert quote_of("offer", material, last=0.05) is None


def test_unless_takes_back_what_stands_in_the_same_sentence() -> None:
    assert quote_of("cancel", unless=("price went up",)) is None
    assert quote_of("cancel", unless=("weekly", "I pay")) == "cancel,", "another sentence"
    result = answer(Question("q", phrases=("appointment",), unless=("never",)))
    assert result["said_by"] == "rep"
    assert answer(Question("q", phrases=("appointment",), unless=("never",), party="customer"))["state"] == "not_said"


@pytest.mark.parametrize(
    ("question", "value", "quote"),
    [
        (Question("q", "number", phrases=("pay",)), 1200.0, "pay 1,200"),
        (Question("q", "number", phrases=("a week",)), 25.0, "twenty-five a week."),
        (Question("q", "date", phrases=("appointment",)), "2025-04-18", "appointment on Friday?"),
        (Question("q", "text", phrases=("because",)), "the price went up", "because the price went up."),
        (Question("q", "choice", choices={"Cable": ("cable",), "Gigabox": ("gigabox",)}), "Gigabox", "Gigabox."),
        (Question("q", "choice", choices={"Cable": ("cable",), "Fiber": ("fiber",)}), "Cable", "Cable?"),
    ],
)
def test_values_stand_beside_their_phrases(question: Question, value: Any, quote: str) -> None:
    result = answer(question)
    assert (result["answer"], result["evidence"]["quote"]) == (value, quote)


@pytest.mark.parametrize("kind", ["number", "date", "text"])
def test_a_phrase_without_a_value_is_not_said(kind: Any) -> None:
    assert answer(Question("q", kind, phrases=("metro cable",)))["state"] == "not_said"


def test_what_cannot_be_looked_for_is_not_asked_and_never_guessed() -> None:
    assert answer(Question("q", question="Why?"))["state"] == "not_asked"
    assert "no phrases" in answer(Question("q", question="Why?"))["reason"]
    nobody = call(("A", "Hello."), ("B", "I cancel."))
    result = answer(Question("q", party="customer", phrases=("cancel",)), nobody)
    assert (result["state"], result["reason"]) == ("not_asked", "the customer is not identified")
    assert quote_of("cancel", nobody) == "cancel.", "of anyone it can be said"
    alone = answer(Question("q", party="rep", phrases=("hello",)), call(("customer", "Hello.")))
    assert (alone["state"], alone["reason"]) == ("not_asked", "the rep does not speak in this call")
    assert answer(Question("q", phrases=("hello",)), call())["reason"] == "no speech in this call"


@pytest.mark.parametrize(
    ("limits", "material", "state"),
    [
        ({"outgoing": False}, call(("rep", "Hello."), outgoing=False), "said"),
        ({"outgoing": True}, call(("rep", "Hello."), outgoing=False), "out_of_scope"),
        ({"outgoing": True}, call(("rep", "Hello.")), "not_asked"),
        ({"languages": ("en", "de")}, call(("rep", "Hello.")), "said"),
        ({"languages": ("de",)}, call(("rep", "Hello.")), "out_of_scope"),
        ({"languages": ("de",)}, call(("rep", "Hello."), language=None), "not_asked"),
        ({"teams": ("t1",)}, call(("rep", "Hello.")), "out_of_scope"),
    ],
)
def test_questions_are_of_the_calls_that_they_name(limits: dict[str, Any], material: Material, state: str) -> None:
    assert answer(Question("q", phrases=("hello",), **limits), material)["state"] == state


def test_the_direction_that_an_earlier_step_found_counts() -> None:
    material = replace(CALL, findings={"direction": Finding("direction", 1, {"outgoing": True})})
    assert quote_of("cancel", material, outgoing=True) == "cancel,"


def test_a_tracker_is_raised_by_its_phrases_and_keeps_each_place() -> None:
    result = tracked(Question("cancels", "tracker", phrases=("appointment", "gigabox")))
    assert (result["state"], result["raised"]) == ("said", True)
    assert [(m["said_by"], m["evidence"]["quote"]) for m in result["matches"]] == [
        ("rep", "appointment"),
        ("rep", "Gigabox."),
        ("rep", "Gigabox"),
        ("customer", "appointments."),
    ]
    assert tracked(Question("q", "tracker", phrases=("refund",)))["raised"] is False


def test_a_required_disclosure_is_raised_where_it_is_missing() -> None:
    notice = Question("notice", "tracker", party="rep", first=1.0, required=True, phrases=("call is being recorded",))
    assert tracked(notice)["raised"] is False
    late = replace(notice, first=0.02)
    assert (tracked(late)["state"], tracked(late)["raised"]) == ("not_said", True)
    silent = tracked(notice, call(("customer", "Hello? Nobody there.")))
    assert (silent["state"], silent["raised"]) == ("not_asked", False), "nobody was there to say it"


def test_the_step_stands_among_the_others_and_says_nothing_without_questions() -> None:
    (finding,) = [item for item in run_all(CALL) if item.step == "questions"]
    assert finding == Finding("questions", 1, {"answers": [], "trackers": []})


def test_unknown_roles_do_not_keep_a_known_party_from_being_asked() -> None:
    mixed = replace(CALL.transcript, speakers=(*speakers("rep", "customer"), *speakers("C", role=Role.UNKNOWN)))
    assert quote_of("cancel", replace(CALL, transcript=mixed), party="customer") == "cancel,"


def test_two_thousand_phrases_in_a_long_call_take_seconds_at_most() -> None:
    line = "so what I would like to say about the invoice is this " * 2
    lines = [("rep" if at % 2 else "customer", line) for at in range(400)]
    phrases = tuple(f"would like ... word{at} about" for at in range(100))
    began = time.monotonic()
    finding_of(
        call(*lines), *(Question(f"q{at}", phrases=tuple(f"{phrase} {at}" for phrase in phrases)) for at in range(20))
    )
    assert time.monotonic() - began < 30
