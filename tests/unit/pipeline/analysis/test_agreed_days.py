"""Days that are agreed around a promise: asked for before it, proposed after it, or corrected.

A row is a language, the turns (the speakers alternate; the first is named), and the days of the tasks in order without
repetition; "-" is no task with a day.
"""

from datetime import UTC, date, datetime

import pytest

from pipeline.analysis.rules.commitments.tasks import TasksStep
from pipeline.analysis.rules.dates import find
from pipeline.language.pack import pack
from tests.support.calls_by_hand import call

TUESDAY = datetime(2026, 9, 8, 10, 0, tzinfo=UTC)

NEEDED = """
en|rep: When do you want the key back? / customer: By Friday would be ideal. / rep: Fine, I'll drop it off.|2026-09-11
en|customer: We need the lease by the twentieth. / rep: No problem, I'll send it to you.|2026-09-20
en|rep: How about you ring me on Thursday? / customer: All right, I'll ring you.|2026-09-10
de|customer: Die Kopie bräuchten wir bis Freitag. / rep: Gut, die schicke ich Ihnen.|2026-09-11
de|rep: Die Unterlagen müssten bis zum zwanzigsten da sein. / customer: Gut, die bringe ich vorbei.|2026-09-20
es|customer: Necesitamos el contrato para el viernes. / rep: Muy bien, se lo mando.|2026-09-11
es|rep: El formulario tendría que estar aquí antes del veinte. / customer: De acuerdo, se lo llevo.|2026-09-19
fr|customer: Il me faudrait le contrat pour vendredi. / rep: Très bien, je vous l'envoie.|2026-09-11
fr|rep: Le dossier devrait être ici avant le vingt. / customer: D'accord, je vous l'apporte.|2026-09-19
pt|customer: Preciso do contrato até sexta. / rep: Certo, eu mando-lho.|2026-09-11
en|customer: I'm in Leeds on Friday for the fair. / rep: Right, I'll send you the brochure.|-
en|customer: I want to complain about Thursday. / rep: Of course, I'll get that logged for you.|-
en|customer: We need the figures by Friday. / rep: I'll ask my manager and let you know.|-
de|customer: Am Freitag ist bei uns Betriebsausflug. / rep: Gut, ich schicke Ihnen die Preisliste.|-
es|customer: El viernes tenemos la feria. / rep: Muy bien, le mando la lista de precios.|-
fr|customer: Vendredi, on est fermés. / rep: D'accord, je vous envoie la liste des prix.|-
pt|customer: Na sexta estamos fechados. / rep: Certo, eu envio-lhe a lista de preços.|-
"""

PROPOSED = """
en|customer: Could you send me the plan? / rep: Sure. / customer: By when, do you think? / rep: By Friday.|2026-09-11
en|customer: Can you mail me the bill? / rep: Sure. / customer: If you could by Thursday, please. / rep: Yes.|2026-09-10
en|rep: I'll call the plumber for you. / customer: Thanks. / rep: I'll do it before lunch.|2026-09-08
de|customer: Können Sie mir den Plan schicken? / rep: Ja. / customer: Bis wann denn? / rep: Bis Freitag.|2026-09-11
de|rep: Ich schicke Ihnen den Grundriss. / customer: Ginge bis Donnerstag, bitte? / rep: Ja, klar.|2026-09-10
de|rep: Ich rufe den Klempner für Sie an. / customer: Danke. / rep: Das mache ich noch heute.|2026-09-08
es|customer: ¿Me puede mandar el plano? / rep: Claro. / customer: ¿Para cuándo? / rep: Para el viernes.|2026-09-11
es|rep: Le mando el plano. / customer: Si puede ser antes del viernes, mejor. / rep: Sí.|2026-09-10
fr|customer: Vous pouvez m'envoyer le plan? / rep: Oui. / customer: Pour quand? / rep: Pour vendredi.|2026-09-11
fr|rep: J'appelle le plombier pour vous. / customer: Merci. / rep: Je le fais ce soir.|2026-09-08
pt|customer: Pode me mandar a planta? / rep: Claro. / customer: Para quando? / rep: Para sexta.|2026-09-11
en|rep: I'll post you the brochure. / customer: Are you open on Saturday? / rep: Yes.|-
de|rep: Ich schicke Ihnen den Prospekt. / customer: Haben Sie am Samstag offen? / rep: Ja.|-
es|rep: Le mando el folleto. / customer: ¿Abren el sábado? / rep: Sí.|-
fr|rep: Je vous envoie la brochure. / customer: Vous ouvrez samedi? / rep: Oui.|-
"""

