"""Names of callers: with particles, of months and weekdays, spelled, and next to towns and companies."""

from dataclasses import replace

import pytest

from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.domain.insight import Contact
from tests.support.calls_by_hand import ROSTER, call

COUNTRIES = {"en": "US", "de": "DE", "es": "ES", "fr": "FR", "pt": "BR"}

WHOLE = """
en | Hi, this is Elena de la Fuente. | Elena de la Fuente
en | Hi, my name is Jan van den Berg. | Jan van den Berg
en | Hello, this is Ludwig van Beethoven calling about my piano. | Ludwig van Beethoven
en | Good morning, this is Mohammed bin Rashid. | Mohammed bin Rashid
en | Hi, I'm Marco di Vito from Malibu. | Marco di Vito
en | This is Fatima al Sayed speaking. | Fatima al Sayed
en | Hi, this is Sean O'Brien. | Sean O'Brien
en | Hi, my name is Fiona McDonald. | Fiona McDonald
en | Hi, this is Oscar De La Renta. | Oscar De La Renta
en | Hi, this is John F. Kennedy. | John F. Kennedy
en | Hi, my name is Samuel L Jackson. | Samuel L Jackson
en | Hi, this is Maria Garcia Lopez. | Maria Garcia Lopez
en | Hi, this is Jean-Luc Picard. | Jean-Luc Picard
en | Hi, this is June Osborne. | June Osborne
en | Hi, this is May Wong. | May Wong
en | My name is April Jones. | April Jones
en | Hello, this is August Wilson. | August Wilson
en | Hi, this is Will Grace. | Will Grace
en | Hi, this is Mark Will. | Mark Will
en | Hi, my name is June. | June
en | Hi, this is Robert May. | Robert May
de | Guten Tag, hier ist Annette von der Heide. | Annette von der Heide
de | Guten Tag, mein Name ist Herbert von Karajan. | Herbert von Karajan
de | Hier ist Jan van den Berg. | Jan van den Berg
de | Mein Name ist Karl-Theodor zu Guttenberg. | Karl-Theodor zu Guttenberg
de | Hier spricht Maria da Silva. | Maria da Silva
de | Guten Tag, hier ist Frau von der Heide. | Frau von der Heide
de | Guten Tag, mein Name ist Freitag. | Freitag
de | Hier ist Anna Freitag. | Anna Freitag
de | Hier ist Herr Sonntag. | Herr Sonntag
de | Mein Name ist August Müller. | August Müller
de | Mein Name ist Anna-Lena Schmidt-Meyer. | Anna-Lena Schmidt-Meyer
es | Hola, soy María del Carmen García López. | María del Carmen García López
es | Hola, me llamo Guillermo del Toro. | Guillermo del Toro
es | Soy Juan de la Cruz. | Juan de la Cruz
es | Hola, soy Julio Ramos. | Julio Ramos
es | Hola, soy Plácido Domingo. | Plácido Domingo
es | Hola, soy José Ortega y Gasset. | José Ortega y Gasset
es | Me llamo Abril Soto. | Abril Soto
es | Hola, me llamo Domingo. | Domingo
es | Hola, soy Ana García de la Torre. | Ana García de la Torre
es | Soy Luis Fernando Pérez Gil. | Luis Fernando Pérez Gil
fr | Bonjour, je m'appelle Charles de Gaulle. | Charles de Gaulle
fr | Bonjour, je suis Simone de Beauvoir. | Simone de Beauvoir
fr | Bonjour, c'est Pierre du Pont. | Pierre du Pont
fr | Bonjour, je m'appelle Jean de la Fontaine. | Jean de la Fontaine
fr | Bonjour, je m'appelle Valéry Giscard d'Estaing. | Valéry Giscard d'Estaing
fr | Bonjour, je m'appelle Avril Lavigne. | Avril Lavigne
fr | Bonjour, c'est Vincent van Gogh. | Vincent van Gogh
fr | Bonjour, c'est Katell Le Bihan. | Katell Le Bihan
fr | Bonjour, je suis Marie-Claude de Villepin. | Marie-Claude de Villepin
pt | Olá, meu nome é Marcos da Rocha. | Marcos da Rocha
pt | Olá, meu nome é Maria de Fátima dos Santos. | Maria de Fátima dos Santos
pt | Oi, aqui é a Ana Paula de Souza. | Ana Paula de Souza
pt | Oi, sou o Carlos Drummond de Andrade. | Carlos Drummond de Andrade
pt | Me chamo João Pedro da Silva Santos. | João Pedro da Silva Santos
pt | Meu nome é José da Costa e Silva. | José da Costa e Silva
pt | Me chamo Abril Teixeira. | Abril Teixeira
pt | Oi, sou o Domingos Montagner. | Domingos Montagner
"""
CONTROLS = """
en | Hi, I'm Tuesday's delivery. |
en | Hi, it's Monday, so I'm calling again. |
en | Hi, this is Mark's wife. |
en | Hi, it's June already and nothing came. |
en | I am calling from Monday on about the May invoice. |
en | Hi, this is about Friday. |
en | Hi, this is Laura from Chicago. | Laura
en | Hi, this is Laura Finch calling from Blue Harbor. | Laura Finch
de | Hier ist Greta Blum von der Firma Stein. | Greta Blum
de | Hier ist Anna von der Telekom. | Anna
de | Hier ist Anna Weber von der Sparkasse. | Anna Weber
de | Hier ist Peter Klein vom Autohaus Stern. | Peter Klein
de | Hier ist Peter Klein aus Berlin. | Peter Klein
de | Ich rufe an wegen Freitag. |
de | Guten Tag, Freitag passt mir gut. |
es | Hola, soy Ana García de Madrid. | Ana García
es | Hola, soy Marta de Telefónica. | Marta
es | Hola, soy Marta de la Clínica Norte. | Marta
es | Hola, soy Marta Ruiz de Seguros Norte. | Marta Ruiz
es | Llamo por lo del domingo. |
es | Llamo desde el lunes. |
fr | Bonjour, c'est Thérèse Dupuis, de Visé. | Thérèse Dupuis
fr | Bonjour, c'est Paul Martin de Lyon. | Paul Martin
fr | Bonjour, c'est Julie de Orange. | Julie
fr | Bonjour, je suis Jean-Pierre Martin du garage Colbert. | Jean-Pierre Martin
fr | J'appelle pour mardi. |
pt | Oi, aqui é a Ana da Vivo. | Ana
pt | Oi, aqui é o Carlos da Clínica Sorriso. | Carlos
pt | Sou o Paulo Teixeira de Lisboa. | Paulo Teixeira
pt | Estou ligando por causa de sábado. |
"""
SPELLED = """
en | Hi, my name is Anna Kessler, K-E-double-S-L-E-R. | Anna Kessler
en | My name is Anna Kesler. That's K, E, double S, L, E, R. | Anna Kessler
en | My name is Tom Barret. B A double R E double T. | Tom Barrett
en | It's Laura Finch, F for Foxtrot, I, N, C, H. | Laura Finch
en | My last name is Whitaker. That's W H I double T A K E R. | Whittaker
en | Hi, this is Tom Barret, with two Rs and two Ts. | Tom Barrett
de | Mein Name ist Anna Hofman, H O F M A doppel N. | Anna Hofmann
es | Me llamo Ana Corea, C O doble R E A. | Ana Correa
fr | Je m'appelle Anne Rousel, R O U deux S E L. | Anne Roussel
pt | Meu nome é Ana Pereta, P E R E duplo T A. | Ana Peretta
"""
UNCASED = """
en | hi this is elena de la fuente | Elena de la Fuente
en | hi my name is june osborne and i have a question | June Osborne
en | hello this is sean o'brien from dublin | Sean O'Brien
en | hi this is will turner i'd like a quote | Will Turner
en | HELLO THIS IS UH PATRICIA BROWN I LOST MY CARD | Patricia Brown
en | i will be there on friday |
en | hi i am calling about my bill it may be wrong |
en | hello i hope you can help me |
en | hi this is ridiculous i want to speak to a manager |
de | guten tag mein name ist annette von der heide ich habe eine frage | Annette von der Heide
de | ja hallo hier ist peter klein vom autohaus stern | Peter Klein
de | guten tag ich rufe wegen freitag an |
es | hola buenas me llamo guillermo del toro | Guillermo del Toro
es | hola soy ana garcía de madrid quería un presupuesto | Ana García
es | buenos días llamo por lo del domingo |
fr | bonjour je m'appelle charles de gaulle | Charles de Gaulle
fr | bonjour c'est claire dubois j'appelle pour ma commande | Claire Dubois
fr | bonjour je vous appelle pour mardi |
pt | olá meu nome é maria dos santos | Maria dos Santos
pt | oi aqui é o carlos da clínica sorriso | Carlos
pt | oi estou ligando por causa de sábado |
"""
CONTACTS = """
en | Hi, this is May Wong. | Li Wong | | new
en | Hi, this is May Wong. | May Wong, Li Wong | | May Wong
en | Hi, this is May Wong. | Li Wong | +12025550143 | ambiguous
en | Hi, this is Bill Hart. | William Hart | +12025550143 | William Hart
en | Hi, this is Laura Finch. | Laura Fink | | new
en | Hi, this is Peter Miller. | Peter Millar, Peter Miller | | Peter Miller
en | Hi, this is Anna Kessler, K-E-double-S-L-E-R. | Anna Kesler | | new
en | Hi, this is Tom Barrett. | Tom Barret | | ambiguous
en | Hi, this is June. | June Osborne, June Hall | | ambiguous
en | Hi, this is Mrs Osborne. | June Osborne, Tom Osborne | | June Osborne
de | Hier ist Frau von der Heide. | Anna von der Heide | | Anna von der Heide
de | Hier ist Anna Freitag. | Anna Sonntag | | new
es | Hola, soy Juan García López. | Juan García Pérez | | new
es | Hola, soy Juan García. | Juan García Pérez, Juan García López | | ambiguous
fr | Bonjour, c'est Pierre du Pont. | Pierre du Bois | | new
pt | Olá, meu nome é Marcos da Rocha. | Marcos Pereira | | new
pt | Olá, meu nome é Marcos da Rocha. | Marcos Pereira, Marcos Rocha | | Marcos Rocha
pt | Olá, meu nome é Maria dos Santos. | Maria da Silva | | new
"""


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def contacts_of(language: str, text: str, people: tuple[Contact, ...] = (), number: str = "anonymous") -> dict:
    opening = "Northwind." if text not in (text.lower(), text.upper()) else "northwind"
    lines = (("rep", opening.upper() if text.isupper() else opening), ("customer", text))
    roster = replace(ROSTER, contacts=people, default_country=COUNTRIES[language])
    numbers = (number, "+12025550100")
    return ContactsStep().run(call(*lines, language=language, roster=roster, numbers=numbers, outgoing=False)).value


