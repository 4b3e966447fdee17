"""A transcript is read once, and never taken for another one."""

from dataclasses import replace

from pipeline.analysis.talk import read
from tests.support.calls_by_hand import call


def test_the_same_transcript_is_read_once_and_another_again() -> None:
    one, other = call(("rep", "Good morning.")), call(("rep", "Good evening."))
    assert read(one)[0] is read(one)[0]
    assert read(other)[0].text == "Good evening."
    assert read(one)[0].text == "Good morning."


def test_machines_are_left_out_unless_they_are_asked_for() -> None:
    material = call(("customer", "Leave a message."), ("rep", "It's Anna."))
    first, second = material.transcript.turns
    heard = replace(material, transcript=replace(material.transcript, turns=(replace(first, machine=True), second)))
    assert [said.turn.index for said in read(heard)] == [1]
    assert [said.turn.index for said in read(heard, machines=True)] == [0, 1]
