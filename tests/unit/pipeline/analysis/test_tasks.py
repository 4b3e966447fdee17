from datetime import datetime

import pytest

from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.support.calls_by_hand import call


def tasks(*lines, **given):
    return TasksStep().run(call(*lines, **given)).value["tasks"]


def test_a_request_counts_when_it_is_agreed_to():
    (task,) = tasks(("customer", "Could you please send me the new offer?"), ("rep", "Sure, no problem."))
    assert (task["owner"], task["kind"], task["beneficiary"]) == ("rep", "request", "customer")


def test_a_request_that_is_refused_is_no_task():
    assert tasks(("customer", "Could you send me the offer by Monday?"), ("rep", "No, I am afraid we cannot.")) == []


def test_a_request_nobody_answers_is_no_task():
    assert tasks(("rep", "Could you send me the form by Monday?"), ("rep", "Goodbye.")) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "If it breaks again, I will send a technician.",
        "I'll be honest.",
        "Let me check.",
        "I will put you through right away.",
        "I have already sent the invoice.",
        "We might call you tomorrow.",
        "I would send it tomorrow, if I could.",
        "I won't pay this tomorrow.",
    ],
)
def test_what_only_looks_like_a_task_is_none(sentence):
    assert tasks(("rep", sentence), ("customer", "Okay.")) == []


def test_one_task_said_twice_is_one():
    (task,) = tasks(
        ("customer", "Could you please send me the new offer by Monday?"),
        ("rep", "Yes, I will send you the new offer by Monday."),
        ("rep", "So I will send you the new offer."),
    )
    assert task["due_date"] == "2025-04-21"
    assert task["evidence"]["turn"] == 0


@pytest.mark.parametrize(
    ("speaker", "language", "sentence", "title"),
    [
        ("rep", "en", "I will send you a new mail.", "Send the customer a new mail"),
        ("rep", "en", "I will call you back tomorrow.", "Call the customer back"),
        ("customer", "en", "I will send you the form tomorrow.", "Send the rep the form"),
        ("rep", "en", "I will send the form you asked for.", "Send the form you asked for"),
        ("rep", "en", "I will credit it to your account.", "Credit it to the customer's account"),
        ("rep", "en", "I will call you myself once it arrives.", "Call the customer once it arrives"),
        ("customer", "en", "I will bring my papers tomorrow.", "Bring the customer's papers"),
        ("rep", "de", "Ich schicke Ihnen morgen die Rechnung.", "Ich schicke dem Kunden die Rechnung"),
        ("rep", "de", "Ich rufe Sie morgen zurück.", "Ich rufe den Kunden zurück"),
        ("rep", "de", "Ich schicke dir morgen die Rechnung.", "Ich schicke dem Kunden die Rechnung"),
        ("customer", "de", "Ich rufe dich morgen zurück.", "Ich rufe den Ansprechpartner zurück"),
        ("rep", "es", "Le envío la factura mañana por correo.", "Le envío al cliente la factura por correo"),
        ("rep", "es", "Te mando el enlace esta tarde.", "Le mando al cliente el enlace"),
        ("rep", "es", "Le voy a mandar el contrato el viernes.", "Le voy a mandar al cliente el contrato"),
        ("rep", "es", "Se la mando esta tarde por correo.", "Se la mando al cliente por correo"),
        ("rep", "es", "Voy a mandártelo hoy mismo.", "Mandárselo al cliente hoy mismo"),
        ("rep", "es", "Te llamo el lunes sin falta.", "Llamo al cliente sin falta"),
        ("customer", "es", "Le hago llegar los papeles mañana.", "Le hago llegar al agente los papeles"),
        ("rep", "es", "El viernes te tenemos listo el traje.", "Le tenemos listo al cliente el traje"),
        (
            "rep",
            "es",
            "Mi compañera se pondrá en contacto con usted el jueves.",
            "Mi compañera se pondrá en contacto con el cliente",
        ),
        ("rep", "es", "Le paso el recado a mi jefa hoy mismo.", "Le paso el recado a mi jefa"),
        ("rep", "es", "Se lo comento a mi supervisor esta tarde.", "Se lo comento a mi supervisor"),
        ("A", "es", "Te mando el enlace esta tarde.", "Te mando el enlace"),
        ("rep", "fr", "Je vous enverrai la facture demain.", "J'enverrai la facture au client"),
        ("rep", "fr", "Je t'envoie le lien ce soir.", "J'envoie le lien au client"),
        (
            "rep",
            "fr",
            "Je vais vous renvoyer un nouveau code par courrier.",
            "Renvoyer un nouveau code au client par courrier",
        ),
        ("rep", "fr", "Je vous le renvoie aujourd’hui.", "Je le renvoie au client aujourd'hui"),
        ("rep", "fr", "Je te rappelle demain matin.", "Je rappelle le client demain matin"),
        ("rep", "fr", "On vous rembourse la semaine prochaine.", "On rembourse le client la semaine prochaine"),
        ("rep", "fr", "Je vous réserve la petite salle pour lundi.", "Je réserve la petite salle pour le client"),
        ("rep", "fr", "Je vous fais parvenir le contrat lundi.", "Je fais parvenir le contrat au client"),
        ("customer", "fr", "Je vous envoie les photos ce soir.", "J'envoie les photos au conseiller"),
        ("rep", "fr", "Je passe chez vous mardi matin.", "Je passe chez le client"),
        ("rep", "fr", "Vous recevrez le colis jeudi.", "Le client recevra le colis"),
        ("rep", "fr", "Vous l’aurez lundi par courrier.", "Le client l'aura par courrier"),
        ("rep", "fr", "Je lui transmets votre message ce soir.", "Je lui transmets votre message"),
        ("A", "fr", "Je vous envoie la facture demain.", "Je vous envoie la facture"),
        ("A", "en", "I will send you the invoice tomorrow.", "Send you the invoice"),
    ],
)
def test_a_title_speaks_to_those_who_were_not_in_the_call(speaker, language, sentence, title):
    other = {"rep": "customer", "customer": "rep", "A": "B"}[speaker]
    thanks = {"en": "Thank you.", "de": "Danke.", "es": "Gracias.", "fr": "Merci."}[language]
    (task,) = tasks((speaker, sentence), (other, thanks), language=language)
    assert task["title"] == title


