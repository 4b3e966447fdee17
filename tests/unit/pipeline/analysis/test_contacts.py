from dataclasses import replace

import pytest

from pipeline.analysis.evidence import checked
from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.agent import AgentStep
from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.domain.insight import Contact
from pipeline.domain.telephone import e164
from pipeline.language.pack import pack
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.numbers import digit_runs
from pipeline.language.spoken.spelling import remarks, rewritten, spelled_words
from tests.support.calls_by_hand import ROSTER, call
from tests.support.spoken_facts import CALLS

UNKNOWN = ("+15550000000", "+12025550100")


def contacts_of(material):
    by_step = {step.name: step.run(material) for step in (DirectionStep(), AgentStep())}
    return ContactsStep().run(replace(material, findings=by_step))


@pytest.mark.parametrize("small", CALLS, ids=str)
def test_what_is_said_of_the_other_party_is_found_and_nothing_else(small):
    value = contacts_of(small.material).value
    spoken = {field: fact["value"] for field, fact in value["heard"].items() if fact}
    if "phone" in spoken:
        del spoken["phone"]
        spoken["e164"] = value["heard_number"]
    assert spoken == small.facts
    if small.match:
        assert {"matched": value["contact_id"]}.get(value["match"], value["match"]) == small.match


@pytest.mark.parametrize("small", CALLS, ids=str)
def test_all_evidence_holds_to_the_letter(small):
    material = small.material
    finding = contacts_of(material)
    assert checked(finding, material.transcript) == finding


@pytest.mark.parametrize(
    ("language", "text", "digits"),
    [
        ("en", "oh seven seven double oh, nine hundred, double four one", "07700900441"),
        ("en", "It's 555, no, sorry, 556, 0123.", "5560123"),
        ("en", "020 7946 0958, no wait, 020 7946 0985", "02079460985"),
        ("en", "plus four four, twenty, seven nine four six, oh nine five eight", "+442079460958"),
        ("en", "It is four one five. Five five five. Oh one nine nine.", "4155550199"),
        ("de", "null hundertsechsundsiebzig, vier fünf sechs, achtundneunzig zwölf", "01764569812"),
        ("de", "null acht hundert, zwo zwo zwo, drei drei drei", "0800222333"),
        ("es", "Es el seiscientos veintidós, cincuenta y cinco, cincuenta y cinco, cero uno", "622555501"),
        ("fr", "zéro quatre cent septante-cinq, douze, trente-quatre, cinquante-six", "0475123456"),
    ],
)
def test_numbers_in_groups_and_corrected_become_digits(language, text, digits):
    assert [run.text for run in digit_runs(text, pack(language))] == [digits]


@pytest.mark.parametrize(
    ("language", "text", "address"),
    [
        ("de", "j punkt müller at nordwind minus shop punkt de", "j.mueller@nordwind-shop.de"),
        ("de", "k punkt Öztürk, at, stadtwerke, bindestrich, linz, punkt, at.", "k.oeztuerk@stadtwerke-linz.at"),
        ("de", "s wie Siegfried punkt Groß at Web Punkt d e.", "s.gross@web.de"),
        ("en", "it's m as in Mike, a, r, t, h, a underscore 72 at gmail dot com.", "martha_72@gmail.com"),
        ("en", "So it's jane smith, all one word, at o'brien dash taps dot co dot uk.", "janesmith@obrien-taps.co.uk"),
        ("en", "My email is J-A-N-E dot double u at yahoo dot co dot uk", "jane.w@yahoo.co.uk"),
        ("en", "tom dot b at k e s t r e l dot i e", "tom.b@kestrel.ie"),
        ("en", "Is j.miller@acme-tools.com still right?", "j.miller@acme-tools.com"),
        ("es", "es eme punto garcía arroba gmail punto com", "m.garcia@gmail.com"),
        ("es", "marta lopez ochenta y dos arroba hotmail punto com", "martalopez82@hotmail.com"),
        ("fr", "c'est sophie point l e grand arobase orange point fr", "sophie.legrand@orange.fr"),
        ("fr", "p point martin, arobase, wanadoo, point, fr", "p.martin@wanadoo.fr"),
    ],
)
def test_an_address_spelled_out_becomes_an_email(language, text, address):
    assert [match.text for match in emails(text, pack(language))] == [address]


@pytest.mark.parametrize("text", ["I'll be at the office at noon.", "Look at the dot on the map.", "at", "dot com", ""])
def test_an_at_in_plain_talk_is_no_email(text):
    assert list(emails(text, pack("en"))) == []


@pytest.mark.parametrize(
    ("language", "text", "word"),
    [
        ("en", "B for Bravo, R for Romeo, A as in apple, double N", "brann"),
        ("de", "M wie Martha, E, Y, E, R", "meyer"),
        ("de", "M, ü, doppel L, e, r", "müller"),
        ("de", "Heinrich, Otto, Friedrich, Emil, Richard.", "hofer"),
        ("es", "ge, i griega, ele, uve de Valencia", "gylv"),
        ("fr", "B comme Bernard, O, deux N, I grec", "bonny"),
    ],
)
def test_spelling_alphabets_and_doubled_letters_are_read(language, text, word):
    assert [match.text for match in spelled_words(text, pack(language))] == [word]


