"""Scores of `bench.real` on outputs whose errors are known."""

import pytest

from bench.real.calls import SoundEvent, Truth
from bench.real.normalize import words
from bench.real.outputs import Doubted, HeardTurn, RecognizedWord, SystemOutput
from bench.real.score import score


def _truth(*events: SoundEvent, mixed: bool = False) -> Truth:
    return Truth("x", "development", "mulaw", 1 if mixed else 2, mixed, 60.0, "en", events)


def _event(channel: int, start: float, text: str, speaker: str = "a", kind: str = "speech") -> SoundEvent:
    end = start + 0.5 * len(text.split())
    return SoundEvent(channel, start, end, start, end, kind, f"{speaker}-{start}", speaker, text)


def _heard(start: float, text: str, channel: int = 0, turn: int = -1, doubtful: bool = False) -> list[RecognizedWord]:
    return [
        RecognizedWord(start + 0.5 * at, start + 0.5 * at + 0.4, f" {word}", 0.9, doubtful, channel, turn)
        for at, word in enumerate(text.split())
    ]


def _output(words: list[RecognizedWord], **more) -> SystemOutput:
    return SystemOutput("x", "switchboard", "base", tuple(words), {}, "en", **more)


def _sum(scored, name: str) -> int:
    return sum(getattr(event, name) for event in scored.events)


def test_every_kind_of_error_is_counted_once() -> None:
    truth = _truth(_event(0, 1.0, "the cat sat on the mat"), _event(1, 10.0, "yes it did"))
    scored = score(truth, _output(_heard(1.0, "the bat sat the mat again") + _heard(10.0, "yes it did", 1)))
    assert (_sum(scored, "words"), _sum(scored, "substituted"), _sum(scored, "deleted")) == (9, 1, 1)
    assert _sum(scored, "inserted") == 1
    assert scored.invented == 0
    assert _sum(scored, "unmarked_deleted") == 1


def test_a_lost_word_beside_a_mark_is_not_lost_without_one() -> None:
    truth = _truth(_event(0, 1.0, "one two three four five six seven"))
    words = _heard(1.0, "one two three") + _heard(3.5, "six seven")
    assert _sum(score(truth, _output(words)), "unmarked_deleted") == 2
    assert _sum(score(truth, _output(words, doubts=(Doubted(0, 2.6, 3.4),))), "unmarked_deleted") == 0
    assert _sum(score(truth, _output(words, doubts=(Doubted(1, 2.6, 3.4),))), "unmarked_deleted") == 2
    marked = _heard(1.0, "one two three") + _heard(3.5, "six", doubtful=True) + _heard(4.0, "seven")
    assert _sum(score(truth, _output(marked)), "unmarked_deleted") == 0


def test_words_where_nobody_speaks_are_invented() -> None:
    truth = _truth(_event(0, 1.0, "hello there"), _event(0, 20.0, "", kind="music"))
    scored = score(truth, _output(_heard(1.0, "hello there") + _heard(25.0, "thank you")))
    assert scored.invented == 2
    assert scored.quiet_seconds == pytest.approx(60 + 60 - 2)


def test_doubts_and_times() -> None:
    truth = _truth(_event(0, 1.0, "one two three four"))
    words = _heard(1.2, "one") + _heard(1.5, "too", doubtful=True) + _heard(2.0, "three", doubtful=True)
    scored = score(truth, _output(words + _heard(2.5, "four")))
    assert (_sum(scored, "marked_wrong"), _sum(scored, "marked_right"), _sum(scored, "unmarked_wrong")) == (1, 1, 0)
    assert scored.events[0].start_error == pytest.approx(0.2)
    assert scored.events[0].end_error == pytest.approx(-0.1)


