import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.redaction import (
    Entity,
    EntityKind,
    EntityWords,
    Redaction,
    RedactionMode,
    RedactionPolicy,
    RedactionState,
)
from pipeline.domain.speech import Doubt, Recognized, places_of, text_of
from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import figures
from pipeline.redaction.detect import find_entities
from pipeline.redaction.mask import mask_words
from tests.unit.pipeline.redaction.calls import EVERYTHING, call, masked, texts

KEPT = replace(EVERYTHING, last_digits=4)
CARD = "4111 1111 1111 1234"
UNITS = [word for word, value in figures(pack("en")).items() if 1 <= value <= 9]


def timeless(recognized: Recognized) -> list[list[tuple[float, float, float, bool]]]:
    return [[(w.start, w.end, w.confidence, w.doubtful) for w in text.words] for text in recognized.texts]


digits = st.lists(st.sampled_from([*"123456789", *UNITS]), min_size=13, max_size=19)
fillers = st.sampled_from(["", "uh", "go ahead", "okay", "no wait 4 7"])


@given(value=digits, filler=fillers, cut=st.integers(1, 12), separate=st.booleans())
def test_masking_keeps_words_and_times_and_leaves_no_digit(
    value: list[str], filler: str, cut: int, separate: bool
) -> None:
    recognized = call(
        (0, "What's the card number?"),
        (1, "yes " + " ".join([*value[:cut], filler])),
        (0 if separate else 1, "mhm"),
        (1, " ".join(value[cut:])),
    )
    hidden = mask_words(recognized, find_entities(recognized, EVERYTHING), EVERYTHING)
    assert timeless(hidden) == timeless(recognized)
    assert not re.search(r"\d", " ".join(texts(hidden)))
    assert not set(" ".join(texts(hidden)).split()) & set(UNITS)
    for text in hidden.texts:
        for first in range(len(text.words)):  # a turn may begin inside of an entity
            words = text.words[first:]
            ranges = [text_of(words)[begin:end] for begin, end in places_of(words)]
            assert ranges == [word.text for word in words]


def test_last_digits_stay_only_of_long_numbers() -> None:
    turns, _ = masked((0, "your card number?"), (1, f"{CARD}."), (0, "security code?"), (1, "123"), policy=KEPT)
    assert turns[1] == "[CARD 1234]."
    assert turns[3] == "[CARD_CODE]"
    words, _ = masked((0, "phone number?"), (1, "five five five oh one nine nine two three four"), policy=KEPT)
    assert words[1] == "[PHONE 9234]"
    short, _ = masked((0, "your card number?"), (1, "1234"), (0, "your pin?"), (1, "98765432"), policy=KEPT)
    assert (short[1], short[3]) == ("[CARD]", "[PASSWORD]")


def test_doubts_show_nothing_that_is_hidden() -> None:
    recognized = call((0, "hello there"), (1, f"take {CARD} please"))
    end = recognized.texts[1].chunk.end
    doubts = (
        Doubt(1, 1.0, end, ("loop",), f"take {CARD} please"),
        Doubt(0, 0.0, 1.0, ("loop",), "hello there"),
        Doubt(0, 0.0, 1.0, ("loop",), f"removed {CARD}", kept=False),
    )
    recognized = replace(recognized, doubts=doubts)
    hidden = mask_words(recognized, find_entities(recognized, EVERYTHING), EVERYTHING)
    assert [doubt.text for doubt in hidden.doubts] == ["take [CARD] please", "hello there", ""]


def test_entities_that_overlap_hide_all_their_words() -> None:
    recognized = call((0, "a b c d"))
    pieces = [EntityWords(0, 0, 2, 0, 0.0, 1.0), EntityWords(0, 1, 3, 0, 0.4, 1.6)]
    entities = tuple(Entity(EntityKind.CARD, (piece,), 0.9 - at / 10) for at, piece in enumerate(pieces))
    policy = RedactionPolicy(RedactionMode.MASK, (EntityKind.CARD,))
    hidden = mask_words(recognized, Redaction(RedactionState.FOUND, entities), policy)
    assert texts(hidden) == ["[CARD] [CARD]"]
    assert len(hidden.texts[0].words) == 4