def test_a_request_to_the_reader_keeps_its_verb():
    """In French "vous" after the verb of a question is its subject, and is not replaced."""
    (task,) = tasks(
        ("rep", "Pourriez-vous photographier le compteur et nous l'adresser ce soir ?"),
        ("customer", "Oui, d'accord."),
        language="fr",
    )
    assert task["title"] == "Photographier le compteur et nous l'adresser"


def test_a_speaker_without_a_role_owns_as_unknown():
    (task,) = tasks(("A", "I will send you the invoice tomorrow."), ("B", "Okay."))
    assert (task["owner"], task["beneficiary"], task["owner_user_id"]) == ("unknown", None, None)


def test_due_dates_are_counted_on_the_clock_of_the_workspace():
    late = datetime.fromisoformat("2025-04-17T02:00:00+00:00")  # still Wednesday evening in New York
    (task,) = tasks(("rep", "I will call you back tomorrow."), ("customer", "Fine."), start=late)
    assert task["due_date"] == "2025-04-17"
    assert task["kind"] == "follow-up"


def test_an_accepted_appointment_is_a_task():
    (task,) = tasks(("rep", "I have a slot on Thursday at one."), ("customer", "Perfect, thanks."))
    assert (task["kind"], task["due_date"]) == ("appointment", "2025-04-17")


