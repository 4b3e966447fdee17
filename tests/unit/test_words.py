"""Word times: in order, inside their chunk, each of some length, whatever the aligner gave."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.asr.words import SHORTEST, in_order, in_pieces, recorded, within
from pipeline.domain.speech import Chunk, Span, Word

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


@given(word_lists, st.floats(0, 30))
def test_placing_twice_changes_nothing_more(words, first):
    once = in_order(words, first, first + 30)
    assert in_order(once, first, first + 30) == once


def test_times_that_are_sound_are_left_alone():
    words = (Word(1.0, 1.4, "good", 0.9), Word(1.4, 1.9, "morning", 0.8))
    assert in_order(words, 0.5, 8.0) == words


def test_a_word_without_length_gets_the_shortest_there_is():
    (number,) = in_order([Word(2.0, 2.0, "8", 0.9)], 0.0, 4.0)
    assert number.end - number.start == pytest.approx(SHORTEST)


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


def test_the_aligners_words_are_moved_to_the_recordings_time():
    found = [
        {"word": " Hello", "start": 0.1, "end": 0.5, "probability": 1.2},
        {"word": " ", "start": 0.5, "end": 0.6, "probability": 0.5},
        {"word": " 42.", "start": 0.5, "end": 0.5, "probability": 0.25},
    ]
    hello, number = recorded(within(found, 2.0), Chunk(0, 10.0, 12.0))
    assert hello == Word(10.1, 10.5, "Hello", 1.0)
    assert number.text == "42." and number.start == 10.5 < number.end and number.confidence == 0.25


PIECES = (Span(10.0, 12.0), Span(20.0, 20.5), Span(28.0, 30.0))


def test_words_of_a_chunk_in_pieces_come_to_the_recordings_time():
    chunk = Chunk(0, 10.0, 30.0, "en", PIECES)
    said = [Word(0.5, 1.0, "one", 0.9), Word(2.1, 2.4, "two", 0.9), Word(2.6, 3.0, "three", 0.9)]
    assert recorded(in_pieces(said, chunk.parts), chunk) == (
        Word(10.5, 11.0, "one", 0.9),
        Word(20.1, 20.4, "two", 0.9),
        Word(28.1, 28.5, "three", 0.9),
    )


def test_a_word_over_a_pause_that_was_left_out_is_where_most_of_it_is():
    chunk = Chunk(0, 10.0, 30.0, "en", PIECES)
    said = [Word(1.6, 2.1, "mostly", 0.9), Word(2.35, 2.8, "after", 0.9)]
    before, after = recorded(in_pieces(said, chunk.parts), chunk)
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