CORRECTED = """
en|rep: I'll get Ann out to you on Thursday, no, sorry, she's off, Friday it is.|2026-09-11
en|rep: I'll send you the report by Thursday. Actually, Friday.|2026-09-11
en|rep: I'll post the form on Thursday, actually Friday.|2026-09-11
de|rep: Ich schicke Ihnen den Bericht am Donnerstag, nein, da bin ich weg, am Freitag.|2026-09-11
de|rep: Ich schicke Ihnen den Bericht am Donnerstag. Nein, lieber am Freitag.|2026-09-11
es|rep: Le mando el informe el jueves, no, perdón, el viernes.|2026-09-11
es|rep: Le mando el informe el jueves. O mejor el viernes.|2026-09-11
fr|rep: Je vous envoie le rapport jeudi, non, pardon, je suis absent, vendredi.|2026-09-11
fr|rep: Je vous envoie le rapport le dix... enfin non, plutôt le douze, comme ça c'est sûr.|2026-09-12
pt|rep: Mando-lhe o relatório na quinta, não, na sexta.|2026-09-11
en|rep: I'll send you the report on Thursday, and no, we don't open on Friday.|2026-09-10
en|rep: The twelfth is when we moved. Then I'll send you the report tomorrow.|2026-09-09
es|rep: Le mando el acta, a ver, hoy no… pasado mañana sin falta.|2026-09-10
pt|customer: Pago na sexta, não, meu salário cai na quinta, pago na quinta.|2026-09-10
de|customer: Ich zahle am Freitag, nein, mein Lohn kommt am Donnerstag, ich zahle am Donnerstag.|2026-09-10
es|rep: Va mi hermano el lunes día catorce. No, espera, que ese día no puede. El martes, por la tarde.|2026-09-15
de|rep: Der Notdienst wird heute noch beauftragt. / customer: Und wann kommt da einer? / rep: Morgen früh.|2026-09-08
"""

SAID_AGAIN = """
en|rep: I have Friday the eighteenth. / customer: Friday's good. / rep: Right, we'll deliver on Friday.|2026-09-18
de|rep: Ich hätte Freitag, den achtzehnten. / customer: Das passt. / rep: Gut, wir liefern am Freitag.|2026-09-18
es|rep: Tengo el viernes dieciocho. / customer: Me va bien. / rep: Pues se lo llevamos el viernes.|2026-09-18
fr|rep: J'ai le vendredi dix-huit. / customer: C'est bien. / rep: Alors on vous livre vendredi.|2026-09-18
pt|rep: Tenho a sexta-feira, dia dezoito. / customer: Está bem. / rep: Então entregamos na sexta.|2026-09-18
de|rep: Die Messe ist am Freitag, dem sechsten November. / rep: Ich schicke Ihnen die Karten am Freitag.|2026-09-11
fr|rep: La matinée est le vingt-cinq septembre. / customer: Bien. / rep: J'envoie les billets vendredi.|2026-09-11
"""

NAMED_BEFORE = """
en|rep: I'll ask the council on Thursday, and I'll ring you the day after.|2026-09-10 2026-09-11
de|rep: Ich spreche am Donnerstag mit dem Vorstand, und am Tag darauf rufe ich Sie an.|2026-09-10 2026-09-11
es|rep: El jueves le pregunto al jefe, y le llamo al día siguiente.|2026-09-10 2026-09-11
fr|rep: Je leur présente ça jeudi, et je vous appelle le lendemain.|2026-09-10 2026-09-11
en|rep: I'll drop it off on Thursday. / customer: Fine. What time? / rep: After lunch, I'd say.|2026-09-10
de|rep: Ich bringe Ihnen das am Freitag vorbei. / customer: Um wie viel Uhr? / rep: Halb sechs.|2026-09-11
en|rep: He'll fix it on Thursday. / customer: Why not tomorrow? / rep: Tomorrow he's in Leeds, I can't.|2026-09-10
fr|rep: Je vous envoie un devis. / customer: Mais avant vendredi. / rep: Demain midi vous l'avez.|2026-09-09
fr|rep: Je vous envoie le rappel la veille. / customer: Très bien.|-
de|rep: Ich hole mir diese Woche mal zwei Angebote ein.|2026-09-11
de|rep: Ich schicke Ihnen das Gutachten bis 15. Oktober zu.|2026-10-15
"""

