"""What a transcript, tasks and findings are with what people said against them."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.edits import (
    Anchor,
    Edit,
    EditKind,
    EditState,
    Fields,
    correct,
    corrected_finding,
    corrected_task,
    retimed,
)
from pipeline.domain.insight import Evidence, Finding, Task
from pipeline.domain.speech import Doubt, Layout, LayoutKind, Role, Transcript, Word, text_of
from tests.support.calls_by_hand import speakers, turn

LAYOUT = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "by hand")
TALK = (("rep", "Good morning this is Ana"), ("customer", "my invoice is wrong is wrong"), ("rep", "I am sorry"))


def transcript(*talk: tuple[str, str]) -> Transcript:
    turns = tuple(turn(at, who, at * 3.5, at * 3.5 + 3, text) for at, (who, text) in enumerate(talk or TALK))
    return Transcript("en", 0.9, 10.5, speakers("rep", "customer"), turns, LAYOUT, "by hand")


def text_edit(said: Transcript, at: int, first: int, last: int, new: str, edit_id: Any = "a", **more: Any) -> Edit:
    anchor = correct(said, ()).text_anchor(at, first, last)
    return Edit(edit_id, EditKind.TEXT, anchor.text, new, anchor, **more)


def said_in(said: Transcript, *edits: Edit) -> list[str]:
    return [one.text for one in correct(said, edits).transcript.turns]


def test_a_word_several_words_and_no_word() -> None:
    said = transcript()
    assert said_in(said, text_edit(said, 0, 4, 4, "Anna"))[0] == "Good morning this is Anna"
    assert said_in(said, text_edit(said, 1, 1, 2, "two invoices are"))[1] == "my two invoices are wrong is wrong"
    assert said_in(said, text_edit(said, 1, 4, 5, ""))[1] == "my invoice is wrong"
    corrected = correct(said, [text_edit(said, 1, 1, 2, "two invoices are")])
    standing = corrected.standings["a"]
    assert (standing.state, standing.turn, standing.first, standing.last) == (EditState.APPLIED, 1, 1, 3)
    assert all(word.confidence == 1.0 for word in corrected.transcript.turns[1].words[1:4])
    assert corrected.machine == said == transcript(), "the machine's version is what it was"


def test_the_later_edit_of_the_same_words_counts_until_it_is_undone() -> None:
    said = transcript()
    first, second = text_edit(said, 0, 4, 4, "Anna"), text_edit(said, 0, 4, 4, "Hannah", "b")
    assert said_in(said, first, second)[0].endswith("Hannah")
    assert correct(said, [first, second]).standings["a"].state is EditState.SUPERSEDED
    assert said_in(said, first, replace(second, undone=True))[0].endswith("Anna")
    assert said_in(said, replace(first, undone=True), second)[0].endswith("Hannah")


def test_an_edit_of_an_edit_goes_back_to_the_machines_words() -> None:
    said = transcript()
    corrected = correct(said, [text_edit(said, 1, 1, 2, "two invoices are")])
    anchor = corrected.text_anchor(1, 2, 2)  # "invoices" alone
    assert anchor.text == "invoice is", "all that the first one replaced"
    later = correct(said, [text_edit(said, 0, 0, 0, "Bad"), *[text_edit(said, 1, 1, 2, "x")]])
    assert later.text_anchor(1, 0, 1).text == "my invoice is"


@pytest.mark.parametrize("moved", [0.0, 0.15, -0.15])
def test_another_recognition_may_move_words_a_little(moved: float) -> None:
    said = transcript()
    edit = text_edit(said, 0, 4, 4, "Anna")
    words = tuple(replace(one, start=one.start + moved, end=one.end + moved) for one in said.turns[0].words)
    again = replace(said, turns=(replace(said.turns[0], words=words), *said.turns[1:]))
    assert said_in(again, edit)[0].endswith("Anna")


@pytest.mark.parametrize("change", ["text", "seconds", "channel"])
def test_an_edit_whose_words_are_gone_is_shown_as_not_applied(change: str) -> None:
    said = transcript()
    edit = text_edit(said, 0, 4, 4, "Anna")
    assert edit.anchor is not None
    gone = {
        "text": replace(edit.anchor, text="Annie"),
        "seconds": replace(edit.anchor, start=edit.anchor.start + 0.3, end=edit.anchor.end + 0.3),
        "channel": replace(edit.anchor, channel=1),
    }[change]
    made = correct(said, [replace(edit, anchor=gone)])
    assert made.standings["a"].state is EditState.NOT_APPLIED
    assert made.transcript == said


def test_where_the_same_word_stands_twice_nearby_none_is_guessed() -> None:
    words = tuple(Word(at * 0.1, at * 0.1 + 0.1, "no", 0.9) for at in range(4))
    said = transcript()
    said = replace(said, turns=(replace(said.turns[0], words=words, end=0.4),))
    exact = text_edit(said, 0, 2, 2, "yes")
    assert said_in(said, exact) == ["no no yes no"]
    assert exact.anchor is not None
    moved = replace(exact, anchor=replace(exact.anchor, start=0.25, end=0.35))
    assert correct(said, [moved]).standings["a"].state is EditState.NOT_APPLIED


def test_a_turn_of_the_other_party_and_a_swap_of_both() -> None:
    said = replace(transcript(), doubts=(Doubt(0, 0.0, 1.0, ("unsure",)),), labels=((), ()))
    anchor = correct(said, ()).turn_anchor(2)
    turn_2 = Edit("t", EditKind.SPEAKER, "rep", "customer", anchor)
    swap = Edit("s", EditKind.ROLES, False, True, correct(said, ()).roles_anchor())
    assert [one.speaker for one in correct(said, [turn_2]).transcript.turns] == ["rep", "customer", "customer"]
    made = correct(said, [turn_2, swap])
    assert [one.speaker for one in made.transcript.turns] == ["customer", "rep", "rep"], "what was seen is swapped"
    assert {one.label: one.role for one in made.transcript.speakers} == {"customer": Role.CUSTOMER, "rep": Role.REP}
    assert made.swapped and made.transcript.layout.swapped and made.transcript.doubts[0].channel == 1
    back = correct(said, [turn_2, swap, Edit("b", EditKind.ROLES, False, False, swap.anchor)])
    assert not back.swapped and back.standings["s"].state is EditState.SUPERSEDED
    assert correct(said, [replace(swap, undone=True)]).transcript == said


def test_a_swap_does_not_swap_what_the_machine_has_put_right_since() -> None:
    said = transcript()
    swap = Edit("s", EditKind.ROLES, False, True, correct(said, ()).roles_anchor())
    right = transcript(*[({"rep": "customer", "customer": "rep"}[who], text) for who, text in TALK])
    made = correct(right, [swap])
    assert made.transcript == right and made.standings["s"].state is EditState.NOT_APPLIED


def test_words_without_spaces_stay_joined() -> None:
    words = [Word(0.0, 0.5, "你", 0.9), Word(0.5, 1.0, "号", 0.9, joined=True)]
    assert text_of(retimed(words, "你好")) == "你好"
    assert retimed(words[1:], "好")[0].joined


@given(st.lists(st.sampled_from(["a", "bc", "def"]), max_size=6), st.integers(0, 5), st.integers(0, 5))
def test_any_text_in_place_of_any_words_keeps_order_and_the_rest(new: list[str], one: int, two: int) -> None:
    said = transcript()
    first, last = sorted((one, two))
    made = correct(said, [text_edit(said, 1, first, last, " ".join(new))])
    before = said.turns[1].words
    words = made.transcript.turns[1].words
    assert text_of(words) == text_of(
        [*before[:first], *retimed(before[first : last + 1], " ".join(new)), *before[last + 1 :]]
    )
    assert all(a.start <= b.start and a.start <= a.end for a, b in pairwise(words))
    assert len(made.origins[1]) == len(words)


def test_tasks_and_findings_follow_the_parties_and_the_agent() -> None:
    fields = Fields(swapped=True)
    one = Task("Send", "rep", "commitment", Evidence(0, 0.0, 1.0, "x"), 0.9, owner_user_id="ana")
    assert (corrected_task(one, fields).owner, corrected_task(one, fields).owner_user_id) == ("customer", None)
    named = Fields(agent_set=True, user_id="bob", machine_agent="ana")
    assert corrected_task(one, named).owner_user_id == "bob"
    assert corrected_task(replace(one, owner_user_id="eve"), named).owner_user_id == "eve", "a colleague who was named"
    finding = Finding("statistics", 1, {"parties": {"rep": {"role": "rep", "words": 5}}, "text": "rep"})
    assert corrected_finding(finding, fields).value == {
        "parties": {"customer": {"role": "customer", "words": 5}},
        "text": "rep",
    }
    agent = corrected_finding(Finding("agent", 1, {"user_id": "ana", "name": "Ana"}), named, "Bob")
    assert (agent.value["user_id"], agent.value["name"], agent.value["source"]) == ("bob", "Bob", "person")


def test_an_anchor_that_was_never_there_is_not_applied() -> None:
    said = transcript()
    nowhere = Edit("x", EditKind.TEXT, "a", "b", Anchor(0, 99.0, 100.0, "a"))
    assert correct(said, [nowhere]).standings["x"].state is EditState.NOT_APPLIED
    assert correct(replace(said, turns=()), [nowhere]).standings["x"].state is EditState.NOT_APPLIED
