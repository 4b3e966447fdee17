"""Template grammars for synthetic call-centre talk (English, Spanish, German).

sentence(lang, rng) -> one random sentence.  `{slot}` is expanded recursively from SLOTS[lang].
Numbers are always written as they are spoken (words, no digits): TTS and transcript then agree.
"""

import random
import re

S = lambda text: [x.strip() for x in text.strip().split("|") if x.strip()]

EN = {
    "fname": S(
        "Anna|Peter|Maria|John|Laura|David|Sarah|Michael|Emma|Thomas|Julia|Robert|Linda|James|Karen|Daniel|Susan|Mark|Nancy|Paul|Helen|Steven|Rachel|Kevin|Sophie|George|Alice|Brian|Diana|Eric|Olivia|Martin|Grace|Victor|Claire|Oscar"
    ),
    "lname": S(
        "Smith|Miller|Johnson|Brown|Wilson|Taylor|Clark|Walker|Young|King|Hill|Baker|Carter|Turner|Parker|Cooper|Morgan|Bailey|Reed|Murphy|Bell|Ward|Foster|Gray|Hughes|Price|Bennett|Wood|Ross|Henderson|Jenkins|Perry|Stone|Fisher"
    ),
    "title": S("Mister|Missus|Miss|Doctor"),
    "person": S("{title} {lname}|{title} {lname}|{fname} {lname}|{fname}"),
    "company": S(
        "Northwind Energy|Blue River Bank|Green Valley Water|Silver Star Insurance|Harbor Travel|City Mobile|Summit Telecom|Oak Street Clinic|Bright Home Services|Metro Delivery|Golden Gate Hotels|Sunrise Solar|Pioneer Software|Crystal Clear Windows|Rapid Repair|Evergreen Gardens|Atlas Car Rental|Liberty Furniture|Delta Office Supplies|Nova Internet"
    ),
    "product": S(
        "the washing machine|the printer|the laptop|the router|the phone|the kitchen table|the heating system|the water heater|the dishwasher|the monitor|the keyboard|the headset|the coffee machine|the camera|the new modem|the office chair|the air conditioner|the solar panel|the window|the bicycle|the tablet|the charger|the battery|the television|the mattress|the sofa"
    ),
    "doc": S(
        "the invoice|the contract|the receipt|the new offer|the quote|the form|the report|the confirmation|the brochure|the price list|the tracking number|the return label|the refund|the insurance papers|the bank statement|the signed agreement|a copy of the invoice|the updated schedule|the user manual|the login details|a new password|the missing parts|a replacement|the warranty card"
    ),
    "weekday": S("Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"),
    "month": S("January|February|March|April|May|June|July|August|September|October|November|December"),
    "ord": S(
        "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth|twenty first|twenty second|twenty third|twenty fifth|twenty eighth|thirtieth|thirty first"
    ),
    "date": S("{weekday}|{weekday}|next {weekday}|the {ord} of {month}|{month} {ord}|{weekday} the {ord}"),
    "hour": S("one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"),
    "part": S("in the morning|in the afternoon|in the evening"),
    "time": S(
        "{hour} o'clock|half past {hour}|quarter past {hour}|quarter to {hour}|{hour} thirty|{hour} fifteen|{hour} {part}|noon"
    ),
    "when": S(
        "by {date}|by {date}|by {weekday}|on {date}|tomorrow|today|tonight|this afternoon|tomorrow morning|tomorrow at {time}|on {weekday} at {time}|before {time}|within {small} days|in {small} hours|next week|this week|before the end of the week|by the end of the month|right away|as soon as possible|early next week"
    ),
    "deadline": S(
        "by {date}|by {weekday}|by tomorrow|by the end of the day|by {weekday} at {time}|by the end of the week|before {weekday}|no later than {date}|within {small} days|today|tomorrow|next week"
    ),
    "past": S(
        "yesterday|last week|last {weekday}|{small} days ago|{small} weeks ago|on {date}|this morning|last month|in {month}|a month ago"
    ),
    "d": S("zero|one|two|three|four|five|six|seven|eight|nine"),
    "small": S("two|three|four|five|six|seven|eight|nine|ten"),
    "teen": S("eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"),
    "tens": S("twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"),
    "nz": S("one|two|three|four|five|six|seven|eight|nine"),
    "n99": S("{nz}|{teen}|{tens}|{tens} {nz}|{tens} {nz}"),
    "n999": S("{n99}|{n99}|{nz} hundred|{nz} hundred {n99}|{nz} hundred and {n99}"),
    "num": S("{n999}|{n999}|{nz} thousand|{nz} thousand {nz} hundred|{n99} thousand"),
    "money": S("{n999} dollars|{n999} dollars|{num} dollars|{n99} dollars and {n99} cents|{n999} euros|{n99} pounds"),
    "code4": S("{d} {d} {d} {d}"),
    "code5": S("{d} {d} {d} {d} {d}"),
    "code6": S("{d} {d} {d} {d} {d} {d}"),
    "code7": S("{d} {d} {d} {d} {d} {d} {d}"),
    "code3": S("{d} {d} {d}"),
    "letter": S("A|B|C|D|E|F|G|H|J|K|L|M|N|P|R|S|T|V|X"),
    "code": S("{code4}|{code5}|{code6}|{code7}|{letter} {code4}|{letter} {letter} {code3}|{code3} {code3}"),
    "phone": S("{code3}, {code3}, {code4}|{code3}, {code4}|{d} {d} {d} {d} {d} {d}"),
    "street": S(
        "Maple Street|Oak Street|Main Street|Park Avenue|River Road|Church Lane|Station Road|High Street|Garden Avenue|Lake Drive|Hill Road|Mill Lane|King Street|Cedar Avenue|Market Square|Bridge Street"
    ),
    "city": S(
        "London|Boston|Chicago|Denver|Dublin|Berlin|Madrid|Seattle|Manchester|Portland|Austin|Dallas|Bristol|Leeds|Miami|Toronto|Phoenix|Vienna|Oxford|Houston"
    ),
    "addr": S("{n99} {street}|{n99} {street}, {city}|{n999} {street} in {city}"),
    "greet": S("Hello|Hi|Good morning|Good afternoon|Good evening|Hello there"),
    "thanks": S("Thank you|Thanks|Thank you very much|Thanks a lot|Thank you so much|Many thanks"),
    "iwill": S("I will|I will|I'll|I'll|We will|We'll|I am going to|I promise I will|Yes, I will|Okay, I will|I can"),
    "youwill": S("Could you|Can you|Please|Could you please|Would you please|I need you to|Can you please"),
    "role": S(
        "customer service|the sales department|technical support|the billing department|the shipping department|the claims department|the front desk|accounts|the service team|the booking office"
    ),
    "boss": S(
        "my manager|my supervisor|our technician|my colleague|the warehouse|our driver|the engineer|the sales team|our partner|my colleague {fname}|the accountant"
    ),
    "issue": S(
        "is broken|does not work|stopped working|makes a strange noise|is leaking|does not turn on|has a scratch|is too small|is the wrong color|never arrived|arrived late|was damaged|is missing a part|shows an error message|keeps switching off|is very slow|smells like smoke|is still under warranty|needs a repair"
    ),
    "adj": S("great|perfect|wonderful|excellent|fine|good|very good|all right"),
    "feeling": S(
        "very unhappy|quite disappointed|a little worried|really angry|very happy|satisfied|not satisfied|confused|frustrated|pleased"
    ),
    "plan": S(
        "the basic plan|the premium plan|the family plan|the business plan|the monthly plan|the yearly plan|the unlimited plan|the standard package"
    ),
    "opn": S(
        "{greet}, this is {fname} from {company}, how can I help you?|{greet}, you are speaking with {fname}.|{greet}, my name is {fname} {lname}.|{company}, {fname} speaking, how may I help you today?|Thank you for calling {company}.|{greet}, thank you for calling {company}, my name is {fname}.|{greet}, is this {person}?|{greet}, I would like to speak with {person}.|{greet}, this is {person}, I am calling about my order.|{greet}, I am calling from {company} about {doc}.|{greet}, am I speaking to {person}?|You have reached {role}, {fname} speaking.|{greet} {fname}, how are you today?|This call may be recorded for quality and training.|I am calling you back about {product}.|{greet}, I got a call from this number {past}."
    ),
    "ident": S(
        "May I have your order number, please?|Can you give me your customer number?|My order number is {code}.|The order number is {code}.|My customer number is {code}.|The invoice number is {code}.|It is {code}.|Let me repeat that, {code}.|So that is {code}, correct?|My phone number is {phone}.|You can reach me at {phone}.|My name is {person}.|Could you spell your last name, please?|That is {letter}, {letter}, {letter}.|What is your date of birth?|I was born on the {ord} of {month}.|What is your address?|I live at {addr}.|My new address is {addr}.|The delivery address is {addr}.|My zip code is {code5}.|Please send it to {addr}.|Can you confirm your address?|My email address is on the account.|The reference number is {code}.|Your ticket number is {code}.|Could you repeat the number, please?|Sorry, did you say {d} or {d}?"
    ),
    "prob": S(
        "I have a problem with {product}.|{product} {issue}.|{product} I bought {past} {issue}.|I ordered {product} {past} and it {issue}.|I want to complain about {product}.|I still have not received {doc}.|I was charged {money} twice.|There is a mistake on my bill.|My bill says {money}, but it should be {money}.|The delivery was supposed to arrive {past}.|Nobody called me back.|I have been waiting for {small} days.|I have been waiting for {small} weeks now.|I called {past} and nothing happened.|Your technician did not show up {past}.|The internet is down since {past}.|I cannot log in to my account.|I forgot my password.|I am {feeling} with your service.|I would like to cancel my contract.|I want to return {product}.|I want my money back.|I would like to speak to your manager.|My payment did not go through.|The app does not open on my phone.|The box was empty when it arrived.|We had a power cut {past}.|Why is the price higher than {past}?|This is the {ord} time I am calling.|I think there is a misunderstanding."
    ),
    "promise": S(
        "{iwill} send you {doc} {deadline}.|{iwill} send you {doc} by email {when}.|{iwill} call you back {when}.|{iwill} call you {when}.|{iwill} check with {boss} and call you back {when}.|{iwill} talk to {boss} {when}.|{iwill} send a technician {when}.|{iwill} refund {money} {deadline}.|{iwill} pay {money} {deadline}.|{iwill} transfer the money {when}.|{iwill} prepare {doc} {deadline}.|{iwill} sign {doc} and send it back {when}.|{iwill} ship {product} {when}.|{iwill} deliver {product} {when}.|{iwill} update your account {when}.|{iwill} book the appointment for {weekday} at {time}.|{iwill} email {doc} to {person} {when}.|{iwill} get back to you {deadline}.|{iwill} fix this {deadline}.|{iwill} cancel the order {when}.|{iwill} ask {boss} to contact you {when}.|{iwill} review {doc} {when}.|You will receive {doc} {deadline}.|You will get {doc} by email {when}.|{boss} will call you {when}.|{boss} will contact you {deadline}.|{iwill} make a note of that.|{iwill} open a ticket for you.|{iwill} reset your password now.|{iwill} pick up {product} {when}.|{iwill} bring {doc} {when}."
    ),
    "req": S(
        "{youwill} send me {doc} {deadline}?|{youwill} call me back {when}?|{youwill} check the status of my order?|{youwill} hold the line for a moment?|{youwill} repeat that?|{youwill} transfer me to {role}?|{youwill} confirm the appointment on {date}?|{youwill} change the delivery to {date}?|When will {product} arrive?|When can I expect {doc}?|How much does it cost?|How much is {plan}?|How long will it take?|Do you have {product} in stock?|Is there a discount for {plan}?|What time does the shop open?|Can I pay by credit card?|Can I pick it up at the store in {city}?|Does {weekday} at {time} work for you?|Would {date} be okay?|What about {weekday} at {time}?|Is it possible to change the date?|Do I need to sign anything?|Who will come to my house?|Where should I send {doc}?|Did you get my message?|Did you receive {doc}?|Can we meet on {date} at {time}?|Are you available {when}?|Would you like to change to {plan}?|Do you want me to send {doc} {when}?|Should I wait for a call from {boss}?"
    ),
    "info": S(
        "The total is {money}.|It costs {money} per month.|The price is {money} including tax.|{plan} costs {money} a month.|Your balance is {money}.|The deposit is {money}.|The delivery takes {small} to {small} days.|The technician will arrive between {hour} and {hour}.|The appointment is on {date} at {time}.|Let's meet on {date} at {time}.|We are open from {hour} to {hour}.|The shop is closed on {weekday}.|Your order was shipped {past}.|The package is on its way.|The package is at the warehouse in {city}.|I can see your order here.|I see that {product} was delivered {past}.|The warranty is valid for {small} years.|The payment was received {past}.|The meeting is moved to {date}.|{boss} is out of the office until {date}.|{boss} is on the other line.|We have {n99} of them in stock.|That is item number {code4}.|The discount is {n99} percent.|There is a fee of {money}.|The next bus leaves at {time}.|Your flight to {city} is at {time}.|The room is booked for {small} nights.|Our office is at {addr}.|The contract ends on the {ord} of {month}.|It was delivered to the neighbor.|Our website has all the details."
    ),
    "back": S(
        "Yes.|No.|Okay.|Sure.|Yes, please.|No, thank you.|Of course.|That is right.|That is correct.|Exactly.|I understand.|I see.|One moment, please.|Just a second.|Let me check.|Let me see.|Okay, {adj}.|That sounds {adj}.|That would be {adj}.|{adj}, {thanks}.|Yes, that works for me.|No, that does not work for me.|I am sorry to hear that.|I am very sorry about that.|I am sorry for the trouble.|No problem.|You are welcome.|Are you still there?|Can you hear me?|I can hear you very well.|The line is bad.|Please hold.|Thank you for waiting.|I have no idea.|Maybe.|I think so.|I do not think so.|Not yet.|Yes, I did.|No, I did not.|Is there anything else I can do for you?|No, that is all.|That is all for today.|Take your time.|{weekday} is {adj}.|{weekday} at {time} is {adj}.|I agree.|Absolutely.|Really?"
    ),
    "close": S(
        "{thanks} for your help.|{thanks} for your call.|{thanks}, have a nice day.|{thanks}, goodbye.|Goodbye.|Bye bye.|Have a great weekend.|Have a nice evening.|Talk to you {when}.|Talk to you on {weekday}.|Speak to you soon.|I am looking forward to it.|Please stay on the line for a short survey.|{thanks} {fname}, bye.|See you on {weekday}.|See you {when}."
    ),
    "_top": S(
        "{opn}|{opn}|{ident}|{ident}|{ident}|{prob}|{prob}|{prob}|{promise}|{promise}|{promise}|{promise}|{req}|{req}|{req}|{info}|{info}|{info}|{back}|{back}|{close}|{back} {promise}|{back} {info}|{prob} {req}|{promise} {close}|{ident} {back}|{info} {req}"
    ),
}

