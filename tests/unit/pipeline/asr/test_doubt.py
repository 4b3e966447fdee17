"""Doubt: which words are probably wrong, by family of recognizer; and the bench that fits it."""

from dataclasses import replace

import numpy as np
import pytest

from bench.real import doubt as bench
from bench.real.calls import SoundEvent, Truth
from bench.real.doubt import JudgedWord
from pipeline.asr import ENGINES, doubt, fallback
from pipeline.asr.doubt import DoubtCalibration, DoubtCalibrationInvalid, calibration_of, features, risks, supports
from pipeline.asr.safety import review, settle
from pipeline.domain.speech import Chunk, Label, LabelKind
from tests.support.safety_by_hand import heard_as, said, sounding, words_of

ENGLISH, MULTILINGUAL = calibration_of("faster-whisper tiny.en int8"), calibration_of("faster-whisper base int8")
SPOKEN = "we are open from monday to friday"


def unsure_of(*words, text=SPOKEN, confidence=0.2, support=0.4):
    """Return a window of certain words, except at these indices."""
    whole = said(text, 0.0, 4.0)
    words_of_window = tuple(
        replace(word, confidence=confidence if i in words else 0.97) for i, word in enumerate(whole.words)
    )
    return replace(
        whole,
        words=words_of_window,
        supports=tuple(support if i in words else 1.0 for i in range(len(words_of_window))),
    )


def settled(text, calibration=ENGLISH):
    return settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [text], {}, calibration)


def test_support_is_the_share_of_the_hypotheses_that_have_a_word():
    half, quarter = float(np.log(0.5)), float(np.log(0.25))
    hypotheses = [
        (["The", "dose", "is", "two"], half),
        (["the", "does", "is", "two"], quarter),
        (["dose", "is"], quarter),
    ]
    assert supports(["The", "dose", "is", "two"], hypotheses) == pytest.approx((0.75, 0.75, 1.0, 0.75))
    assert supports(["yes"], []) == supports([], []) == ()


def test_features_say_how_sure_a_word_and_those_around_it_are():
    values = features(unsure_of(2))
    assert values.shape == (7, len(doubt.FEATURES))
    by_name = dict(zip(doubt.FEATURES, values.T, strict=True))
    assert by_name["confidence"][2] == pytest.approx(np.log(0.2 / 0.8), abs=1e-3)
    assert by_name["support"].tolist() == [1, 1, 0.4, 1, 1, 1, 1]
    assert by_name["beside"] == pytest.approx([0.03, 0.83, 0.06, 0.83, 0.06, 0.06, 0.03])
    assert by_name["near"] == pytest.approx([0.8, 0.03, 0.06, 0.06, 0.83, 0.03, 0.03])


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_features_are_finite_and_support_may_be_unknown(confidence):
    text = replace(unsure_of(0, confidence=confidence), supports=())
    assert np.isfinite(features(text)).all() and (features(text)[:, 1] == doubt.UNKNOWN).all()
    assert features(said("", 0.0, 1.0)).shape == (0, len(doubt.FEATURES))


@pytest.mark.parametrize(
    ("engine", "calibration"),
    [
        ("faster-whisper tiny.en int8", ENGLISH),
        ("faster-whisper /models/whisper-small.en float16", ENGLISH),
        ("faster-whisper large-v3-turbo float16", MULTILINGUAL),
    ],
)
def test_a_recognizer_is_judged_by_its_family(engine, calibration):
    assert calibration_of(engine) == calibration
    assert "development half" in calibration.basis and ENGLISH != MULTILINGUAL


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "faster-whisper"] + ["an engine of tomorrow"])
def test_an_engine_that_was_not_measured_is_not_judged_by_another_ones_weights(engine):
    assert calibration_of(f"{engine} tiny.en") is None


@pytest.mark.parametrize("calibration", [ENGLISH, MULTILINGUAL])
def test_a_word_is_riskier_the_less_sure_it_and_its_neighbors_are(calibration):
    sure, alone, supported = (
        risks(unsure_of(), calibration),
        risks(unsure_of(3), calibration),
        unsure_of(3, support=0.9),
    )
    assert sure.max() < 0.1 < calibration.threshold <= alone[3]
    assert alone[3] > risks(supported, calibration)[3]
    assert alone[2] > sure[2] and alone[1] > sure[1]
    assert risks(unsure_of(2, 3, 4), calibration)[3] > alone[3]


def test_a_word_that_is_probably_wrong_is_marked_and_its_window_is_no_suspect():
    text = unsure_of(3, 4)
    assert not review(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [text])
    (settled_text,), (marked,) = settled(text)
    assert [word.text for word in settled_text.words if word.doubtful] == ["from", "monday"] == marked.text.split()
    assert (marked.reasons, marked.kept) == (("unsure",), True)
    assert words_of([settled_text]) == SPOKEN.split() and settled_text.supports == text.supports
    assert settled(text, calibration=None)[1] == () == settled(unsure_of())[1]


