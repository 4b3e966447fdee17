"""Words of tokens, and their times: in order, inside their chunk, each of some length, whatever the aligner gave."""

import json
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.asr.words import MIN_WORD_SECONDS, TextToken, in_order, in_pieces, in_words, recorded, timed
from pipeline.domain.speech import Chunk, Span, Word, places_of, text_of

times = st.floats(-20, 60, allow_nan=False)
word_lists = st.lists(st.builds(Word, times, times, st.just("ninety-nine"), st.just(0.5)), max_size=60)


@given(word_lists, st.floats(0, 30), st.floats(0.01, 30))
def test_words_rise_do_not_overlap_and_stay_inside(words, first, length):
    placed = in_order(words, first, first + length)
    assert len(placed) == len(words)
    earliest = first
    for word in placed:
        assert earliest <= word.start < word.end <= first + length
        earliest = word.end


@pytest.mark.parametrize("milliseconds", [10, 20, 25, 60, 70])
def test_words_crammed_into_a_moment_do_not_overlap(milliseconds):
    length = milliseconds / 1000
    for count in range(1, 41):
        placed = in_order([Word(0.0, 0.0, "ninety-nine", 0.5)] * count, 0.0, length)
        times = [time for word in placed for time in (word.start, word.end)]
        assert times == sorted(times), count
        assert all(word.start < word.end <= length for word in placed), count


@given(word_lists, st.floats(0, 30))
def test_placing_twice_changes_nothing_more(words, first):
    once = in_order(words, first, first + 30)
    assert in_order(once, first, first + 30) == once


def test_times_that_are_sound_are_left_alone():
    words = (Word(1.0, 1.4, "good", 0.9), Word(1.4, 1.9, "morning", 0.8))
    assert in_order(words, 0.5, 8.0) == words


def test_a_word_without_length_gets_the_shortest_there_is():
    (number,) = in_order([Word(2.0, 2.0, "8", 0.9)], 0.0, 4.0)
    assert number.end - number.start == pytest.approx(MIN_WORD_SECONDS)


def test_words_at_the_very_end_make_room_for_each_other():
    placed = in_order([Word(4.0, 4.0, str(i), 0.9) for i in range(5)], 0.0, 4.0)
    assert [round(word.start, 2) for word in placed] == [3.9, 3.92, 3.94, 3.96, 3.98]
    assert placed[-1].end == 4.0


def test_more_words_than_time_share_it():
    placed = in_order([Word(0.0, 0.0, "la", 0.1)] * 200, 0.0, 0.1)
    assert all(a.start < a.end <= b.start for a, b in pairwise(placed))
    assert placed[-1].end <= 0.1


def test_no_time_at_all_is_not_left():
    (word,) = in_order([Word(3.0, 4.0, "late", 0.5)], 2.0, 2.0)
    assert (word.start, word.end) == (2.0, 2.0)


def texts(units):
    return [word.text for word in in_words(units)]


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ([" post", "-", "m", "ort", "em"], ["post-mortem"]),
        ([" $", "1", ",", "250", ".", "50", "."], ["$1,250.50."]),
        ([" mar", "ia", ".", "l", "opez", "@", "ex", "ample", ".", "com", "."], ["maria.lopez@example.com."]),
        ([" 5", ":", "30", " p", ".", "m", "."], ["5:30", "p.m."]),
        ([" 5", "55", "-", "867", "-", "53", "09"], ["555-867-5309"]),
        ([" -", " Yes", ".", " -", " No", "."], ["- Yes.", "- No."]),
        ([" V", "ra", "iment", " ?"], ["Vraiment ?"]),
        ([" ¿", "Qu", "é", "?", " ¡", "Hola", "!"], ["¿Qué?", "¡Hola!"]),
        ([" R", "&", "D", " &", " sales"], ["R&D", "&", "sales"]),
        ([" ..."], ["..."]),
        ([], []),
    ],
)
def test_a_word_is_what_stands_between_two_spaces(units, words):
    assert texts(units) == words


