import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.overlaps import overlaps
from pipeline.analysis.statistics import StatisticsStep, measure
from pipeline.domain.spans import outside, seconds, union
from pipeline.domain.speech import Label, LabelKind, Span
from pipeline.speakers.seconds import unpadded
from tests.support.calls_by_hand import call, timeline, turn


def parties(material):
    return StatisticsStep().run(material).value["parties"]


def test_talk_silence_and_overlap_are_exact():
    value = StatisticsStep().run(timeline(20, rep=[(0, 4), (9, 13)], customer=[(3, 8)])).value
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
    value = StatisticsStep().run(timeline(30, rep=[(0, 1), (4, 5)], customer=[(2, 3), (6, 7)])).value
    assert value["turn_changes"] == 3
    assert value["interactivity_per_minute"] == 6.0


def test_pace_and_questions_are_counted_per_party():
    value = parties(call(("rep", "How can I help you today? Tell me."), ("customer", "It is broken.")))
    assert value["rep"]["words"] == 8
    assert value["rep"]["words_per_minute"] == 160.0
    assert value["rep"]["questions"] == 1
    assert value["customer"]["questions"] == 0


def test_a_call_without_speech_has_no_ratios_and_says_so():
    finding = StatisticsStep().run(timeline(10))
    assert finding.value["silence_share"] == 1.0
    assert finding.note == "no speech in this call"


def test_parties_without_a_role_are_counted_by_their_label():
    value = parties(call(("A", "Hello there."), ("B", "Hello.")))
    assert value["A"]["role"] == "unknown"
    assert value["A"]["talk_ratio"] == 0.5


times = st.tuples(st.integers(0, 200), st.integers(1, 40)).map(lambda pair: Span(pair[0] / 4, (pair[0] + pair[1]) / 4))
spoken = st.dictionaries(st.sampled_from(["rep", "customer", "C"]), st.lists(times, min_size=1, max_size=8), min_size=1)


@given(spoken)
def test_talk_overlap_and_silence_add_up(times):
    merged = {label: union(spans) for label, spans in times.items()}
    floor = measure(merged, 100.0)
    everything = sum(span.duration for span in union([span for spans in times.values() for span in spans]))
    talk = sum(span.duration for spans in merged.values() for span in spans)
    assert floor.silence + everything == pytest.approx(100.0)
    assert talk - everything <= floor.overlap * 2 + 1e-9  # three at once count twice at most
    assert floor.overlap <= talk - everything + 1e-9


@given(spoken, st.randoms(use_true_random=False))
def test_splitting_a_span_changes_nothing(times, random):
    def split(span):
        at = span.start + span.duration / 2
        return [Span(span.start, at), Span(at, span.end)] if random.random() < 0.5 else [span]

    parts = {label: [part for span in spans for part in split(span)] for label, spans in times.items()}
    whole = measure({label: union(spans) for label, spans in times.items()}, 100.0)
    assert measure({label: union(spans) for label, spans in parts.items()}, 100.0) == whole


def labelled(material, *labels):
    labels_made = tuple(Label(start, end, LabelKind(kind)) for start, end, kind in labels)
    return replace(material, transcript=replace(material.transcript, labels=(labels_made, ())))


def test_hold_music_is_neither_silence_nor_patience():
    quiet = timeline(30, rep=[(0, 4), (20, 24)], customer=[(5, 8), (25, 28)])
    hold = labelled(quiet, (0, 9, "speech"), (9, 19, "music"), (19, 30, "speech"))
    before, after = StatisticsStep().run(quiet).value, StatisticsStep().run(hold).value
    assert before["silence_seconds"] - after["silence_seconds"] == 10.0
    assert (before["parties"]["rep"]["patience_seconds"], after["parties"]["rep"]["patience_seconds"]) == (12.0, None)
    assert after["parties"]["customer"]["patience_seconds"] == 1.0
    assert (before["other_seconds"], after["other_seconds"]) == ({}, {"music": 10.0})


