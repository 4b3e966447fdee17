from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.speech import Chunk, ChunkText, LanguageStretch, Word
from pipeline.language.identification import NAMES, decoded_in_other_language, guess, name, spread, stretches
from pipeline.language.of_call import decide

pytestmark = pytest.mark.cases(2)

EN, ES, DE = {"en": 0.97, "es": 0.02, "de": 0.01}, {"en": 0.03, "es": 0.97}, {"de": 0.99, "en": 0.01}


def text(start: float, seconds: float, languages: dict[str, float], code: str = "en", channel: int = 0) -> ChunkText:
    word = Word(start, start + seconds, "word", 0.9)
    return ChunkText(Chunk(channel, start, start + seconds, code), code, 1.0, (word,), -0.2, 0.0, languages)


def summed(texts: list[ChunkText]) -> list[tuple[int, float, float, str]]:
    return [(s.channel, s.start, s.end, s.language) for s in stretches(texts)]


def test_a_short_word_that_sounds_foreign_does_not_switch() -> None:
    texts = [text(0, 6, EN), text(7, 0.6, {"es": 0.95, "en": 0.05}), text(9, 6, EN)]
    assert summed(texts) == [(0, 0, 15, "en")]
    assert not decoded_in_other_language(texts, stretches(texts))


def test_a_short_word_at_the_end_does_not_switch_either() -> None:
    assert summed([text(0, 6, EN), text(7, 1.5, {"de": 0.98, "en": 0.02})]) == [(0, 0, 8.5, "en")]


def test_a_channel_that_changes_language_has_two_stretches() -> None:
    texts = [text(0, 6, EN), text(7, 5, EN), text(13, 6, ES), text(20, 5, ES)]
    assert summed(texts) == [(0, 0, 12, "en"), (0, 13, 25, "es")]
    assert decoded_in_other_language(texts, stretches(texts)) == {2: "es", 3: "es"}
    assert [s.probability for s in stretches(texts)] == [0.97, 0.97]


def test_one_long_chunk_switches_for_itself() -> None:
    assert [s[3] for s in summed([text(0, 8, EN), text(9, 8, ES), text(18, 8, EN)])] == ["en", "es", "en"]


def test_channels_have_languages_of_their_own() -> None:
    texts = [text(0, 8, EN), text(9, 8, EN), text(4, 8, ES, channel=1)]
    assert summed(texts) == [(0, 0, 17, "en"), (1, 4, 12, "es")]


def test_a_channel_that_says_next_to_nothing_follows_the_call() -> None:
    texts = [text(0, 8, EN), text(9, 8, EN), text(8.2, 0.7, {"es": 0.7, "en": 0.3}, channel=1)]
    assert summed(texts)[1][3] == "en"


def undetected(start: float, seconds: float, probability: float, compression: float = 1.2) -> ChunkText:
    word = Word(start, start + seconds, "word", 0.9)
    chunk = Chunk(0, start, start + seconds, "en")
    return ChunkText(chunk, "en", 0.0, (word,), probability, 0.0, {}, compression)


def test_a_recognizer_of_one_language_says_so_and_when_its_text_is_hopeless() -> None:
    plain = "The recognizer knows English only; the language was not detected."
    english = decide([undetected(0, 20, -0.2), undetected(20, 8, -0.9)], lambda text: text.chunk.seconds)
    assert (english.code, english.probability, english.note) == ("en", None, plain)
    spanish = decide([undetected(0, 20, -1.0), undetected(20, 8, -0.2, 5.0)], lambda text: text.chunk.seconds)
    assert spanish.note is not None and spanish.note.startswith(plain)
    assert spanish.note.endswith("the call may not be in English.")
    assert [s.probability for s in stretches([undetected(0, 20, -1.0)])] == [None]


def test_where_the_engine_gives_no_languages_those_it_decoded_in_count() -> None:
    texts = [text(0, 5, {}, "de"), text(6, 5, {}, "de")]
    assert summed(texts) == [(0, 0, 11, "de")]
    assert stretches(texts)[0].probability == 1.0


def test_chunks_without_words_say_nothing_of_the_language() -> None:
    music = ChunkText(Chunk(0, 0, 8, "en"), "en", 1.0, (), -2.0, 0.9, ES)
    assert summed([music, text(9, 5, EN)]) == [(0, 9, 14, "en")]
    assert stretches([music]) == () == stretches([])


def test_probabilities_that_are_no_numbers_do_not_decide() -> None:
    assert summed([text(0, 6, {"en": 0.9, "es": float("nan")}), text(7, 6, EN)])[0][3] == "en"


codes = st.sampled_from(["en", "es", "de"])


