import pytest

from pipeline.analysis import analyze
from pipeline.language.pack import available, pack
from pipeline.language.schema import OPTIONAL
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.numbers import digit_runs
from pipeline.language.spoken.spelling import spelled_words
from tests.support.calls_by_hand import ROSTER, call


def finding(step, *lines, **given):
    return next(found_finding for found_finding in analyze(call(*lines, **given)) if found_finding.step == step)


UNKNOWN_CALLER = ("+15550000000", "+12025550100")
OUTGOING = ("+12025550100", "+12025550143")
GREETING = ("rep", "Northwind Energy, this is Anna, how can I help you?")


@pytest.mark.parametrize(
    ("language", "text", "digits"),
    [
        ("en", "Two one six, five five five, oh one two eight.", "2165550128"),
        ("en", "It is double five, triple two, 0 1.", "5522201"),
        ("es", "seis dos dos, cinco cinco cinco, cero cuarenta y uno", "622555041"),
        ("de", "null eins fünf eins, zwölf, vierunddreißig, sechs", "015112346"),
        ("fr", "zéro six, douze, trente-quatre, cinquante-six, soixante-dix-huit", "0612345678"),
        ("fr", "zéro un, quatre-vingt-douze, vingt et un, quarante, dix", "0192214010"),
    ],
)
def test_spoken_numbers_become_digits(language, text, digits):
    assert [run.text for run in digit_runs(text, pack(language))] == [digits]


@pytest.mark.parametrize(
    ("language", "text", "address"),
    [
        ("en", "It's rosie dot t at fastmail dot com.", "rosie.t@fastmail.com"),
        ("en", "tamsin at bellwether toys dot com", "tamsin@bellwethertoys.com"),
        ("en", "write to Info@Example.org please", "info@example.org"),
        ("es", "pablo guion bajo sanz arroba correo punto es", "pablo_sanz@correo.es"),
        ("de", "hans punkt weber at nordwind punkt de", "hans.weber@nordwind.de"),
        ("fr", "luc tiret petit arobase poste point fr", "luc-petit@poste.fr"),
    ],
)
def test_spoken_addresses_become_emails(language, text, address):
    assert [match.text for match in emails(text, pack(language))] == [address]


def test_letters_spelled_out_become_a_word():
    assert [match.text for match in spelled_words("Walcott. W-A-L-C-O-double-T.", pack("en"))] == ["walcott"]


def test_the_other_partys_number_is_on_the_side_the_direction_says():
    lines = (GREETING, ("customer", "Hello."))
    assert finding("contacts", *lines, outgoing=False).value["number"] == "+12025550143"
    assert finding("contacts", *lines, outgoing=True).value["number"] == "+12025550100"


def test_a_number_and_a_name_match_a_contact():
    value = finding("contacts", GREETING, ("customer", "Hi, my name is Peter Miller.")).value
    assert (value["match"], value["contact_id"], value["reason"]) == ("matched", "c1", "number and name")


def test_another_name_on_a_known_number_is_ambiguous():
    value = finding("contacts", GREETING, ("customer", "Hello, my name is Zoltan Kovacs.")).value
    assert (value["match"], value["contact_id"]) == ("ambiguous", None)
    assert [candidate["contact_id"] for candidate in value["candidates"]] == ["c1"]


def test_a_surname_that_two_contacts_share_is_ambiguous():
    value = finding("contacts", GREETING, ("customer", "My name is Miller."), numbers=UNKNOWN_CALLER).value
    assert value["match"] == "ambiguous"
    assert {candidate["contact_id"] for candidate in value["candidates"]} == {"c1", "c2"}


def test_an_unknown_name_is_a_new_contact():
    value = finding("contacts", GREETING, ("customer", "My name is Zoltan Kovacs."), numbers=UNKNOWN_CALLER).value
    assert (value["match"], value["contact_id"]) == ("new", None)


def test_a_name_spelled_otherwise_is_not_the_known_one():
    lines = (GREETING, ("customer", "My name is Pieter Miller. P-I-E-T-E-R."))
    value = finding("contacts", *lines, numbers=UNKNOWN_CALLER).value
    assert value["match"] == "new"


def test_a_talk_that_names_nobody_matches_nobody():
    value = finding("contacts", GREETING, ("customer", "It is broken."), numbers=UNKNOWN_CALLER).value
    assert value["match"] == "none"
    assert value["heard"]["name"] is None


