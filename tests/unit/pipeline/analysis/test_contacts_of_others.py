from dataclasses import replace

import pytest

from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.analysis.rules.people.gender import of_known, short_form
from pipeline.domain.insight import Contact, Roster
from pipeline.language.pack import pack
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.numbers import digit_runs
from tests.support.calls_by_hand import call

UNKNOWN = ("+15550000000", "+12025550100")
PARTY = {"r": "rep", "c": "customer"}
CONTACTS = (
    Contact("k1", "Dirk Meinhardt", "Nordlack"),
    Contact("k2", "Bernadette Vialle"),
    Contact("k3", "Jean-Paul Vialle", "Scierie Vialle"),
    Contact("k4", "William Tarrant", "Tarrant Tiles"),
    Contact("k5", "Thérèse Dupuis"),
)


def value_of(talk, language):
    lines = [(PARTY[line[0]], line[2:]) for line in talk.split(" / ")]
    material = call(*lines, language=language, roster=Roster(contacts=CONTACTS), numbers=UNKNOWN)
    return ContactsStep().run(replace(material, findings={"direction": DirectionStep().run(material)})).value


@pytest.mark.parametrize(
    ("language", "talk", "name"),
    [
        ("en", "r And what's dad's name? / c Walter Lund. / r And you are? / c Darlene. I'm the daughter.", "Darlene"),
        ("en", "r Can you hear me? / c I can. So, Ruth Burke, she's leaving us. My name is Ellen Foy.", "Ellen Foy"),
        ("en", "r It's sixty pounds. Plus VAT. / c Plus VAT. I see.", None),
        ("de", "r Guten Tag. / c Ja, Wimmers, Neusser Straße. / r Ja? / c Ich bin Rentnerin.", "Wimmers"),
        ("de", "r Ja bitte? / c Ich rufe für meinen Vater an, Otto Behr. Mein Name ist Silke Behr.", "Silke Behr"),
        ("es", "r Dígame. / c Llamo de parte de mi madre, Rosa Camps. Yo soy Mireia Camps.", "Mireia Camps"),
        ("fr", "r C'est quel nom ? / c Bouchard. Ghislaine.", "Ghislaine Bouchard"),
        ("fr", "r Le nom de votre fils ? / c Léo Petit. / r Et le vôtre ? / c Anne Petit.", "Anne Petit"),
    ],
)
def test_who_calls_is_told_from_who_is_spoken_of(language, talk, name):
    facts = value_of(talk, language)["heard"]
    assert (facts["name"] and facts["name"]["value"]) == name
    assert facts["company"] is None


@pytest.mark.parametrize(
    ("language", "talk", "contact"),
    [
        ("de", "c Nordlack, Meinhardt. / r Moin, Petersen hier.", "k1"),
        ("fr", "c Oui allô ? / r Bonjour, c'est Odile. Madame Vialle ? / c Oui.", "k2"),
        ("en", "r Hello. / c Hello, it's Bill Tarrant, about the order.", "k4"),
    ],
)
def test_surname_title_and_short_form_find_the_contact(language, talk, contact):
    value = value_of(talk, language)
    assert (value["match"], value["contact_id"]) == ("matched", contact)


def test_a_firm_that_answers_is_a_company_and_a_town_is_none():
    assert value_of("c Nordlack, Meinhardt. / r Moin.", "de")["heard"]["company"]["value"] == "Nordlack"
    facts = value_of("r Bonjour. / c Bonjour, c'est Thérèse Dupuis, de Visé.", "fr")["heard"]
    assert (facts["company"], facts["address"]["value"]) == (None, "Visé")


@pytest.mark.parametrize(
    ("language", "text", "digits"),
    [
        ("es", "nueve, cinco, cuatro, cinco, cinco, cinco, cero, dos, uno, no, perdón, dos, siete", "954555027"),
        ("en", "five, five, five, oh, one, two, no, three, four", "5550134"),
        ("de", "null sieben neun, fünf fünf fünf, null zwei, vierundvierzig. Nein, vierunddreissig.", "0795550234"),
    ],
)
def test_digits_put_right_one_by_one_take_the_place_of_those_meant(language, text, digits):
    assert [match.text for match in digit_runs(text, pack(language))] == [digits]


@pytest.mark.parametrize(
    ("language", "text", "address"),
    [
        ("en", "It's, er, j dot moss, m, o, double s, at icloud dot com.", "j.moss@icloud.com"),
        ("es", "Es jota, punto, luna, ele u ene a, arroba gmail punto com.", "j.luna@gmail.com"),
        ("fr", "C'est m, point, gagné, non, gagnon, arobase, videotron point ca.", "m.gagnon@videotron.ca"),
        ("es", "Sí, a ver, eh, marta, punto, eh, gil, arroba, outlook, punto, es.", "marta.gil@outlook.es"),
    ],
)
def test_what_is_repaired_or_spelled_while_dictating_counts_once(language, text, address):
    assert [match.text for match in emails(text, pack(language))] == [address]


def test_short_forms_and_compound_first_names():
    assert short_form("Peggy", "Margaret") and short_form("Encarna", "Encarnación") and short_form("Sepp", "Josef")
    assert not short_form("Dan", "Dana") and not short_form("Bill", "Robert")
    assert of_known("Jean-Paul Vialle", "fr") == "male"
    assert of_known("Marie-Claude Roy", "fr") == "female"


