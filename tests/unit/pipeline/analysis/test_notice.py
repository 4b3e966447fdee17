"""The notice that a call is recorded: found in each language, by whom; not found; not evaluated."""

from dataclasses import replace

import pytest

from pipeline.analysis.questions.step import QuestionsStep
from pipeline.analysis.step import run_all
from pipeline.domain.insight import Finding, Material
from pipeline.domain.questions import Question
from tests.support.calls_by_hand import call

GIVEN = {
    "en": (
        "This call may be recorded for quality and training purposes.",
        "All calls are monitored and recorded.",
        "Just so you know, this call is being recorded.",
        "Please be aware that your call will be recorded.",
        "I have to tell you that we record all our calls.",
        "You're on a recorded line, is that okay?",
        "I'm recording this call, just so you know.",
        "Is it okay if we record this call?",
        "For your security this conversation is recorded.",
        "We're recording this conversation for training.",
    ),
    "es": (
        "Esta llamada puede ser grabada por motivos de calidad.",
        "Le informo que esta conversación está siendo grabada.",
        "Le recuerdo que su llamada será grabada.",
        "Las llamadas se graban para mejorar el servicio.",
        "Estamos grabando esta llamada, ¿está de acuerdo?",
    ),
    "fr": (
        "Cet appel est susceptible d'être enregistré afin d'améliorer la qualité.",
        "Votre conversation sera enregistrée.",
        "Je vous informe que cet appel est enregistré.",
        "Nous enregistrons les appels pour la formation.",
        "L'appel peut être enregistré.",
    ),
    "de": (
        "Dieses Gespräch wird zu Schulungszwecken aufgezeichnet.",
        "Das Telefonat kann aufgezeichnet werden.",
        "Ich möchte Sie darauf hinweisen, dass wir Gespräche aufzeichnen.",
        "Wir zeichnen dieses Gespräch auf, sind Sie damit einverstanden?",
        "Zur Qualitätssicherung wird das Gespräch mitgeschnitten.",
    ),
    "pt": (
        "Esta ligação está sendo gravada.",
        "Esta chamada poderá ser gravada para fins de qualidade.",
        "Informo que a sua chamada vai ser gravada.",
        "Estamos a gravar esta chamada, concorda?",
        "Por motivos de segurança, esta conversa é gravada.",
    ),
}
NOT_GIVEN = {
    "en": (
        "Is this call being recorded?",
        "We do not record this call.",
        "This call is not recorded.",
        "Are you recording this call?",
        "I bought a record for my mother, and I called you about the recorder.",
        "The payment was recorded on Monday.",
        "I set a new record on the call center's line.",
    ),
    "es": (
        "¿Está siendo grabada esta llamada?",
        "Esta llamada no se graba.",
        "He grabado un disco.",
        "No grabamos las llamadas.",
    ),
    "fr": (
        "Est-ce que cet appel est enregistré ?",
        "Cet appel n'est pas enregistré.",
        "J'ai enregistré votre demande.",
        "Votre paiement est enregistré.",
    ),
    "de": (
        "Wird das Gespräch aufgezeichnet?",
        "Dieses Gespräch wird nicht aufgezeichnet.",
        "Wir haben Ihre Bestellung aufgenommen.",
        "Ich nehme den Anruf gern entgegen.",
    ),
    "pt": (
        "Esta ligação está sendo gravada?",
        "Esta chamada não é gravada.",
        "A música foi gravada em Lisboa.",
        "Não gravamos as chamadas.",
    ),
}


def notice(material: Material) -> Finding:
    return next(finding for finding in run_all(material) if finding.step == "recording_notice")


def by_machine(material: Material, index: int) -> Material:
    turns = tuple(replace(turn, machine=turn.index == index) for turn in material.transcript.turns)
    return replace(material, transcript=replace(material.transcript, turns=turns))


@pytest.mark.parametrize("language", GIVEN)
def test_a_notice_is_found_with_its_second_and_its_words(language: str) -> None:
    for sentence in GIVEN[language]:
        finding = notice(call(("customer", "Okay."), ("rep", sentence), language=language))
        assert finding.value == {"state": "found", "at": finding.evidence[0].start, "by": "rep"}, sentence
        assert 3.5 <= finding.evidence[0].start < 6.5 and finding.evidence[0].quote in sentence


@pytest.mark.parametrize("language", NOT_GIVEN)
def test_a_question_about_it_a_denial_and_other_records_are_none(language: str) -> None:
    for sentence in NOT_GIVEN[language]:
        finding = notice(call(("customer", sentence), ("rep", "Okay."), language=language))
        assert finding.value == {"state": "not_found", "at": None, "by": None}, sentence


def test_it_says_who_gave_it() -> None:
    lines = (("rep", GIVEN["en"][0]), ("customer", "Okay."), ("rep", "Hello, this is Anna."))
    assert notice(by_machine(call(*lines), 0)).value["by"] == "announcement"
    assert notice(call(*lines)).value["by"] == "rep"
    assert notice(call(("customer", GIVEN["en"][6]))).value["by"] == "customer"
    assert notice(call(("A", GIVEN["en"][6]))).value["by"] == "unknown"


def test_what_could_not_be_read_is_not_called_missing() -> None:
    polish = notice(call(("rep", "Ta rozmowa jest nagrywana."), language="pl"))
    assert (polish.value["state"], polish.note) == ("could_not_look", polish.note) and "pl" in str(polish.note)
    silent = notice(call())
    assert silent.value["state"] == "could_not_look" and silent.note == "no speech in this call"


def test_a_required_tracker_uses_it() -> None:
    question = Question("notice", type="tracker", finding="recording_notice", required=True)
    incoming = replace(question, outgoing=False)
    cases = (
        (call(("rep", GIVEN["en"][0])), question, ("said", False, 1)),
        (by_machine(call(("rep", GIVEN["en"][0]), ("rep", "Hello.")), 0), question, ("said", False, 1)),
        (call(("rep", "Hello.")), question, ("not_said", True, 0)),
        (call(("rep", "Hello.")), replace(question, required=False), ("not_said", False, 0)),
        (call(("rep", "Dzień dobry."), language="pl"), question, ("not_asked", False, 0)),
        (call(("rep", "Hello."), outgoing=True), incoming, ("out_of_scope", False, 0)),
    )
    for material, asked, expected in cases:
        of_workspace = replace(material, roster=replace(material.roster, questions=(asked,)))
        finding = next(finding for finding in run_all(of_workspace) if finding.step == QuestionsStep.name)
        (tracker,) = finding.value["trackers"]
        assert (tracker["state"], tracker["raised"], len(tracker["matches"])) == expected