SAID = """
en|r:I'll get that couriered over to you by Friday./c:Great.|rep 2025-04-18
en|r:We'll have someone out to you on Monday morning./c:Okay.|rep 2025-04-21
en|c:I'll drop the keys off tomorrow./r:Thanks.|customer 2025-04-17
en|r:Could you email me a copy of the invoice?/c:Sure, I'll do it tonight.|customer 2025-04-16
en|r:Can you send us the meter reading by Friday?/c:Yes, no problem.|customer 2025-04-18
en|c:Would you mind sending me the brochure?/r:Of course.|rep None
en|r:I'd be happy to send you a quote./c:That would be great.|rep None
en|r:Shall I book you in for Tuesday at ten?/c:Yes please.|rep 2025-04-22
en|r:How about Thursday at three?/c:Thursday at three works.|rep 2025-04-24 OR rep 2025-04-17
en|r:You'll need to bring two forms of ID on Friday./c:Okay, will do.|customer 2025-04-18
en|r:I'm sending it over this afternoon./c:Lovely.|rep 2025-04-16
en|r:We're shipping it on Monday./c:Great.|rep 2025-04-21
en|r:I'll look into it and get back to you by Thursday./c:Thanks.|rep 2025-04-17
en|r:Let me check with my manager and call you back tomorrow./c:Okay.|rep 2025-04-17
en|r:I'll chase that up with the warehouse./c:Please do.|rep None
en|c:I'll transfer the money first thing Monday./r:Perfect.|customer 2025-04-21
en|r:My colleague will ring you on Friday./c:Fine.|rep 2025-04-18
en|r:A refund will be issued within five working days./c:Okay.|rep 2025-04-23
en|r:Your refund should be with you by Wednesday./c:Okay.|rep 2025-04-23
en|r:You'll receive a confirmation email today./c:Thanks.|rep 2025-04-16
en|c:I'll have a think and let you know by Friday./r:No rush.|customer 2025-04-18
en|c:I'll let you know on Monday./r:Great.|customer 2025-04-21
en|c:Let me talk to my wife and I'll call you back on Friday./r:Sure.|customer 2025-04-18
en|r:I can have it ready by Saturday./c:Perfect.|rep 2025-04-19
en|r:When can you pay the balance?/c:On Friday.|customer 2025-04-18
en|r:I'll call you back./c:When?/r:Tomorrow morning./c:Fine.|rep 2025-04-17
en|r:I'll send it over. You should have it by Friday./c:Thanks.|rep 2025-04-18
en|r:Please make sure someone's in on Tuesday./c:I will.|customer 2025-04-22
en|r:If you send me the form I'll process it./c:Maybe.|-
en|r:I would have called you yesterday./c:Okay.|-
en|r:I'll just pull up your account... okay, here we are./c:Thanks.|-
en|r:I'll put you through to accounts./c:Thanks.|-
en|c:I'll never order from you again./r:Sorry.|-
en|r:I could send you one, if you were interested./c:No thanks.|-
en|r:I sent it last Friday./c:Okay.|-
en|c:You said you'd call me back on Monday./r:I'm sorry.|-
en|r:I'll be with you in a second./c:Okay.|-
en|r:Can I take your name please?/c:Yes, it's Bob.|-
en|r:Could you spell that for me?/c:Sure. B O B.|-
en|c:I'll be honest, I'm not happy./r:I see.|-
en|r:We open at nine tomorrow./c:Thanks.|-
en|r:Would Friday suit you?/c:No, Friday's no good. Monday?/r:Monday at nine it is./c:Great.|rep 2025-04-21
es|r:Le envío la factura hoy mismo./c:Gracias.|rep 2025-04-16
es|r:Le llamaré el viernes para confirmar./c:De acuerdo.|rep 2025-04-18
es|c:Mañana le hago la transferencia./r:Perfecto.|customer 2025-04-17
es|r:¿Me puede mandar una copia del contrato?/c:Sí, se la mando esta tarde.|customer 2025-04-16
es|r:Voy a hablar con el encargado y le llamo mañana./c:Vale.|rep 2025-04-17
es|r:El técnico pasará el lunes a las diez./c:Muy bien.|rep 2025-04-21
es|r:Tiene que traer el DNI el jueves./c:De acuerdo.|customer 2025-04-17
es|c:Yo me encargo de avisar a los vecinos./r:Gracias.|customer None
es|r:Le podemos hacer un descuento en la próxima factura./c:Vale, gracias.|rep None
es|r:¿Le viene bien el martes a las once?/c:Sí, perfecto.|rep 2025-04-22
es|r:Recibirá un correo de confirmación antes del viernes./c:Gracias.|rep 2025-04-17
es|r:Le tramito la baja ahora mismo... ya está./c:Gracias.|-
es|c:Si me lo rebajan, lo compro mañana./r:Lo siento.|-
es|c:Ya le mandé el correo ayer./r:Vale.|-
es|r:Un momento, que lo miro./c:Vale.|-
es|c:Le llamo por la factura de marzo./r:Dígame.|-
es|r:Dígame su nombre, por favor./c:Ana López.|-
es|c:No voy a pagar eso./r:Entiendo.|-
es|r:Quedamos el jueves a las cinco, entonces./c:Perfecto.|rep 2025-04-17
es|r:Os mandamos el presupuesto la semana que viene./c:Genial.|rep 2025-04-25
de|r:Ich schicke Ihnen das Angebot bis Freitag zu./c:Danke.|rep 2025-04-18
de|r:Ich melde mich morgen bei Ihnen./c:Gut.|rep 2025-04-17
de|r:Ich rufe Sie am Montag zurück./c:In Ordnung.|rep 2025-04-21
de|c:Ich überweise das Geld heute noch./r:Prima.|customer 2025-04-16
de|r:Können Sie mir bitte den Vertrag unterschrieben zurückschicken?/c:Ja, mache ich morgen.|customer 2025-04-17
de|r:Der Techniker kommt am Donnerstag zwischen acht und zehn./c:Gut.|rep 2025-04-17
de|r:Wir werden das Gerät bis Ende der Woche austauschen./c:Sehr gut.|rep 2025-04-18
de|r:Dann bekommen Sie die Rechnung nächste Woche./c:Gut.|rep 2025-04-25
de|r:Soll ich Ihnen einen Katalog schicken?/c:Ja, gern.|rep None
de|r:Passt Ihnen Dienstag um zehn?/c:Ja, das passt.|rep 2025-04-22
de|r:Bringen Sie bitte den Ausweis mit./c:Mach ich.|customer None
de|c:Ich spreche mit meinem Mann und melde mich dann am Freitag./r:Gern.|customer 2025-04-18
de|r:Das Paket geht heute noch raus./c:Super.|rep 2025-04-16
de|r:Meine Kollegin ruft Sie morgen an./c:Gut.|rep 2025-04-17
de|r:Ich kümmere mich darum./c:Danke.|rep None
de|c:Wenn es billiger wäre, würde ich es morgen bestellen./r:Verstehe.|-
de|c:Ich habe das gestern schon überwiesen./r:Gut.|-
de|c:Ich rufe an wegen meiner Rechnung./r:Ja?|-
de|r:Ich verbinde Sie mit der Technik./c:Danke.|-
de|r:Einen Moment, ich schaue kurz nach./c:Ja.|-
de|c:Ich bezahle das nicht./r:Ich verstehe.|-
de|c:Ich warte seit drei Wochen./r:Tut mir leid.|-
fr|r:Je vous envoie le devis d'ici vendredi./c:Merci.|rep 2025-04-18
fr|r:Je vous rappelle demain matin./c:D'accord.|rep 2025-04-17
fr|c:Je ferai le virement lundi./r:Très bien.|customer 2025-04-21
fr|r:Pouvez-vous m'envoyer une copie de la facture ?/c:Oui, je vous l'envoie ce soir.|customer 2025-04-16
fr|r:Le technicien passera jeudi entre neuf heures et midi./c:Parfait.|rep 2025-04-17
fr|r:On va vous rembourser sous cinq jours ouvrés./c:Merci.|rep 2025-04-23
fr|r:Vous recevrez le colis mardi./c:Super.|rep 2025-04-22
fr|r:N'oubliez pas d'apporter votre carte d'identité./c:D'accord.|customer None
fr|r:Mon collègue va vous rappeler cet après-midi./c:Entendu.|rep 2025-04-16
fr|r:Je m'en occupe dès demain./c:Merci.|rep 2025-04-17
fr|r:Voulez-vous que je vous envoie une brochure ?/c:Oui, volontiers.|rep None
fr|r:Mardi à dix heures, ça vous va ?/c:Oui, parfait.|rep 2025-04-22
fr|c:Je vais en parler à ma femme et je vous rappelle vendredi./r:Bien sûr.|customer 2025-04-18
fr|c:Si c'était moins cher, je le prendrais demain./r:Je comprends.|-
fr|c:J'appelle au sujet de ma facture./r:Oui.|-
fr|r:Je vous passe le service clients./c:Merci.|-
fr|r:Je regarde ça tout de suite... voilà./c:Merci.|-
fr|c:J'ai payé hier./r:D'accord.|-
fr|c:Je ne paierai pas cette facture./r:Je comprends.|-
fr|r:Je vais voir ce que je peux faire./c:Merci.|-
en|r:I'll get one of the lads to drop it round tomorrow./c:Brilliant.|rep 2025-04-17
en|c:I'll get my assistant to forward you the contract by Monday./r:Great.|customer 2025-04-21
en|r:We'll waive the late fee on your next bill./c:Oh, thank you.|rep None
en|c:I'll swing by around noon on Saturday./r:See you then.|customer 2025-04-19
en|r:Can you hold off until Tuesday?/c:Sure.|customer 2025-04-22
en|r:I'll make a note to follow up with you next Wednesday./c:Okay.|rep 2025-04-23
en|r:Someone from our claims team will reach out within two business days./c:Alright.|rep 2025-04-18
en|r:Your prescription will be ready for pickup tomorrow after two./c:Great.|rep 2025-04-17
en|c:I'll fill in the form and send it back by the end of the week./r:Perfect.|customer 2025-04-18
en|r:I'd recommend you restart it twice a week./c:Okay.|-
en|c:I was going to pay it last week./r:I understand.|-
en|r:We'll see what happens./c:Yeah.|-
en|r:I'm going to ask you a few questions./c:Okay.|-
en|c:I'd have cancelled if you hadn't called./r:Okay.|-
en|c:I might come by on Saturday./r:Okay.|-
en|r:Do you want me to send a reminder the day before?/c:No, that's fine.|-
en|r:That'll be forty dollars./c:Okay.|-
en|c:I'll wait to hear from you./r:Great.|-
en|r:I'll go ahead and cancel that for you right now. Okay, that's cancelled./c:Thanks.|-
en|c:My husband will pick it up on Friday./r:Okay.|other 2025-04-18
en|r:Could you fax over the signed form?/c:I can scan it and email it tonight./r:That works.|customer 2025-04-16
en|r:Let's meet on Thursday at two./c:Sounds good.|rep 2025-04-17
es|r:Te paso el presupuesto por correo esta tarde./c:Estupendo.|rep 2025-04-16
es|c:Os hago llegar los papeles el lunes./r:Muy bien.|customer 2025-04-21
es|r:Le mandamos a alguien mañana a primera hora./c:Gracias.|rep 2025-04-17
es|r:Mi compañera se pondrá en contacto con usted el jueves./c:De acuerdo.|rep 2025-04-17
es|c:Entonces paso a recogerlo el sábado./r:Perfecto.|customer 2025-04-19
es|r:Necesito que me firme el contrato antes del lunes./c:Vale, se lo firmo.|customer 2025-04-20
es|r:Le devolvemos el importe en cinco días hábiles./c:Gracias.|rep 2025-04-23
es|c:¿Podría cambiarme la cita al martes?/r:Sí, sin problema.|rep 2025-04-22
es|r:¿Quiere que le enviemos una copia?/c:Sí, por favor.|rep None
es|c:Yo pago siempre el día cinco./r:Sí.|-
es|c:Estoy esperando desde el lunes./r:Lo siento.|-
es|r:Le voy a hacer unas preguntas./c:Vale.|-
es|c:Lo pensaré y ya le diré algo./r:De acuerdo.|-
es|r:¿Le llamo mañana?/c:No, no hace falta.|-
es|c:Había pedido que me llamaran ayer./r:Lo siento.|-
de|r:Ich lasse Ihnen die Unterlagen morgen zukommen./c:Danke.|rep 2025-04-17
de|c:Das Formular fülle ich aus und schicke es Ihnen bis Montag./r:Prima.|customer 2025-04-21
de|r:Wir tauschen Ihnen das Gerät kostenlos um./c:Das ist nett.|rep None
de|r:Den Termin verschieben wir auf Dienstag um elf./c:In Ordnung.|rep 2025-04-22
de|r:Schicken Sie mir bitte ein Foto davon./c:Ja, mache ich heute Abend.|customer 2025-04-16
de|c:Ich hole es am Samstag ab./r:Gut.|customer 2025-04-19
de|r:Herr Müller wird Sie am Freitag anrufen./c:Okay.|rep 2025-04-18 OR other 2025-04-18
de|r:Die Gutschrift erhalten Sie mit der nächsten Rechnung bis Ende des Monats./c:Gut.|rep 2025-04-30
de|r:Ich gebe das an die Buchhaltung weiter./c:Danke.|rep None
de|c:Könnten Sie mich morgen noch mal anrufen?/r:Ja, gerne.|rep 2025-04-17
de|r:Sie müssten uns den Zählerstand bis zum dreißigsten April durchgeben./c:Mach ich.|customer 2025-04-30
de|c:Da kann ich nicht, da bin ich im Urlaub./r:Ach so.|-
de|c:Ich überlege es mir./r:Gern.|-
de|r:Ich stelle Ihnen noch ein paar Fragen./c:Ja.|-
de|r:Soll ich Sie am Montag zurückrufen?/c:Nein, nicht nötig.|-
de|c:Ich habe am Montag angerufen./r:Ja.|-
de|c:Ich zahle seit zehn Jahren pünktlich./r:Ja.|-
de|r:Das mache ich jetzt sofort... so, erledigt./c:Danke.|-
fr|r:Je vous fais parvenir le contrat avant lundi./c:Merci.|rep 2025-04-20
fr|c:Je passerai le chercher samedi matin./r:Très bien.|customer 2025-04-19
fr|r:On vous livre mardi entre huit heures et midi./c:D'accord.|rep 2025-04-22
fr|r:Je transmets votre dossier au service technique./c:Merci.|rep None
fr|r:Il faudrait nous renvoyer le formulaire avant le trente avril./c:D'accord, je m'en occupe.|customer 2025-04-29
fr|c:Vous pourriez me rappeler demain ?/r:Bien sûr.|rep 2025-04-17
fr|r:Un conseiller vous contactera dans les quarante-huit heures./c:Merci.|rep 2025-04-18
fr|r:Votre colis sera livré vendredi./c:Parfait.|rep 2025-04-18
fr|c:Je vous envoie les photos ce soir et je vous rappelle lundi./r:Entendu.|customer 2025-04-16 + customer 2025-04-21
fr|r:Je vous propose jeudi à quinze heures./c:Jeudi quinze heures, parfait.|rep 2025-04-17
fr|r:Je vais vous poser quelques questions./c:Oui.|-
fr|c:Je paie toujours à temps./r:Oui.|-
fr|c:Je vais réfléchir./r:Très bien.|-
fr|c:Je devais recevoir le colis lundi./r:Ah.|-
fr|r:Voulez-vous que je vous rappelle demain ?/c:Non, ce n'est pas la peine.|-
fr|c:Ça fait trois jours que j'attends./r:Je suis désolée.|-
fr|r:Je vous mets en attente un instant./c:D'accord.|-
en|r:I'll post it on Monday. Sorry, Tuesday, we're shut on Monday./c:Fine.|rep 2025-04-22
en|r:I'll ring you on Thursday. No. Friday./c:Fine.|rep 2025-04-18
de|r:Ich schicke Ihnen das am Montag. Nein, Entschuldigung, Dienstag, Montag haben wir zu./c:Gut.|rep 2025-04-22
es|r:Se lo envío el lunes. No, perdón, que es fiesta. El martes./c:Vale.|rep 2025-04-22
fr|r:Je vous l'envoie lundi. Euh, non, mardi, lundi l'atelier est fermé./c:Très bien.|rep 2025-04-22
pt|r:Eu envio na segunda. Não, desculpe, na terça, segunda é feriado./c:Está bem.|rep 2025-04-22
en|r:I'll post it on Monday. No problem. Tuesday I'm away./c:Fine.|rep 2025-04-21
de|r:Ich schicke Ihnen das am Montag. Nein, am Dienstag bin ich im Urlaub./c:Gut.|rep 2025-04-21
es|r:Se lo envío el lunes. No se preocupe. El martes está cerrado./c:Vale.|rep 2025-04-21
fr|r:Je vous l'envoie lundi. Non, ne vous inquiétez pas. Mardi je suis en congé./c:Bien.|rep 2025-04-21
en|r:I'll have Dave give you a bell on Thursday./c:Right you are.|rep 2025-04-17
en|r:We'll get that sorted for you by tomorrow lunchtime./c:Cheers.|rep 2025-04-17
en|c:I'll stick a cheque in the post on Friday./r:Lovely.|customer 2025-04-18
en|r:I'll knock ten pounds off your bill./c:Thanks.|rep None
en|r:The surveyor's coming on Tuesday at nine./c:Okay.|rep 2025-04-22 OR other 2025-04-22
en|r:You're booked in for Thursday at four./c:Great.|rep 2025-04-17
en|c:I need it by Monday./r:I'll make sure you get it by then.|rep 2025-04-21
en|r:Would next Tuesday work for you?/c:Yes, Tuesday's good.|rep 2025-04-22
en|r:I'm afraid I can't do that before Friday./c:Okay.|-
en|r:I'll transfer you now./c:Okay.|-
en|c:I'll probably cancel if it happens again./r:I understand.|-
en|r:We'd usually send that out on Fridays./c:Okay.|-
en|r:You'll have to speak to your bank about that./c:Okay, I'll ring them tomorrow.|customer 2025-04-17
en|r:The warranty runs until Friday./c:Oh.|-
en|r:Delivery takes five working days./c:Okay.|-
en|r:I've emailed it to you just now./c:Got it.|-
es|r:En cuanto llegue la pieza, le aviso./c:Perfecto.|rep None
es|r:Le doy cita para el lunes a las nueve./c:Muy bien.|rep 2025-04-21
es|c:Mañana sin falta le hago el pago./r:Gracias.|customer 2025-04-17
es|r:Voy a pedir que le llamen el viernes./c:Gracias.|rep 2025-04-18
es|c:Le voy a mandar el comprobante por WhatsApp en la tarde./r:Sí, gracias.|customer None OR customer 2025-04-16
es|r:La visita queda para el martes a las doce./c:Listo.|rep 2025-04-22
es|c:Ahorita le deposito./r:Gracias.|customer None OR customer 2025-04-16
es|r:¿Le queda bien el jueves?/c:Sí, el jueves.|rep 2025-04-17
es|c:No sé si podré ir el sábado./r:Bueno.|-
es|r:Abrimos el lunes a las nueve./c:Gracias.|-
es|c:Mi hijo lo recogerá el viernes./r:De acuerdo.|other 2025-04-18
de|r:Sobald das Teil da ist, melde ich mich bei Ihnen./c:Gut.|rep None
de|r:Ich trage Sie für Montag um neun ein./c:Super.|rep 2025-04-21
de|c:Ich komme am Samstag vorbei und hole es ab./r:Gut.|customer 2025-04-19
de|r:Die Lieferung kommt am Mittwoch./c:Gut.|rep 2025-04-23
de|r:Ich leite das weiter und Sie hören bis Freitag von uns./c:Danke.|rep 2025-04-18 OR rep None + rep 2025-04-18
de|c:Den Rest zahle ich nächste Woche./r:In Ordnung.|customer 2025-04-25
de|r:Wir haben am Montag geschlossen./c:Ach so.|-
de|c:Wenn das bis Freitag nicht klappt, storniere ich./r:Ich verstehe.|-
de|r:Wir schicken Ihnen jemanden vorbei, am Dienstag zwischen acht und zwölf./c:Gut.|rep 2025-04-22
de|c:Mein Mann bringt den Schlüssel morgen vorbei./r:Gut.|other 2025-04-17
fr|r:Dès que je reçois la pièce, je vous appelle./c:D'accord.|rep None
fr|r:Je vous inscris pour lundi à neuf heures./c:Très bien.|rep 2025-04-21
fr|c:Je dépose le dossier demain à l'accueil./r:Parfait.|customer 2025-04-17
fr|r:On passe chez vous jeudi matin./c:D'accord.|rep 2025-04-17
fr|r:Vous aurez la réponse d'ici la fin de la semaine./c:Merci.|rep 2025-04-18
fr|c:Mon mari viendra le chercher vendredi./r:Entendu.|other 2025-04-18
fr|r:Nous sommes fermés lundi./c:Ah bon.|-
fr|c:Si ça continue, je résilie./r:Je comprends.|-
fr|r:Je vous fais un avoir de vingt euros./c:Merci.|rep None
fr|c:Envoyez-moi la facture par mail, s'il vous plaît./r:Oui, je vous l'envoie tout à l'heure.|rep 2025-04-16
fr|r:Je m'engage à vous rappeler avant vendredi./c:Bien.|rep 2025-04-17
"""
ROLES = {"r": "rep", "c": "customer"}


