import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.speech import (
    CUSTOMER,
    REP,
    AudioAnalysis,
    Bleed,
    Label,
    LabelKind,
    Layout,
    LayoutKind,
    Span,
    Voiceprint,
)
from pipeline.domain.voices import Standing, Verdict, VoiceSample
from pipeline.speakers import gate
from pipeline.speakers.profile import centroids_of, learn
from pipeline.speakers.voiceprint import clearest
from pipeline.voice.calibration import VoiceCalibration

STEREO = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "by hand")
MEASURED = VoiceCalibration(
    models=("m",), threshold=0.5, margin=0.1, fit=0.4, related=0.3, agreement=0.3, basis="by hand"
)


def heard(rep, customer, layout=STEREO, labels=()):
    spans = tuple(tuple(Span(a, b) for a, b in intervals) for intervals in (rep, customer))
    return AudioAnalysis(layout, 60.0, spans, (), labels=labels)


def times(spans):
    return [(round(span.start, 3), round(span.end, 3)) for span in spans]


def near(direction, seed=0, spread=0.1, seconds=20.0, quality_issues=(), size=16, model="m"):
    vector = np.eye(size)[direction] + np.random.default_rng(seed).normal(0, spread, size)
    return Voiceprint(tuple((vector / np.linalg.norm(vector)).tolist()), model, seconds, 0.9, tuple(quality_issues))


def samples(*prints):
    return [VoiceSample(f"{at:03}", voiceprint) for at, voiceprint in enumerate(prints)]


# what it is made of


def test_clean_speech_is_where_the_rep_alone_speaks():
    clean = gate.clean_speech(heard([(0, 10), (12, 13)], [(4, 5), (11.9, 12.5)]))
    assert times(clean) == [(0, 3.75), (5.25, 10)]  # what is left after 12.75 is too short


def test_what_a_machine_says_on_the_reps_channel_is_not_the_rep():
    labels = ((Label(0, 6, LabelKind.VOICEMAIL), Label(6, 10, LabelKind.SPEECH)), ())
    assert times(gate.clean_speech(heard([(0, 10)], [], labels=labels))) == [(6, 10)]


def test_late_bleed_is_left_out_too():
    bleeding = replace(STEREO, bleed=(Bleed(CUSTOMER, -18, 0.4, 0.9), Bleed(REP, -18, 3.0, 0.9)))
    assert times(gate.clean_speech(heard([(0, 10)], [(4, 5)], bleeding))) == [(0, 3.75), (5.65, 10)]


@pytest.mark.parametrize("kind", [LayoutKind.MONO, LayoutKind.IDENTICAL, LayoutKind.ONE_SIDED])
def test_a_mixed_recording_has_no_clean_speech(kind):
    mixed = AudioAnalysis(Layout(kind, 1, 2, 1.0, {}, "by hand"), 10.0, ((Span(0, 10),),), ())
    assert gate.clean_speech(mixed) == ()


def test_nobody_speaks_or_the_customer_all_the_time():
    assert gate.clean_speech(heard([], [(0, 5)])) == ()
    assert gate.clean_speech(heard([(1, 9)], [(0, 10)])) == ()


@given(
    st.lists(st.tuples(st.floats(0, 60), st.floats(0, 60)).map(sorted), max_size=6),
    st.lists(st.tuples(st.floats(0, 60), st.floats(0, 60)).map(sorted), max_size=6),
)
def test_clean_speech_is_the_reps_and_keeps_its_distance(rep, customer):
    for piece in gate.clean_speech(heard(rep, customer)):
        assert any(a - 1e-9 <= piece.start and piece.end <= b + 1e-9 for a, b in rep)
        assert all(piece.end <= a - 0.25 + 1e-9 or piece.start >= b + 0.25 - 1e-9 for a, b in customer if b > a)


# what keeps it from being enrolled


@pytest.mark.parametrize(
    ("changes", "layout", "issues"),
    [
        ({}, STEREO, ()),
        ({"speech_seconds": 11.9}, STEREO, ("little_speech",)),
        ({"agreement": None}, STEREO, ("one_stretch",)),
        ({"speech_seconds": 5.0, "agreement": None}, STEREO, ("little_speech",)),
        ({"agreement": 0.1}, STEREO, ("several_voices",)),
        ({}, replace(STEREO, bleed=(Bleed(CUSTOMER, -12, 0.01, 0.9),)), ("bleed",)),
        ({}, replace(STEREO, bleed=(Bleed(CUSTOMER, -25, 0.01, 0.9),)), ()),
        ({}, replace(STEREO, bleed=(Bleed(REP, -3, 0.01, 0.9),)), ()),
    ],
)
def test_every_quality_issue_is_named_and_has_a_sentence(changes, layout, issues):
    checked = gate.judged(replace(near(0), **changes), heard([(0, 20)], [], layout), MEASURED)
    assert checked.quality_issues == issues
    assert all(gate.QUALITY_ISSUES[issue] for issue in issues)


def test_agreement_is_judged_by_the_embedders_calibration_():
    voiceprint, analysis = replace(near(0), agreement=0.6), heard([(0, 20)], [])
    strict = MEASURED.model_copy(update={"agreement": 0.7})
    assert gate.judged(voiceprint, analysis, strict).quality_issues == ("several_voices",)
    assert gate.judged(voiceprint, analysis, MEASURED).quality_issues == ()
    assert gate.judged(None, analysis, MEASURED) is None


