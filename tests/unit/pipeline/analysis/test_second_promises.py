"""Two promises in one turn are two tasks; one promise in other words is one."""

from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.support.calls_by_hand import call

TWO = """
en | I'll email you the offer tomorrow. I'll email you the invoice on Friday.
en | I'll ring you tomorrow at 9 and I'll send you the receipt tomorrow.
en | I will mail you the new contract on Friday, and I will call you on Friday.
en | I'll fix the heater on Monday and I'll bring the spare key on Monday.
en | I'll send you the offer today and the contract tomorrow.
de | Ich schicke Ihnen morgen das Angebot. Ich schicke Ihnen am Freitag die Rechnung.
de | Ich schicke Ihnen heute das Angebot und morgen den Vertrag.
es | Le mando mañana el presupuesto. Le mando el viernes la factura.
es | Le mando hoy el presupuesto y mañana el contrato.
fr | Je vous envoie demain le devis. Je vous envoie vendredi la facture.
fr | Je vous envoie aujourd'hui le devis et demain le contrat.
pt | Vou enviar o orçamento amanhã. Vou enviar a fatura na sexta.
"""
ONE = """
en | I'll email you the quote tomorrow. So, I'll email you the quote tomorrow.
en | I'll send you the form tomorrow. Yes, I'll do that tomorrow.
en | I'll bring the key on Friday. I'll bring it on Friday morning.
en | I'll send you the offer and the contract tomorrow.
de | Ich schicke Ihnen morgen das Angebot. Also, ich schicke Ihnen morgen das Angebot.
de | Ich schicke Ihnen morgen das Angebot und den Vertrag.
es | Le mando mañana la factura. Entonces le mando mañana la factura.
fr | Je vous envoie demain le devis. Donc je vous envoie demain le devis.
pt | Vou enviar a fatura amanhã. Então vou enviar a fatura amanhã.
"""
GREETINGS = {"en": "Hi.", "de": "Guten Tag.", "es": "Hola.", "fr": "Bonjour.", "pt": "Oi."}
THANKS = {"en": "Great, thanks.", "de": "Prima, danke.", "es": "Gracias.", "fr": "Merci.", "pt": "Obrigado."}


def tasks(language, text):
    material = call(("customer", GREETINGS[language]), ("rep", text), ("customer", THANKS[language]), language=language)
    return TasksStep().run(material).value["tasks"]


def test_each_promise_of_a_turn_is_a_task(subtests) -> None:
    for lines, count in ((TWO, 2), (ONE, 1)):
        for line in lines.strip().splitlines():
            with subtests.test(line):
                language, text = line.split(" | ")
                assert len(tasks(language, text)) == count


def test_each_thing_of_a_list_has_its_own_day() -> None:
    listed = tasks("en", "I'll send you the offer today, the contract tomorrow and the bill on Friday.")
    assert [(task["title"], task["due_date"]) for task in listed] == [
        ("Send the customer the offer", "2025-04-16"),
        ("Send the customer the contract", "2025-04-17"),
        ("Send the customer the bill", "2025-04-18"),
    ]
