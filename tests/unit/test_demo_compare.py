"""How the demo counts wrong words."""

from serve_app.demo.compare import WordErrors, compare, word_errors

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