@pytest.mark.parametrize(("language", "text", "name"), rows(WHOLE) + rows(CONTROLS) + rows(SPELLED) + rows(UNCASED))
def test_a_caller_has_the_whole_name_that_was_said(language: str, text: str, name: str) -> None:
    heard = contacts_of(language, text)["heard"]["name"]
    assert (heard and heard["value"]) == (name or None)


@pytest.mark.parametrize(("language", "text", "names", "number", "match"), rows(CONTACTS))
def test_no_contact_is_matched_that_contradicts_the_name(
    language: str, text: str, names: str, number: str, match: str
) -> None:
    people = tuple(Contact(name, name, None, None, number or None) for name in names.split(", "))
    value = contacts_of(language, text, people, number or "anonymous")
    assert (value["contact_id"] or value["match"]) == match


@pytest.mark.parametrize(
    ("from_number", "country", "stored"),
    [
        ("sip:+14155550123@pbx.example", "US", "+14155550123"),
        ('"Ana" <sip:01761234567@pbx.example.de;user=phone>', "DE", "+491761234567"),
        ("tel:+33-1-23-45-67-89", "FR", "+33123456789"),
    ],
)
def test_the_caller_of_a_sip_call_is_matched_by_number(from_number: str, country: str, stored: str) -> None:
    roster = replace(ROSTER, contacts=(Contact("c1", "Ana Ruiz", None, None, stored),), default_country=country)
    lines = (("rep", "Northwind."), ("customer", "My order has not arrived."))
    material = call(*lines, roster=roster, numbers=(from_number, "+12025550100"), outgoing=False)
    value = ContactsStep().run(material).value
    assert (value["number"], value["contact_id"]) == (stored, "c1")