ES = {
    "fname": S("Ana|Pedro|María|Juan|Laura|Carlos|Lucía|Miguel|Elena|Pablo|Carmen|Diego|Rosa|Javier|Marta|Luis"),
    "lname": S("García|López|Martínez|Sánchez|Pérez|Gómez|Fernández|Ruiz|Díaz|Moreno|Romero|Torres"),
    "company": S(
        "Energía del Norte|Banco Río Azul|Agua Clara|Seguros Estrella|Viajes del Sol|Telefónica Central|Muebles Libertad"
    ),
    "product": S(
        "la lavadora|la impresora|el teléfono|el ordenador|la nevera|la mesa|el televisor|la cámara|el sofá|la bicicleta"
    ),
    "doc": S(
        "la factura|el contrato|el recibo|la oferta|el formulario|el informe|la confirmación|el presupuesto|la nueva contraseña|el dinero"
    ),
    "day": S("lunes|martes|miércoles|jueves|viernes|sábado|domingo"),
    "month": S("enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"),
    "d": S("cero|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve"),
    "n": S("dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|doce|quince|veinte"),
    "tens": S("veinte|treinta|cuarenta|cincuenta|sesenta|setenta|ochenta|noventa|cien"),
    "hour": S("dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce"),
    "time": S("las {hour}|las {hour} y media|las {hour} y cuarto|las {hour} de la tarde|las {hour} de la mañana"),
    "when": S(
        "mañana|hoy|el {day}|antes del {day}|esta tarde|el {day} a {time}|mañana a {time}|la semana que viene|el {n} de {month}|en {n} días"
    ),
    "past": S("ayer|la semana pasada|hace {n} días|el {day} pasado|esta mañana"),
    "money": S("{tens} euros|{n} euros|{tens} y {d} euros|{n} mil euros"),
    "code": S("{d} {d} {d} {d}|{d} {d} {d} {d} {d}|{d} {d} {d} {d} {d} {d}"),
    "greet": S("Hola|Buenos días|Buenas tardes|Buenas noches"),
    "_top": S(
        "{greet}, soy {fname} de {company}, ¿en qué puedo ayudarle?|{greet}, me llamo {fname} {lname}.|Gracias por llamar a {company}.|Le llamo por {product}.|{greet}, quiero hablar con el señor {lname}.|{greet}, ¿es usted la señora {lname}?|¿Me puede dar su número de pedido?|Mi número de pedido es {code}.|El número de cliente es {code}.|Mi teléfono es {code}.|Tengo un problema con {product}.|Compré {product} {past} y no funciona.|{product} no funciona desde {past}.|Todavía no he recibido {doc}.|Quiero devolver {product}.|Quiero cancelar el contrato.|Hay un error en la factura.|Me han cobrado {money} dos veces.|Le voy a enviar {doc} {when}.|Le enviaré {doc} {when}.|Le llamaré {when}.|Le llamo otra vez {when}.|Voy a hablar con mi compañero {fname} y le llamo {when}.|Vamos a mandar un técnico {when}.|Voy a pagar {money} {when}.|Le devolveremos {money} {when}.|Recibirá {doc} {when}.|¿Puede enviarme {doc} {when}?|¿Me puede llamar {when}?|¿Cuándo llega {product}?|¿Cuánto cuesta {product}?|¿Está bien {when}?|El precio es {money}.|Son {money} al mes.|La cita es {when}.|El paquete está en camino.|Un momento, por favor.|Sí, por favor.|No, gracias.|Muy bien, muchas gracias.|De acuerdo.|Perfecto.|Claro que sí.|Lo siento mucho.|Entiendo.|¿Necesita algo más?|Eso es todo.|Muchas gracias por su ayuda.|Que tenga un buen día.|Adiós.|Hasta luego.|Hasta el {day}.|Estoy muy contento con el servicio.|No estoy contento con el servicio."
    ),
}

