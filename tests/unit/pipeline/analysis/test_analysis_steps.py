import json
from dataclasses import replace
from uuid import UUID

import pytest

from pipeline.analysis import STEPS, analyze, load
from pipeline.analysis.evidence import checked, fault, quote
from pipeline.analysis.step import run_all
from pipeline.domain.insight import Evidence, Finding
from pipeline.domain.speech import Transcript
from tests.support.calls_by_hand import STEREO, call

CALLS = {
    "en": (
        ("rep", "Northwind Energy, this is Anna, how can I help you?"),
        ("customer", "Hi, my name is Peter Miller. I was charged twice, that is really annoying."),
        ("rep", "I am very sorry. I will send you the invoice by Friday."),
        ("customer", "Thank you very much for your help."),
    ),
    "es": (
        ("rep", "Buenos días, soy Anna de Energía del Norte, ¿en qué puedo ayudarle?"),
        ("customer", "Hola, me llamo Peter Miller. Quería la factura, es una vergüenza."),
        ("rep", "Lo siento. Le enviaré la factura antes del viernes."),
        ("customer", "Muchas gracias por su ayuda."),
    ),
    "de": (
        ("rep", "Guten Tag, hier ist Anna von Nordwind Energie, wie kann ich Ihnen helfen?"),
        ("customer", "Guten Tag, mein Name ist Peter Miller. Ich möchte mich beschweren."),
        ("rep", "Das tut mir leid. Ich schicke Ihnen die Rechnung bis Freitag."),
        ("customer", "Vielen Dank für Ihre Hilfe."),
    ),
    "fr": (
        ("rep", "Bonjour, ici Anna, comment puis-je vous aider ?"),
        ("customer", "Bonjour, je m'appelle Peter Miller. J'appelle pour une erreur."),
        ("rep", "Je suis désolée. Je vous envoie la facture avant vendredi."),
        ("customer", "Merci beaucoup."),
    ),
}
DUE = {"en": "2025-04-18", "es": "2025-04-17", "de": "2025-04-18", "fr": "2025-04-17"}


def findings(material):
    return {finding.step: finding for finding in analyze(material)}


@pytest.mark.parametrize("language", CALLS)
def test_a_call_is_read_in_each_language(language):
    by_step = findings(call(*CALLS[language], language=language))
    assert by_step["direction"].value["outgoing"] is False
    assert by_step["agent"].value["user_id"] == "u1"
    assert by_step["contacts"].value["heard"]["name"]["value"] == "Peter Miller"
    assert by_step["contacts"].value["contact_id"] == "c1"
    (task,) = by_step["tasks"].value["tasks"]
    assert (task["owner"], task["due_date"], task["owner_user_id"]) == ("rep", DUE[language], "u1")
    assert by_step["summary"].value["outcome"] == "follow_up"


@pytest.mark.parametrize("language", CALLS)
def test_findings_are_plain_data_and_their_quotes_hold(language):
    material = call(*CALLS[language], language=language)
    for finding in analyze(material):
        assert json.loads(json.dumps(finding.value)) == finding.value
        assert all(fault(evidence, material.transcript) is None for evidence in finding.evidence)
        assert not any(problem in (finding.note or "") for problem in ("evidence dropped", "the step failed"))


def test_the_same_call_gives_the_same_findings():
    material = call(*CALLS["en"])
    assert analyze(material) == analyze(material)


def test_a_language_without_a_pack_falls_back_and_says_so():
    by_step = findings(call(("rep", "Dzień dobry, w czym mogę pomóc?"), ("customer", "Dziękuję."), language="pl"))
    for step in ("tone", "tasks", "summary", "contacts", "direction"):
        assert "no language pack for language 'pl'" in by_step[step].note
    assert by_step["tasks"].value == {"tasks": []}
    assert by_step["tone"].value["overall"] is None
    assert by_step["statistics"].note is None
    assert by_step["statistics"].value["parties"]["rep"]["questions"] == 1