def test_what_machines_say_counts_for_nobody():
    spoken = call(("customer", "Please leave a message. Will you?"), ("rep", "Hi, call me back please."))
    greeting = replace(spoken.transcript.turns[0], machine=True)
    turns = (greeting, spoken.transcript.turns[1])
    machine = replace(spoken, transcript=replace(spoken.transcript, turns=turns))
    customer = parties(machine)["customer"]
    assert (customer["talk_seconds"], customer["words"], customer["questions"]) == (0.0, 0, 0)
    assert parties(machine)["rep"]["talk_ratio"] == 1.0


def value_of(material):
    return StatisticsStep().run(material).value


def kinds(material):
    return {name: figures["count"] for name, figures in value_of(material)["overlaps"].items() if figures["count"]}


@pytest.mark.parametrize(
    ("rep", "customer", "kind", "counted"),
    [
        ([(0, 10)], [(4, 4.8)], "backchannel", "backchannels"),
        ([(0, 10)], [(4, 6)], "attempt", "interruption_attempts"),
        ([(0, 6)], [(4.5, 9)], "interruption", "interruptions"),
        ([(0, 8)], [(4.5, 9)], "attempt", "interruption_attempts"),  # the other talks on for longer than 2 s
        ([(0, 6)], [(5.6, 9)], "seam", None),
        ([(0, 6)], [(0, 3)], "together", None),
    ],
)
def test_overlap_is_told_by_who_keeps_the_floor(rep, customer, kind, counted):
    value = value_of(timeline(20, rep=rep, customer=customer))
    assert kinds(timeline(20, rep=rep, customer=customer)) == {kind: 1}
    assert value["overlaps"][kind]["seconds"] == value["overlap_seconds"]
    names = ("backchannels", "interruptions", "interruption_attempts")
    assert {name: value["parties"]["customer"][name] for name in names} == {
        name: int(name == counted) for name in names
    }
    assert all(value["parties"]["rep"][name] == 0 for name in names)


def said_over(text, language="en"):
    """Return a call where the customer says `text` from 4 to 5.2 s, while the rep speaks for ten."""
    material = timeline(20, rep=[(0, 10)], customer=[(4, 5.2)])
    turns = (turn(0, "rep", 0, 10, "and so on and so on", language), turn(1, "customer", 4, 5.2, text, language))
    return replace(material, transcript=replace(material.transcript, language=language, turns=turns))


@pytest.mark.parametrize(
    ("text", "language", "kind"),
    [
        ("Mm-hm, right.", "en", "backchannel"),
        ("Wait, stop there.", "en", "attempt"),
        ("Sí, claro.", "es", "backchannel"),
        ("Un momento.", "es", "attempt"),
        ("Ja, genau.", "de", "backchannel"),
        ("Moment mal bitte.", "de", "attempt"),
        ("Oui, d’accord.", "fr", "backchannel"),
        ("Attendez un peu.", "fr", "attempt"),
        ("Igen, persze.", "hu", "attempt"),  # no pack: 1.2 s are too long without words that are known
    ],
)
def test_words_tell_a_listener_from_one_who_wants_the_floor(text, language, kind):
    assert kinds(said_over(text, language)) == {kind: 1}


@pytest.mark.parametrize(
    ("text", "language", "asked"),
    [
        ("so when do you come", "en", 1),
        ("we come when you call us", "en", 0),
        ("can you send it", "en", 1),
        ("have a nice day", "en", 0),
        ("cuándo viene el técnico", "es", 1),
        ("viene cuando puede", "es", 0),
        ("und wann kommen Sie", "de", 1),
        ("ich komme wann ich kann", "de", 0),
        ("est-ce que vous venez", "fr", 1),
        ("je viens quand je peux", "fr", 0),
        ("When he comes I go.", "en", 0),  # marked: the mark decides
        ("You come tomorrow? At five? Good.", "en", 2),
    ],
)
def test_questions_are_told_by_their_mark_or_else_by_their_words(text, language, asked):
    assert parties(call(("customer", text), language=language))["customer"]["questions"] == asked