DE = {
    "fname": S(
        "Anna|Peter|Maria|Hans|Laura|Stefan|Julia|Thomas|Sabine|Markus|Claudia|Jürgen|Petra|Michael|Katrin|Lukas"
    ),
    "lname": S("Müller|Schmidt|Schneider|Fischer|Weber|Wagner|Becker|Hoffmann|Koch|Richter|Klein|Wolf"),
    "company": S(
        "Nordwind Energie|der Blauen Bank|Stadtwerke Rosenheim|Sternversicherung|Sonnenreisen|Telefon Zentrale|Möbel Freiheit"
    ),
    "product": S(
        "die Waschmaschine|der Drucker|das Telefon|der Computer|der Kühlschrank|der Tisch|der Fernseher|die Kamera|das Sofa|das Fahrrad"
    ),
    "doc": S(
        "die Rechnung|den Vertrag|die Quittung|das Angebot|das Formular|den Bericht|die Bestätigung|das Passwort|die Unterlagen|das Geld"
    ),
    "day": S("Montag|Dienstag|Mittwoch|Donnerstag|Freitag|Samstag|Sonntag"),
    "month": S("Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"),
    "d": S("null|eins|zwei|drei|vier|fünf|sechs|sieben|acht|neun"),
    "n": S("zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|zwölf|fünfzehn|zwanzig"),
    "tens": S("zwanzig|dreißig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig|hundert"),
    "time": S("{n} Uhr|halb {n}|{n} Uhr dreißig|viertel nach {n}"),
    "when": S(
        "morgen|heute|am {day}|bis {day}|bis zum Ende der Woche|heute Nachmittag|am {day} um {time}|morgen um {time}|nächste Woche|in {n} Tagen|bis morgen|im {month}"
    ),
    "past": S("gestern|letzte Woche|vor {n} Tagen|am {day}|heute Morgen"),
    "money": S("{tens} Euro|{n} Euro|{n} hundert Euro|{n} tausend Euro"),
    "code": S("{d} {d} {d} {d}|{d} {d} {d} {d} {d}|{d} {d} {d} {d} {d} {d}"),
    "greet": S("Guten Tag|Guten Morgen|Hallo|Guten Abend"),
    "_top": S(
        "{greet}, hier ist {fname} von {company}, wie kann ich Ihnen helfen?|{greet}, mein Name ist {fname} {lname}.|Vielen Dank für Ihren Anruf.|{greet}, ich möchte mit Herrn {lname} sprechen.|{greet}, spreche ich mit Frau {lname}?|Können Sie mir Ihre Bestellnummer geben?|Meine Bestellnummer ist {code}.|Die Kundennummer ist {code}.|Meine Telefonnummer ist {code}.|Ich habe ein Problem mit der Bestellung.|{product} funktioniert nicht.|{product} ist seit {past} kaputt.|Ich habe {past} angerufen.|Ich habe {doc} noch nicht bekommen.|Ich möchte {doc} haben.|Ich möchte den Vertrag kündigen.|In der Rechnung ist ein Fehler.|Sie haben {money} zweimal abgebucht.|Ich schicke Ihnen {doc} {when}.|Ich werde Ihnen {doc} {when} schicken.|Ich rufe Sie {when} zurück.|Ich spreche mit meinem Kollegen {fname} und melde mich {when}.|Wir schicken {when} einen Techniker.|Ich bezahle {money} {when}.|Wir überweisen Ihnen {money} {when}.|Sie bekommen {doc} {when}.|Können Sie mir {doc} {when} schicken?|Können Sie mich {when} zurückrufen?|Wann kommt die Lieferung?|Wie viel kostet das?|Passt Ihnen {day} um {time}?|Das kostet {money}.|Das sind {money} im Monat.|Der Termin ist {when}.|Das Paket ist unterwegs.|Einen Moment bitte.|Ja, bitte.|Nein, danke.|Ja, das ist richtig.|Sehr gut, vielen Dank.|In Ordnung.|Alles klar.|Natürlich.|Das tut mir sehr leid.|Ich verstehe.|Kann ich sonst noch etwas für Sie tun?|Das ist alles.|Vielen Dank für Ihre Hilfe.|Einen schönen Tag noch.|Auf Wiederhören.|Bis {day}.|Ich bin sehr zufrieden.|Ich bin nicht zufrieden."
    ),
}
SLOTS = {"en": EN, "es": ES, "de": DE}