def test_thresholds_are_the_calibrations():
    assert clearest({"u1": 0.45}, MEASURED) is None
    assert clearest({"u1": 0.55}, MEASURED).name == "u1"
    assert clearest({"u1": 0.55}, MEASURED.model_copy(update={"threshold": 0.6})) is None
    assert clearest({"u1": 0.65, "u2": 0.6}, MEASURED) is None
    assert clearest({"u1": 0.65, "u2": 0.6}, MEASURED.model_copy(update={"margin": 0.01})).name == "u1"


def test_an_embedder_without_a_calibration_names_nobody_and_learns_from_nobody():
    assert clearest({"u1": 1.0}, None) is None
    assert gate.judged(near(0), heard([(0, 20)], []), None).quality_issues == ("not_calibrated",)
    alike = [replace(sample, approved=True) for sample in samples(*(near(0, seed) for seed in range(5)))]
    assert centroids_of(alike, None) == ()
    learned = learn(alike, {}, None)
    assert learned.centroids == ()
    assert set(learned.verdicts.values()) == {Verdict(Standing.QUARANTINED, ("not_calibrated",))}


# what several say


def test_three_calls_and_half_a_minute_must_agree():
    two = learn(samples(near(0, 1), near(0, 2)), {}, MEASURED)
    assert two.centroids == () and {v.standing for v in two.verdicts.values()} == {Standing.WAITING}
    short = learn(samples(*(near(0, seed, seconds=9.0) for seed in range(3))), {}, MEASURED)
    assert short.centroids == ()
    three = learn(samples(*(near(0, seed) for seed in range(3))), {}, MEASURED)
    assert [(c.calls, c.voiceprint.speech_seconds) for c in three.centroids] == [(3, 60.0)]
    assert np.linalg.norm(three.centroids[0].voiceprint.vector) == pytest.approx(1)


def test_one_of_two_voices_must_have_the_majority():
    learned = learn(samples(*(near(0, s) for s in range(3)), *(near(1, s) for s in range(3))), {}, MEASURED)
    assert learned.centroids == () and {v.standing for v in learned.verdicts.values()} == {Standing.WAITING}


def test_a_flawed_sample_counts_for_nothing_and_keeps_its_reason():
    learned = learn(samples(near(0, 1), near(0, 2), near(0, 3, quality_issues=["bleed"])), {}, MEASURED)
    assert learned.centroids == ()
    assert learned.verdicts["002"] == Verdict(Standing.QUARANTINED, ("bleed",))


def test_a_second_centroid_is_the_same_voice_on_another_line():
    def at(angle, seed):
        vector = np.zeros(16)
        vector[:2] = np.cos(angle), np.sin(angle)
        vector += np.random.default_rng(seed).normal(0, 0.03, 16)
        return Voiceprint(tuple((vector / np.linalg.norm(vector)).tolist()), "m", 20.0, 0.9)

    strict = MEASURED.model_copy(update={"fit": 0.7, "related": 0.6})
    learned = learn(samples(*(at(0.0, s) for s in range(5)), *(at(0.87, s) for s in range(3))), {}, strict)
    assert [c.calls for c in learned.centroids] == [5, 3]  # cosine 0.64: not one cluster (0.7), yet related (0.6)
    alone = learn(samples(*(at(0.0, s) for s in range(5)), *(at(1.2, s) for s in range(3))), {}, strict)
    assert [c.calls for c in alone.centroids] == [5]
    assert [v.reasons for v in alone.verdicts.values()].count(("unlike_others",)) == 3


def test_a_sample_that_fits_another_member_better_is_not_enrolled():
    member_prints = [near(0, s, 0.02) for s in range(4)]
    visitor = near(1, 9, 0.02)
    others = {"u2": [c.voiceprint for c in centroids_of(samples(*(near(1, s, 0.02) for s in range(3))), MEASURED)]}
    learned = learn(samples(*member_prints, visitor), others, MEASURED)
    assert learned.verdicts["004"].reasons == ("another_member",)
    assert learned.centroids == learn(samples(*member_prints), others, MEASURED).centroids


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**6)), max_size=14), st.randoms(use_true_random=False))
def test_a_profile_is_a_function_of_the_set_of_samples(drawn, order: random.Random):
    """Independent of the order, so a sample that is added and removed leaves nothing behind."""
    once = samples(*(near(direction, seed, 0.2) for direction, seed in drawn))
    shuffled = list(once)
    order.shuffle(shuffled)
    first, second = learn(once, {}, MEASURED), learn(shuffled, {}, MEASURED)
    assert first == second
    assert set(first.verdicts) == {sample.key for sample in once}
    enrolled = [key for key, verdict in first.verdicts.items() if verdict.standing is Standing.ENROLLED]
    assert sum(c.calls for c in first.centroids) == len(enrolled)
    assert bool(first.centroids) == bool(enrolled)


def test_the_calibration_says_which_calls_are_alike():
    far = samples(*(near(0, s, 0.5) for s in range(6)))
    assert learn(far, {}, MEASURED.model_copy(update={"fit": 0.95})).centroids == ()
    assert learn(far, {}, MEASURED.model_copy(update={"fit": -0.5})).centroids[0].calls == 6
