"""What was done during a call, by whom, with amount, day and address, in five languages."""

from dataclasses import replace

from pipeline.analysis import analyze
from tests.support.calls_by_hand import ROSTER, call

COUNTRIES = {"en": "US", "de": "DE", "es": "ES", "fr": "FR", "pt": "BR"}

DONE = """
en | Okay, I've booked you in for Thursday the 24th at half past two. | appointment 2025-04-24 14:30
en | You're all set for Tuesday at 8:15. | appointment 2025-04-22 08:15
en | I've just transferred 250 dollars from checking to savings. | transfer 250
en | eighty six dollars has been transferred to your savings account | transfer 86
en | The late fee of $35 has been waived. | refund 35
en | Alright, I've ordered your replacement card. | order
en | Your password has been reset. | reset
en | Your subscription has been cancelled. | cancellation
en | I went ahead and updated your address. | change
en | One hundred and thirty two dollars has been paid to Blue Harbor. | payment 132
de | Ich habe Ihnen 250 Euro auf Ihr Sparkonto überwiesen. | transfer 250
de | Der Termin ist am Dienstag um 8 Uhr 15 eingetragen. | appointment 2025-04-22 08:15
de | Ihre Karte wurde gesperrt. | cancellation
de | Gut, ich habe eine neue Karte bestellt. | order
de | Das Passwort wurde zurückgesetzt. | reset
de | Die 35 Euro wurden Ihnen gutgeschrieben. | refund 35
es | Le he transferido 250 euros a su cuenta de ahorro. | transfer 250
es | Su cita queda agendada para el martes a las 8 y cuarto. | appointment 2025-04-22 08:15
es | Su tarjeta ha sido bloqueada. | cancellation
es | Ya le he pedido una tarjeta nueva. | order
es | Hemos cambiado su dirección. | change
fr | J'ai viré 250 euros sur votre compte épargne. | transfer 250
fr | Votre rendez-vous est fixé à mardi 8 h 15. | appointment 2025-04-22 08:15
fr | Votre carte a été bloquée. | cancellation
fr | Je vous ai commandé une nouvelle carte. | order
fr | Les 35 euros ont été remboursés. | refund 35
pt | Transferi 250 reais para a sua poupança. | transfer 250
pt | Sua consulta está agendada para terça às 8h15. | appointment 2025-04-22 08:15
pt | Seu cartão foi bloqueado. | cancellation
pt | Os 35 reais foram estornados. | refund 35
"""
CONTROLS = """
en | I'll send you the card tomorrow.
en | Has it been paid?
en | If it has been paid, let me know.
en | I've already sent the invoice last week.
en | I see it has been shipped.
en | It hasn't been paid.
en | Your order will have been shipped by Friday.
de | Ich schicke Ihnen morgen die Karte.
de | Wurde das schon bezahlt?
de | Ich sehe, dass es bestellt wurde.
de | Die Rechnung wurde noch nicht bezahlt.
es | Le enviaré la tarjeta mañana.
es | ¿Ha sido pagado?
es | Veo que ha sido enviado.
es | Todavía no ha sido pagado.
fr | Je vous enverrai la carte demain.
fr | Est-ce que ça a été payé ?
fr | Je vois que ça a été envoyé.
fr | La facture n'a pas été payée.
pt | Vou enviar o cartão amanhã.
pt | Já foi pago?
pt | Vejo que foi enviado.
pt | Ainda não foi pago.
"""

