from datetime import UTC, date, datetime

import pytest

from pipeline.analysis.rules.commitments.tasks import TasksStep
from pipeline.analysis.rules.dates import find
from pipeline.language.pack import pack
from tests.support.calls_by_hand import call

TUESDAY = datetime(2026, 9, 8, 10, 0, tzinfo=UTC)

OF_THE_VERB = """
en|I'll phone you tomorrow about the survey on Monday the fourteenth of September at half past nine.|2026-09-09
en|I'll mail you the corrected bill from the third of August by Friday.|2026-09-11
en|Because the tasting on the thirtieth of September at noon is off, I'll ring you on Thursday.|2026-09-10
en|On Thursday I'll send you the plan for the last week of September.|2026-09-10
de|Ich rufe Sie übermorgen wegen der Begehung am Montag, dem vierzehnten September, an.|2026-09-10
de|Ich schicke Ihnen die Rechnung vom dritten August bis Freitag.|2026-09-11
es|Le llamo mañana por lo de la revisión del lunes catorce de septiembre.|2026-09-09
es|Le mando el viernes la factura del tres de agosto.|2026-09-11
fr|Je vous rappelle demain pour la visite du lundi quatorze septembre.|2026-09-09
fr|Je vous envoie vendredi la facture du trois août.|2026-09-11
en|She hears on Thursday, so I'll let you know by Friday.|2026-09-11
de|Ich bin am dritten wieder da, aber ich stecke Ihnen den Plan morgen in die Post.|2026-09-09
es|Vuelvo el día tres, pero le mando el plano mañana.|2026-09-09
pt|Volto no dia três, mas mando-lhe a planta amanhã.|2026-09-09
de|Die Rechnung schicke ich Ihnen morgen, zahlbar innert dreißig Tagen.|2026-09-09
es|Le mando la factura mañana, pagadera en treinta días.|2026-09-09
fr|Je vous envoie la facture demain, payable sous trente jours.|2026-09-09
"""

TOLD = """
en|You've ten days to send it back.|2026-09-18
en|It can take up to three weeks.|2026-09-29
en|You have five working days to object.|2026-09-15
en|The twenty-second at eleven suits us.|2026-09-22
en|The third at four, then.|2026-10-03
en|I'll text you as soon as we hang up.|2026-09-08
en|Straight after this call.|2026-09-08
en|They start the second week of October.|2026-10-09
en|In the last week of November.|2026-11-27
en|Not this weekend, the weekend after.|2026-09-19
de|Das Geld ist in längstens zehn Tagen da.|2026-09-18
de|Das Wochenende drauf passt.|2026-09-19
es|Se la mando al rato por correo.|2026-09-08
es|El fin de semana siguiente.|2026-09-19
fr|Vous la recevez endéans les huit jours.|2026-09-16
fr|Le week-end suivant alors.|2026-09-19
pt|Quinta no fim da tarde está pronta.|2026-09-10
pt|No fim de semana seguinte.|2026-09-19
en|We had a long weekend.|-
en|We have a nice day.|-
en|It has two days off.|-
de|Sie haben zehn Tage, um es zurückzuschicken.|2026-09-18
de|Das dauert bis zu drei Wochen.|2026-09-29
de|Der zweiundzwanzigste um elf passt.|2026-09-22
de|Ich simse Ihnen, sobald wir aufgelegt haben.|2026-09-08
de|In der zweiten Oktoberwoche.|2026-10-09
de|In der zweiten Woche im Oktober.|2026-10-09
es|Tiene diez días para devolverlo.|2026-09-18
es|Puede tardar hasta tres semanas.|2026-09-29
es|Se lo envío nada más colgar.|2026-09-08
es|En la segunda semana de octubre.|2026-10-09
fr|Vous avez dix jours pour le renvoyer.|2026-09-18
fr|Cela prend jusqu'à trois semaines.|2026-09-29
fr|Je vous l'envoie juste après cet appel.|2026-09-08
fr|Dans la deuxième semaine d'octobre.|2026-10-09
en|I'll do it on my lunch break.|2026-09-08
en|You'll have it in, it's about ten business days.|2026-09-22
en|I'll have it to you by five.|2026-09-08
en|I'll call back in a quarter of an hour.|2026-09-08
en|The week of the twenty-seventh of October.|2026-10-27
en|We have lunch in the cafeteria.|-
de|Ich sag's ihm in der Mittagspause.|2026-09-08
de|Ich schicke es, sobald ich aufgelegt hab.|2026-09-08
de|Die Rechnung kommt bis Ende vom Monat.|2026-09-30
de|Ich rufe in einer Dreiviertelstunde an.|2026-09-08
es|Se lo mando a la hora de comer.|2026-09-08
es|Se lo mando apenas cortemos.|2026-09-08
es|Se lo pago de aquí al treinta.|2026-09-30
es|Tarda unos diez días hábiles.|2026-09-22
es|La semana del veintisiete de octubre.|2026-10-27
fr|Je vous l'envoie à la pause de midi.|2026-09-08
fr|Je vous l'envoie dès que je raccroche.|2026-09-08
fr|Je vous rappelle dans dix petites minutes.|2026-09-08
fr|La semaine du vingt-sept octobre.|2026-10-27
pt|Mando na hora do almoço.|2026-09-08
pt|Mando assim que eu desligar.|2026-09-08
pt|Mando em dez minutinhos.|2026-09-08
pt|A senhora tem o carro sexta até as cinco.|2026-09-11
de|Am Freitag geht's, am Montag nicht.|2026-09-11
es|El lunes no puedo.|-
fr|Pas aujourd'hui, après-demain.|2026-09-10
pt|Hoje já não, mas amanhã.|2026-09-09
es|Hoy no más.|2026-09-08
"""


@pytest.mark.parametrize("row", OF_THE_VERB.strip().splitlines())
def test_of_several_days_that_of_the_verb_counts(row):
    language, text, day = row.split("|")
    tasks = TasksStep().run(call(("rep", text), language=language, start=TUESDAY)).value["tasks"]
    assert [task["due_date"] for task in tasks] == [day]


@pytest.mark.parametrize("row", TOLD.strip().splitlines())
def test_a_span_or_an_occasion_is_a_day(row):
    language, text, day = row.split("|")
    due = find(text, pack(language), TUESDAY)
    assert (due.day if due else None) == (None if day == "-" else date.fromisoformat(day))


def test_the_hour_beside_the_chosen_day_counts_and_no_other():
    sentence = (
        "I'll phone you tomorrow at two about the survey on Monday the fourteenth of September at half past nine."
    )
    [task] = TasksStep().run(call(("rep", sentence), start=TUESDAY)).value["tasks"]
    assert (task["due_date"], task["due_time"]) == ("2026-09-09", "14:00")


def test_what_is_done_once_the_call_is_over_is_still_to_be_done():
    sentences = {
        "en": "I'll email you the price list right after we hang up.",
        "de": "Ich schicke Ihnen die Preisliste gleich nach dem Gespräch.",
        "es": "Le mando la lista de precios en cuanto colguemos.",
        "fr": "Je vous envoie la liste des prix dès qu'on raccroche.",
    }
    for language, text in sentences.items():
        [task] = TasksStep().run(call(("rep", text), language=language, start=TUESDAY)).value["tasks"]
        assert task["due_date"] == "2026-09-08"
