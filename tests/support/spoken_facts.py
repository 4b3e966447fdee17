"""Small calls as people talk, in four languages, and what is in them. Written beside the rules: they keep what works
working and do not measure it; `bench/analysis_cases` does."""

from dataclasses import dataclass, field, replace

from pipeline.domain.insight import Contact, Material, Member, Roster
from tests.support.calls_by_hand import call

UNKNOWN = ("+15550000000", "+12025550100")
ROSTER = Roster(
    members=(
        Member("u1", "Anna Berg"),
        Member("u2", "Jon Lindqvist", ("Johnny",)),
        Member("u3", "Sofía Ruiz"),
        Member("u4", "Claire Dubois"),
    ),
    contacts=(
        Contact("c1", "Catherine Doyle", "Doyle Roofing Ltd", "cath@doyle-roofing.co.uk", "+442079460991"),
        Contact("c2", "Jürgen Maier", "Maier Metallbau GmbH"),
        Contact("c3", "Lucía Jiménez", "Talleres Jiménez"),
        Contact("c4", "Benoît Moreau"),
    ),
)


@dataclass(frozen=True)
class Small:
    """`talk`: lines that begin with r (ours) or c. `match` is a contact id, "new" or "none"; "" where it is
    left out, as is `agent`. `facts`: all that are said, `e164` in place of `phone`; any other is false."""

    language: str
    region: str
    talk: str
    outgoing: bool | None
    agent: str | None = ""
    match: str = ""
    facts: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.language}: {self.talk.strip().splitlines()[0]}"

    @property
    def material(self) -> Material:
        lines = [line.partition(" ") for line in self.talk.strip().splitlines()]
        spoken_lines = [({"r": "rep", "c": "customer"}[who], text) for who, _, text in lines]
        roster = replace(ROSTER, default_country=self.region)
        return call(*spoken_lines, language=self.language, roster=roster, numbers=UNKNOWN)


