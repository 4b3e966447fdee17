"""The fitted weights of turns and parties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.rules.sentiment import party, turn
from pipeline.analysis.rules.sentiment.lexicon import score_turn
from pipeline.analysis.rules.sentiment.sentiment import SentimentStep
from pipeline.analysis.rules.sentiment.turn import TABLE, TurnSentiment, hashed, shipped_weights
from pipeline.analysis.talk import read
from tests.support.calls_by_hand import call


def likely(text: str, language: str = "en", speaker: str = "customer") -> TurnSentiment:
    (spoken,) = read(call((speaker, text), language=language))
    return shipped_weights().predict(spoken, score_turn(spoken))


# Written after the weights were fitted, in words that the corpus does not have as they stand.
DISPLEASED = [
    ("en", "You lot promised me Tuesday and here I am on Thursday, still waiting."),
    ("en", "No, I will not hold again, I have held enough."),
    ("de", "Das können Sie Ihrer Großmutter erzählen, so geht das nicht."),
    ("de", "Ich hab jetzt langsam die Schnauze voll von dem Laden."),
    ("es", "Llevo tres semanas llamando y nadie me da una respuesta."),
    ("es", "Esto es una falta de respeto, no vuelvo a comprar aquí."),
    ("fr", "Ça fait trois semaines que j'attends et personne ne me répond."),
    ("fr", "C'est du vol, je ne remettrai plus les pieds chez vous."),
]
PLEASED = [
    ("en", "Oh that's so kind, you have no idea how happy this makes me!"),
    ("en", "Haha, brilliant, I owe you a drink."),
    ("de", "Ach wie schön, da freu ich mich aber, ganz herzlichen Dank!"),
    ("de", "Haha, Sie sind ja ein Schatz."),
    ("es", "¡Qué alegría, muchísimas gracias, es usted un encanto!"),
    ("es", "Ja, ja, qué bueno, me ha alegrado el día."),
    ("fr", "Oh c'est adorable, merci infiniment, quelle bonne nouvelle !"),
    ("fr", "Ha ha, vous êtes un amour."),
]
NEITHER = [
    ("en", "The second radiator is cold at the top since yesterday."),
    ("en", "I'm sorry, he is in a meeting until three."),
    ("de", "Die Waschmaschine schleudert seit gestern nicht mehr."),
    ("de", "Das tut mir leid, er ist bis drei in einer Besprechung."),
    ("es", "La lavadora no centrifuga desde ayer."),
    ("es", "Lo siento, está reunido hasta las tres."),
    ("fr", "La machine n'essore plus depuis hier."),
    ("fr", "Je suis désolée, il est en réunion jusqu'à quinze heures."),
    ("en", "Oh, hello. I didn't know you were there."),
    ("en", "Neither did I. I wasn't there when she moved."),
    ("de", "Ach, Sie sind das. Ich wusste nicht, dass Sie heute da sind."),
    ("es", "Ah, no sabía que usted vivía en Burgos."),
    ("fr", "Ah bon, je ne savais pas qu'il habitait là."),
]


LABELLED = {"negative": DISPLEASED, "neutral": NEITHER, "positive": PLEASED}


def label_of(language: str, text: str) -> str:
    """Return the label of a turn; regrets are an agent's, all others a customer's."""
    probabilities = likely(
        text, language, "rep" if text.startswith(("I'm sorry", "Das tut", "Lo siento", "Je suis d")) else "customer"
    )
    return "negative" if probabilities.negative >= 0.5 else "positive" if probabilities.positive >= 0.5 else "neutral"


@pytest.mark.parametrize("language", ["en", "de", "es", "fr"])
@pytest.mark.parametrize(("label", "turns"), [("negative", DISPLEASED), ("neutral", NEITHER), ("positive", PLEASED)])
def test_turns_in_words_of_their_own_are_told(label: str, turns: list[tuple[str, str]], language: str) -> None:
    """At least one of two, and none reversed; 21 of the 24 were right when they were first scored."""
    labels = [label_of(language, text) for turn_language, text in turns if turn_language == language]
    assert label in labels
    assert {"negative": "positive", "positive": "negative"}.get(label) not in labels


def test_most_turns_in_words_of_their_own_are_told() -> None:
    labelled = [(label, turn) for label, turns in LABELLED.items() for turn in turns]
    assert sum(label_of(*turn) == label for label, turn in labelled) >= 20


@given(st.text(max_size=200), st.sampled_from(["en", "es", "de", "fr"]), st.sampled_from(["rep", "customer"]))
def test_probabilities_lie_between_0_and_1_whatever_is_said(text: str, language: str, speaker: str) -> None:
    probabilities = likely(text or "x", language, speaker)
    assert 0 <= probabilities.negative <= 1 and 0 <= probabilities.positive <= 1
    assert probabilities.negative + probabilities.positive <= 1 + 1e-9


@given(st.text(max_size=100))
def test_features_have_places_in_the_table(text: str) -> None:
    for spoken in read(call(("customer", text or "x"))):
        assert all(0 <= row < TABLE for row in hashed(spoken, score_turn(spoken)))


def test_weights_of_another_form_are_refused(tmp_path) -> None:
    path = tmp_path / "tone.npz"
    np.savez(path, table=np.zeros((5, 3), dtype=np.int8), unit=1.0, bias=np.zeros(3), rule=np.zeros((3, 8)))
    with pytest.raises(ValueError, match=r"run bench/training/sentiment/fit\.py"):
        turn.read_weights(path)


def test_the_rule_fits_the_features_of_parties() -> None:
    assert shipped_weights().rule.shape == (3, len(party.FEATURES))
    assert len(party.party_features([TurnSentiment(0.1, 0.2)], [0.0], True, [], 0)) == len(party.FEATURES)


def test_a_party_s_tone_is_the_likeliest() -> None:
    rule = np.zeros((3, len(party.FEATURES)))
    rule[:, -1] = np.log([0.42, 0.30, 0.28])
    weights = turn.SentimentWeights(shipped_weights().table, 1.0, np.zeros(3), rule)
    sentiment = party.predict_party([0.0] * (len(party.FEATURES) - 1) + [1.0], weights)
    assert (sentiment.label, sentiment.confidence) == ("negative", pytest.approx(0.42))


def test_a_turn_without_a_pack_tells_nothing_and_the_others_count() -> None:
    from dataclasses import replace

    material = call(("rep", "It is number forty."), ("customer", "Dit is een schande, werkelijk!"), language="en")
    first, second = material.transcript.turns
    other = replace(material.transcript, language="nl", turns=(first, replace(second, language="nl")))
    turns = SentimentStep().run(replace(material, transcript=other)).value["turns"]
    assert turns[1]["score"] == 0.0


def test_a_party_s_confidence_is_that_of_its_label() -> None:
    lines = [("rep", "It is number forty seven, in the second street."), ("customer", DISPLEASED[0][1])] * 4
    finding = SentimentStep().run(call(*lines))
    parties = finding.value["parties"]
    assert parties["customer"]["label"] == "negative"
    assert all(0.3 <= party["confidence"] <= 1 for party in parties.values())
    assert finding.confidence == min(party["confidence"] for party in parties.values())
