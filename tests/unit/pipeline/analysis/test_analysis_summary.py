import pytest

from pipeline.analysis import analyze
from pipeline.analysis.rules.summary.template import TemplateInvalid, checked
from pipeline.language.pack import available, pack
from tests.support.calls_by_hand import call

GREETING = ("rep", "Northwind Energy, this is Anna, how can I help you?")


def summary(*lines, **given):
    return next(finding for finding in analyze(call(*lines, **given)) if finding.step == "summary")


@pytest.mark.parametrize(
    ("language", "lines", "outcome"),
    [
        ("en", [GREETING, ("customer", "I'd like a copy of my bill."), ("rep", "I'll send it today."),
                ("customer", "Thanks, bye.")], "follow_up"),
        ("en", [GREETING, ("customer", "When do you open?"), ("rep", "At nine."), ("customer", "Thank you, bye.")],
         "resolved"),
        ("en", [("rep", "Would you like our new plan?"), ("customer", "No, I'm not interested.")], "refused"),
        ("en", [("customer", "Hello?"), ("rep", "Is that Mr. Grant?"), ("customer", "You have the wrong number.")],
         "wrong_number"),
        ("en", [("customer", "Please leave a message after the tone."), ("rep", "I'll call you again tomorrow.")],
         "voicemail"),
        ("en", [GREETING, ("customer", "Hm.")], None),
        ("es", [("rep", "¿Le interesa nuestra oferta?"), ("customer", "No me interesa.")], "refused"),
        ("de", [("rep", "Spreche ich mit Herrn Maier?"), ("customer", "Sie haben sich verwählt.")], "wrong_number"),
        ("fr", [("rep", "Bonjour."), ("customer", "Vous ouvrez quand ?"), ("rep", "À neuf heures."),
                ("customer", "Merci, au revoir.")], "resolved"),
    ],
)  # fmt: skip
def test_how_a_call_ended(language, lines, outcome):
    assert summary(*lines, language=language).value["outcome"] == outcome


def test_a_recorded_greeting_is_a_voicemail_whatever_it_says():
    from dataclasses import replace

    material = call(("customer", "Hi, Kim here, you know what to do."), ("rep", "It's Anna, goodbye."))
    first, second = material.transcript.turns
    material_with_machine = replace(
        material, transcript=replace(material.transcript, turns=(replace(first, machine=True), second))
    )
    finding = next(finding for finding in analyze(material_with_machine) if finding.step == "summary")
    assert finding.value["outcome"] == "voicemail"


LEAK = (
    GREETING,
    ("customer", "I'm calling about my washing machine, the door is leaking."),
    ("rep", "Is the washing machine still under warranty?"),
    ("customer", "Yes. And the door does not close."),
    ("rep", "I'll send a technician on Friday."),
    ("customer", "Thank you, bye."),
)


def test_a_summary_says_why_there_was_a_call_and_what_is_open():
    finding = summary(*LEAK)
    assert finding.value["text"] == (
        "The customer said: “I'm calling about my washing machine, the door is leaking.” "
        "Open: Anna Berg will send a technician (washing machine; Fri, Apr 18)."
    )
    assert [(sentence["part"], sentence["turns"]) for sentence in finding.value["sentences"]] == [
        ("reason", [1]),
        ("open", [4]),
    ]
    assert finding.note is None


def test_what_is_quoted_in_a_summary_was_said_where_it_points():
    for sentence in summary(*LEAK).value["sentences"]:
        evidence = sentence["evidence"]
        assert evidence["quote"] in LEAK[evidence["turn"]][1]
        if sentence["speaker"]:
            words = " ".join(LEAK[turn][1] for turn in sentence["turns"])
            assert all(word in words for word in sentence["text"].split())


@pytest.mark.parametrize(
    ("language", "why", "promise", "first", "text"),
    [
        ("en", "Hello there. I'm calling to move my cleaning.", "I'll mail the form today and call you on Friday.",
         "Next: The agent will mail the form (Wed, Apr 16).", "to move my cleaning"),
        ("de", "Guten Tag. Ich möchte meine Reinigung verschieben.",
         "Ich schicke Ihnen heute das Formular. Ich rufe Sie am Freitag an.", "Als Nächstes: Ansprechpartner:",
         "meine Reinigung verschieben"),
        ("es", "Buenos días. Quería cambiar la limpieza.", "Le mando hoy el formulario. Le llamo el viernes.",
         "Próximo paso: Agente:", "cambiar la limpieza"),
        ("fr", "Bonjour. Je voudrais déplacer le nettoyage.",
         "Je vous envoie le formulaire aujourd'hui. Je vous rappelle vendredi.", "Prochaine étape : Conseiller :",
         "déplacer le nettoyage"),
    ],
)  # fmt: skip
def test_of_several_tasks_the_one_due_first_is_the_next_step(language, why, promise, first, text):
    value = summary(("customer", why), ("rep", promise), language=language).value
    assert first in value["text"] and text in value["text"]
    assert [sentence["part"] for sentence in value["sentences"]] == ["reason", "open", "next_step"]