CALLS = (
    Small(
        "en",
        "GB",
        """r Brightside Kitchens, Anna speaking.
c Oh hiya, I'm after a new worktop. It's Mrs Whitcombe, Joan Whitcombe.
r Lovely. And what's the best number for you?
c It's oh seven seven double oh,
r Yep.
c nine double oh, one two three.""",
        False,
        agent="u1",
        match="new",
        facts={"name": "Joan Whitcombe", "e164": "+447700900123"},
    ),
    Small(
        "en",
        "GB",
        """c Hello?
r Good morning, could I speak to Catherine Doyle please?
c Speaking.
r Hi Catherine, Jon Lindqvist here from Brightside. I'm ringing about your quote.
c Oh yes.""",
        True,
        agent="u2",
        match="c1",
        facts={"name": "Catherine Doyle"},
    ),
    Small(
        "en",
        "GB",
        """r Brightside, how can I help?
c Yeah hi, it's Katherine Doyle, with a K, from Harrow Joinery.
r Hi Katherine. What can I do for you?
c I need to change my order. The reference is four four one nine two two seven.""",
        False,
        agent=None,
        facts={"name": "Katherine Doyle", "company": "Harrow Joinery"},
    ),
    Small(
        "en",
        "US",
        """r Thank you for calling Brightside, this is Johnny, how may I help you?
c Hi Johnny, my name is Tom Nguyen, that's N-G-U-Y-E-N.
r And a good email?
c tom dot nguyen at cedar hill dental dot com. Wait, no, it's tom underscore nguyen at cedar hill dental dot com.
r Got it.""",
        False,
        agent="u2",
        match="new",
        facts={"name": "Tom Nguyen", "email": "tom_nguyen@cedarhilldental.com"},
    ),
    Small(
        "en",
        "US",
        """r Brightside, Anna speaking.
c Hi, I'm calling from Lakeview Pediatrics about an invoice.
r Sure, and who am I speaking with?
c This is Priya. Priya Raman.
r Let me put you through to Jon, he handles billing.
c Thanks.
r Billing, how can I help?
c It's about the invoice.""",
        False,
        agent="u2",
        match="new",
        facts={"name": "Priya Raman", "company": "Lakeview Pediatrics"},
    ),
    Small(
        "en",
        "US",
        """r Hi, this is Anna with Brightside. Sorry to bother you, is this Mr. Alvarez?
c Yeah, this is Luis Alvarez.
r We had you down at 42 Harbor Street?
c No, I moved. It's one hundred and twelve Willow Creek Road, Dayton.
r One twelve Willow Creek Road. Thank you.""",
        True,
        agent="u1",
        match="new",
        facts={"name": "Luis Alvarez", "address": "112 Willow Creek Road, Dayton"},
    ),
    Small(
        "en",
        "GB",
        """c You've reached the voicemail of Catherine Doyle. Leave a message after the tone.
r Hi Catherine, it's Sofia from Brightside. Give me a ring back on 020 7946 0100. Thanks.""",
        True,
        agent="u3",
        match="c1",
        facts={"name": "Catherine Doyle"},
    ),
    Small(
        "en",
        "GB",
        """r Hello, Brightside.
c Hello, I had a missed call from this number?
r Oh right, who's calling please?
c My name's Siobhan Keane.
r Keane with a K?
c Yes, K-E-A-N-E.""",
        False,
        agent=None,
        match="new",
        facts={"name": "Siobhan Keane"},
    ),
    Small(
        "en",
        "GB",
        """r Brightside Kitchens, good afternoon.
c Hi, is that Anna?
r It is, yeah.
c Anna, it's Kath Doyle. Your fitter hasn't turned up.""",
        False,
        agent="u1",
        facts={"name": "Kath Doyle"},
    ),
    Small(
        "de",
        "DE",
        """r Elektro Brandt, Berg, guten Tag.
c Ja, guten Tag, Maier hier, Jürgen Maier von der Firma Maier Metallbau.
r Grüß Gott, Herr Maier. Worum geht es?
c Die Anlage läuft nicht. Rufen Sie mich zurück: null eins sieben eins, zwölf, dreiunddreißig, vierundvierzig fünf.
r Habe ich notiert.""",
        False,
        agent="u1",
        match="c2",
        facts={"name": "Jürgen Maier", "company": "Maier Metallbau", "e164": "+491711233445"},
    ),
    Small(
        "de",
        "DE",
        """r Guten Morgen, spreche ich mit Frau Hölzl?
c Ja, am Apparat.
r Hier ist Anna Berg von Elektro Brandt, ich rufe wegen Ihrer Anfrage an.
c Ach so, ja.
r Haben Sie eine E-Mail-Adresse für mich?
c Ja, das ist k punkt hölzl, mit ö e, at gmx punkt de.
r Und die Anschrift?
c Lindenstraße vierundzwanzig a, achtzig drei drei eins München.""",
        True,
        agent="u1",
        match="new",
        facts={"name": "Frau Hölzl", "email": "k.hoelzl@gmx.de", "address": "Lindenstraße 24 a, 80331 München"},
    ),
    Small(
        "de",
        "AT",
        """r Elektro Brandt, Anna Berg am Apparat, grüß Gott.
c Grüß Gott, mein Name ist Wolfgang Hofer, ich bin Kunde bei Ihnen.
r Wie war der Name noch mal?
c Hofer. Heinrich, Otto, Friedrich, Emil, Richard.
r Und Ihre Nummer?
c Null sechs sechs vier, fünf fünf fünf, dreiundzwanzig, achtundzwanzig.""",
        False,
        agent="u1",
        match="new",
        facts={"name": "Wolfgang Hofer", "e164": "+436645552328"},
    ),
    Small(
        "es",
        "ES",
        """r Talleres Sol, le atiende Sofía, ¿dígame?
c Buenos días, mi nombre es Lucía Giménez, con jota.
r ¿Me deja un teléfono?
c Sí, apunte: seis uno dos, treinta y cuatro, cincuenta y seis, setenta y ocho.
r ¿Y un correo?
c lucia guion bajo ochenta y cinco arroba gmail punto com.""",
        False,
        agent="u3",
        match="c3",
        facts={"name": "Lucía Jiménez", "e164": "+34612345678", "email": "lucia_85@gmail.com"},
    ),
    Small(
        "es",
        "MX",
        """c ¿Bueno?
r Buenas tardes, ¿hablo con el señor Ricardo Treviño?
c Sí, con él habla.
r Le llamo de Talleres Sol, mi nombre es Sofía Ruiz. Era para confirmar su cita.
c Ah, sí, gracias por avisar.
r ¿La dirección sigue siendo avenida Juárez número ciento veinte?
c Correcto.""",
        True,
        agent="u3",
        match="new",
        facts={"name": "Ricardo Treviño", "address": "avenida Juárez número 120"},
    ),
    Small(
        "es",
        "ES",
        """r Talleres Sol, buenas.
c Hola, llamo de parte de Transportes Ebro. Soy Marcos.
r Le paso con Sofía.
c Gracias.
r Hola, Marcos, dime.
c Quería una furgoneta.""",
        False,
        agent="u3",
        match="new",
        facts={"name": "Marcos", "company": "Transportes Ebro"},
    ),
    Small(
        "fr",
        "FR",
        """r Garage du Lac, bonjour, Claire à l'appareil.
c Oui bonjour, Benoît Moreaux, je vous appelle de la part de la société Alpes Menuiserie.
r Bonjour monsieur Moreaux.
c Ma voiture est en panne. Vous pouvez me rappeler au zéro six, douze, trente-quatre, cinquante-six, soixante-dix-huit ?
r C'est noté.""",
        False,
        agent="u4",
        facts={"name": "Benoît Moreaux", "company": "Alpes Menuiserie", "e164": "+33612345678"},
    ),
    Small(
        "fr",
        "FR",
        """c Allô ?
r Bonjour, madame Lefèvre ? Claire Dubois, du Garage du Lac. Je vous appelle au sujet de votre voiture.
c Ah oui, bonjour.
r Votre adresse, c'est toujours le douze rue des Lilas ?
c Non, maintenant c'est le quarante-cinq avenue de la Gare, à Annecy.
r Très bien. Et un mail ?
c a point lefevre, arobase, orange point fr.""",
        True,
        agent="u4",
        match="new",
        facts={"name": "madame Lefèvre", "address": "45 avenue de la Gare, à Annecy", "email": "a.lefevre@orange.fr"},
    ),
    Small(
        "fr",
        "BE",
        """r Bonjour, Garage du Lac, à votre service.
c Bonjour, je m'appelle Thierry Vandamme, V-A-N-D-A-deux M-E.
r D'accord. Et un numéro ?
c Zéro quatre cent septante-deux, quarante-cinq, nonante, douze.""",
        False,
        agent=None,
        match="new",
        facts={"name": "Thierry Vandamme", "e164": "+32472459012"},
    ),
    Small(
        "en",
        "GB",
        """r Brightside Kitchens.
c Good morning. My name is Graham Pell, P-E-double-L, and I'm phoning on behalf of Northgate Housing.
r Hello Mr Pell.
c My email's g dot pell at northgate hyphen housing dot org dot uk.
r g dot pell at northgate hyphen housing dot org dot uk?
c That's the one.""",
        False,
        agent=None,
        match="new",
        facts={"name": "Graham Pell", "company": "Northgate Housing", "email": "g.pell@northgate-housing.org.uk"},
    ),
    Small(
        "en",
        "IE",
        """r Hello, is that Mr Byrne?
c No, you've the wrong number.
r Oh, sorry about that.""",
        True,
        match="none",
        facts={},
    ),
    Small(
        "en",
        "GB",
        """r Hiya, it's only Anna from Brightside, just a quick one.
c Oh hello Anna.
r Your worktop's arrived.
c Brilliant, I'll collect it Saturday.
r Lovely. Bye, Mrs Okafor.""",
        True,
        agent="u1",
        match="new",
        facts={"name": "Mrs Okafor"},
    ),
    Small(
        "en",
        "US",
        """r Brightside, this is Sophia.
c Hey, this is Marcus Bell over at Tri-County Electric.
r Hey Marcus.
c You guys left me a message.""",
        False,
        agent="u3",
        match="new",
        facts={"name": "Marcus Bell", "company": "Tri-County Electric"},
    ),
    Small(
        "de",
        "DE",
        """r Ja, schönen guten Tag, mein Name ist Jon Lindquist von der Firma Elektro Brandt.
c Ja?
r Ich wollte fragen, ob Sie mit der Anlage zufrieden sind.
c Woher haben Sie meine Nummer?
r Sie waren bei uns Kunde, Frau Seidel.
c Rufen Sie hier bitte nicht mehr an.""",
        True,
        agent="u2",
        match="none",
        facts={"name": "Frau Seidel"},
    ),
    Small(
        "es",
        "ES",
        """r Hola, buenas tardes, ¿es usted doña Carmen?
c Sí, ¿quién es?
r Soy Sofía, de Talleres Sol. Le llamo para decirle que su coche está listo.
c Ay, qué bien.""",
        True,
        agent="u3",
        match="new",
        facts={"name": "doña Carmen"},
    ),
    Small(
        "fr",
        "FR",
        """r Service client, bonjour.
c Bonjour, j'ai un souci avec ma chaudière, elle ne marche plus.
r Votre nom, s'il vous plaît ?
c Delacroix, comme le peintre. Hélène Delacroix.
r Et votre adresse ?
c Douze bis, rue de la République, à Lyon.""",
        False,
        agent=None,
        match="new",
        facts={"name": "Hélène Delacroix", "address": "12 bis, rue de la République, à Lyon"},
    ),
    Small(
        "en",
        "AU",
        """r G'day, Coastline Pools, Johnny here.
c Yeah g'day mate, look, me pump's carked it again.
r Bugger. What's your name mate?
c Dazza. Well, Darren Pickett.
r And where are you at?
c 17 Banksia Crescent, Torquay.""",
        False,
        agent="u2",
        match="new",
        facts={"name": "Darren Pickett", "address": "17 Banksia Crescent, Torquay"},
    ),
    Small(
        "en",
        "IN",
        """r Good afternoon, thank you for calling Sunrise Travels, myself Anna, how may I assist you?
c Yes hello, I am Rakesh Gupta speaking from Pune. I want to cancel my ticket.
r Sure sir, may I have your contact number?
c Nine eight two two, zero one, double three, double four.""",
        False,
        agent="u1",
        match="new",
        facts={"name": "Rakesh Gupta", "e164": "+919822013344"},
    ),
    Small(
        "en",
        "US",
        """c Dr. Patel's office, this is Wendy.
r Hi Wendy, this is Anna with Brightside Labs. I've got the results you were waiting on.
c Oh great, go ahead.""",
        True,
        agent="u1",
        match="new",
        facts={"name": "Wendy"},
    ),
    Small(
        "en",
        "GB",
        """r Hi, it's Anna again. Sorry, we got cut off.
c No worries. You were saying about the deposit?
r Yes, so it's refundable.""",
        None,
        agent="u1",
        facts={},
    ),
    Small(
        "en",
        "US",
        """c Yeah?
r Hi, I'm looking for a Mr. Dale Hutchins?
c That's me.
r My name is Jon and I'm reaching out from Brightside regarding your warranty.""",
        True,
        agent="u2",
        facts={"name": "Dale Hutchins"},
    ),
    Small(
        "en",
        "GB",
        """r Accounts.
c Hello, I've been sent a bill I don't understand.
r Can I take a name?
c Pritchard. Owen Pritchard.
r And is it still 14 Mill Lane?
c It is, yes.""",
        False,
        agent=None,
        match="new",
        facts={"name": "Owen Pritchard", "address": "14 Mill Lane"},
    ),
    Small(
        "en",
        "GB",
        """c Owen Pritchard.
r Oh hello Mr Pritchard, it's Sofia at Brightside. You rang earlier about a bill.
c I did, yes, thanks for ringing back.""",
        True,
        agent="u3",
        match="new",
        facts={"name": "Owen Pritchard"},
    ),
    Small(
        "en",
        "US",
        """r Brightside, Anna.
c Hi Anna, Bill Chen, Chen and Associates. Is Jon in?
r He's at lunch, can I help?
c Just tell him to call me. Four one five, five five five, oh one eight two.""",
        False,
        agent="u1",
        match="new",
        facts={"name": "Bill Chen", "company": "Chen and Associates", "e164": "+14155550182"},
    ),
    Small(
        "de",
        "DE",
        """c Ja, bitte?
r Guten Tag, Lindqvist, Elektro Brandt. Bin ich da richtig bei Familie Scholz?
c Ja, Scholz.
r Es geht um den Termin am Montag.""",
        True,
        agent="u2",
        facts={"name": "Scholz"},
    ),
    Small(
        "de",
        "DE",
        """r Elektro Brandt, mein Name ist Anna Berg, was kann ich für Sie tun?
c Hallo Frau Berg, hier Petra Neumann. Bei uns ist der Strom weg.
r Da verbinde ich Sie mit Herrn Lindqvist.
c Danke.
r Lindqvist, hallo. Wo genau ist der Strom weg?
c In der Küche. Meine Handynummer ist null eins fünf zwo, null drei, zwo zwo, eins eins, neun neun.""",
        False,
        agent="u2",
        match="new",
        facts={"name": "Petra Neumann", "e164": "+4915203221199"},
    ),
    Small(
        "de",
        "AT",
        """r Servus, da ist der Jon vom Elektro Brandt. Du, ich wollt nur sagen, der Boiler ist da.
c Ah super, danke fürs Anrufen!
r Passt, baba.""",
        True,
        agent="u2",
        facts={},
    ),
    Small(
        "de",
        "CH",
        """r Elektro Brandt, Berg, grüezi.
c Grüezi, Zürcher isch mein Name, Regula Zürcher. Ich habe ein Problem mit dem Boiler.
r Auf welche Mailadresse darf ich die Offerte schicken?
c regula Punkt zuercher at bluewin Punkt ch. Zuercher mit u e.""",
        False,
        agent="u1",
        facts={"name": "Regula Zürcher", "email": "regula.zuercher@bluewin.ch"},
    ),
    Small(
        "es",
        "AR",
        """r Hola, ¿con Martín Acosta?
c Sí, soy yo.
r ¿Qué tal, Martín? Te habla Sofía, de Automotores Sol. Te llamo por el turno del service.
c Ah, dale.
r ¿Me pasás un mail?
c macosta, eme a ce o ese te a, arroba correo punto com punto ar.""",
        True,
        agent="u3",
        facts={"name": "Martín Acosta", "email": "macosta@correo.com.ar"},
    ),
    Small(
        "es",
        "ES",
        """r Clínica Sol, buenas tardes, dígame.
c Hola, mira, quería pedir cita para mi hijo.
r ¿A nombre de quién?
c De Hugo Belmonte.
r ¿Un teléfono de contacto?
c El de mi marido, el seis tres tres, dos dos uno, uno cuatro cinco.""",
        False,
        facts={"name": "Hugo Belmonte", "e164": "+34633221145"},
    ),
    Small(
        "es",
        "MX",
        """c Ferretería El Tornillo, buenos días.
r Buenos días, habla Sofía, de Distribuidora Sol. ¿Se encuentra el señor Ramírez?
c Él habla.
r Le llamo por su pedido.""",
        True,
        agent="u3",
        facts={"name": "señor Ramírez", "company": "Ferretería El Tornillo"},
    ),
    Small(
        "fr",
        "FR",
        """c Cabinet dentaire, bonjour.
r Bonjour, Claire Dubois, du Garage du Lac. Je cherche à joindre le docteur Marchal.
c Il est en consultation. C'est à quel sujet ?
r Sa voiture est prête.""",
        True,
        agent="u4",
        facts={},
    ),
    Small(
        "fr",
        "CA",
        """r Garage du Lac, Claire, bonjour.
c Bonjour, ici Luc Tremblay. Je vous appelle parce que j'ai reçu une facture bizarre.
r Votre courriel, monsieur Tremblay ?
c l tremblay, en un mot, arobase videotron point c a.
r Et le téléphone ?
c Cinq un quatre, cinq cinq cinq, zéro un huit deux.""",
        False,
        agent="u4",
        facts={"name": "Luc Tremblay", "email": "ltremblay@videotron.ca", "e164": "+15145550182"},
    ),
    Small(
        "fr",
        "BE",
        """r Allô, bonjour, je suis bien chez monsieur Peeters ?
c Oui, c'est moi.
r Claire, du Garage du Lac. J'ai une bonne nouvelle, votre pièce est arrivée.
c Ah, merci d'avoir appelé.""",
        True,
        agent="u4",
        facts={"name": "monsieur Peeters"},
    ),
    Small(
        "fr",
        "FR",
        """r Garage du Lac.
c Oui bonjour, c'est pour un devis. Madame Roussel, R-O-U-deux S-E-L.
r Je vous passe Claire.
r Oui, allô ?
c Bonjour.""",
        False,
        agent="u4",
        facts={"name": "Madame Roussel"},
    ),
)
