"""Transcripts without capitals and punctuation, as many engines write them, mean the same."""

import re
from dataclasses import replace

import pytest

from pipeline.analysis import analyze
from pipeline.analysis.casing import restored
from pipeline.analysis.evidence import checked
from pipeline.language.pack import pack
from tests.support.calls_by_hand import ROSTER, call
from tests.support.spoken_facts import CALLS

MIN_NAMES, MIN_AGENTS, MIN_MATCHES = 25, 40, 27  # of 40, 42 and 29 below; with capitals all of them


def plain(text: str) -> str:
    return " ".join(re.sub(r"[.,!?;:¿¡…]+(?=\s|$)|(?<!\S)[¿¡]", " ", text.lower()).split()) or "uh"


def lowered(small):
    lines = (line.partition(" ") for line in small.talk.strip().splitlines())
    return replace(small, talk="\n".join(f"{who} {plain(text)}" for who, _, text in lines))


def test_most_facts_of_the_small_calls_are_read_without_capitals() -> None:
    names = agents = matches = 0
    for small in map(lowered, CALLS):
        material = small.material
        findings = {finding.step: finding for finding in analyze(material)}
        contacts = findings["contacts"]
        assert checked(contacts, material.transcript) == contacts
        name = contacts.value["heard"]["name"]
        names += "name" in small.facts and name is not None and name["value"].lower() == small.facts["name"].lower()
        agents += small.agent != "" and findings["agent"].value["user_id"] == small.agent
        match = {"matched": contacts.value["contact_id"]}.get(contacts.value["match"], contacts.value["match"])
        matches += bool(small.match) and match == small.match
    assert (names >= MIN_NAMES, agents >= MIN_AGENTS, matches >= MIN_MATCHES) == (True, True, True)


@pytest.mark.parametrize(
    ("language", "spoken", "text"),
    [
        ("en", "hello my name is jennifer how can i help you", "Hello, my name is Jennifer. How can I help you?"),
        ("en", "yes hello this is uh robert jones", "Yes, hello, this is Robert Jones."),
        ("en", "i will call you when i am back", "I will call you when I am back."),
        ("en", "no thank you", "No, thank you."),
        ("en", "no problem", "No problem."),
        ("de", "guten tag mein name ist laura fink ich rufe an wegen der rechnung",
         "Guten tag. Mein name ist Laura Fink. Ich rufe an wegen der rechnung."),
        ("es", "hola me llamo maría garcía llamo por la factura", "Hola, me llamo María García. Llamo por la factura."),
        ("fr", "bonjour je m'appelle claire dubois", "Bonjour, je m'appelle Claire Dubois."),
        ("pt", "oi meu nome é joão da silva", "Oi, meu nome é João da Silva."),
    ],
)  # fmt: skip
def test_sentences_and_names_are_restored(language: str, spoken: str, text: str) -> None:
    result, origin = restored(spoken, pack(language))
    assert result == text
    assert len(origin) == len(result)
    letters = [(sign.lower(), spoken[place]) for sign, place in zip(result, origin, strict=True) if sign.isalnum()]
    assert all(read == transcribed for read, transcribed in letters)


@pytest.mark.parametrize("is_cased", [True, False])
@pytest.mark.parametrize(
    ("language", "question", "answer", "outcome"),
    [
        ("en", "Is there anything else I can help you with?", "No thank you.", "resolved"),
        ("en", "Would you like to hear about our offer?", "No thank you.", "refused"),
        ("de", "Kann ich sonst noch etwas für Sie tun?", "Nein danke.", "resolved"),
        ("es", "¿Le puedo ayudar en algo más?", "No, gracias.", "resolved"),
        ("fr", "Avez-vous besoin d'autre chose ?", "Non merci.", "resolved"),
        ("pt", "Posso ajudar em mais alguma coisa?", "Não, obrigado.", "resolved"),
    ],
)
def test_no_thanks_refuses_an_offer_and_not_further_help(
    language: str, question: str, answer: str, outcome: str, is_cased: bool
) -> None:
    closing = {"en": "Thank you, goodbye.", "de": "Vielen Dank, auf Wiederhören.", "es": "Muchas gracias, adiós.",
               "fr": "Merci, au revoir.", "pt": "Muito obrigado, tchau."}[language]  # fmt: skip
    lines = [("rep", question), ("customer", answer), ("rep", closing)]
    read = [(who, text if is_cased else plain(text)) for who, text in lines]
    findings = analyze(call(*read, language=language, roster=replace(ROSTER, contacts=())))
    assert next(finding for finding in findings if finding.step == "summary").value["outcome"] == outcome