def test_a_greeting_or_a_name_is_no_reason():
    lines = (GREETING, ("customer", "Oh hello love. It's Ruth Lowe here."), ("rep", "Hello."),
             ("customer", "My radiator drips on the carpet."), ("rep", "Oh dear."))  # fmt: skip
    [reason] = summary(*lines).value["sentences"]
    assert "My radiator drips on the carpet." in reason["text"] and "love" not in reason["text"]


@pytest.mark.parametrize("line", ["Why", "{reason} {open}", "{price}", "{reason!r}", "{reason:>9}", "{reason"])
def test_a_line_of_a_template_holds_one_part(line):
    with pytest.raises(TemplateInvalid, match=r"one of|reason"):
        checked([line])


def test_every_pack_has_a_template_that_holds():
    for language in available():
        lines = pack(language).get("summary", "template")
        assert checked(lines) == tuple(lines)


def test_topics_are_words_of_the_call_with_their_turns():
    topics = {topic["text"]: topic["turns"] for topic in summary(*LEAK).value["topics"]}
    assert topics["washing machine"] == [1, 2]
    assert topics["door"] == [1, 3]
    assert "thank" not in " ".join(topics).lower()


def test_names_of_persons_are_no_topics():
    lines = (GREETING, ("customer", "Ich rufe an, weil Frau Berg und der Vertrag nicht da sind, der Vertrag fehlt."))
    topics = [topic["text"] for topic in summary(*lines, language="de").value["topics"]]
    assert topics == ["Vertrag"]


def test_nobody_speaks():
    value = summary().value
    assert (value["text"], value["outcome"], value["topics"]) == ("", "no_speech", [])


@pytest.mark.parametrize(
    ("language", "text", "outcome"),
    [
        ("en", "What number are you calling?", "wrong_number"),
        ("de", "Welche Nummer haben Sie denn gewählt?", "wrong_number"),
        ("es", "¿A qué número está llamando?", "wrong_number"),
        ("fr", "Quel numéro avez-vous fait ?", "wrong_number"),
        ("en", "Just take my name off your list.", "refused"),
        ("de", "Streichen Sie mich aus Ihrer Liste.", "refused"),
        ("es", "Bórreme de la lista.", "refused"),
        ("fr", "Enlevez-moi de votre liste.", "refused"),
    ],
)
def test_an_outcome_in_other_words(language: str, text: str, outcome: str) -> None:
    lines = (("rep", "Northwind, Anna."), ("customer", text), ("rep", "Okay."), ("customer", "Bye."))
    assert summary(*lines, language=language).value["outcome"] == outcome


def test_a_summary_is_sentences_with_names_and_each_fact_once(subtests) -> None:
    calls = {
        "Patricia Brown said: “I lost my debit card.” Anna Berg ordered a new card for Patricia Brown.": (
            GREETING, ("customer", "Hi, my name is Patricia Brown. I lost my debit card."),
            ("rep", "I've ordered a new card for you."), ("customer", "Thank you, bye."),
        ),
        "Anna Berg booked Linda Garcia's appointment (Mon, Apr 21, 11:00).": (
            GREETING, ("customer", "Hi, this is Linda Garcia. I would like to schedule an appointment."),
            ("rep", "I've booked your appointment for Monday at 11 a.m."),
            ("customer", "Thank you, bye."),
        ),
    }  # fmt: skip
    for text, lines in calls.items():
        with subtests.test(text):
            value = summary(*lines).value["text"]
            assert text in value, value
            assert "gent will" not in value and value.count("11:00") <= 1


@pytest.mark.parametrize(
    ("language", "line", "text"),
    [
        ("en", "Hi, my name is June Carter, and I need a copy of my bill.",
         "June Carter said: “I need a copy of my bill.”"),
        ("de", "Guten Tag, mein Name ist Petra Lang, ich brauche eine Kopie der Rechnung.",
         "Petra Lang sagte: „Ich brauche eine Kopie der Rechnung.“"),
        ("es", "Hola, me llamo Ana Ruiz, necesito una copia de la factura.",
         "Ana Ruiz dijo: «Necesito una copia de la factura.»"),
        ("fr", "Bonjour, je m'appelle Anne Petit, je voudrais une copie de la facture.",
         "Anne Petit a dit : « Je voudrais une copie de la facture. »"),
        ("pt", "Olá, meu nome é Ana Souza, preciso de uma cópia da fatura.",
         "Ana Souza disse: “Preciso de uma cópia da fatura.”"),
    ],
)  # fmt: skip
def test_a_reason_is_quoted_without_greeting_and_name(language: str, line: str, text: str) -> None:
    value = summary(("rep", "..."), ("customer", line), language=language).value
    assert value["text"].startswith(text)
    [sentence] = value["sentences"]
    assert sentence["text"] in line
