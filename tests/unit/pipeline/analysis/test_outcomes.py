"""How calls end: messages that nobody answers, calls to the wrong place and what a refusal refuses."""

import re
from collections.abc import Iterator
from dataclasses import replace

from pipeline.analysis import analyze
from tests.paths import FIXTURES
from tests.support.calls_by_hand import call
from tests.unit.pipeline.analysis.test_analysis_summary import summary

SECTIONS = dict(re.findall(r"^= (\w+)\n((?:[^=].*\n)+)", (FIXTURES / "outcomes.txt").read_text(), re.M))


def outcomes(kind: str, outgoing: bool | None = None) -> Iterator[tuple[str, str | None]]:
    """Yield the calls of a kind with their outcomes."""
    for line in SECTIONS[kind].strip().splitlines():
        language, talk = line.split(" | ")
        parts = [part.split(" ", 1) for part in talk.split(" / ")]
        said = [({"r": "rep", "c": "customer"}[party], text) for party, text in parts]
        yield line, summary(*said, language=language, outgoing=outgoing).value["outcome"]


def test_a_message_that_nobody_answers_is_a_voicemail_whoever_leaves_it(subtests) -> None:
    for line, outcome in outcomes("left_messages"):
        with subtests.test(line):
            assert outcome == "voicemail"


def test_a_greeting_that_a_person_interrupts_is_no_voicemail(subtests) -> None:
    for line, outcome in outcomes("no_messages"):
        with subtests.test(line):
            assert outcome != "voicemail"


def test_half_of_a_dialogue_is_no_message() -> None:
    lines = [("customer", text) for text in ("I would like to pay my bill please.", "It is one hundred dollars.") * 4]
    material = call(*lines)
    turns = tuple(replace(turn, start=turn.start * 3, end=turn.start * 3 + 3) for turn in material.transcript.turns)
    for parts, outcome in ((material.transcript.turns, "voicemail"), (turns, None)):
        half = replace(material, transcript=replace(material.transcript, turns=parts))
        [finding] = [finding for finding in analyze(half) if finding.step == "summary"]
        assert finding.value["outcome"] == outcome


def test_a_caller_who_expects_another_firm_has_the_wrong_number(subtests) -> None:
    for line, outcome in outcomes("other_firms"):
        with subtests.test(line):
            assert outcome == "wrong_number"


def test_a_doubt_about_anything_else_is_no_wrong_number(subtests) -> None:
    for line, outcome in outcomes("right_firms"):
        with subtests.test(line):
            assert outcome == "resolved"


def test_a_called_party_who_declines_two_offers_refuses(subtests) -> None:
    for line, outcome in outcomes("refusals", outgoing=True):
        with subtests.test(line):
            assert outcome == "refused"


def test_a_caller_who_declines_a_side_offer_refuses_nothing(subtests) -> None:
    for line, outcome in outcomes("no_refusals", outgoing=False):
        with subtests.test(line):
            assert outcome == "resolved"