def test_pieces_of_a_word_are_joined_and_figures_are_words() -> None:
    truth = _truth(_event(0, 1.0, "a post mortem of one thousand"))
    pieces = [
        RecognizedWord(1.0, 1.2, " a", 0.9),
        RecognizedWord(1.2, 1.5, " post", 0.9),
        RecognizedWord(1.5, 2.0, "-mortem", 0.9),
        RecognizedWord(2.0, 2.2, " of", 0.9),
        RecognizedWord(2.2, 2.4, " 1", 0.9),
        RecognizedWord(2.4, 3.0, ",000.", 0.9),
    ]
    scored = score(truth, _output(pieces))
    assert _sum(scored, "words") == 6
    assert _sum(scored, "substituted") + _sum(scored, "deleted") + _sum(scored, "inserted") == 0


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("chefs of world wide fame", "chefs of worldwide fame"),
        ("at sun rise", "at sunrise"),
        ("the voice over ip call", "the VoiceOverIP call"),
        ("the sunrise", "the sun rise"),
        ("a worldwide call", "a world-wide call"),
        ("my ice cream", "my icecream"),
        ("oh anyone", "oh any one"),
        ("it is twenty one", "It's 21"),
        ("we can not", "we cannot"),
    ],
)
def test_a_word_that_the_other_side_writes_in_parts_is_right(said: str, heard: str) -> None:
    scored = score(_truth(_event(0, 1.0, said)), _output(_heard(1.0, heard)))
    errors = [
        _sum(scored, name) for name in ("substituted", "deleted", "inserted", "unmarked_deleted", "unmarked_wrong")
    ]
    assert errors == [0, 0, 0, 0, 0]
    assert _sum(scored, "words") == len(words(said))


def test_a_word_in_parts_ends_where_its_last_part_does() -> None:
    scored = score(_truth(_event(0, 1.0, "the sunrise")), _output(_heard(1.0, "the sun rise")))
    assert scored.events[0].end_error == pytest.approx(2.4 - 2.0)
    scored = score(_truth(_event(0, 1.0, "at sun rise")), _output(_heard(1.0, "at sunrise")))
    assert scored.events[0].end_error == pytest.approx(1.9 - 2.5)
    assert scored.events[0].start_error == pytest.approx(0)


def test_parts_with_other_letters_or_of_two_sentences_are_not_one_word() -> None:
    assert (
        _sum(
            score(_truth(_event(0, 1.0, "the primer of it")), _output(_heard(1.0, "the primary it"))),
            "unmarked_deleted",
        )
        == 1
    )
    apart = _truth(_event(0, 1.0, "come in"), _event(0, 3.0, "to town"))
    scored = score(apart, _output(_heard(1.0, "come into town")))
    assert (_sum(scored, "substituted"), _sum(scored, "deleted")) == (1, 1)


def test_words_of_the_wrong_speaker_in_a_mixed_call() -> None:
    truth = _truth(_event(0, 1.0, "good morning to you", "a"), _event(1, 5.0, "and to you too", "b"), mixed=True)
    turns = (HeardTurn("X", "en"), HeardTurn("Y", "en"))
    words = _heard(1.0, "good morning to", turn=0) + _heard(2.5, "you", turn=1) + _heard(5.0, "and to you too", turn=1)
    scored = score(truth, _output(words, turns=turns))
    assert (_sum(scored, "attributed"), _sum(scored, "misattributed")) == (8, 1)
    assert scored.cp_errors == 2
    assert scored.cp_words == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't pay $1,250 at 5:30 p.m.!", "do not pay one thousand two hundred fifty dollars at five thirty pm"),
        ("the 21st, 3rd; 007", "the twenty first third zero zero seven"),
        ("world-wide favourite colour, realised", "world wide favorite color realized"),
        ("Mr. Hale's (laughs) hmm 12:00", "mister hale is twelve oclock"),
    ],
)
def test_words_are_normalized_alike(text: str, expected: str) -> None:
    assert words(text) == expected.split()


def test_other_languages_keep_their_letters() -> None:
    assert words("Presione 1, número", "es") == ["presione", "uno", "numero"]
    assert words("Ещё 2", "ru") == ["еще", "два"]