def match_of(talk, language, *contacts):
    lines = [(PARTY[line[0]], line[2:]) for line in talk.split(" / ")]
    material = call(*lines, language=language, roster=Roster(contacts=contacts), numbers=UNKNOWN)
    value = ContactsStep().run(replace(material, findings={"direction": DirectionStep().run(material)})).value
    return value["contact_id"] or value["match"]


GRANT = Contact("k1", "Peter Grant", "Norland Freight", "peter.grant@norland.example")
KOCH = Contact("k1", "Ralf Koch", "Gasthof Krone")
PETIT = Contact("k1", "Luc Petit", "Hôtel Bellevue")
REY = Contact("k1", "Julián Rey", "Talleres Norte")
NEVES = Contact("k1", "Branca Neves", "Hotel Miramar")


@pytest.mark.parametrize(
    ("language", "contact", "talk", "expected"),
    [
        ("en", GRANT, "r Yes? / c It's Laura Finch at Norland Freight. I'm replacing Peter Grant.", "new"),
        ("en", GRANT, "r Yes? / c It's Peter Grant at Norland Freight. I'm replacing the forklift.", "k1"),
        ("de", KOCH, "r Ja? / c Silke Thoma vom Gasthof Krone. Ich bin die Nachfolgerin von Herrn Koch.", "new"),
        ("de", KOCH, "r Ja? / c Ralf Koch vom Gasthof Krone. Ich brauche Ersatz für den Herd.", "k1"),
        (
            "fr",
            PETIT,
            "r Oui ? / c Nadège Colin, de l'Hôtel Bellevue. Je remplace Luc Petit. / r Monsieur Petit est parti ? "
            "/ c Oui, à Nantes. La commande, c'est moi.",
            "new",
        ),
        ("fr", PETIT, "r Oui ? / c Luc Petit, de l'Hôtel Bellevue. Je remplace le lit.", "k1"),
        ("es", REY, "r ¿Sí? / c Soy Nerea Campos, de Talleres Norte. Sustituyo a Julián Rey.", "new"),
        ("es", REY, "r ¿Sí? / c Soy Julián Rey, de Talleres Norte. Acá no hay señal.", "k1"),
        ("pt", NEVES, "r Sim? / c Aqui é a Célia Rocha, do Hotel Miramar. Estou no lugar da Branca Neves.", "new"),
        ("pt", NEVES, "r Sim? / c Aqui é a Branca Neves, do Hotel Miramar. Aqui não tem sinal.", "k1"),
    ],
)
def test_predecessors_are_other_persons(language, contact, talk, expected):
    assert match_of(talk, language, contact) == expected


@pytest.mark.parametrize(
    ("language", "talk", "expected"),
    [
        ("en", "r Yes? / c It's Peter Grant. I've never been a customer of yours.", "new"),
        ("en", "r Yes? / c It's Peter Grant. I've never been so cold.", "k1"),
        (
            "en",
            "r Yes? / c It's Peter Grant. It's my first time calling. peter dot grant at norland dot example.",
            "k1",
        ),
        ("de", "r Ja? / c Hier ist Peter Grant. Bei Ihnen war ich noch nie.", "new"),
        ("fr", "r Oui ? / c C'est Peter Grant. C'est la première fois que je vous appelle.", "new"),
        ("fr", "r Oui ? / c C'est Peter Grant. C'est la première fois que ça tombe en panne.", "k1"),
        ("es", "r ¿Sí? / c Soy Peter Grant. Todavía no soy cliente.", "new"),
        ("pt", "r Sim? / c Aqui é o Peter Grant. Ainda não sou cliente.", "new"),
        ("en", "r Name? / c Peter Grant. / r I'll set you up as new. / c No, you have me already.", "k1"),
    ],
)
def test_a_new_customer_is_no_contact_of_the_same_name(language, talk, expected):
    assert match_of(talk, language, GRANT) == expected


@pytest.mark.parametrize(
    ("language", "talk", "expected"),
    [
        ("en", "r Yes? / c It's Ann. Ann Lowe now, but you may have me under Hill.", "k1"),
        ("de", "r Ja? / c Ann Lowe. Ich stehe vielleicht noch unter Hill.", "k1"),
        ("fr", "r Oui ? / c Ann Lowe. C'est peut-être encore à Hill.", "k1"),
        ("es", "r ¿Sí? / c Soy Ann Lowe. Todavía figuro como Hill.", "k1"),
        ("pt", "r Sim? / c Aqui é a Ann Lowe. Ainda estou como Hill.", "k1"),
        ("en", "r Yes? / c It's Joan Lowe. You may have me under Hill.", "new"),
    ],
)
def test_former_names(language, talk, expected):
    assert match_of(talk, language, Contact("k1", "Ann Hill"), Contact("k2", "Bob Lowe")) == expected


def test_the_name_is_that_of_the_own_address():
    talk = (
        "c It's about the order. / r Hi Peter! / c No, Peter's on leave. I'm at laura dot finch at norland dot example."
    )
    assert match_of(talk, "en", GRANT) == "new"


def test_two_owners_are_a_company():
    kerr = Contact("k1", "Iain Kerr", "Kerr & Lyle Dental"), Contact("k2", "Mona Buchan", "Kerr & Lyle Dental")
    assert match_of("r Yes? / c Hiya, it's Kerr and Lyle. / r Is that Iain? / c No, it's Mona.", "en", *kerr) == "k2"


def test_a_greeting_with_a_question_is_not_denied():
    assert (
        match_of("c It's me. / r Hi Annie, did the cups arrive? / c They did.", "en", Contact("k1", "Annie Ross"))
        == "k1"
    )