def _expand(g, key, rng):
    return re.sub(r"\{(\w+)\}", lambda m: _expand(g, m.group(1), rng), rng.choice(g[key]))


def _caps(text):
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(^|[.?!] ¿?)(\w)", lambda m: m.group(1) + m.group(2).upper(), text)


def words_of(lang):
    """Every word the grammar can say."""
    out = set()
    for v in SLOTS[lang].values():
        for t in v:
            out.update(re.findall(r"[^\W\d_]+(?:'[a-z]+)?", re.sub(r"\{\w+\}", " ", t)))
    return sorted(out)


_WORDS = {k: words_of(k) for k in SLOTS}


def sentence(lang, rng, salad=0.08):
    """One sentence; with probability `salad` a random word sequence (weakens the language model,
    so that the acoustics must be used)."""
    if rng.random() < salad:
        w = [rng.choice(_WORDS[lang]) for _ in range(rng.randint(2, 7))]
        return _caps(" ".join(x.lower() if x.lower() in _WORDS[lang] else x for x in w) + ".")
    t = _caps(_expand(SLOTS[lang], "_top", rng))
    if t.endswith("?") and re.match(r"(Please|I need)", t):
        t = t[:-1] + "."
    return t


def pick(lang, key, rng):
    """A sentence of one kind (used to script sample calls)."""
    return _caps(_expand(SLOTS[lang], key, rng))


if __name__ == "__main__":
    r = random.Random(1)
    for l in SLOTS:
        print(l, len(_WORDS[l]), "words;", len({sentence(l, r) for _ in range(20000)}), "distinct of 20000")
        for _ in range(12):
            print("   ", sentence(l, r))
