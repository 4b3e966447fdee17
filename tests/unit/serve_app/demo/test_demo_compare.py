import pytest

from serve_app.demo.compare import MACHINE, WordErrors, compare, word_errors

EXPECTED = {
    "segments": [
        {"speaker": "customer", "start": 2.0, "text": "I need the invoice."},
        {"speaker": "rep", "start": 0.5, "text": "Good morning, how can I help?"},
    ]
}


def test_case_and_punctuation_do_not_count() -> None:
    assert word_errors("Good morning, Anna-Maria!", "good morning anna maria") == WordErrors(0, 4)


def test_dropped_invented_and_changed_words_count() -> None:
    assert word_errors("one two three four", "one three five four six") == WordErrors(3, 4)


def test_a_right_transcript_of_separate_channels_has_no_errors() -> None:
    turns = [("rep", "good morning how can i help"), ("customer", "i need the invoice")]
    assert compare(EXPECTED, turns, separated=True) == WordErrors(0, 10)


def test_words_under_the_wrong_name_are_wrong() -> None:
    turns = [("customer", "good morning how can i help"), ("rep", "i need the invoice")]
    assert compare(EXPECTED, turns, separated=True).wrong > 5


def test_words_of_nobody_are_wrong_where_the_channel_says_who_spoke() -> None:
    turns = [("rep", "good morning how can i help"), ("customer", "i need the invoice"), ("A", "hello hello")]
    assert compare(EXPECTED, turns, separated=True) == WordErrors(2, 10)


def test_a_mixed_recording_is_compared_in_the_order_of_time() -> None:
    turns = [("A", "good morning how can i help"), ("B", "i need the invoice")]
    assert compare(EXPECTED, turns, separated=False) == WordErrors(0, 10)


@pytest.mark.parametrize(
    "reference, hypothesis, language",
    [
        ("four seven two nine", "4729", "en"),
        ("We will refund two hundred dollars.", "We will refund $200.", "en"),
        ("twenty four Maple Street", "24 Maple Street", "en"),
        ("cuatro siete dos nueve", "4729", "es"),
        ("drei acht fünf eins", "3851", "de"),
    ],
)
def test_a_number_is_right_in_words_and_in_figures(reference: str, hypothesis: str, language: str) -> None:
    assert word_errors(reference, hypothesis, language).wrong == 0


def test_another_number_is_wrong() -> None:
    assert word_errors("four seven two nine", "4739", "en") == WordErrors(1, 4)


def test_what_a_machine_says_is_compared_with_the_announcement() -> None:
    announced = {"segments": [*EXPECTED["segments"], {"speaker": MACHINE, "start": 9.0, "text": "Press one."}]}
    turns = [("rep", "good morning how can i help"), ("customer", "i need the invoice")]
    assert compare(announced, [*turns, (MACHINE, "press one")], separated=True) == WordErrors(0, 12)
    assert compare(announced, [turns[0], ("customer", "i need the invoice press one")], separated=True).wrong == 4