def lines_of(turns):
    return [(ROLES[turn[0]], turn[2:]) for turn in turns.split("/")]


@pytest.mark.parametrize("row", SAID.strip().splitlines())
def test_what_is_said_is_a_task_with_its_owner_and_day_or_none(row):
    """`-`: no task; several tasks are joined by " + ", alternative readings by " OR "."""
    language, turns, expected = row.split("|")
    owners_and_days = [f"{task['owner']} {task['due_date']}" for task in tasks(*lines_of(turns), language=language)]
    assert owners_and_days in [[] if reading == "-" else reading.split(" + ") for reading in expected.split(" OR ")]


def test_two_promises_in_one_sentence_are_two_tasks():
    result = tasks(
        ("rep", "I'll have him there tomorrow at seven, and I'll text you his number tonight."), ("customer", "Okay.")
    )
    assert [task["due_date"] for task in result] == ["2025-04-17", "2025-04-16"]


def test_what_prepares_a_promise_belongs_to_it():
    (task,) = tasks(("rep", "I will check with the warehouse and call you back tomorrow."), ("customer", "Okay."))
    assert task["title"] == "Check with the warehouse and call the customer back"
    assert (task["due_date"], task["kind"]) == ("2025-04-17", "follow-up")


def test_the_day_both_agree_on_replaces_the_one_proposed():
    (task,) = tasks(
        ("rep", "My colleague will call you on Monday."),
        ("customer", "Monday is bad. I could do Tuesday."),
        ("rep", "Tuesday it is."),
    )
    assert task["due_date"] == "2025-04-22"


