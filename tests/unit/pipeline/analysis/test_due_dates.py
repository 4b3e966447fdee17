"""Due expressions and their days, counted by hand from the calendar, in five languages."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pipeline.analysis.rules.dates.expressions import find, local
from pipeline.language.pack import available, pack

STARTS = {
    "wed": datetime(2025, 4, 16, 11, 0, tzinfo=ZoneInfo("America/New_York")),
    "fri": datetime(2025, 10, 24, 15, 0, tzinfo=ZoneInfo("Europe/Berlin")),  # the clocks go back on Sunday
    "tue": datetime(2025, 12, 30, 9, 30, tzinfo=ZoneInfo("Europe/Madrid")),
    "leap": datetime(2024, 2, 27, 16, 0, tzinfo=ZoneInfo("Europe/London")),  # a Tuesday
    "sat": datetime(2025, 3, 29, 22, 0, tzinfo=ZoneInfo("Europe/Paris")),  # the clocks go forward in the night
    "mon": datetime(2026, 8, 31, 8, 0, tzinfo=ZoneInfo("Europe/Paris")),  # the last day of its month
}

SAID = """
en wed 2025-04-16 by two thirty
en wed 2025-04-16 around four fifteen
de wed 2025-04-16 im Laufe des Nachmittags
de wed 2025-04-16 im Laufe des Vormittags
es wed 2025-04-24 la semana que viene el jueves
es wed 2025-04-22 la próxima semana, el martes
es wed 2025-04-16 a eso de las siete
pt wed 2025-04-24 na semana que vem, na quinta
pt wed 2025-04-22 na próxima semana na terça
fr wed 2025-04-16 d'ici midi
en wed 2025-04-16 today
en wed 2025-04-16 later today
en wed 2025-04-16 by the end of the day
en wed 2025-04-16 before close of business
en wed 2025-04-16 tonight
en wed 2025-04-16 this afternoon
en wed 2025-04-17 tomorrow
en wed 2025-04-17 first thing tomorrow
en wed 2025-04-17 tomorrow morning
en wed 2025-04-18 the day after tomorrow
en wed 2025-04-18 by Friday
en wed 2025-04-18 no later than Friday
en wed 2025-04-18 on Friday afternoon
en wed 2025-04-18 before Saturday
en wed 2025-04-23 on Wednesday
en wed 2025-04-19 this Saturday
en wed 2025-04-20 Sunday night
en wed 2025-04-21 next Monday
en wed 2025-04-25 by next Friday
en wed 2025-04-22 Tuesday next week
en wed 2025-04-24 next week on Thursday
en wed 2025-04-18 Friday this week
en wed 2025-04-25 Friday week
en wed 2025-04-29 a week on Tuesday
en wed 2025-04-25 a week from Friday
en wed 2025-05-02 a fortnight on Friday
en wed 2025-05-05 two weeks from Monday
en wed 2025-04-28 the Monday after next
en wed 2025-04-23 a week today
en wed 2025-04-24 tomorrow week
en wed 2025-04-30 a fortnight today
en wed 2025-04-30 in a fortnight
en wed 2025-04-30 within a fortnight
en wed 2025-04-18 this week
en wed 2025-04-18 by the end of the week
en wed 2025-04-18 by the weekend
en wed 2025-04-19 over the weekend
en wed 2025-04-18 before the weekend
en wed 2025-04-30 by end of month
en wed 2025-04-30 on the last day of the month
en wed 2025-04-21 three business days from now
de wed 2025-06-03 am dritten Sechsten
de wed 2025-05-02 bis zum zweiten Fünften
de wed 2025-04-30 am letzten Tag des Monats
es wed 2025-05-05 el primer lunes de mayo
es wed 2025-05-20 el tercer martes de mayo
es wed 2025-04-30 el último día del mes
fr wed 2025-04-30 le dernier jour du mois
pt wed 2025-04-21 segunda logo cedo
pt wed 2025-04-18 sexta às dez
pt wed 2025-04-30 no último dia do mês
en wed 2025-04-21 after the weekend
en wed 2025-04-21 at the beginning of next week
en wed 2025-04-23 by the middle of next week
en wed 2025-04-25 next week
en wed 2025-04-25 by the end of next week
en wed 2025-05-02 the week after next
en wed 2025-05-02 next week but one
en wed 2025-04-30 by the end of the month
en wed 2025-04-30 this month
en wed 2025-05-31 sometime next month
en wed 2025-05-31 by the end of next month
en wed 2025-05-01 at the beginning of next month
en wed 2025-05-05 on the 5th of next month
en wed 2026-03-31 the end of March
en wed 2025-06-01 at the beginning of June
en wed 2025-05-15 in the middle of May
en wed 2025-12-31 by the end of the year
en wed 2025-04-23 within five working days
en wed 2025-04-17 within one business day
en wed 2025-04-21 in two or three business days
en wed 2025-04-18 in two days
en wed 2025-04-19 within the next three days
en wed 2025-04-26 in ten days' time
en wed 2025-04-30 in two weeks
en wed 2025-04-23 in a week's time
en wed 2025-05-07 three weeks from now
en wed 2025-05-16 in one month
en wed 2025-10-16 in six months
en wed 2025-04-18 within 48 hours
en wed 2025-04-16 in half an hour
en wed 2025-04-16 in like an hour
en wed 2025-04-16 within the next half hour
en wed 2025-04-16 over the course of the day
de wed 2025-04-16 in der nächsten halben Stunde
de wed 2025-04-16 in so zehn Minuten
de wed 2025-04-16 im Laufe des Abends
es wed 2025-04-16 en la próxima media hora
es wed 2025-04-16 en como media hora
es wed 2025-04-16 en el transcurso de la tarde
es wed 2025-04-16 a lo largo del día
fr wed 2025-04-16 dans la prochaine demi-heure
fr wed 2025-04-16 dans un quart d'heure
fr wed 2025-04-16 au cours de la matinée
pt wed 2025-04-16 na próxima meia hora
pt wed 2025-04-16 no decorrer da tarde
pt wed 2025-04-16 daqui a bocadinho
en wed 2025-04-16 in 20 minutes
en wed 2025-07-03 July third
en wed 2025-07-03 on the third of July
en wed 2025-12-31 the thirty-first of December
en wed 2025-05-06 May 6th
en wed 2025-05-06 6 May
en wed 2025-05-06 Tuesday, May 6
en wed 2026-01-10 January tenth
en wed 2026-06-01 by June 1st, 2026
en wed 2025-05-03 by the 3rd
en wed 2025-04-22 on Tuesday the twenty-second
en wed 2025-04-19 the week of the 19th
en wed 2025-04-30 by 04/30/2025
en wed 2025-05-05 the first Monday in May
en wed 2025-04-25 the last Friday of the month
en wed 2025-07-16 three months from today
en wed 2025-05-16 a month from now
en wed 2026-04-16 in a year
en wed 2025-04-24 on Thursday 24th
en wed 2025-05-05 Monday 5th
en wed 2025-06-13 on Friday the 13th
en wed 2025-06-30 by the end of the quarter
en wed 2025-09-30 in Q3
en wed 2026-03-31 in the first quarter
en wed 2025-07-01 at the beginning of Q3
en wed 2025-09-30 next quarter
en wed 2025-04-16 by EOD
en wed 2025-05-01 in early May
en wed 2025-05-31 in late May
en wed 2025-06-13 on 13/6
de wed 2025-06-16 heute in zwei Monaten
de wed 2025-06-30 bis Ende des Quartals
de wed 2025-09-30 im dritten Quartal
de wed 2025-04-24 am Donnerstag, den 24.
es wed 2025-07-16 dentro de tres meses
es wed 2025-09-30 en el tercer trimestre
es wed 2025-06-30 a finales del trimestre
fr wed 2025-07-16 dans trois mois
fr wed 2025-09-30 au troisième trimestre
fr wed 2025-06-30 fin du trimestre
pt wed 2025-07-16 daqui a três meses
pt wed 2025-09-30 no terceiro trimestre
pt wed 2025-06-30 no fim do trimestre
en fri 2025-10-25 tomorrow
en fri 2025-10-25 in 24 hours
en fri 2025-10-31 on Friday
en fri 2025-10-24 by the end of the week
en fri 2025-10-27 on Monday
en fri 2025-10-27 next Monday
en fri 2025-11-07 Friday week
en fri 2025-10-28 in two working days
en fri 2025-11-24 in a month
en tue 2026-01-01 the day after tomorrow
en tue 2026-01-02 by Friday
en tue 2026-01-06 next Tuesday
en tue 2026-01-09 by the end of next week
en tue 2026-01-02 this week
en tue 2026-01-31 next month
en tue 2025-12-31 by the end of the month
en tue 2025-12-31 by the end of the year
en tue 2026-01-02 by the 2nd
en tue 2026-02-28 the end of February
en tue 2026-02-28 in two months
en leap 2024-02-29 the day after tomorrow
en leap 2024-02-29 by the end of the month
en leap 2024-03-01 on Friday
en leap 2028-02-29 on the 29th of February, 2028
en leap 2024-02-29 on the 29th
en leap 2024-03-05 in five working days
en sat 2025-03-30 tomorrow
en sat 2025-03-30 in 24 hours
en sat 2025-03-31 on Monday morning
en sat 2025-03-31 before Tuesday
en mon 2026-09-01 tomorrow
en mon 2026-08-31 by the end of the month
en mon 2026-09-30 in a month
en mon 2026-09-04 this week
en mon 2026-09-02 by the middle of the week
es wed 2025-04-16 hoy mismo
es wed 2025-04-16 esta tarde
es wed 2025-04-16 antes del final del día
es wed 2025-04-17 mañana
es wed 2025-04-17 mañana por la tarde
es wed 2025-04-17 mañana a primera hora
es wed 2025-04-18 pasado mañana
es wed 2025-04-18 el viernes
es wed 2025-04-18 para el viernes
es wed 2025-04-18 el viernes por la mañana
es wed 2025-04-18 antes del sábado
es wed 2025-04-18 a más tardar el viernes
es wed 2025-04-21 el lunes que viene
es wed 2025-04-21 el próximo lunes
es wed 2025-04-24 el jueves de la semana que viene
es wed 2025-04-25 el viernes en ocho días
es wed 2025-04-18 a finales de semana
es wed 2025-04-18 esta semana
es wed 2025-04-18 antes de que acabe la semana
es wed 2025-04-19 el fin de semana
es wed 2025-04-21 a principios de la semana que viene
es wed 2025-04-23 a mediados de la próxima semana
es wed 2025-04-25 la semana que viene
es wed 2025-04-25 a finales de la semana que viene
es wed 2025-04-30 a final de mes
es wed 2025-04-30 antes del fin de mes
es wed 2025-05-31 el mes que viene
es wed 2025-05-01 a principios de mayo
es wed 2025-06-15 a mediados de junio
es wed 2025-05-31 a finales de mayo
es wed 2025-12-31 antes de fin de año
es wed 2025-04-23 en cinco días laborables
es wed 2025-04-18 dentro de dos días
es wed 2025-04-30 dentro de dos semanas
es wed 2025-04-23 en una semana
es wed 2025-04-30 en quince días
es wed 2025-06-16 dentro de dos meses
es wed 2025-04-18 en 48 horas
es wed 2025-04-16 en media hora
es wed 2025-07-03 el tres de julio
es wed 2025-07-03 el jueves 3 de julio
es wed 2025-05-01 el primero de mayo
es wed 2025-05-12 el 12/5
es wed 2025-05-03 el día tres
es wed 2025-04-22 el martes 22
es wed 2025-05-05 el cinco del mes que viene
es wed 2025-04-30 el último miércoles del mes
es tue 2026-01-01 pasado mañana
es tue 2026-01-02 antes del sábado
es tue 2026-01-05 el lunes
es tue 2026-01-06 el seis de enero
es fri 2025-10-27 el lunes
es fri 2025-10-31 la semana que viene
es mon 2026-09-30 dentro de un mes
de wed 2025-04-16 heute noch
de wed 2025-04-16 noch heute
de wed 2025-04-16 bis heute Abend
de wed 2025-04-16 bis Feierabend
de wed 2025-04-17 morgen
de wed 2025-04-17 morgen früh
de wed 2025-04-17 bis morgen Mittag
de wed 2025-04-18 übermorgen
de wed 2025-04-18 bis Freitag
de wed 2025-04-18 spätestens am Freitag
de wed 2025-04-18 am Freitagnachmittag
de wed 2025-04-18 vor Samstag
de wed 2025-04-19 am Sonnabend
de wed 2025-04-21 nächsten Montag
de wed 2025-04-24 am Donnerstag nächster Woche
de wed 2025-04-22 nächste Woche Dienstag
de wed 2025-04-28 übernächsten Montag
de wed 2025-04-25 Freitag in einer Woche
de wed 2025-04-25 Freitag in acht Tagen
de wed 2025-04-23 heute in acht Tagen
de wed 2025-04-30 heute in vierzehn Tagen
de wed 2025-05-02 Freitag in vierzehn Tagen
de wed 2025-04-30 in vierzehn Tagen
de wed 2025-04-18 bis Ende der Woche
de wed 2025-04-18 diese Woche noch
de wed 2025-04-18 bis zum Wochenende
de wed 2025-04-19 am Wochenende
de wed 2025-04-21 nach dem Wochenende
de wed 2025-04-21 Anfang nächster Woche
de wed 2025-04-23 bis Mitte nächster Woche
de wed 2025-04-25 nächste Woche
de wed 2025-04-25 bis Ende nächster Woche
de wed 2025-05-02 übernächste Woche
de wed 2025-04-30 bis Ende des Monats
de wed 2025-04-30 zum Monatsende
de wed 2025-04-30 diesen Monat noch
de wed 2025-05-31 nächsten Monat
de wed 2025-05-31 Ende Mai
de wed 2025-05-15 Mitte Mai
de wed 2025-06-01 Anfang Juni
de wed 2025-12-31 bis zum Jahresende
de wed 2025-04-23 innerhalb von fünf Werktagen
de wed 2025-04-19 in drei Tagen
de wed 2025-04-19 in zwei bis drei Tagen
de wed 2025-04-30 in zwei Wochen
de wed 2025-05-16 in einem Monat
de wed 2025-04-18 innerhalb von 48 Stunden
de wed 2025-04-16 in einer halben Stunde
de wed 2025-07-03 am dritten Juli
de wed 2025-05-06 am Dienstag, dem 6. Mai
de wed 2025-05-12 bis zum 12.5.
de wed 2025-04-30 bis zum 30.04.2025
de wed 2025-05-03 bis zum Dritten
de wed 2025-04-22 am Dienstag, dem 22.
de wed 2025-05-05 am ersten Montag im Mai
de wed 2025-05-05 am fünften nächsten Monats
de fri 2025-10-27 am Montag
de fri 2025-10-25 in 24 Stunden
de fri 2025-10-31 am Freitag
de fri 2025-10-24 diese Woche
de tue 2026-01-02 bis Ende der Woche
de tue 2026-01-01 übermorgen
de tue 2026-01-31 Ende Januar
de leap 2024-02-29 bis Monatsende
fr wed 2025-04-16 aujourd'hui
fr wed 2025-04-16 d'ici ce soir
fr wed 2025-04-16 dans la journée
fr wed 2025-04-16 avant la fin de la journée
fr wed 2025-04-16 cet après-midi
fr wed 2025-04-17 demain
fr wed 2025-04-17 demain matin
fr wed 2025-04-17 demain dans la journée
fr wed 2025-04-18 après-demain
fr wed 2025-04-18 vendredi
fr wed 2025-04-18 d'ici vendredi
fr wed 2025-04-18 vendredi au plus tard
fr wed 2025-04-18 avant samedi
fr wed 2025-04-18 vendredi après-midi
fr wed 2025-04-24 jeudi prochain
fr wed 2025-04-24 le jeudi de la semaine prochaine
fr wed 2025-04-25 vendredi en huit
fr wed 2025-05-02 vendredi en quinze
fr wed 2025-04-18 cette semaine
fr wed 2025-04-18 d'ici la fin de la semaine
fr wed 2025-04-18 en fin de semaine
fr wed 2025-04-19 ce week-end
fr wed 2025-04-21 après le week-end
fr wed 2025-04-21 en début de semaine prochaine
fr wed 2025-04-23 au milieu de la semaine prochaine
fr wed 2025-04-25 la semaine prochaine
fr wed 2025-04-25 à la fin de la semaine prochaine
fr wed 2025-04-30 à la fin du mois
fr wed 2025-04-30 d'ici la fin du mois
fr wed 2025-05-31 le mois prochain
fr wed 2025-05-31 fin mai
fr wed 2025-05-15 à la mi-mai
fr wed 2025-06-01 début juin
fr wed 2025-12-31 avant la fin de l'année
fr wed 2025-04-23 sous cinq jours ouvrés
fr wed 2025-04-18 dans deux jours
fr wed 2025-04-23 dans huit jours
fr wed 2025-04-30 dans quinze jours
fr wed 2025-04-30 dans deux semaines
fr wed 2025-05-16 dans un mois
fr wed 2025-04-18 sous 48 heures
fr wed 2025-04-16 dans une demi-heure
fr wed 2025-07-03 le trois juillet
fr wed 2025-05-06 le mardi 6 mai
fr wed 2025-05-01 le premier mai
fr wed 2025-05-12 avant le 13 mai
fr wed 2025-05-12 le 12/5
fr wed 2025-05-03 le trois
fr wed 2025-04-22 mardi 22
fr wed 2025-04-19 la semaine du 19
fr wed 2025-05-05 le premier lundi de mai
fr wed 2025-05-05 le cinq du mois prochain
fr tue 2026-01-01 après-demain
fr tue 2026-01-02 d'ici la fin de la semaine
fr sat 2025-03-30 demain
fr sat 2025-03-30 dans 24 heures
fr mon 2026-09-04 vendredi
fr mon 2026-08-31 à la fin du mois
fr fri 2025-10-27 lundi
en wed 2025-04-17 in the morning
en wed 2025-04-17 first thing in the morning
en wed 2025-04-17 by close of play tomorrow
en wed 2025-04-17 before the end of the day tomorrow
en wed 2025-04-25 not this Friday but the one after
en wed 2025-05-05 Monday fortnight
en fri 2025-11-10 Monday fortnight
en wed 2025-04-30 come the thirtieth
en tue 2025-12-31 in the morning
de wed 2025-04-17 morgen im Laufe des Tages
de fri 2025-10-26 übermorgen im Laufe des Vormittags
de wed 2025-04-18 Freitagnachmittag
de wed 2025-04-25 nicht diesen Freitag, sondern den danach
de wed 2025-04-23 in gut einer Woche
de wed 2025-04-26 in etwa zehn Tagen
de wed 2025-04-19 in zwei, drei Tagen
de tue 2026-01-02 in zwei, drei Tagen
es wed 2025-04-30 de aquí a dos semanas
es wed 2025-04-26 de aquí a diez días
es wed 2025-04-26 en un plazo de diez días
es wed 2025-04-25 este viernes en ocho
es wed 2025-04-24 el jueves de la otra semana
es wed 2025-04-25 la semana entrante
es wed 2025-04-19 este finde
es wed 2025-04-25 este viernes no, el siguiente
fr wed 2025-04-23 sous huitaine
fr wed 2025-04-30 dans la quinzaine
fr wed 2025-04-26 d'ici une dizaine de jours
fr wed 2025-05-01 en début de mois
fr wed 2025-04-25 pas ce vendredi, le suivant
fr fri 2025-11-07 pas ce vendredi, celui d'après
pt wed 2025-04-16 hoje
pt wed 2025-04-17 amanhã
pt wed 2025-04-17 amanhã de manhã
pt wed 2025-04-18 depois de amanhã
pt wed 2025-04-18 até sexta-feira
pt wed 2025-04-18 na sexta
pt wed 2025-04-21 na segunda-feira
pt wed 2025-04-26 em dez dias
pt wed 2025-04-23 daqui a uma semana
pt wed 2025-04-30 daqui a duas semanas
pt wed 2025-04-28 no dia vinte e oito
pt tue 2026-01-02 na sexta-feira
pt mon 2026-09-01 amanhã
de wed 2025-04-17 morjen
de wed 2025-04-16 vor Ladenschluss
de wed 2025-04-16 bevor wir zumachen
de wed 2025-04-18 noch die Woche
de wed 2025-04-18 bis Ende von der Woche
de wed 2025-04-23 in acht Tagen
de wed 2025-04-23 heut in acht Tagen
de wed 2025-04-24 Donnerstag über acht Tage
en wed 2025-04-16 before we shut
en wed 2025-04-16 before I knock off
en wed 2025-04-16 by closing time
en wed 2025-04-16 as soon as I'm off this call
en wed 2025-04-17 the morrow
en wed 2025-04-18 before the week's out
en wed 2025-04-18 by end of week
en wed 2025-04-30 by month's end
en wed 2025-04-23 this day week
en wed 2025-04-30 this day fortnight
es wed 2025-05-10 el diez antes de las doce
es wed 2025-05-10 el diez en la mañana
es wed 2025-04-23 en ocho días
es wed 2025-04-16 antes de cerrar
es wed 2025-04-16 en diez minuticos
es wed 2025-04-18 en el transcurso de la semana
fr wed 2025-04-16 avant la fermeture
fr wed 2025-04-16 après souper
fr wed 2025-05-15 mi mai
pt wed 2025-04-17 quinta à tardinha
pt wed 2025-04-17 quinta também
pt wed 2025-04-21 segunda depois do almoço
pt wed 2025-04-23 daqui a oito dias
pt wed 2025-04-16 antes de fecharmos
"""
ROWS = [line.split(" ", 3) for line in SAID.strip().splitlines()]
SENTENCES = {
    "en": ["I'll send it {}.", "So, {} then."],
    "es": ["Se lo mando {}.", "Entonces {}, vale."],
    "de": ["Ich schicke es Ihnen {}.", "Gut, {} dann."],
    "fr": ["Je vous l'envoie {}.", "Bon, {} alors."],
    "pt": ["Eu lhe envio {}.", "Então {}, certo."],
}


def test_there_are_more_than_two_hundred():
    assert len({(language, expression) for language, _, _, expression in ROWS}) >= 200
    assert {language for language, *_ in ROWS} == set(available())


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(("language", "start", "day", "expression"), ROWS)
def test_an_expression_means_its_day(language, start, day, expression, form):
    due = find(SENTENCES[language][form].format(expression), pack(language), STARTS[start])
    assert due is not None
    assert due.day == date.fromisoformat(day), due.expression
    assert due.expression in SENTENCES[language][form].format(expression)


@pytest.mark.parametrize(
    ("language", "expression", "time"),
    [
        ("en", "on Thursday at one", "13:00"), ("en", "Friday at half past two", "14:30"),
        ("en", "tomorrow at 9", "09:00"), ("en", "Monday at 4:15", "16:15"), ("en", "tomorrow by noon", "12:00"),
        ("en", "Tuesday at 8 pm", "20:00"), ("en", "Friday at quarter to five", "16:45"),
        ("en", "July third at two thirty", "14:30"), ("en", "tomorrow at six in the morning", "06:00"),
        ("en", "tomorrow at 4.30", "16:30"), ("en", "tomorrow at half eight in the evening", "20:30"),
        ("en", "tomorrow at 10 past 3", "15:10"), ("en", "Friday at quarter past 9", "09:15"),
        ("de", "morgen um zehn nach drei", "15:10"), ("de", "morgen um halb neun abends", "20:30"),
        ("es", "mañana a las tres y diez", "15:10"), ("es", "mañana a las 16.30", "16:30"),
        ("fr", "demain à 16h30", "16:30"), ("fr", "jeudi à trois heures moins dix", "14:50"),
        ("pt", "amanhã às 16h30", "16:30"), ("pt", "amanhã às três e dez", "15:10"),
        ("es", "mañana a las cinco y media", "17:30"), ("es", "el lunes a las diez", "10:00"),
        ("es", "el jueves a las nueve de la noche", "21:00"), ("es", "el viernes a las once menos cuarto", "10:45"),
        ("de", "morgen um 15 Uhr 30", "15:30"), ("de", "am Freitag um halb drei", "14:30"),
        ("de", "am Montag um zehn", "10:00"), ("de", "morgen um acht Uhr abends", "20:00"),
        ("fr", "jeudi à dix-sept heures", "17:00"), ("fr", "demain à 9 h 30", "09:30"),
        ("fr", "mardi à midi", "12:00"), ("fr", "vendredi à trois heures et demie", "15:30"),
    ],
)  # fmt: skip
def test_a_time_of_day_is_kept(language, expression, time):
    due = find(SENTENCES[language][0].format(expression), pack(language), STARTS["wed"])
    assert due is not None
    assert due.time == time
    assert due.day is not None
    assert due.expression == expression


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "I called you last Friday."), ("en", "It has been broken since Monday."),
        ("en", "It is on the second floor."), ("en", "We may send one."), ("en", "It costs 20 dollars."),
        ("en", "I have two of them."), ("es", "Llamé el lunes pasado."), ("es", "Buenos días."),
        ("es", "Llame por la mañana."), ("de", "Guten Morgen."), ("de", "Das war letzten Montag."),
        ("de", "Seit Montag geht nichts."), ("pt", "É a segunda via."), ("pt", "Já é uma terça parte."),
        ("fr", "J'ai appelé lundi dernier."), ("fr", "Le deuxième étage."),
        ("fr", "C'est pour le passage de cet après-midi."), ("es", "Se ha perdido la factura de mañana."),
    ],
)  # fmt: skip
def test_what_is_no_due_date_is_none(language, sentence):
    assert find(sentence, pack(language), STARTS["wed"]) is None


def test_then_is_the_day_spoken_of():
    agreed = date(2025, 4, 24)
    due = find("I'll move it before then.", pack("en"), STARTS["wed"], agreed)
    assert due is not None
    assert (due.expression, due.day) == ("before then", agreed)


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "We'll fit it the Wednesday after."), ("en", "We'll fit it the following Wednesday."),
        ("de", "Wir bauen am Mittwoch drauf ein."), ("de", "Wir kommen am darauffolgenden Mittwoch."),
        ("es", "Venimos el miércoles siguiente."), ("fr", "On vient le mercredi suivant."),
    ],
)  # fmt: skip
def test_the_weekday_after_counts_from_the_day_spoken_of(language, sentence):
    due = find(sentence, pack(language), STARTS["wed"], date(2025, 5, 15))
    assert due is not None
    assert due.day == date(2025, 5, 21)
    alone = find(sentence, pack(language), STARTS["wed"])
    assert alone is not None
    assert alone.day is None


@pytest.mark.parametrize(
    ("language", "sentence", "days"),
    [
        ("en", "I'll ring you the day after.", 1), ("en", "We'll do it the night before.", -1),
        ("de", "Ich rufe Sie am Tag darauf an.", 1), ("de", "Wir kommen am Vortag.", -1),
        ("es", "Le llamo al día siguiente.", 1), ("fr", "Je vous appelle le lendemain.", 1),
        ("fr", "On passe la veille.", -1), ("pt", "Ligo-lhe no dia seguinte.", 1),
    ],
)  # fmt: skip
def test_the_day_after_counts_from_the_day_spoken_of(language, sentence, days):
    agreed = date(2025, 5, 15)
    due = find(sentence, pack(language), STARTS["wed"], agreed)
    assert due is not None and due.day == agreed + timedelta(days=days)
    alone = find(sentence, pack(language), STARTS["wed"])
    assert alone is not None and alone.day is None


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "I'll come on Easter Monday."),
        ("de", "Ich komme am Dienstag nach Ostern."),
        ("es", "El lunes de Pascua."),
    ],
)
def test_a_day_told_by_a_feast_has_no_date(language, sentence):
    due = find(sentence, pack(language), STARTS["wed"])
    assert due is not None
    assert due.day is None


def test_a_time_that_is_over_today_is_that_of_the_day_spoken_of():
    due = find("We'll come at half past seven in the morning.", pack("en"), STARTS["wed"], date(2025, 4, 24))
    assert due is not None
    assert (due.time, due.day) == ("07:30", date(2025, 4, 24))


def test_a_time_in_the_morning_is_no_morning_to_come():
    due = find("on Friday at nine in the morning", pack("en"), STARTS["wed"])
    assert due is not None
    assert (due.time, due.day) == ("09:00", date(2025, 4, 18))


def test_a_day_begins_on_the_clock_of_the_workspace():
    late = datetime.fromisoformat("2025-03-30T22:30:00+00:00")
    assert local(late, "Europe/Berlin").date() == date(2025, 3, 31)
    assert local(late, "Europe/London").date() == date(2025, 3, 30)


def test_hours_pass_in_real_time_when_the_clocks_change():
    start = datetime(2025, 10, 25, 23, 30, tzinfo=ZoneInfo("Europe/Berlin"))  # the night has 25 hours
    due = find("I'll call in 24 hours.", pack("en"), start)
    assert due is not None
    assert due.day == date(2025, 10, 26)


def test_a_day_that_does_not_exist_is_no_date():
    due = find("on the thirty-first of February", pack("en"), STARTS["wed"])
    assert due is not None
    assert due.day is None


@pytest.mark.parametrize(
    ("language", "country", "expression", "day"),
    [
        ("en", "US", "on 05/06/2025", "2025-05-06"), ("en", "GB", "on 05/06/2025", "2025-06-05"),
        ("en", "IE", "before 05/06/2025", "2025-06-04"), ("en", "US", "by 5/6", "2025-05-06"),
        ("en", "AU", "by 5/6", "2025-06-05"), ("en", "GB", "before 1/5", "2025-04-30"),
        ("en", "US", "on 25/4", "2025-04-25"), ("en", None, "by 05/06/2025", None), ("en", "CA", "by 5/6", None),
        ("en", None, "by 5/5", "2025-05-05"), ("en", None, "on 2025-06-05", "2025-06-05"),
        ("es", "MX", "el 5/6", "2025-06-05"), ("es", "US", "el 5/6", "2025-05-06"),
        ("fr", None, "le 5/6", "2025-06-05"), ("fr", "FR", "le 05/06/2025", "2025-06-05"),
        ("de", "DE", "am 5.6.2025", "2025-06-05"), ("de", "US", "am 5.6.2025", "2025-06-05"),
        ("pt", "BR", "até 5/6", "2025-06-05"),
    ],
)  # fmt: skip
def test_day_and_month_in_figures_are_in_the_order_of_the_country(language, country, expression, day):
    due = find(SENTENCES[language][0].format(expression), pack(language, country), STARTS["wed"])
    assert due is not None and due.expression in expression
    assert due.day == (date.fromisoformat(day) if day else None)


@pytest.mark.parametrize(
    ("language", "expression"),
    [
        ("en", "in a few days"), ("en", "within several weeks"), ("en", "as soon as possible"), ("en", "shortly"),
        ("de", "in ein paar Tagen"), ("de", "bei Gelegenheit"), ("es", "en unos días"), ("es", "cuanto antes"),
        ("fr", "dans quelques jours"), ("fr", "dès que possible"), ("pt", "em alguns dias"), ("pt", "em breve"),
    ],
)  # fmt: skip
def test_an_indefinite_day_keeps_its_words(language, expression):
    due = find(SENTENCES[language][0].format(expression), pack(language), STARTS["wed"])
    assert due is not None and (due.expression, due.day) == (expression, None)


@pytest.mark.parametrize(
    ("language", "text", "day"),
    [
        ("en", "I'll come on Monday, no, on Tuesday.", "2025-04-22"),
        ("en", "You'll have it on Friday, sorry, let's say Saturday.", "2025-04-19"),
        ("de", "Die haben Sie übermorgen, nein, sagen wir bis Samstag.", "2025-04-19"),
        ("de", "Ich komme am Montag, Moment, am Dienstag.", "2025-04-22"),
        ("es", "Paso el lunes, no, el martes.", "2025-04-22"),
        ("es", "Lo tiene mañana, perdón, el viernes.", "2025-04-18"),
        ("fr", "Je passe lundi, non, mardi.", "2025-04-22"),
        ("fr", "Vous l'aurez demain, enfin, vendredi.", "2025-04-18"),
        ("pt", "Passo na segunda, não, na terça.", "2025-04-22"),
        ("pt", "Fica pronto amanhã, aliás, na sexta.", "2025-04-18"),
        ("de", "Am Montag ist niemand da.", "2025-04-21"),
    ],
)
def test_the_last_of_corrected_days_counts(language, text, day):
    due = find(text, pack(language), STARTS["wed"])
    assert due and due.day and due.day.isoformat() == day


@pytest.mark.parametrize(
    ("language", "text", "day"),
    [
        ("en", "It's ready after lunch.", "2025-04-16"),
        ("en", "It's ready on Friday, after lunch.", "2025-04-18"),
        ("es", "Te llamo en la tarde.", "2025-04-16"),
        ("es", "El viernes te llamo en la tarde.", "2025-04-18"),
        ("es", "Te llamo mañana, después de comer.", "2025-04-17"),
        ("de", "Ich rufe nach der Mittagspause an.", "2025-04-16"),
        ("de", "Am Freitag rufe ich am Nachmittag an.", "2025-04-18"),
        ("fr", "Je passe en fin de journée.", "2025-04-16"),
        ("fr", "Je passe mardi, en fin de journée.", "2025-04-22"),
        ("pt", "Mando logo à noite.", "2025-04-16"),
        ("pt", "Mando na segunda, ao fim da tarde.", "2025-04-21"),
    ],
)
def test_a_part_of_the_day_is_today_unless_a_day_is_named(language, text, day):
    due = find(text, pack(language), STARTS["wed"])
    assert due and due.day and due.day.isoformat() == day