def test_the_calibration_says_from_which_risk_a_word_is_marked():
    never, always = (MULTILINGUAL.model_copy(update={"threshold": at}) for at in (0.9999, 0.001))
    assert settled(unsure_of(3), calibration=never)[1] == ()
    (marked,) = settled(unsure_of(3), calibration=always)[1]
    assert marked.text == SPOKEN


def test_supports_stay_beside_their_words_where_words_are_taken_out():
    labels = ((Label(0.0, 4.0, LabelKind.SPEECH), Label(4.0, 12.0, LabelKind.MUSIC)),)
    text = replace(
        said("one moment please we will help you", 0.0, 8.0, chunk=Chunk(0, 0.0, 8.0)),
        supports=tuple(np.arange(7) / 10),
    )
    (settled_text,), _ = settle(sounding((0, 0.0, 8.0)), heard_as([[(0.0, 4.0)]], labels=labels), [text], {})
    assert words_of([settled_text]) == ["one", "moment", "please", "we"] and settled_text.supports == pytest.approx(
        (0, 0.1, 0.2, 0.3)
    )


def test_parts_of_a_window_keep_their_supports_unless_one_has_none():
    first, second = unsure_of(1, text="good morning"), unsure_of(0, text="this is anna")
    assert fallback.joined(first, [first, second]).supports == (1.0, 0.4, 0.4, 1.0, 1.0)
    assert fallback.joined(first, [first, replace(second, supports=())]).supports == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'intercept = 0.0\nthreshold = 0.5\nbasis = ""\n[weights]\nconfidence = 1.0\n',
            "expected confidence, support",
        ),
        ("intercept = 0.0", "not a valid doubt calibration"),
        ("intercept = ", "not a valid doubt calibration"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(DoubtCalibrationInvalid, match=message) as raised:
        doubt.read(path)
    assert str(path) in str(raised.value)


def made(seed=1, utterances=60, length=20):
    """Words whose risk follows known weights."""
    random = np.random.default_rng(seed)
    values = random.normal(0, 1, (utterances * length, len(doubt.FEATURES)))
    wrong = random.random(len(values)) < 1 / (1 + np.exp(-(-1.5 + values @ np.array([-1.5, -0.8, 0.5, 0.0]))))
    return [
        JudgedWord(str(i // length), bool(w), False, tuple(v))
        for i, (v, w) in enumerate(zip(values, wrong, strict=True))
    ]


def test_the_fit_finds_weights_and_judges_no_utterance_by_itself():
    rows = made(utterances=400)
    intercept, weights = bench.fitted(
        np.array([row.values for row in rows]), np.array([row.wrong for row in rows], float)
    )
    assert (intercept, *weights) == pytest.approx((-1.5, -1.5, -0.8, 0.5, 0.0), abs=0.12)
    judged_rows = [
        replace(row, wrong=row.source == "7") for row in made()
    ]  # nothing but the utterance says what is wrong
    risks = bench.in_folds(judged_rows)
    assert bench.curve(judged_rows, risks)[0]["precision"] < 0.2


def test_the_threshold_asks_as_much_of_precision_as_of_recall():
    rows = made()
    results = bench.figures(rows, risks := bench.in_folds(rows), bench.chosen(rows, risks))
    assert results["precision"]["value"] == pytest.approx(results["recall"]["value"], abs=2)
    assert results["precision"]["low"] < results["precision"]["value"] < results["precision"]["high"]
    assert [at["precision"] for at in results["curve"]] == sorted(
        (at["precision"] for at in results["curve"]), reverse=True
    )


def test_what_the_bench_writes_is_read(tmp_path):
    rows = made()
    path = tmp_path / "family.toml"
    path.write_text(bench._calibration(rows, 0.4, bench.figures(rows, bench.in_folds(rows), 0.4), "tiny.en"))
    read = doubt.read(path)
    assert isinstance(read, DoubtCalibration) and read.threshold == 0.4 and "Whisper tiny.en" in read.basis


def test_the_bench_knows_which_words_are_wrong():
    events = (
        SoundEvent(0, 0.0, 4.0, 0.0, 4.0, "speech", "first", "1", "we are open from monday"),
        SoundEvent(0, 5.0, 8.0, 5.0, 8.0, "speech", "second", "1", "good bye"),
    )
    truth = Truth("call", "development", "mulaw", 1, True, 9.0, "en", events)
    texts = [said("we open on from monday", 0.0, 4.0), said("could bye", 5.0, 8.0)]
    words = [(row.source, row.wrong) for row in bench.judged(truth, texts)]
    assert words == [("first", wrong) for wrong in (False, False, True, False, False)] + [
        ("second", True),
        ("second", False),
    ]