HALF_SENTENCES = """
en|rep: Friday? / customer: Friday's fine. / rep: Half eight? / customer: Lovely.|2026-09-11
en|rep: When shall I come and measure? / customer: Thursday week. / rep: At ten? / customer: Ten's fine.|2026-09-17
en|customer: It's her birthday a fortnight on Friday. / rep: I'll bring the cake round the day before.|2026-09-24
en|customer: It's on Saturday, we need them the day before. / rep: I'll drop them off.|2026-09-11
en|rep: I can fix it tomorrow. / customer: Tomorrow's no use. / rep: Monday, then? / customer: Monday's fine.|2026-09-14
en|rep: Monday, two o'clock? / customer: Monday's the dentist. Make it Thursday. / rep: Thursday, two.|2026-09-10
en|customer: The fence came down. / rep: Day after tomorrow, half two? / customer: Spot on.|2026-09-10
de|rep: Wann wären Sie daheim? / customer: Freitag. / rep: Dann um neune? / customer: Passt.|2026-09-11
es|rep: ¿Cuándo le viene bien que pasemos? / customer: El jueves. / rep: ¿A las cinco? / customer: Vale.|2026-09-10
es|customer: ¿Y el informe, para cuándo? / rep: La otra semana se lo mando.|2026-09-18
es|rep: Le mando el contrato. / customer: ¿Hoy? / rep: Mañana, mañana sin falta.|2026-09-09
fr|rep: Jeudi alors ? / customer: Parfait. / rep: Quatorze heures ? / customer: Ça marche.|2026-09-10
fr|customer: Vous me rappelez quand ? / rep: Après-demain, en fin de matinée. / customer: Bien.|2026-09-10
pt|rep: A gente dá uma olhada. Sexta às dez? / customer: Combinado.|2026-09-11
pt|customer: Na terça dá-lhe jeito? / rep: Na terça, sim. / customer: Às três? / rep: Às três, está ótimo.|2026-09-15
en|rep: How about Friday, then? / customer: I'd rather think it over first.|-
en|customer: Are you open Saturdays? / rep: Saturdays, yes, nine till one. / customer: Lovely.|-
fr|customer: Le jeudi, vous fermez à quelle heure ? / rep: À dix-huit heures. / customer: Parfait.|-
fr|rep: On se voit mercredi ? / customer: Je vais d'abord en parler avec mon mari.|-
es|rep: ¿Qué le parece el viernes? / customer: Mire, ya le aviso yo.|-
"""

EXACT = """
en|by the Wednesday after it, the sixteenth|2026-09-16
en|on Wednesday, that's the twenty-third|2026-09-23
de|am Mittwoch, also am dreiundzwanzigsten|2026-09-23
es|el miércoles, o sea el día veintitrés|2026-09-23
fr|mercredi, donc le vingt-trois|2026-09-23
pt|na quarta, vinte e três|2026-09-23
en|on Thursday, sometime in the morning|2026-09-10
en|not before Monday|2026-09-14
de|nicht vor Montag|2026-09-14
es|no antes del lunes|2026-09-14
fr|pas avant lundi|2026-09-14
pt|não antes de segunda|2026-09-14
en|before Monday|2026-09-13
de|vor Montag|2026-09-13
"""


def _days(language: str, turns: str) -> set[str | None]:
    lines = (turn.split(": ", 1) for turn in turns.split(" / "))
    material = call(*((speaker, text) for speaker, text in lines), language=language, start=TUESDAY)
    return {task["due_date"] for task in TasksStep().run(material).value["tasks"]}


@pytest.mark.parametrize("rows", [NEEDED, PROPOSED, CORRECTED, SAID_AGAIN, NAMED_BEFORE, HALF_SENTENCES])
def test_the_agreed_day_is_the_day_of_the_promise(rows, subtests):
    for row in rows.strip().splitlines():
        language, turns, day = row.split("|")
        with subtests.test(row):
            days = _days(language, turns)
            assert days <= {None} if day == "-" else days == set(day.split())


@pytest.mark.parametrize("row", EXACT.strip().splitlines())
def test_the_exact_day_counts(row):
    language, text, day = row.split("|")
    due = find(text, pack(language), TUESDAY)
    assert due is not None and due.day == date.fromisoformat(day)
