from dataclasses import replace

from pipeline.analysis.talk import read
from tests.support.calls_by_hand import call


def test_the_same_transcript_is_read_once_and_another_again() -> None:
    first, second = call(("rep", "Good morning.")), call(("rep", "Good evening."))
    assert read(first)[0] is read(first)[0]
    assert read(second)[0].text == "Good evening."
    assert read(first)[0].text == "Good morning."


def test_machines_are_left_out_unless_they_are_asked_for() -> None:
    material = call(("customer", "Leave a message."), ("rep", "It's Anna."))
    first, second = material.transcript.turns
    material_with_machine = replace(
        material, transcript=replace(material.transcript, turns=(replace(first, machine=True), second))
    )
    assert [spoken.turn.index for spoken in read(material_with_machine)] == [1]
    assert [spoken.turn.index for spoken in read(material_with_machine, machines=True)] == [0, 1]