def test_a_call_nobody_speaks_in_is_analyzed_without_failure():
    silent = call(("rep", "x"))
    material = replace(silent, transcript=Transcript(None, None, 12.0, (), (), STEREO, "by hand", "no speech"))
    by_step = findings(material)
    assert by_step["summary"].value["outcome"] == "no_speech"
    assert not any(note for finding in by_step.values() if (note := finding.note) and "failed" in note)


class Breaks:
    name, version = "breaks", 7

    def run(self, material):
        raise RuntimeError("out of order")


class Invents:
    name, version = "invents", 1

    def run(self, material):
        false = Evidence(0, 0.0, 1.0, "never said")
        true = quote(material.transcript.turns[0])
        value = {
            "items": [{"evidence": evidence_of(false)}, {"evidence": evidence_of(true)}],
            "one": evidence_of(false),
        }
        return Finding(self.name, self.version, value, (false, true))


def evidence_of(evidence):
    return {"turn": evidence.turn, "start": evidence.start, "end": evidence.end, "quote": evidence.quote}


class SeesTheOthers:
    name, version = "sees", 1

    def run(self, material):
        return Finding(self.name, self.version, {"before": sorted(material.findings)})


def test_a_step_that_raises_stops_no_other():
    steps = (f"{__name__}:Breaks", f"{__name__}:SeesTheOthers")
    broken, after = run_all(call(*CALLS["en"]), steps)
    assert (broken.step, broken.version, broken.value) == ("breaks", 7, {})
    assert broken.note == "the step failed (RuntimeError)"
    assert after.value == {"before": ["breaks"]}


def test_a_step_that_cannot_be_loaded_has_its_finding_under_its_name():
    (missing,) = run_all(call(*CALLS["en"]), (f"{__name__}:AgentStep",))
    assert (missing.step, missing.value, missing.note) == ("agent", {}, "the step failed (AttributeError)")


def test_evidence_that_does_not_hold_is_dropped_and_the_note_says_so():
    material = call(*CALLS["en"])
    finding = checked(Invents().run(material), material.transcript)
    assert [evidence.quote for evidence in finding.evidence] == [material.transcript.turns[0].text]
    assert len(finding.value["items"]) == 1
    assert finding.value["one"] is None
    assert "does not occur in turn 0" in finding.note


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (Evidence(9, 0.0, 1.0, "Hi"), "there is no turn 9"),
        (Evidence(0, 0.0, 9.0, "Northwind"), "a quote is outside the times of turn 0"),
        (Evidence(0, 1.0, 0.5, "Northwind"), "a quote is outside the times of turn 0"),
        (Evidence(0, 0.0, 1.0, "northwind"), "a quote does not occur in turn 0"),
        (Evidence(0, 0.0, 1.0, " "), "a quote does not occur in turn 0"),
    ],
)
def test_a_quote_stands_verbatim_in_its_turn_and_within_its_times(evidence, why):
    assert fault(evidence, call(*CALLS["en"]).transcript) == why


def test_what_the_sender_said_is_never_overwritten():
    sent = UUID("00000000-0000-4000-8000-0000000000aa")
    by_step = findings(call(*CALLS["en"], outgoing=True, user_id=sent))
    assert by_step["direction"].value == {"outgoing": True, "source": "sender", "cues": []}
    assert by_step["agent"].value["user_id"] == str(sent)
    assert by_step["agent"].value["source"] == "sender"


BEFORE_THE_SUMMARY = ("statistics", "direction", "agent", "contacts", "tasks", "summary")  # each may read those above


def test_the_steps_are_named_once_and_in_order():
    names = [finding.step for finding in analyze(call(*CALLS["en"]))]
    assert names == [load(entry).name for entry in STEPS] and len(set(names)) == len(names)
    assert [name for name in names if name in BEFORE_THE_SUMMARY] == list(BEFORE_THE_SUMMARY)