def test_a_member_of_the_team_acts_for_the_rep_and_a_stranger_for_himself():
    (ours,) = tasks(("rep", "Johnny will call you on Friday."), ("customer", "Fine."))
    (theirs,) = tasks(("customer", "Walter will pick it up on Friday."), ("rep", "Fine."))
    assert (ours["owner"], theirs["owner"]) == ("rep", "other")


def test_a_machine_commits_to_nothing():
    from dataclasses import replace

    material = call(("customer", "I will call you back tomorrow."), ("rep", "I will send the form on Monday."))
    first, second = material.transcript.turns
    material_with_machine = replace(
        material, transcript=replace(material.transcript, turns=(replace(first, machine=True), second))
    )
    (task,) = TasksStep().run(material_with_machine).value["tasks"]
    assert task["owner"] == "rep"


def test_fillers_do_not_hide_a_promise_and_the_quote_keeps_them():
    (task,) = tasks(("rep", "And, um, I'll, er, send you the form, um, on Monday."), ("customer", "Okay."))
    assert task["due_date"] == "2025-04-21"
    assert "um" in task["evidence"]["quote"]


def test_no_turns_no_tasks():
    finding = TasksStep().run(call())
    assert finding.value == {"tasks": []}
    assert finding.note == "no speech in this call"