@pytest.mark.parametrize(
    ("language", "name", "text", "written"),
    [
        ("en", "Caren", "It's Karen with a K.", "Karen"),
        ("en", "Phillips", "with one L", "Philips"),
        ("en", "Jon", "John with an H", "John"),
        ("en", "Mary", "with my dog", "Mary"),
        ("de", "Meier", "Mayer mit a y", "Mayer"),
        ("de", "Schmidt", "Schmitt mit zwei T", "Schmitt"),
        ("de", "Thomas", "ohne h", "Tomas"),
        ("es", "Giménez", "con jota", "Jiménez"),
        ("fr", "Mathieu", "avec deux t", "Matthieu"),
    ],
)
def test_a_remark_about_its_letters_corrects_a_name(language, name, text, written):
    for remark in remarks(text, pack(language)):
        name = rewritten(name, remark)
    assert name == written


def test_a_number_without_its_country_is_read_in_that_of_the_calls_numbers():
    lines = (("rep", "Hello."), ("customer", "Call me on 020 7946 0958, please."))
    roster = replace(ROSTER, default_country=None)
    value = contacts_of(call(*lines, roster=roster, numbers=("+442079460991", "+442079460100"))).value
    assert value["heard_number"] == "+442079460958"
    assert e164("020 7946 0958", None) is None


def test_a_shared_number_is_ambiguous_until_a_name_is_said():
    people = tuple(
        Contact(f"c{at}", name, None, None, "+12025550177") for at, name in enumerate(("Joan", "Hugh Price"))
    )
    roster, numbers = replace(ROSTER, contacts=people), ("+12025550177", "+12025550100")
    silent = contacts_of(call(("customer", "It is broken."), roster=roster, numbers=numbers)).value
    assert (silent["match"], {c["contact_id"] for c in silent["candidates"]}) == ("ambiguous", {"c0", "c1"})
    value = contacts_of(call(("customer", "Hi, this is Hugh."), roster=roster, numbers=numbers)).value
    assert (value["match"], value["contact_id"]) == ("matched", "c1")


def test_a_name_that_sounds_like_two_contacts_names_neither():
    roster = replace(ROSTER, contacts=(Contact("c1", "Katherine Reed"), Contact("c2", "Catherine Reid")))
    value = contacts_of(call(("customer", "My name is Katharine Reade."), roster=roster, numbers=UNKNOWN)).value
    assert (value["match"], value["contact_id"]) == ("ambiguous", None)


def test_what_differs_from_the_contact_is_a_suggestion():
    lines = (("customer", "Hi, this is Peter Miller, my new email is peter dot miller at gmail dot com."),)
    value = contacts_of(call(*lines)).value
    assert (value["match"], value["contact_id"]) == ("matched", "c1")
    (suggestion,) = value["suggestions"]
    assert (suggestion["field"], suggestion["known"]) == ("email", "peter@miller.example")
    assert suggestion["heard"] == "peter.miller@gmail.com"
    assert suggestion["evidence"]["quote"].startswith("peter dot miller")


def test_a_first_name_of_a_contact_stands_for_the_whole_and_is_kept_as_said():
    value = contacts_of(call(("rep", "Hello."), ("customer", "Hi, it's Petra."), numbers=UNKNOWN)).value
    assert value["heard"]["name"]["value"] == "Petra Miller"
    assert value["heard"]["name"]["said"] == "Petra"


def test_a_machine_says_nothing_about_the_party_but_whose_box_it_is():
    greeting = "You have reached Petra Miller. My number is 202 555 0188."
    material = call(("customer", greeting), ("rep", "Hi, this is Anna."), numbers=UNKNOWN)
    turns = (replace(material.transcript.turns[0], machine=True), *material.transcript.turns[1:])
    value = contacts_of(replace(material, transcript=replace(material.transcript, turns=turns))).value
    assert (value["contact_id"], value["heard"]["phone"]) == ("c2", None)


def test_nothing_is_heard_at_a_wrong_number():
    lines = (("rep", "Hello, is that Petra?"), ("customer", "No, you have the wrong number."))
    value = contacts_of(call(*lines, numbers=UNKNOWN)).value
    assert (value["match"], value["reason"]) == ("none", "a wrong number")
    assert not any(value["heard"].values())


def test_a_long_row_of_digits_is_not_cut_into_numbers():
    """Cutting it, and looking for an address around each part, takes cubic time."""
    text = "one " * 1000
    (run,) = digit_runs(text, pack("en"))
    assert run.text == "1" * 1000


@pytest.mark.parametrize("text", ["...", "Ähm", "1 2 3", "@", "a.b@c.d " * 200, "one " * 500])
@pytest.mark.parametrize("language", ["en", "de", "es", "fr", "pl", None])
def test_odd_text_gives_no_name_and_no_error(text, language):
    assert contacts_of(call(("customer", text), ("rep", text), language=language)).value["heard"]["name"] is None