@pytest.mark.parametrize(
    ("units", "words"),
    [
        (
            ["我", "用", " Python", " 3", "写", "。", "「", "你好", "」", "吗", "？"],
            "我|用| Python| 3|写。|「你好」|吗？",
        ),
        (["日本", "語", "、", "Open", "AI", "の"], "日本|語、|OpenAI|の"),
        ([" ", "ครับ", "วัน", "นี้"], "ครับ|วัน|นี้"),
    ],
)
def test_scripts_without_spaces_keep_their_units(units, words):
    assert "|".join(word.text if word.joined else " " + word.text for word in in_words(units)).strip() == words


pieces_of_text = st.lists(st.text(alphabet="ab1 .,-@'\"«!? 我語。「」、ストก้ำ￥é\t", max_size=5), max_size=40)


@given(pieces_of_text)
def test_the_words_make_up_the_text(units):
    tokens = in_words(units)
    words = [Word(0.0, 1.0, word.text, 0.9, joined=word.joined) for word in tokens]
    text = text_of(words)
    assert text == " ".join("".join(units).split())
    assert [text[first:last] for first, last in places_of(words)] == [word.text for word in words]
    assert all(0 <= a.first < a.last <= b.first < b.last <= len(units) for a, b in pairwise(tokens))


def test_a_stored_word_without_the_mark_is_not_joined():
    stored = json.loads('{"start": 1.0, "end": 1.2, "text": "Hello", "confidence": 0.9, "doubtful": false}')
    assert text_of([Word(**stored), Word(**stored)]) == "Hello Hello"


@dataclass
class Alignment:
    """What CTranslate2 gives: pairs of token and time in steps of 20 ms, and the probability of each token."""

    alignments: list[tuple[int, int]]
    text_token_probs: list[float]


class Tokenizer:
    """One text for each token."""

    units = (" Pay", " $", "1", ",", "000", ".")

    def split_tokens_on_unicode(self, tokens):
        return [self.units[token] for token in tokens], [[token] for token in tokens]


def test_times_and_confidence_of_a_word_are_those_of_its_tokens_without_the_marks_at_its_end():
    alignment = Alignment(
        [(0, 5), (0, 9), (1, 10), (2, 15), (3, 20), (4, 25), (5, 30), (6, 45)], [0.9, 0.8, 0.7, 0.2, 0.6, 0.1]
    )
    assert timed(Tokenizer(), range(6), alignment, 50) == (
        Word(0.1, 0.2, "Pay", 0.9),
        Word(0.3, 0.6, "$1,000.", 0.2),
    )
    assert in_words(Tokenizer.units)[1] == TextToken("$1,000.", 2, 5)


PIECES = (Span(10.0, 12.0), Span(20.0, 20.5), Span(28.0, 30.0))


def test_words_of_a_chunk_in_pieces_come_to_the_recordings_time():
    chunk = Chunk(0, 10.0, 30.0, "en", PIECES)
    words = [Word(0.5, 1.0, "one", 0.9), Word(2.1, 2.4, "two", 0.9), Word(2.6, 3.0, "three", 0.9)]
    assert recorded(in_pieces(words, chunk.parts), chunk) == (
        Word(10.5, 11.0, "one", 0.9),
        Word(20.1, 20.4, "two", 0.9),
        Word(28.1, 28.5, "three", 0.9),
    )


def test_a_word_over_a_pause_that_was_left_out_is_where_most_of_it_is():
    chunk = Chunk(0, 10.0, 30.0, "en", PIECES)
    words = [Word(1.6, 2.1, "mostly", 0.9), Word(2.35, 2.8, "after", 0.9)]
    before, after = recorded(in_pieces(words, chunk.parts), chunk)
    assert (before.start, before.end) == (11.6, 12.0)
    assert (after.start, after.end) == (28.0, 28.3)


@given(word_lists)
def test_words_stay_inside_their_pieces_whatever_their_times(words):
    chunk = Chunk(0, 10.0, 30.0, "en", PIECES)
    placed = recorded(in_pieces(words, chunk.parts), chunk)
    assert [word.text for word in placed] == [word.text for word in words]
    earliest = 0.0
    for word in placed:
        assert earliest <= word.start < word.end
        assert any(piece.start <= word.start and word.end <= piece.end for piece in PIECES)
        earliest = word.end
    assert in_pieces(placed, PIECES) == placed