def test_an_order_number_is_no_telephone_number():
    lines = (GREETING, ("customer", "My order number is three one zero eight five two two."))
    assert finding("contacts", *lines).value["heard"]["phone"] is None


def test_an_address_is_heard_with_its_figures():
    value = finding("contacts", ("customer", "I live at twenty four Maple Street, Boston.")).value
    assert value["heard"]["address"]["value"] == "24 Maple Street, Boston"


def test_facts_of_our_own_side_are_not_the_other_partys():
    value = finding("contacts", GREETING, ("rep", "You can write to help at northwind dot com.")).value
    assert value["heard"]["email"] is None


def test_a_rep_who_asks_for_somebody_placed_the_call():
    lines = (("rep", "Hello, Mr. Miller? Anna from Northwind."), ("customer", "Yes."))
    direction = finding("direction", *lines, numbers=OUTGOING)
    assert direction.value["outgoing"] is True
    assert direction.value["source"] == "talk"
    assert 0 < direction.confidence <= 1
    assert direction.evidence


def test_direction_stays_open_where_the_talk_does_not_show_it():
    direction = finding("direction", ("rep", "Okay."), ("customer", "Fine."), numbers=UNKNOWN_CALLER)
    assert direction.value["outgoing"] is None
    assert direction.note == "no cue shows it"


def test_direction_stays_open_where_roles_are_unknown():
    direction = finding("direction", ("A", "How can I help you?"), ("B", "I need a bike."), numbers=UNKNOWN_CALLER)
    assert direction.value["outgoing"] is None
    assert direction.note == "the agent is not identified"


def test_a_first_name_that_two_members_share_is_left_open():
    from dataclasses import replace

    from pipeline.domain.insight import Member

    roster = replace(ROSTER, members=(*ROSTER.members, Member("u3", "Anna Wolf")))
    value = finding("agent", GREETING, roster=roster).value
    assert value["user_id"] is None
    assert value["candidates"] == ["u1", "u3"]


def test_an_alias_names_its_member():
    assert finding("agent", ("rep", "Northwind, Johnny speaking.")).value["user_id"] == "u2"


def test_after_a_transfer_the_agent_is_who_handled_the_matter():
    lines = (GREETING, ("customer", "A question."), ("rep", "Hello, my name is Jon Lindqvist."))
    assert finding("agent", *lines).value["user_id"] == "u2"


def test_tone_turns_round_with_a_negation():
    def overall(text):
        return finding("tone", ("customer", text)).value["overall"]["label"]

    assert overall("I am very happy, that is great.") == "positive"
    assert overall("I am not happy with that, it is terrible.") == "negative"
    assert overall("The box is on the table, and the key is in the drawer next to the window.") == "neutral"


def test_the_trend_of_the_tone_is_told():
    lines = [("customer", "This is terrible and wrong.")] * 2 + [("customer", "Wonderful, thank you very much.")] * 2
    value = finding("tone", *lines).value
    assert value["trend"]["label"] == "improving"
    assert value["turns"][0]["basis"] == ["words"]


def test_the_summary_points_at_what_was_said():
    lines = (GREETING, ("customer", "I was charged twice."), ("rep", "I will refund you by Friday."))
    material = call(*lines)
    value = finding("summary", *lines).value
    for sentence in value["sentences"]:
        assert sentence["evidence"]["quote"] in material.transcript.turns[sentence["turns"][0]].text


def test_a_voicemail_is_told():
    lines = (("customer", "You've reached Peter Miller. Leave a message."), ("rep", "Hello, this is Anna."))
    assert finding("summary", *lines).value["outcome"] == "voicemail"
    assert finding("direction", *lines, numbers=OUTGOING).value["outgoing"] is True


def test_every_pack_has_the_sections_and_keys_of_the_english_one():
    optional = {key for keys in OPTIONAL.values() for key in keys.split()}
    english = pack("en").data
    for language in available():
        data = pack(language).data
        for section, keys in english.items():
            assert keys.keys() - data[section].keys() <= optional, (language, section)
            assert data[section].keys() - keys.keys() <= optional, (language, section)


def test_importing_the_analysis_is_cheap():
    import subprocess
    import sys

    code = "import sys, pipeline.analysis; print({'torch', 'rapidfuzz', 'phonenumbers'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
