"""Truth in the formats of the field: what goes out comes back, but for what the format cannot hold."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.domain.speech import Layout, LayoutKind, Role, Speaker, Transcript, Turn, Word
from pipeline.evaluation.formats import FORMATS, UnreadableFile, read, write
from pipeline.evaluation.truth import (
    TrueCall,
    TrueContact,
    TrueTask,
    TrueTurn,
    TrueWord,
    digest,
    from_transcript,
    in_order,
)

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=8).filter(
    lambda text: not text.startswith(";") and text.split() == [text]
)
ALL = st.sampled_from(["rep", "customer"])


@st.composite
def calls(draw: st.DrawFn) -> TrueCall:
    """Turns of two parties, each with its channel, words one after the other, times in milliseconds."""
    at, turns = 0, []
    for number in range(draw(st.integers(1, 5))):
        at += draw(st.integers(1100, 3000))  # a pause that CTM's turns end at
        begin, words = at, []
        for text in draw(st.lists(WORDS, min_size=1, max_size=4)):
            end = at + draw(st.integers(10, 600))
            words.append(TrueWord(text, at / 1000, end / 1000))
            at = end + draw(st.integers(0, 300))
        party = number % 2
        turns.append(TrueTurn(("rep", "customer")[party], begin / 1000, words[-1].end or 0.0, tuple(words), party))
    language, tasks = draw(st.sampled_from(["en", "de", None])), st.builds(TrueTask, WORDS, ALL, optional=st.booleans())
    return TrueCall(
        f"call-{draw(st.integers(0, 9))}",
        in_order(turns),
        language,
        draw(st.sampled_from([None, 61.5])),
        draw(st.none() | st.lists(tasks, max_size=2).map(tuple)),
        draw(st.none() | st.builds(TrueContact, st.none() | WORDS)),
        draw(st.sampled_from([None, 3.25])),
    )


def as_held(kind: str, call: TrueCall) -> TrueCall:
    """Return the call as a format can store it."""
    is_single_channel = len({turn.channel for turn in call.turns}) == 1

    def turn_of(turn: TrueTurn) -> TrueTurn:
        channel = None if is_single_channel or kind == "textgrid" else turn.channel
        words = tuple(TrueWord(word.text) for word in turn.words or ()) if kind == "stm" else turn.words
        return TrueTurn(
            None if kind == "ctm" else turn.speaker, turn.start, turn.end, None if kind == "rttm" else words, channel
        )

    return call if kind == "jsonl" else TrueCall(call.name, in_order(map(turn_of, call.turns)), None)


def rounded(call: TrueCall) -> TrueCall:
    """Times in milliseconds: formats hold sums of them."""

    def word(true_word: TrueWord) -> TrueWord:
        return replace(
            true_word,
            start=true_word.start and round(true_word.start, 3),
            end=true_word.end and round(true_word.end, 3),
        )

    turns = (
        replace(
            turn,
            start=round(turn.start, 3),
            end=round(turn.end, 3),
            words=None if turn.words is None else tuple(map(word, turn.words)),
        )
        for turn in call.turns
    )
    return replace(call, turns=tuple(turns))


@pytest.mark.parametrize("kind", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=calls())
def test_what_is_written_is_read_back(tmp_path: Path, kind: str, call: TrueCall) -> None:
    folder = tmp_path / kind
    target = folder if FORMATS[kind].one_call_each else folder / f"all{FORMATS[kind].suffix}"
    for file in write([call], kind, target):
        (read_call,) = read(file)
        assert rounded(read_call) == as_held(kind, call)
        file.unlink()


def test_a_digest_is_of_the_truth_and_not_of_the_order() -> None:
    call = TrueCall("a", (TrueTurn("rep", 0, 1, (TrueWord("hi", 0, 1),)), TrueTurn("customer", 2, 3, ())))
    other = TrueCall("b", ())
    assert digest([call, other]) == digest([other, replace(call, turns=call.turns[::-1])])
    changed = replace(call, turns=(replace(call.turns[0], words=(TrueWord("high", 0, 1),)), call.turns[1]))
    assert digest([changed, other]) != digest([call, other])


def test_a_transcript_without_its_announcements_is_truth() -> None:
    people = (Speaker("rep", Role.REP, 1.0, "channel"), Speaker("customer", Role.CUSTOMER, 1.0, "channel"))
    turns = (
        Turn(0, "customer", 0, 2, (Word(0, 2, "Welcome", 0.9),), "en", machine=True),
        Turn(1, "rep", 3, 4, (Word(3, 3.5, "你", 0.9), Word(3.5, 4, "好", 0.9, joined=True)), "zh"),
        Turn(2, "customer", 4, 5, (Word(4, 5, "Hello.", 0.9),), "en"),
    )
    layout = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "")
    transcript = Transcript("en", 0.9, 6.0, people, turns, layout, "test")
    assert from_transcript("x", transcript) == TrueCall(
        "x",
        (
            TrueTurn("rep", 3, 4, (TrueWord("你好", 3, 4),), 0),
            TrueTurn("customer", 4, 5, (TrueWord("Hello.", 4, 5),), 1),
        ),
        "en",
        6.0,
    )
    mono = replace(transcript, layout=replace(layout, kind=LayoutKind.MONO))
    assert {turn.channel for turn in from_transcript("x", mono).turns} == {None}


FAULTS = {
    "a.stm": ("call 1 rep zero 2 hello\n", "line 1"),
    "b.stm": ("call 1 rep 3 2 hello\n", "ends before it begins"),
    "a.ctm": (";; comment\ncall 1 0.5\n", "line 2"),
    "b.ctm": ("call 1 0.5 -1 word\n", "line 1"),
    "a.rttm": ("SPEAKER call 1 0 nan <NA> <NA> rep <NA> <NA>\n", "line 1|outside"),
    "b.rttm": ("SPEAKER call 1\n", "line 1"),
    "a.jsonl": ('{"name": "a", "turns": [{"speaker": "rep"}]}\n', "line 1"),
    "b.jsonl": ('{"name": "a", "turns": [{"speaker": "rep", "start": 2, "end": 1, "words": []}]}\n', "line 1"),
    "a.TextGrid": ("not a grid", "TextGrid"),
    "a.docx": ("anything", "an unknown suffix"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    text, fault = FAULTS[name]
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UnreadableFile, match=fault) as raised:
        read(file)
    assert name in str(raised.value)


def test_a_folder_holds_one_format_and_each_call_once(tmp_path: Path) -> None:
    (tmp_path / "one.stm").write_text("call 1 rep 0 1 hello there\n")
    assert [turn.text for turn in read(tmp_path)[0].turns] == ["hello there"]
    (tmp_path / "two.stm").write_text("call 1 rep 1 2 again\n")
    with pytest.raises(UnreadableFile, match="another file"):
        read(tmp_path)
    (tmp_path / "two.stm").unlink()
    (tmp_path / "two.ctm").write_text("call 1 1 0.5 again\n")
    with pytest.raises(UnreadableFile, match="one format"):
        read(tmp_path)


def test_words_of_an_aligner_alone_become_turns_at_pauses(tmp_path: Path) -> None:
    aligned = tmp_path / "call.TextGrid"
    words = (TrueWord("one", 0.0, 0.4), TrueWord("two", 0.5, 0.9), TrueWord("three", 3.0, 3.4))
    write([TrueCall("call", (TrueTurn("rep", 0.0, 3.4, words),))], "textgrid", tmp_path)
    text = aligned.read_text()
    (call,) = read(aligned)
    assert [turn.text for turn in call.turns] == ["one two three"]
    aligned.write_text(text.replace('"rep"', '"rep - phones"'))
    (call,) = read(aligned)
    assert [(turn.speaker, turn.text) for turn in call.turns] == [("rep", "one two"), ("rep", "three")]


@pytest.mark.parametrize("kind", ["ctm", "textgrid"])
def test_a_format_that_needs_what_is_not_known_says_so(tmp_path: Path, kind: str) -> None:
    without = TrueTurn("rep", 0, 1, None) if kind == "textgrid" else TrueTurn("rep", 0, 1, (TrueWord("hi"),))
    with pytest.raises(ValueError, match="choose"):
        write([TrueCall("call", (without,))], kind, tmp_path / "out")
