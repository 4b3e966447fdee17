from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.statistics import Statistics, measure, union
from pipeline.domain.speech import Label, LabelKind, Span
from tests.unit.calls_by_hand import call, timeline


def parties(material):
    return Statistics().run(material).value["parties"]


def test_talk_silence_and_overlap_are_exact():
    value = Statistics().run(timeline(20, rep=[(0, 4), (9, 13)], customer=[(3, 8)])).value
    assert value["overlap_seconds"] == 1.0
    assert value["silence_seconds"] == 8.0
    assert value["silence_share"] == 0.4
    assert value["parties"]["rep"]["talk_seconds"] == 8.0
    assert value["parties"]["rep"]["talk_ratio"] == pytest.approx(8 / 13, abs=1e-4)
    assert value["basis"] == "speech"


def test_patience_is_the_mean_pause_before_taking_over():
    value = parties(timeline(30, rep=[(0, 4), (7, 10)], customer=[(5, 6), (13, 14)]))
    assert value["rep"]["patience_seconds"] == 1.0
    assert value["customer"]["patience_seconds"] == 2.0


def test_speaking_over_the_other_is_no_patience():
    assert parties(timeline(10, rep=[(0, 4)], customer=[(3, 6)]))["customer"]["patience_seconds"] is None


def test_a_pause_counts_from_the_last_speech_of_anybody():
    value = parties(timeline(20, rep=[(0, 10), (12, 14)], customer=[(3, 4)]))
    assert value["rep"]["patience_seconds"] is None  # the rep waited for nobody but themselves


def test_the_longest_monologue_runs_until_the_other_begins():
    value = parties(timeline(30, rep=[(0, 4), (5, 9), (12, 13)], customer=[(10, 11)]))
    assert value["rep"]["longest_monologue_seconds"] == 9.0
    assert value["customer"]["longest_monologue_seconds"] == 1.0


def test_interactivity_is_turn_changes_per_minute():
    value = Statistics().run(timeline(30, rep=[(0, 1), (4, 5)], customer=[(2, 3), (6, 7)])).value
    assert value["turn_changes"] == 3
    assert value["interactivity_per_minute"] == 6.0


def test_pace_and_questions_are_counted_per_party():
    value = parties(call(("rep", "How can I help you today? Tell me."), ("customer", "It is broken.")))
    assert value["rep"]["words"] == 8
    assert value["rep"]["words_per_minute"] == 160.0
    assert value["rep"]["questions"] == 1
    assert value["customer"]["questions"] == 0


def test_a_call_without_speech_has_no_ratios_and_says_so():
    finding = Statistics().run(timeline(10))
    assert finding.value["silence_share"] == 1.0
    assert finding.note == "nobody speaks in this call"


def test_parties_without_a_role_are_counted_by_their_label():
    value = parties(call(("A", "Hello there."), ("B", "Hello.")))
    assert value["A"]["role"] == "unknown"
    assert value["A"]["talk_ratio"] == 0.5


times = st.tuples(st.integers(0, 200), st.integers(1, 40)).map(lambda pair: Span(pair[0] / 4, (pair[0] + pair[1]) / 4))
spoken = st.dictionaries(st.sampled_from(["rep", "customer", "C"]), st.lists(times, min_size=1, max_size=8), min_size=1)


@given(spoken)
def test_talk_overlap_and_silence_add_up(found):
    merged = {label: union(spans) for label, spans in found.items()}
    floor = measure(merged, 100.0)
    everything = sum(span.duration for span in union([span for spans in found.values() for span in spans]))
    talk = sum(span.duration for spans in merged.values() for span in spans)
    assert floor.silence + everything == pytest.approx(100.0)
    assert talk - everything <= floor.overlap * 2 + 1e-9  # three at once count twice at most
    assert floor.overlap <= talk - everything + 1e-9


@given(spoken, st.randoms(use_true_random=False))
def test_splitting_a_span_changes_nothing(found, random):
    def split(span):
        at = span.start + span.duration / 2
        return [Span(span.start, at), Span(at, span.end)] if random.random() < 0.5 else [span]

    parts = {label: [part for span in spans for part in split(span)] for label, spans in found.items()}
    whole = measure({label: union(spans) for label, spans in found.items()}, 100.0)
    assert measure({label: union(spans) for label, spans in parts.items()}, 100.0) == whole


def labelled(material, *labels):
    made = tuple(Label(start, end, LabelKind(kind)) for start, end, kind in labels)
    return replace(material, transcript=replace(material.transcript, labels=(made, ())))


def test_hold_music_is_neither_silence_nor_patience():
    quiet = timeline(30, rep=[(0, 4), (20, 24)], customer=[(5, 8), (25, 28)])
    held = labelled(quiet, (0, 9, "speech"), (9, 19, "music"), (19, 30, "speech"))
    before, after = Statistics().run(quiet).value, Statistics().run(held).value
    assert before["silence_seconds"] - after["silence_seconds"] == 10.0
    assert (before["parties"]["rep"]["patience_seconds"], after["parties"]["rep"]["patience_seconds"]) == (12.0, None)
    assert after["parties"]["customer"]["patience_seconds"] == 1.0
    assert (before["other_seconds"], after["other_seconds"]) == ({}, {"music": 10.0})


def test_what_machines_say_counts_for_nobody():
    spoken = call(("customer", "Please leave a message. Will you?"), ("rep", "Hi, call me back please."))
    greeting = replace(spoken.transcript.turns[0], machine=True)
    turns = (greeting, spoken.transcript.turns[1])
    machine = replace(spoken, transcript=replace(spoken.transcript, turns=turns))
    found = parties(machine)["customer"]
    assert (found["talk_seconds"], found["words"], found["questions"]) == (0.0, 0, 0)
    assert parties(machine)["rep"]["talk_ratio"] == 1.0