TO_ADDRESSES = """
en | Your new card has been sent to 12 Elm Street. | 12 Elm Street
en | I've mailed the checkbook to 45 Oak Avenue, apartment 3. | 45 Oak Avenue, apartment 3
de | Ich habe die Karte an die Lindenstraße 12 geschickt. | Lindenstraße 12
de | Der Vertrag wurde an die Ringstraße 4 verschickt. | Ringstraße 4
es | Le he enviado la tarjeta a la calle Mayor 3. | calle Mayor 3
es | Ya le he mandado el contrato a la avenida Colón 28. | avenida Colón 28
fr | Je vous ai envoyé la carte au 12 rue des Lilas. | 12 rue des Lilas
fr | J'ai expédié le contrat au 5 avenue Foch. | 5 avenue Foch
pt | Enviei o cartão para a Rua das Flores 12. | Rua das Flores 12
pt | Mandei o contrato para a Avenida Brasil 30. | Avenida Brasil 30
"""
DICTATED = """
en | Address? | 068 First Street, Reno Nevada 25306 | Zero six. Eight. First Street. / Reno. / Nevada. / And then 25306.
en | Address? | 733 Oak Lane, Bend Oregon 40779 | It's seven three three Oak Lane. / Bend. / Oregon. / Four 0779.
en | What is your address? | 12 Elm Street | 12 Elm Street. / And my customer number is 48213.
de | Wie ist Ihre Adresse? | Lindenstraße 12, 80331 München | Lindenstraße zwölf. / Acht null drei drei eins München.
de | Ihre Adresse, bitte? | Lindenstraße 12 | Lindenstraße 12. / Die Kundennummer ist 80331.
es | ¿Cuál es su dirección? | calle Mayor 3, 28013 Madrid | Calle Mayor 3. / 28013 Madrid.
es | ¿Cuál es su dirección? | calle Mayor 3 | Calle Mayor 3. / Mi número de pedido es 28013.
fr | Quelle est votre adresse ? | 12 rue Colbert, 75011 Paris | 12 rue Colbert. / 75011 Paris.
fr | Quelle est votre adresse ? | 12 rue Colbert | 12 rue Colbert. / Mon numéro de client est le 75011.
pt | Qual é o seu endereço? | Rua Augusta 12, 01234 Lisboa | Rua Augusta 12. / 01234 Lisboa.
pt | Qual é o seu endereço? | Rua Augusta 12 | Rua Augusta 12. / Meu número de pedido é 01234.
"""


def findings(language, *lines):
    roster = replace(ROSTER, default_country=COUNTRIES[language])
    return {finding.step: finding.value for finding in analyze(call(*lines, language=language, roster=roster))}


def actions(language, *lines):
    return findings(language, *lines)["actions"]["actions"]


def test_an_action_has_its_kind_amount_day_and_time(subtests) -> None:
    for line in DONE.strip().splitlines():
        language, text, expected = (part.strip() for part in line.split(" | "))
        with subtests.test(line):
            [action] = actions(language, ("customer", "..."), ("rep", text))
            details = [action["kind"], f"{action['amount']:g}" if action["amount"] else None, action["date"]]
            assert [*filter(None, (*details, action["time"]))] == expected.split()
            assert (action["by"], action["evidence"]["turn"]) == ("rep", 1)


def test_promises_questions_and_history_are_no_actions(subtests) -> None:
    for line in CONTROLS.strip().splitlines():
        language, text = line.split(" | ")
        with subtests.test(line):
            assert actions(language, ("customer", "..."), ("rep", text)) == []


def test_amount_day_and_address_come_from_the_talk_before() -> None:
    [payment] = actions(
        "en", ("rep", "What is the bill amount?"), ("customer", "It's ninety seven dollars."),
        ("rep", "Okay, your bill has been paid."),
    )  # fmt: skip
    assert payment["amount"] == 97
    [visit] = actions(
        "en", ("rep", "What day would you like?"), ("customer", "Monday."), ("rep", "And what time?"),
        ("customer", "At eleven a.m."), ("rep", "I have scheduled your appointment."),
    )  # fmt: skip
    assert (visit["date"], visit["time"]) == ("2025-04-21", "11:00")
    [order] = actions(
        "en", ("rep", "What is your address?"), ("customer", "It's 14 Mill Lane, Springfield."),
        ("rep", "A new checkbook has been sent to your home address."),
    )  # fmt: skip
    assert order["address"] and "14 Mill Lane" in order["address"]


def test_an_action_has_the_address_that_its_sentence_names(subtests) -> None:
    for line in TO_ADDRESSES.strip().splitlines():
        language, text, address = line.split(" | ")
        with subtests.test(line):
            [action] = actions(language, ("customer", "..."), ("rep", text))
            assert action["address"].lower() == address.lower()


def test_an_address_that_is_dictated_over_several_turns_is_whole(subtests) -> None:
    for line in DICTATED.strip().splitlines():
        language, question, address, answers = line.split(" | ")
        with subtests.test(line):
            turns = (("customer", answer) for answer in answers.split(" / "))
            heard = findings(language, ("rep", question), *turns, ("rep", "Okay."))["contacts"]["heard"]
            assert heard["address"]["value"].lower() == address.lower()


def test_the_summary_names_what_was_done_once_with_a_day_as_people_write_it() -> None:
    summary = findings(
        "en", ("rep", "Northwind, this is Anna, how can I help you?"),
        ("customer", "I'd like to move my boiler appointment."),
        ("rep", "I've booked your appointment for Tuesday at 8:15."), ("customer", "Thanks, bye."),
    )["summary"]  # fmt: skip
    assert summary["text"].endswith("Anna Berg booked the customer's appointment (Tue, Apr 22, 08:15).")
    assert [part["part"] for part in summary["sentences"]] == ["reason", "done"]
