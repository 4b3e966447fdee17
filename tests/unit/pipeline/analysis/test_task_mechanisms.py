"""Ways of promising that name no "I will": a share of unseen examples by language, and controls that are no tasks."""

from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.support.calls_by_hand import call

REP, CUSTOMER = "rep", "customer"
MIN_FOUND = 0.65  # share of the examples of a mechanism, in all languages, with a task of the right owner
MAX_WRONG = 0.1  # share of controls with a task

# language, owner, the turns (the rep first)
RESULTS = """
en rep | The spare key goes out by courier tomorrow morning. | Lovely.
en rep | You'll have our decision in writing by Tuesday. | Good.
en rep | There'll be a refund of ten pounds on your card on Monday. | Thanks.
es rep | El contrato nuevo estará en su buzón el lunes. | Gracias.
es rep | Mañana tiene usted la respuesta en su correo. | Muy bien.
de rep | Der neue Vertrag liegt am Montag in Ihrem Briefkasten. | Danke.
de rep | Bis Dienstag haben Sie unsere Antwort. | Gut.
fr rep | Le nouveau contrat sera dans votre boîte lundi. | Merci.
fr rep | Vous aurez notre réponse avant mardi. | Bien.
pt rep | O contrato novo vai estar na sua caixa de correio na segunda. | Obrigada.
pt rep | A senhora vai receber a nossa resposta até terça. | Certo.
"""
PROMISES = """
en rep | I'm writing that off for you today. | Thank you.
en rep | The brochure I'll post this evening. | Lovely.
en rep | I'll put two chairs by for you. | Great.
es rep | Ese recibo se lo anulo yo hoy. | Gracias.
es rep | Se la guardo en el mostrador hasta el lunes. | Muy bien.
de rep | Den Antrag reiche ich morgen für Sie ein. | Danke.
de rep | Ich hake da am Montag noch mal nach. | Gut.
fr rep | Ce dossier, je vous le transmets demain. | Merci.
fr rep | Je relance le plombier dès lundi. | D'accord.
pt rep | Esse recibo eu cancelo hoje. | Obrigada.
pt rep | Guardo a chave para a senhora no balcão. | Certo.
"""
ASSENTS = """
en rep | Can I help with anything else? | And could I have a copy for my landlord? | Will do.
en customer | We'd just need a copy of your license. | I'll send it over tonight.
es rep | ¿Algo más? | ¿Me podría mandar otra copia para mi casero? | Claro que sí.
de rep | Sonst noch etwas? | Könnte ich auch eine Kopie für den Vermieter bekommen? | Wird gemacht.
fr rep | Autre chose? | Vous pourriez m'envoyer une copie pour mon propriétaire? | Bien sûr.
pt rep | Mais alguma coisa? | Pode mandar uma cópia para o meu senhorio? | Pode deixar.
"""
IN_PASSING = """
en rep | I'll put you through to a quote by Friday, in writing. | Lovely.
en rep | I'll check with the depot and ring you on Monday. | Right.
en customer | Fine. | I'll have a look in the loft tonight.
es rep | Le miro el contrato esta tarde y le digo. | Gracias.
es rep | Déjeme consultarlo con mi jefe y el lunes le confirmo. | Muy bien.
de rep | Das prüfe ich heute Abend und sage Ihnen morgen Bescheid. | Gut.
de customer | Ja? | Ich schaue am Wochenende nach dem Zählerstand.
fr rep | Je vous passe un coup de téléphone jeudi midi. | D'accord.
fr rep | Je regarde ça avec le comptable lundi. | Merci.
pt rep | Vejo isso com o técnico hoje à tarde e digo-lhe. | Obrigada.
pt rep | Eu confirmo com a oficina na segunda. | Certo.
"""
WANDERING = """
en customer | And keep the cat in, he's allergic. | Yeah, I'll shut her upstairs.
en rep | I'll pass that on to the lads. They're only in the yard.
en rep | Saturday the fourteenth, ten o'clock? | Ten, perfect. Yes, put me down.
es rep | Si no llueve, el jueves se lo llevo yo. | Ojalá.
es rep | El martes lo tenés ahí, sin falta. | Bárbaro.
es rep | Las mesas te las tengo para el viernes ocho. | Muy bien.
de other | Wer macht das denn? | Ruft der mich vorher an? | Nein, nein, er ruft Sie morgen vorher an.
de rep | Die Unterlagen kriegen S' am Montag mit der Post. | Gut.
de customer | Und die Schürzen? | Gut, die hol ich mir diese Woche mal ab.
fr rep | S'il neige pas, je vous livre ça mercredi. | D'accord.
fr customer | Et la clé? | Je demanderai à la voisine ce soir.
pt rep | Eu mando-lho amanhã pelo correio. | Obrigado.
pt customer | Precisava do papel até sexta. | Levo-lho na quinta.
pt other | O meu irmão arranja isso amanhã. | Ainda bem.
pt rep | Vou levá-la na terça, se não chover. | Está bem.
"""
CONTROLS = """
es | No le voy a mentir, hoy está difícil. | Ya veo.
es | Que se la pase bonito el domingo. | Igualmente.
en | Give me a sec, I'll have a look on the shelf. | Sure.
de | Der Sepp steht am Montag am Tresen, ich bin ab neun da. | Gut.
pt | O senhor leva metade amanhã e eu fico com o resto. | Está certo.
en | I'll put you through to the service desk, one moment. | Thanks.
en | Let me just look that up, bear with me. | Sure.
es | Le paso con la compañera, un momento. | Gracias.
de | Ich verbinde Sie, einen Moment bitte. | Danke.
fr | Je vous passe mon collègue, ne quittez pas. | Merci.
pt | Vou passar a chamada, um momento. | Obrigada.
en | The parcel normally takes a day or two. | I see.
en | The direct debit comes out on the fifth of each month. | Right.
en | I'm just looking at your booking. | Okay.
en | How can I help? | I'm getting quotes from a few people. | I see.
en | Can I help? | Could that have been the pump? | It could.
en | What's the code? | I'll have a think about it. | Okay.
es | El envío suele tardar un par de días. | Ya.
es | Estoy mirando su reserva. | Vale.
es | ¿Algo más? | ¿Se puede pagar en efectivo? | Claro.
es | ¿Le interesa? | Me lo voy a pensar. | Claro.
de | Die Lieferung dauert meistens zwei Tage. | Ach so.
de | Ich schaue gerade in Ihre Buchung. | Gut.
de | Sonst noch etwas? | Kann man auch bar zahlen? | Natürlich.
de | Möchten Sie es? | Das überlege ich mir noch. | Klar.
fr | La livraison prend souvent deux jours. | Ah.
fr | Je suis en train de regarder votre réservation. | D'accord.
fr | Autre chose? | On peut payer en espèces? | Bien sûr.
fr | Ça vous intéresse? | Je vais y réfléchir. | Bien sûr.
pt | A entrega costuma levar dois dias. | Entendi.
pt | Estou olhando a sua reserva. | Certo.
pt | Mais alguma coisa? | Posso pagar em dinheiro? | Pode.
pt | Tem interesse? | Vou pensar no assunto. | Claro.
en | When do you open? | On Tuesday at nine? | No, on Tuesday at ten.
de | Wann haben Sie offen? | Am Dienstag um neun? | Nein, am Mittwoch.
es | ¿Cuándo abren? | ¿El martes a las nueve? | No, el miércoles.
"""


def _examples(text: str):
    for line in text.strip().splitlines():
        head, *turns = line.split(" | ")
        language, _, owner = head.partition(" ")
        spoken = [((REP, CUSTOMER)[at % 2], turn) for at, turn in enumerate(turns)]
        tasks = TasksStep().run(call(*spoken, language=language)).value["tasks"]
        yield line, owner, tasks


def test_promises_in_other_words_than_i_will_are_tasks(subtests) -> None:
    for name, text in (
        ("results", RESULTS),
        ("promises", PROMISES),
        ("assents", ASSENTS),
        ("in passing", IN_PASSING),
        ("wandering", WANDERING),
    ):
        with subtests.test(name):
            examples = list(_examples(text))
            missed = [line for line, owner, tasks in examples if [task["owner"] for task in tasks] != [owner]]
            assert len(missed) <= (1 - MIN_FOUND) * len(examples), missed


def test_habits_questions_and_looking_at_the_screen_are_no_tasks() -> None:
    examples = list(_examples(CONTROLS))
    wrong = [(line, [task["title"] for task in tasks]) for line, _, tasks in examples if tasks]
    assert len(wrong) <= MAX_WRONG * len(examples), wrong