@given(
    st.lists(
        st.tuples(st.floats(0.01, 30), st.dictionaries(codes, st.floats(0, 1), max_size=3), st.integers(0, 1)),
        max_size=25,
    )
)
def test_stretches_cover_every_chunk_with_words_once(drawn: list[tuple[float, dict[str, float], int]]) -> None:
    texts, clock = [], 0.0
    for seconds, languages, channel in drawn:
        texts.append(text(clock, seconds, languages, "en", channel))
        clock += seconds + 0.1
    result = stretches(texts)
    assert all(s.probability is None or 0 <= s.probability <= 1 for s in result)
    for each in texts:
        holding = [s for s in result if s.channel == each.chunk.channel and s.start <= each.chunk.start <= s.end]
        assert len(holding) == 1
    for before, after in pairwise(result):
        assert before.channel < after.channel or before.end <= after.start
        assert before.channel != after.channel or before.language != after.language


# the first guess


def test_the_first_guess_looks_at_the_whole_call_and_not_at_its_beginning() -> None:
    chunks = [Chunk(0, at * 10.0, at * 10.0 + 5) for at in range(12)] + [Chunk(1, 3, 4)]
    asked = spread(chunks, 4)
    assert [chunk.start for chunk in asked] == [0, 30, 60, 90, 3]
    assert spread([], 4) == [] and len(spread(chunks[:2], 4)) == 2


def test_a_guess_reaches_the_chunks_beside_those_that_were_asked() -> None:
    chunks = [Chunk(0, at * 10.0, at * 10.0 + 8) for at in range(6)]
    guessed = guess(chunks, [chunks[1], chunks[4]], [DE, EN])
    assert [chunk.language for chunk in guessed] == ["de", "de", "de", "en", "en", "en"]
    assert [chunk.language for chunk in guess(chunks, chunks[:1], [{}])] == [None] * 6


# the language of a call


def seconds(share: float) -> Callable[[ChunkText], float]:
    return lambda text: text.chunk.duration * share


def test_the_call_speaks_what_its_parties_speak_for_most_seconds() -> None:
    decision = decide([text(0, 10, EN), text(11, 4, ES, "es", 1)], seconds(1))
    assert (decision.code, decision.probability) == ("en", 0.97)
    assert decision.note == "2 languages are spoken: English for 10 s, Spanish for 4 s."


def test_a_machine_does_not_decide_the_language_of_the_parties() -> None:
    announcement, party = text(0, 40, ES, "es"), text(41, 6, EN)
    decision = decide([announcement, party], lambda text: 6.0 if text is party else 0.0)
    assert (decision.code, decision.note) == ("en", None)
    alone = decide([announcement], lambda _text: 0.0)
    assert (alone.code, alone.note) == ("es", "No party speaks; this is the language of an announcement.")


def test_a_short_or_doubtful_call_says_so() -> None:
    assert decide([text(0, 1.1, EN)], seconds(1)).note == "The language is identified from only 1.1 s of speech."
    doubtful = decide([text(0, 9, {"es": 0.55, "pt": 0.41}, "es")], seconds(1))
    assert doubtful.note == "Not clear which language it is: 0.55 Spanish, 0.41 Portuguese."


def test_nobody_speaks_no_language() -> None:
    decision = decide([], seconds(1))
    assert (decision.code, decision.probability, decision.note) == (None, None, None)


def test_languages_have_names() -> None:
    assert len(NAMES) == 100 and all(NAMES.values())
    assert (name("es"), name("yue"), name("xx")) == ("Spanish", "Cantonese", "xx")


# real decoding


@pytest.mark.parametrize(("prefix", "code"), [("01", "en"), ("02", "en"), ("05", "es"), ("06", "de")])
def test_a_sample_call_is_one_stretch_a_channel_in_its_language(
    prefix: str, code: str, sample_call: Any, transcriber: Any
) -> None:
    """By sentence "Thanks, goodbye" alone would be German with 0.6 in the synthetic checkpoint."""
    call = sample_call(prefix)
    channels = call.samples.shape[0]
    chunks = [
        Chunk(0 if channels == 1 or s["speaker"] == "rep" else 1, max(0.0, s["start"] - 0.1), s["end"] + 0.1)
        for s in call.said()
        if s["end"] - s["start"] < 7.5
    ]
    transcribed = transcriber.transcribe([call.cut(c.channel, c.start, c.end) for c in chunks], chunks)
    texts = [text(c.start, c.duration, t.languages, code, c.channel) for c, t in zip(chunks, transcribed, strict=True)]
    result = stretches(texts)
    assert [(s.channel, s.language) for s in result] == [(channel, code) for channel in range(channels)]
    assert all(s.probability > 0.9 for s in result)
    assert isinstance(result[0], LanguageStretch)
