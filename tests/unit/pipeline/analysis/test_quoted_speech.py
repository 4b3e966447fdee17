import pytest

from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.support.calls_by_hand import call

TOLD_AGAIN = """
en|The lady in the shop said, I'll post you the voucher tomorrow.
en|Somebody told me, yes, we'll refund you by Monday.
en|The letter reads "I will repair the gate on Friday".
de|Ihr Kollege hat gesagt, ich schicke Ihnen morgen den Gutschein.
de|Die Dame meinte: Wir überweisen das bis Montag.
de|Im Brief steht „ich repariere das Tor am Freitag“.
es|Su compañero me dijo: le mando mañana el vale.
es|Me prometieron que le devuelvo el dinero el lunes.
fr|Votre collègue m'a dit : je vous envoie le bon demain.
fr|Ils ont promis : nous vous remboursons lundi.
"""

OWN_WORDS = """
en|I told you I'll post the voucher tomorrow.
en|As I said, I'll repair the gate on Friday.
de|Ich habe doch gesagt, ich schicke Ihnen morgen den Gutschein.
es|Como le dije, le mando mañana el vale.
fr|Je vous l'ai dit, je vous envoie le bon demain.
"""

THINGS = """
en|A new badge will be mailed to you by Friday.
en|That deposit will be refunded within five working days.
en|Another key will be posted tomorrow.
en|An inspector will call you on Thursday.
fr|Une nouvelle clé sera envoyée vendredi.
fr|Une nouvelle facture vous sera envoyée lundi.
es|Esa fianza se le devolverá en cinco días hábiles.
de|Eine neue Karte wird Ihnen bis Freitag zugeschickt.
"""


def _tasks(row: str, speaker: str):
    language, text = row.split("|")
    return TasksStep().run(call((speaker, text), language=language)).value["tasks"]


@pytest.mark.parametrize("row", TOLD_AGAIN.strip().splitlines())
def test_what_another_said_is_no_promise(row):
    assert _tasks(row, "customer") == []


@pytest.mark.parametrize("row", OWN_WORDS.strip().splitlines())
def test_what_the_speaker_said_before_still_is_theirs(row):
    assert [task["owner"] for task in _tasks(row, "rep")] == ["rep"]


@pytest.mark.parametrize("row", THINGS.strip().splitlines())
def test_a_thing_is_promised_with_any_article(row):
    assert len(_tasks(row, "rep")) == 1
