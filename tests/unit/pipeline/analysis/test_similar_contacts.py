"""Which of similar contacts the other party is, in five languages; controls follow each group.

A row: language, turns (r: rep, c: customer), the contacts ("name; company"), and the right one's number, or `new`,
`none`, or `ambiguous`.
"""

from dataclasses import replace

from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.domain.insight import Contact, Roster
from tests.support.calls_by_hand import call

ROWS = """
# the first name that the agent uses, and the one in the own e-mail address
en | c: Hargreaves. / r: Morning, Jill, it's Tom from the depot. / c: Hello. | Jilly Hargreaves + Jill Hargreaves | 2
de | c: Kessler. / r: Moin Arne, hier ist Tom. / c: Moin. | Arno Kessler + Arne Kessler | 2
es | c: Soy la señora Robles. / r: ¿Su correo? / c: Irene punto robles arroba correo punto es. | Inés Robles + Irene Robles | 2
fr | c: C'est madame Morvan. / r: Votre mail ? / c: Lise point morvan arobase courriel point fr. | Lison Morvan + Lise Morvan | 2
pt | c: É a dona Teixeira. / r: O seu e-mail? / c: Rita ponto teixeira arroba correio ponto pt. | Rute Teixeira + Rita Teixeira | 2
en | c: It's Mrs Hargreaves. / r: Morning, Mrs Hargreaves. / c: Hello. | June Hargreaves + Jane Hargreaves | ambiguous
# another first name, another company, another spelling
en | c: My name's Brett Kowalski, I'm with Prairie Insurance. / r: Hi. | Brent Kowalski; Rosthern Seed | new
en | c: This is Paula Whitman. / r: Hi. | Pauline Whitman | new
fr | c: Bonjour, je suis Fabrice Lenoir. / r: Bonjour. | Fabien Lenoir | new
es | c: Soy Marcos Iglesias. / r: Hola. | Marcelo Iglesias | new
de | c: Mein Name ist Walter Brandstetter. / r: Ihre Mail? / c: Walter Punkt Brandstetter at donaunetz Punkt at. | Walter Brandstätter | new
pt | c: Meu nome é Cláudio Menezes. / r: Olá. | Clóvis Menezes | new
en | c: My name's Brett Kowalski. / r: Hi. | Brett Kowalski; Rosthern Seed | 1
en | c: This is Bill Whitman. / r: Hi. | William Whitman | 1
fr | c: Bonjour, je suis Fabrice Lenoir. / r: Bonjour. | Fabrice Lenoir + Fabien Lenoir | 1
es | c: Soy Marcos Iglesias. / r: Hola. | Marcos Iglesias + Marcelo Iglesias | 1
de | c: Mein Name ist Irma Häberle. / r: Guten Tag. | Irma Häberle + Irmgard Haberle | 1
pt | c: Meu nome é Cláudia Menezes. / r: Oi. / c: Oi. / r: Seu e-mail mudou? | Cláudia Menezes + Cláudia Meneguel | 1
# couples
fr | c: Oui ? / r: Bonjour madame Lagorce. / c: Bonjour. | Daniel et Josiane Lagorce | 1
en | c: Yes? / r: Good morning, Mrs Pike. / c: Morning. | Colin and Sheila Pike | 1
de | c: Ja? / r: Guten Tag, Frau Pahl. / c: Tag. | Uwe und Heike Pahl | 1
es | c: ¿Sí? / r: Buenos días, señora Ocaña. / c: Hola. | Ramón y Elvira Ocaña | 1
pt | c: Sim? / r: Bom dia, dona Prado. / c: Bom dia. | Otávio e Célia Prado | 1
fr | c: Oui ? / r: Bonjour madame Lagorce. / c: Bonjour. | Daniel Lagorce | new
# a name that is corrected at once
fr | c: C'est Normand Pépin, euh, non, pas Pépin, Paquin. / r: Bonjour. | Normand Pépin + Normand Paquin | 2
en | c: This is Kate Willis, sorry, Wallis. / r: Hi. | Kate Willis + Kate Wallis | 2
es | c: Soy Ana Pardo, perdón, Prado. / r: Hola. | Ana Pardo + Ana Prado | 2
de | c: Mein Name ist Eva Meinert, nein, Reinert. / r: Guten Tag. | Eva Meinert + Eva Reinert | 2
pt | c: Meu nome é Rui Matos, não, Mattoso. / r: Olá. | Rui Matos + Rui Mattoso | 2
en | c: This is Kate Willis, sorry to bother you. / r: Hi. | Kate Willis + Kate Wallis | 1
# who is asked for, and says so
en | c: Vestry. / r: I'm after Mr Pryce, if he's about. / c: You've got him. | Desmond Pryce + Edith Blackstock | 1
fr | c: J'écoute. / r: Je cherche à avoir Christelle Dubrulle. / c: C'est moi. | Christelle Dubrulle + Christian Dubreuil | 1
es | c: Dígame. / r: Busco a Begoña Larrea. / c: Soy yo. | Begoña Larrea + Begoña Larrañaga | 1
de | c: Hallo? / r: Ich suche die Frau Ortmann. / c: Das bin ich. | Silke Ortmann + Sylvia Ortwein | 1
pt | c: Alô. / r: Procuro o Geraldo Pires. / c: Sou eu. | Geraldo Pires + Geraldo Prates | 1
en | c: Vestry. / r: I'm after Mr Pryce, if he's about. / c: He's out. | Desmond Pryce + Edith Blackstock | none
# a greeting is no question for the name
fr | c: Oui ? / r: Bonjour madame Vasseur. Je vous dérange ? / c: Non, non. | Corinne Vasseur + Claire Levasseur | 1
en | c: Yes? / r: Good morning, Mrs Vance. Is this a bad time? / c: No, no. | Cora Vance + Clare Evans | 1
de | c: Ja? / r: Guten Tag, Frau Vogt. Störe ich gerade? / c: Nein, nein. | Cora Vogt + Clara Voss | 1
es | c: ¿Sí? / r: Buenos días, señora Vela. ¿La molesto? / c: No, no. | Cora Vela + Clara Varela | 1
pt | c: Sim? / r: Bom dia, dona Veiga. Estou incomodando? / c: Não, não. | Cora Veiga + Clara Viegas | 1
en | c: Yes? / r: Is that Mrs Vance? / c: No, she's away. | Cora Vance + Clare Evans | none
# surveys keep no contact
es | c: Mi nombre es Constanza, estamos haciendo un estudio sobre las obras. / r: Ah. | Ana Ruiz | none
en | c: My name is Constance, we're doing a study of bus lanes. / r: Oh. | Ann Rice | none
de | c: Mein Name ist Konstanze Hohl, wir machen eine Studie zum Nahverkehr. / r: Aha. | Anna Reis | none
fr | c: Je m'appelle Constance Hamel, nous réalisons une étude sur les bus. / r: Ah. | Anne Roy | none
pt | c: Meu nome é Constança Lobo, estamos fazendo uma pesquisa sobre o ônibus. / r: Ah. | Ana Reis | none
"""


def test_a_similar_contact_is_chosen_only_when_the_talk_tells_them_apart(subtests):
    for row in ROWS.strip().splitlines():
        if row.startswith("#"):
            continue
        language, talk, stored, right = (part.strip() for part in row.split("|"))
        lines = [({"r": "rep", "c": "customer"}[turn[0]], turn[3:]) for turn in talk.split(" / ")]
        contacts = tuple(
            Contact(str(at), *(part.strip() for part in contact.split(";")))
            for at, contact in enumerate(stored.split("+"), start=1)
        )
        material = call(*lines, language=language, roster=Roster(contacts=contacts), numbers=("anonymous", "anonymous"))
        value = ContactsStep().run(replace(material, findings={"direction": DirectionStep().run(material)})).value
        with subtests.test(row):
            assert (value["contact_id"] or value["match"]) == right