def test_hold_is_what_a_party_who_waits_hears():
    quiet = timeline(60, rep=[(10, 14), (40, 44)], customer=[(15, 18)])
    hold = labelled(quiet, (0, 9, "ringback"), (10, 18, "speech"), (18, 30, "music"), (30, 35, "announcement"))
    value = value_of(hold)
    assert value["hold_seconds"] == 17.0  # the ringing before anybody spoke is not hold
    assert value["hold_share"] == pytest.approx(17 / 60, abs=1e-4)
    assert (value["dead_airs"], value["dead_air_seconds"]) == (1, 5.0)
    assert value["silence_seconds"] == 60 - 9 - 4 - 3 - 17 - 4
    over_music = labelled(timeline(60, rep=[(10, 14), (20, 24)], customer=[]), (18, 30, "music"))
    assert value_of(over_music)["hold_seconds"] == 8.0


def test_dead_air_is_long_silence_between_the_first_and_the_last_word():
    value = value_of(timeline(60, rep=[(10, 14), (18, 20)], customer=[(26, 30)]))
    assert (value["dead_airs"], value["dead_air_seconds"]) == (1, 6.0)


def test_definitions_have_a_version():
    assert value_of(timeline(10, rep=[(0, 1)]))["definitions_version"] == StatisticsStep.version


@given(spoken)
def test_every_second_of_overlap_is_of_one_kind(times):
    merged = {label: [(span.start, span.end) for span in union(spans)] for label, spans in times.items()}
    value = value_of(timeline(100, **merged))
    assert sum(figures["seconds"] for figures in value["overlaps"].values()) == pytest.approx(
        value["overlap_seconds"], abs=0.01
    )
    assert value["talk_seconds"] + value["silence_seconds"] == pytest.approx(100)


@given(spoken)
def test_parties_that_change_names_change_figures(times):
    merged = {label: [(span.start, span.end) for span in union(spans)] for label, spans in times.items()}
    names = {"rep": "customer", "customer": "rep", "C": "C"}
    here = value_of(timeline(100, **merged))
    there = value_of(timeline(100, **{names[label]: times for label, times in reversed(merged.items())}))
    starts = [start for times in merged.values() for start, _ in times]
    if len(set(starts)) == len(starts):  # who of two that begin at once came first is a matter of names
        mine, others = here.pop("parties"), there.pop("parties")
        assert here == there
        for label, party in mine.items():
            assert {**party, "role": ""} == {**others[names[label]], "role": ""}


@given(st.lists(times, max_size=8), st.lists(times, max_size=8))
def test_what_is_outside_and_what_is_taken_make_the_whole(ours, taken):
    ours, taken = union(ours), union(taken)
    assert seconds(outside(ours, taken)) + seconds(taken) == pytest.approx(seconds(union([*ours, *taken])))


def hours_counted(hours: int) -> tuple[dict, float]:
    """Return the statistics of a call with a turn every four seconds, and the processor seconds that they took."""
    count = 900 * hours
    spans = {
        name: [(at * 4 + shift, at * 4 + shift + 2.5) for at in range(count)]
        for name, shift in (("rep", 0), ("customer", 2))
    }
    material = timeline(3600 * hours, **spans)
    turns = tuple(turn(at, "rep", at * 4, at * 4 + 2.5, "one two three four five six") for at in range(count))
    material = replace(material, transcript=replace(material.transcript, turns=turns))
    started = time.process_time()
    return value_of(material), time.process_time() - started


def test_six_hours_take_six_times_as_long_as_one():
    _, one = hours_counted(1)
    value, six = hours_counted(6)
    assert six < 15 * one, "36 times as long if each turn were compared with all others"
    assert value["turn_changes"] == 10799
    assert overlaps({"rep": (Span(0, 2),), "customer": (Span(2, 3),)}) == ()


@pytest.mark.parametrize(
    ("padded", "bare"),
    [
        ([(1, 3)], [(1.2, 2.8)]),
        ([(0, 3)], [(0, 2.8)]),  # of what begins with the recording nobody knows how much was added
        ([(1, 3), (3, 5)], [(1.2, 4.8)]),
        ([(1, 1.3)], [(1.1, 1.2)]),
        ([(1, 1.05)], [(1, 1.05)]),
        ([], []),
    ],
)
def test_padding_is_no_talk(padded, bare):
    spans = unpadded(tuple(Span(*pair) for pair in padded), 0.2)
    assert [(span.start, span.end) for span in spans] == [pytest.approx(pair) for pair in bare]
