"""Calls of three to five turns in unlike wordings, and what each of them shows.

A call begins with `# language country direction agent match facts`: `in`, `out` or `-` where the talk does not show it;
the member's id or `-`; the contact's id, `new`, `none` or `ambiguous`; `field=value;...` or `-`, all that is said.
Lines beginning with r are ours. They keep what works working; they do not measure it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipeline.domain.insight import Contact, Material, Member, Roster
from pipeline.language.spoken.phonetics import folded
from tests.support.calls_by_hand import call

ROSTER = Roster(
    members=(
        Member("u1", "Priya Nair"),
        Member("u2", "Martin Kessler"),
        Member("u3", "Beatriz Ocaña", ("Bea",)),
        Member("u4", "Élodie Garnier"),
    ),
    contacts=(
        Contact("k1", "Helen Marsh", "Marsh & Lowe", "helen@marshlowe.co.uk", "+441632960177"),
        Contact("k2", "Helen Marsden"),
        Contact("k3", "Stefan Brandl", "Brandl Gartenbau", "s.brandl@brandl-garten.de", "+498955501122"),
        Contact("k4", "Stephan Brandel"),
        Contact("k5", "Rocío Peñalver", "Librería Sol", "rocio@libreriasol.es", "+34915550123"),
        Contact("k6", "Gérard Thibault", "Thibault Frères", "g.thibault@tfreres.fr", "+33155501234"),
        Contact("k7", "Gerard Tibault"),
        Contact("k8", "Olivia Chen", "Blue Harbor", None, "+12065550114"),
        Contact("k9", "Liam Chen", "Blue Harbor", None, "+12065550114"),
        Contact("k10", "Mónica Vargas", None, None, "+525555550188"),
    ),
)
_TITLES = r"\b(?:ms|mr|mrs|herrn?|frau|senora?|don|dona|monsieur|madame|and|y|und|et)\b\.?"


@dataclass(frozen=True)
class Short:
    """`outgoing` is None if the call does not show it."""

    material: Material
    outgoing: bool | None
    agent: str | None
    match: str
    facts: dict[str, str]
    title: str

    def __str__(self) -> str:
        return self.title


def plain(text: str) -> str:
    """Return the text without accents, titles and punctuation."""
    return " ".join(re.sub(_TITLES, " ", re.sub(r"[^\w@+.]", " ", folded(text))).split())


def _read(text: str) -> Iterator[Short]:
    for block in text.split("# ")[1:]:
        head, _, talk = block.partition("\n")
        language, region, direction, agent, match, facts = head.split(" ", 5)
        lines = [line.partition(" ") for line in talk.strip().splitlines()]
        said = [({"r": "rep", "c": "customer"}[who], text) for who, _, text in lines]
        roster = replace(ROSTER, default_country=region)
        yield Short(
            call(*said, language=language, roster=roster, numbers=("anonymous", "anonymous")),
            {"in": False, "out": True, "-": None}[direction],
            None if agent == "-" else agent,
            match,
            {} if facts == "-" else dict(fact.split("=", 1) for fact in facts.split(";")),
            f"{language}: {said[0][1][:40]} {said[1][1][:40]}",
        )


TALKS = """
# en GB in u1 k1 name=Helen Marsh;company=Marsh and Lowe
r Ashdown Print, Priya here, what can I do for you?
c Morning Priya, Helen Marsh at Marsh and Lowe. The brochures, any news?
r Let me look. They went out on Monday.
c Super, thanks.
# en GB in - new name=Derek Oyelaran;phone=+447700900412
r Hello, Ashdown Print.
c Oh hello. I wonder if you can help me, I've been given your name by my neighbour. I need some wedding invitations.
r Of course. Who's this?
c Derek Oyelaran. O-Y-E-L-A-R-A-N.
r And a mobile for you, Derek?
c Sure, 07700 900412.
# en GB out u2 k2 name=Helen Marsden
c Hello?
r Is that Mrs Marsden? It's Martin Kessler, from Ashdown Print, you left something in our box last night.
c Oh yes, that was quick. It's about the calendars.
r Right, tell me.
# en US in - k9 name=Liam Chen;company=Blue Harbor
r Ashdown Print.
c Hey, Liam over at Blue Harbor. Quick one, did you guys get our deposit?
r We did, on the fourth.
c Awesome. Later.
# en US in - none -
r Ashdown Print, good afternoon.
c Is this the pharmacy?
r No, this is a print shop.
c Oh shoot, I must have misdialed. Sorry about that.
# en GB out u1 none -
c Hello?
r Hi, this is Priya calling from Ashdown Print, we do business cards and so on. Have you got a minute?
c No, I haven't. I've told you lot, I'm not interested, and I don't want any more of these calls.
r Sorry to have troubled you.
# en GB in u2 k1 name=Helen Marsh;email=helen.marsh@marshlowe.com
r Ashdown Print, Martin speaking.
c Hello Martin, this is Helen Marsh. We've changed our emails. The new one is helen dot marsh at marshlowe dot com.
r Done.
c Ta.
# en GB in u1 new name=Rufus Carrick;address=9 Tanner Street, Hull
r Ashdown Print, you're through to Priya.
c Hi, my name's Rufus Carrick, I placed an order on your website and it's gone to my old house.
r Oh no. What's the new one?
c 9 Tanner Street, Hull.
# en US out u2 new name=Marguerite Alvarado
c Hi, you've reached Marguerite Alvarado. I can't come to the phone right now, so leave your name and number.
r Hi Marguerite, Martin Kessler, Ashdown Print. Your posters are ready for pickup. Bye now.
# en IE in - new name=Siobhan Kehoe
r Ashdown Print, howya.
c Howya. Siobhan Kehoe is my name. I'm looking for a price on two hundred mass cards.
r Grand. Leave it with me, Siobhan.
# en GB - - new name=Mr Dunmore
r Right, sorry about that, we lost each other. You were telling me about the paper, Mr Dunmore.
c Yes, the thick one.
r Okay, I'll note the thick one.
# en GB in u2 none -
r Ashdown Print.
c Martin, it's only Priya. Have you got the key to the storeroom?
r Yeah, it's on my desk.
# en AU in - k8 name=Olivia Chen;company=Blue Harbor
r Ashdown, hello.
c G'day, Olivia Chen here, Blue Harbor. I'd love to know when the flyers are landing.
r Thursday, Olivia.
c Beauty.
# de DE in u2 k3 name=Stefan Brandl;company=Brandl Gartenbau
r Druckerei Aschau, Kessler, schönen guten Tag.
c Grüß Gott Herr Kessler, Stefan Brandl von der Brandl Gartenbau. Ich bräuchte noch mal fünfhundert Flyer.
r Gern.
# de DE in u2 new name=Henrike Wollschläger;phone=+491713920017
r Druckerei Aschau, Martin Kessler am Telefon.
c Ja, schönen guten Morgen, mein Name wäre Wollschläger, Henrike Wollschläger. Ich hätte gern Visitenkarten.
r Gern. Unter welcher Nummer sind Sie tagsüber zu erreichen?
c Null eins sieben eins, drei neun zwo null null, eins sieben.
# de DE out u2 k4 name=Stephan Brandel
c Hallo?
r Hallo, Kessler von der Druckerei Aschau. Spreche ich mit Stephan Brandel? Mit E-L am Ende?
c Ja, genau, der bin ich.
r Ihre Plakate wären fertig.
# de DE in - none -
r Druckerei Aschau, guten Tag.
c Oh, ich wollte eigentlich die Apotheke. Da hab ich mich wohl vertippt.
r Macht nichts.
# de DE in - new name=Ilse Thormann;address=Birkenweg 14, 24837 Schleswig
r Aschau Druck, hallo.
c Guten Tag, hier Thormann. Ich hatte einen Kalender bestellt, der ist nicht gekommen.
r Wie ist denn der Vorname?
c Ilse. Und ich wohne jetzt im Birkenweg 14, 24837 Schleswig.
# de DE in u2 none -
r Druckerei Aschau, Kessler.
c Ich bin's, die Priya. Sag mal, ist der Kurier schon da gewesen?
r Noch nicht.
# de DE out u1 new name=Frau Osterkamp
c Ja bitte?
r Guten Tag, mein Name ist Priya Nair, ich rufe im Auftrag der Druckerei Aschau an. Sind Sie Frau Osterkamp?
c Das bin ich, ja.
r Sie hatten uns auf der Messe Ihre Karte gegeben.
# de DE in u2 new name=Torben Eickhoff;company=Hafenkontor
r Druckerei Aschau, Martin Kessler, was kann ich für Sie tun?
c Moin, Torben Eickhoff, Hafenkontor. Wir suchen eine neue Druckerei für unsere Kataloge.
r Da sind Sie bei uns richtig, Herr Eickhoff.
# de DE in - new name=Jessica Pawlak
r Aschau Druck, Sie sind verbunden mit der Auftragsannahme.
c Hallo, Pawlak, P-A-W-L-A-K. Jessica mit Vornamen. Ich möchte was reklamieren.
r Worum geht es, Frau Pawlak?
# de DE out - new name=Winfried Specht
c Sie sind mit der Mailbox von Winfried Specht verbunden. Bitte sprechen Sie nach dem Signalton.
r Ja, hallo Herr Specht, hier ist die Druckerei Aschau, bitte rufen Sie kurz zurück.
# de DE in u1 k3 name=Stefan Brandl
r Druckerei Aschau, Nair.
c Brandl, grüß Gott. Stefan Brandl. Sie haben vorhin versucht, mich zu erreichen?
r Ja, genau, es geht um den Farbton.
# es ES in u3 k5 name=Rocío Peñalver;company=Librería Sol
r Imprenta Olmo, buenas, habla con Beatriz.
c Hola Beatriz, mira, soy Rocío, de la Librería Sol. Que no me ha llegado el pedido.
r Ay, a ver.
# es ES in - new name=Amparo Cifuentes;phone=+34655512345
r Imprenta Olmo, ¿en qué puedo ayudarle?
c Pues mire, que quería unas tarjetas de boda.
r Muy bien, ¿me dice su nombre y un móvil?
c Amparo Cifuentes, y el móvil es el seis cinco cinco, cinco uno dos, tres cuatro cinco.
# es ES out u3 new name=Fermín Arriaga
c ¿Dígame?
r Buenas tardes, ¿don Fermín Arriaga?
c El mismo.
r Encantada, le habla Beatriz Ocaña, de Imprenta Olmo. Le llamo porque nos pidió presupuesto.
# es ES in - none -
r Imprenta Olmo, buenos días.
c ¿El taller de Paco?
r No, esto es una imprenta.
c Huy, perdone, que he marcado mal.
# es MX in u3 k10 name=Mónica Vargas
r Imprenta Olmo, le atiende Beatriz Ocaña.
c Qué tal, habla Mónica Vargas. Oiga, ¿ya estarán mis invitaciones?
r Sí, señorita, ya puede pasar.
# es MX out u3 none -
c ¿Bueno?
r Buenas tardes, mi nombre es Beatriz Ocaña, de Imprenta Olmo. Tenemos una promoción en volantes.
c No, gracias, no me interesa. Y ya no me marquen, por favor.
r Disculpe la molestia.
# es AR in - new name=Gustavo Pellegrini;email=gpellegrini@delsur.com.ar;company=Viajes del Sur
r Imprenta Olmo, buen día.
c Buen día, qué tal. Gustavo Pellegrini te habla, de Viajes del Sur. Necesitaría un presupuesto por folletos.
r Dale, ¿a qué mail te lo paso?
c g pellegrini arroba delsur punto com punto ar.
# es CO out u3 new name=Yolanda Restrepo
c A la orden.
r Muy buenos días, ¿tengo el gusto con la señora Yolanda Restrepo?
c Sí señora, con ella.
r Mucho gusto, Beatriz Ocaña de Imprenta Olmo, la llamo para confirmar su entrega.
# es ES - - new name=señor Bastida
r Perdone, que se había cortado. Me decía usted, señor Bastida.
c Sí, lo del papel grueso.
r Vale, lo apunto.
# es CL in - new name=Ignacio Undurraga
r Imprenta Olmo, buenas tardes.
c Hola, buenas tardes, mi nombre es Ignacio Undurraga, con u, ene, de. Tengo un reclamo por un timbre que salió malo.
r Cuénteme, don Ignacio.
# es ES in u3 new name=Leire Goikoetxea
r Imprenta Olmo, Beatriz al habla.
c Buenas. Leire Goikoetxea me llamo. Se escribe ge, o, i, ka, o, e, te, equis, e, a. Quería cien camisetas.
r Te cuento.
# es ES out - new name=Ramiro Seoane
c Hola, has llamado al contestador de Ramiro Seoane. Deja tu mensaje después de la señal.
r Hola Ramiro, te llamamos de Imprenta Olmo, tus camisetas ya están.
# fr FR in u4 k6 name=Gérard Thibault;company=Thibault Frères
r Imprimerie du Pont, Élodie, bonjour.
c Bonjour Élodie, Gérard Thibault, de chez Thibault Frères. Je viens aux nouvelles pour mes catalogues.
r Alors, ils partent demain.
# fr FR in - new name=Maud Kerbrat;phone=+33639981245
r Imprimerie du Pont, bonjour.
c Oui bonjour, je souhaiterais faire imprimer des faire-part.
r Très bien, je prends vos coordonnées. Votre nom ?
c Kerbrat, K-E-R-B-R-A-T, Maud. Portable : zéro six trente-neuf quatre-vingt-dix-huit douze quarante-cinq.
# fr FR out u4 new name=Monsieur Aubertin
c Allô ?
r Bonjour, Élodie Garnier, de l'Imprimerie du Pont. Vous êtes bien monsieur Aubertin ?
c Lui-même.
r Je vous appelle au sujet de votre devis.
# fr FR in - none -
r Imprimerie du Pont, bonjour.
c Bonjour, c'est bien la pharmacie ?
r Ah non, ici c'est une imprimerie.
c Oh pardon, j'ai dû mal composer.
# fr BE out u4 none -
c Oui, allô ?
r Bonjour, Élodie Garnier, Imprimerie du Pont. Nous avons une offre sur les affiches en ce moment.
c Non merci, je n'ai besoin de rien. Et j'aimerais que vous ne m'appeliez plus.
r Excusez-moi du dérangement.
# fr CA in u4 new name=Jean-Philippe Bouchard;email=jp.bouchard@microbouchard.ca
r Imprimerie du Pont, Élodie à l'appareil.
c Salut Élodie, Jean-Philippe Bouchard. J'aurais besoin d'étiquettes pour mes bières.
r Parfait. C'est quoi votre courriel ?
c jp point bouchard, arobas, microbouchard point ca.
# fr FR in - k7 name=Gerard Tibault
r Imprimerie du Pont.
c Oui, monsieur Tibault à l'appareil. Tibault sans H, hein, T-I-B-A-U-L-T. Gerard Tibault.
r Je vous écoute.
c J'ai reçu la mauvaise facture.
# fr FR in - new name=Solène Guivarc'h;address=3 impasse des Lilas, Brest
r Imprimerie du Pont, que puis-je faire pour vous ?
c Bonjour, Solène Guivarc'h, j'ai déménagé et j'attends un colis de chez vous.
r Quelle est la nouvelle adresse ?
c 3 impasse des Lilas, Brest.
# fr FR - - new name=Madame Vasseur
r Excusez-moi, ça a coupé. Vous disiez, madame Vasseur ?
c Oui, pour le papier, plutôt l'épais.
r C'est noté.
# fr CH in - new name=Régis Pittet;company=Domaine Pittet
r Imprimerie du Pont, bonjour.
c Bonjour, ici Régis Pittet du Domaine Pittet. J'aimerais des étiquettes de vin.
r Volontiers.
# fr FR out - new name=Corinne Leduc
c Bonjour, vous êtes bien sur la messagerie de Corinne Leduc, laissez-moi un message.
r Bonjour madame Leduc, l'Imprimerie du Pont, vos cartes sont arrivées.
# fr BE in u4 new name=Anouk Verhaegen
r Imprimerie du Pont, Élodie, je vous écoute.
c Bonjour madame, je m'appelle Verhaegen, avec A-E. Anouk Verhaegen. J'ai un souci avec mes enveloppes.
r Dites-moi tout.
# en GB in u2 k1 name=Helen Marsh
r Good afternoon, Ashdown Print, this is Martin.
c Hello there, Mrs Marsh here, it's about the menu cards again.
r Ah yes, what's wrong with them?
# en GB in u1 new name=Gareth Penhallow;company=Penhallow Boats;phone=+447700900735
r Ashdown Print, Priya.
c Hi, Gareth Penhallow. I've a small business, Penhallow Boats, and I'm after some vinyl lettering.
r Lovely. Can I take a contact number?
c It's oh double seven double oh, nine double oh, seven three five.
# en US out u2 new name=Dolores Whitaker
c Whitaker residence.
r Hi, I'm looking for Dolores Whitaker?
c You've got her.
r Great. Martin Kessler from Ashdown Print. You dropped off a flash drive on Friday, and it's blank.
# en GB out u1 none -
c Yes?
r Good evening, my name's Priya and I'm ringing on behalf of Ashdown Print. We're doing a little survey on paper.
c I don't do surveys, love. Bye.
# en US in u1 new name=Hollis Grady;email=hollis@gradyfarms.com
r You've reached Ashdown Print, Priya speaking.
c Priya, hi, it's Hollis. Hollis Grady, we met at the fair.
r Oh sure, hi Hollis!
c Could you send me that brochure? hollis at grady farms dot com.
# en IE in u2 new name=Bríd Ní Fhloinn
r Ashdown Print, Martin here.
c Hello Martin, my name is Bríd Ní Fhloinn. I was given a leaflet of yours. How much would a thousand run me?
r Depends on the paper.
# en GB in - k9 name=Liam Chen
r Ashdown.
c Liam Chen. I sent you a file this morning, did it open?
r It did, thanks Liam.
# en GB - - k2 name=Helen Marsden
r Okay, I'm back with you, Mrs Marsden.
c Thanks. So what's the price?
r Forty pounds.
# en GB in u2 none -
r Ashdown Print, Martin Kessler speaking.
c Is Fred about?
r There's no Fred here, sorry. What number did you want?
c Oh dear, I've dialled the last digit wrong.
# de DE in u1 new name=Gundula Petersen;phone=+491713920088
r Druckerei Aschau, Priya Nair, guten Morgen.
c Morgen. Petersen mein Name, Gundula Petersen. Machen Sie auch Stempel?
r Machen wir. Darf ich Sie zurückrufen?
c Ja, auf dem Handy, null eins sieben eins, drei neun zwei, null null acht acht.
# de DE out u2 k3 name=Stefan Brandl;company=Gartenbau Brandl
c Gartenbau Brandl, grüß Gott.
r Grüß Gott, Kessler, Druckerei Aschau. Ist der Chef zu sprechen, der Herr Stefan Brandl?
c Am Apparat.
r Ihre Aufkleber sind eingetroffen.
# de AT in - new name=Roswitha Kainz
r Druckerei Aschau, grüß Gott.
c Grüß Gott, da spricht die Frau Kainz. Roswitha Kainz. I hätt gern fünfzig Partezettel.
r Mein Beileid, Frau Kainz.
# de DE in u2 none -
r Kessler, Druckerei Aschau.
c Ja hallo, ist da nicht die Pizzeria?
r Nein, hier ist eine Druckerei.
c Dann hab ich mich verwählt, Entschuldigung.
# de DE in u1 new name=Bastian Rehfeld;email=rehfeld@rehfeld-metall.de;company=Rehfeld Metall
r Druckerei Aschau, mein Name ist Nair.
c Hallo Frau Nair, Bastian Rehfeld von Rehfeld Metall. Könnten Sie mir die Preisliste schicken?
r Gern, an welche Mailadresse?
c rehfeld ät rehfeld minus metall punkt de.
# de DE out u1 new name=Herr Lohmeier
c Lohmeier.
r Guten Tag, Herr Lohmeier, Nair ist mein Name, von der Druckerei. Sie hatten nach Rollups gefragt.
c Ach, genau.
# de CH in u2 new name=Vreni Abächerli
r Druckerei Aschau, Kessler, grüezi.
c Grüezi Herr Kessler, do isch d Vreni Abächerli. Ich ha e Frog wegen de Rechnig.
r Ja, gern.
# de DE out - none -
c Ja?
r Schönen guten Tag, wir rufen von der Druckerei Aschau an, es gibt gerade zehn Prozent auf Flyer.
c Interessiert mich nicht. Wiederhören.
# de DE - - new name=Frau Hagedorn
r So, Entschuldigung, die Leitung war kurz weg, Frau Hagedorn.
c Macht nichts. Also, wie gesagt, in Blau.
r In Blau, gut.
# es ES in u3 new name=Teófilo Arrieta;phone=+34655598712
r Imprenta Olmo, soy Beatriz, dígame.
c Hola, mira, te llamo porque necesito unos carteles. Me llamo Teófilo Arrieta.
r Muy bien, Teófilo. ¿Un teléfono?
c Seis cinco cinco, cincuenta y nueve, ochenta y siete, doce.
# es MX out u3 k10 name=Mónica Vargas
c ¿Bueno?
r Buenas tardes, ¿se encuentra la señorita Vargas?
c Ella habla.
r Le habla Beatriz, de Imprenta Olmo. Ya quedaron sus invitaciones.
# es AR in - new name=Dardo Benavídez
r Imprenta Olmo, buenas.
c Hola, ¿cómo le va? Dardo Benavídez, de acá a la vuelta. ¿Hacen fotocopias color?
r Sí, señor.
# es ES out u3 none -
c ¿Sí?
r Buenas tardes, soy Beatriz Ocaña, le llamo de Imprenta Olmo para ofrecerle...
c No quiero nada, gracias. Adiós.
# es CL in u3 new name=Macarena Echeñique;email=macarena.e@rukalaf.cl
r Imprenta Olmo, habla Beatriz Ocaña.
c Hola Beatriz, te habla la Macarena Echeñique, por lo de los timbres.
r Ah, sí, ¿a qué correo te mando la muestra?
c A macarena punto e, arroba rukalaf punto cl.
# es CO in u3 none -
r Imprenta Olmo, con Beatriz, a la orden.
c ¿Está don Evaristo?
r Acá no trabaja ningún Evaristo, señor.
c Ah, qué pena, número equivocado.
# es ES out u3 new name=Jacinto Larrinaga
c Diga.
r ¿Jacinto Larrinaga? Buenos días, Beatriz, de Imprenta Olmo.
c Hola, buenos días.
r Nos dejó un mensaje ayer por la tarde.
# es ES in - new name=Práxedes Gil;address=plaza Mayor 3, Cuéllar
r Imprenta Olmo, ¿dígame?
c Sí, buenas, al habla Práxedes Gil. Quiero que me manden el catálogo a casa.
r ¿Me da la dirección?
c Plaza Mayor 3, Cuéllar.
# es ES - - new name=doña Herminia
r Ya estoy otra vez, doña Herminia, perdone la espera.
c No se preocupe, hija.
r Le confirmo que el papel está.
# fr FR in u4 new name=Tanguy Morvan;phone=+33639985510
r Imprimerie du Pont, Élodie Garnier, bonjour.
c Bonjour madame, Tanguy Morvan à l'appareil. Je cherche quelqu'un pour imprimer un livre.
r Vous êtes au bon endroit. On peut vous rappeler où ?
c Au zéro six, trente-neuf, quatre-vingt-dix-huit, cinquante-cinq, dix.
# fr FR out u4 k6 name=Gérard Thibault;company=Thibault Frères
c Oui ?
r Monsieur Thibault ? Ici Élodie, de l'imprimerie. Je tombe bien ?
c Ça va, oui.
r On a un souci sur le fichier des Thibault Frères.
# fr FR in - none -
r Imprimerie du Pont, bonjour.
c Allô maman ?
r Non, monsieur, vous devez faire erreur.
c Oh, excusez-moi.
# fr BE out u4 new name=Madame Dewael
c Allô ?
r Bonjour, c'est Élodie Garnier, imprimerie du Pont. C'est madame Dewael ?
c Elle-même.
r Vous aviez laissé un message pour des cartons.
# fr FR in u4 new name=Ludivine Castaing
r Imprimerie du Pont, Élodie à votre écoute.
c Oui bonjour, excusez-moi de vous embêter, Ludivine Castaing, j'avais commandé des badges.
r Pas de souci, je regarde.
# fr CH out - none -
c Oui, allô ?
r Bonjour, Imprimerie du Pont, nous faisons un sondage auprès des commerçants.
c Non, ça ne m'intéresse pas, merci.
# fr FR in - k6 name=Gérard Thibault
r Imprimerie, j'écoute.
c Gérard Thibault. Vous m'avez facturé deux fois.
r Ah, je suis désolé, monsieur Thibault.
# fr FR - - new name=Monsieur Kowalski
r Pardon, monsieur Kowalski, ça avait coupé.
c C'est rien. Donc, pour le format ?
r On reste sur le petit.
# fr FR in u4 new name=Bérangère Lacombe;address=27 rue Paul Bert, Dijon
r Imprimerie du Pont, Élodie, que puis-je pour vous ?
c C'est pour une livraison. Au nom de Lacombe. Bérangère Lacombe.
r Et l'adresse, c'est ?
c 27 rue Paul Bert, Dijon.
# en GB in u1 new name=Olwen Prothero;phone=+447700900561
r Hello, Ashdown Print, you're speaking with Priya.
c Oh good, a human. My name's Prothero, Olwen Prothero, and I've been on to you twice already about my certificates.
r I'm so sorry. What's the best number to get you on?
c Oh seven seven double oh, nine double oh, five six one.
# en GB in - new name=Mr Attwell;address=4 Mill Lane, Ripon
r Ashdown Print, good morning.
c Yes, good morning, Attwell's the name. You sent my parcel to the wrong house.
r Oh dear, Mr Attwell. Where do you live?
c 4 Mill Lane, Ripon.
# en US in u1 new name=Keisha Monroe;email=keisha_m@brightpath.org;company=Brightpath
r Ashdown Print, Priya.
c Hi Priya, this is Keisha Monroe with Brightpath. Who do I talk to about banners?
r That would be me. What's your email?
c keisha underscore m at brightpath dot org.
# de DE in u2 new name=Hartmut Böckler;company=Sägewerk Böckler
r Druckerei Aschau, Kessler am Apparat.
c Tag, Herr Kessler, hier ist Hartmut Böckler vom Sägewerk Böckler. Was kosten Lieferscheine?
r Wie viele sollen es denn sein?
# de DE out u1 new name=Frau Tiedemann
c Tiedemann, guten Tag.
r Guten Tag, Frau Tiedemann, Priya Nair, Druckerei Aschau. Ihr Kalender ist da.
c Ach, schön!
# de DE in - new name=Edeltraud Kunz;phone=+491713920033
r Aschau Druck.
c Hallo, mein Name ist Edeltraud Kunz. Ich hab da mal eine Frage wegen einer Rechnung.
r Unter welcher Nummer kann ich Sie zurückrufen?
c Null eins sieben eins, drei neun zwei, doppel null, dreiunddreißig.
# de AT out u2 k3 name=Stefan Brandl;email=buero@brandl-garten.de
c Brandl?
r Servus Herr Brandl, Kessler, Druckerei. Die Rechnung noch an s punkt brandl ät brandl bindestrich garten punkt de?
c Nein, nimm buero ät brandl bindestrich garten punkt de.
# es ES in u3 new name=Eusebio Tarancón;email=eusebio.tarancon@correo.es
r Imprenta Olmo, le atiende Beatriz.
c Buenas tardes, Eusebio Tarancón. Les compré unos sobres y vienen sin ventana.
r Vaya. ¿Me da un correo y le mando la devolución?
c Eusebio punto tarancón, arroba, correo punto es.
# es MX in - new name=Refugio Zamarripa
r Imprenta Olmo, buen día.
c Buen día, señorita, habla Refugio Zamarripa, fíjese que quiero unas lonas.
r Claro que sí, ¿de qué medida?
# es ES out u3 new name=señora Olazábal
c ¿Quién es?
r Buenos días, ¿la señora Olazábal? Soy Beatriz, de la imprenta Olmo.
c Ah, sí, dígame.
r Que ya puede recoger los recordatorios.
# es AR out u3 none -
c Hola, sí.
r Hola, buenas, mi nombre es Beatriz y te llamo de Imprenta Olmo por una promo.
c No, gracias, estoy ocupado.
# fr FR in u4 new name=Honorine Vialatte;company=Cave des Coteaux
r Imprimerie du Pont, Élodie à votre service.
c Bonjour, Honorine Vialatte, je vous appelle de la Cave des Coteaux, on voudrait refaire nos étiquettes.
r Avec plaisir.
# fr FR out u4 new name=Monsieur Pruvost
c Oui, bonjour ?
r Monsieur Pruvost, bonjour, Élodie Garnier de l'Imprimerie du Pont.
c Ah oui, c'est pour mes affiches.
r Elles sont prêtes.
# fr FR in - new name=Ghislain Baudry;phone=+33639984477;address=14 rue des Halles, Tours
r Imprimerie du Pont, j'écoute.
c Oui, Baudry à l'appareil, Ghislain Baudry, 14 rue des Halles, Tours. J'attends toujours mes tampons.
r Votre téléphone ?
c Zéro six trente-neuf quatre-vingt-dix-huit quarante-quatre soixante-dix-sept.
# fr BE out u4 none -
c Allô ?
r Bonjour, ici Élodie de l'Imprimerie du Pont, vous auriez cinq minutes pour une enquête de satisfaction ?
c Non, pas le temps, au revoir.
"""

CALLS = tuple(_read(TALKS))
