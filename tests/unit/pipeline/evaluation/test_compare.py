"""Systems side by side: who is better, where, in which calls; as data frames."""

from dataclasses import replace
from uuid import UUID

import pytest

from pipeline.evaluation import frames
from pipeline.evaluation.compare import Comparison, SystemVerdict, compare
from pipeline.evaluation.moments import TurnPiece
from pipeline.evaluation.report import Rate
from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord

SAID = "one two three four five six seven eight nine ten"


def call(number: int, text: str, language: str = "de", **more: object) -> TrueCall:
    """Return a call of one turn, one word per second."""
    words = tuple(TrueWord(word, float(at), at + 0.5) for at, word in enumerate(text.split()))
    turn = TrueTurn("rep", 0.0, float(max(len(words), 1)), words)
    return TrueCall(str(UUID(int=number)), (turn,), language, 60.0, **more)  # type: ignore[arg-type]


def wrong(count: int) -> str:
    return " ".join(SAID.split()[:-count] + ["x"] * count) if count else SAID


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Return twelve calls: `better` is right where `first` has one or two wrong words of ten; a third system has three
    calls.
    """
    truths = [call(number, SAID, "de" if number % 2 else "fr") for number in range(12)]
    sides = {
        "first": [call(number, wrong(1 + number % 2), processing=6.0) for number in range(12)],
        "better": [call(number, wrong(number % 2), processing=12.0) for number in range(12)],
        "few": [call(number, SAID) for number in range(3)],
    }
    agents = {truth.name: {"agent": "Ana" if at < 6 else "Ben"} for at, truth in enumerate(truths)}
    return compare(truths, sides, agents, {"first": 2.0, "better": 2.0})


def test_which_is_better_by_how_much_is_a_sentence(comparison: Comparison) -> None:
    def sentence(system: str, metric: str) -> str:
        verdict = comparison.verdict(system, metric)
        assert verdict is not None
        return verdict.sentence

    assert sentence("better", "wer") == "better is better by 10.0 points (10.0 to 10.0)"
    assert sentence("better", "rtfx") == "better is worse by 5.00 (5.00 to 5.00)", "more is better there"
    assert sentence("better", "cost_per_audio_hour") == "better is worse by 0.2000 (0.2000 to 0.2000)"
    assert sentence("better", "lost_per_minute") == "no difference shown (+0.00 to +0.00)"
    assert sentence("few", "wer") == "few differs by -13.3 points: too few calls to tell"
    assert comparison.verdict("first", "wer") is None
    assert comparison.verdict("few", "rtfx") is None, "no processing time"


@pytest.mark.parametrize(
    ("metric", "value", "low", "high", "better"),
    [
        ("wer", -0.1, -0.2, -0.05, True),
        ("wer", 0.1, 0.05, 0.2, False),
        ("wer", -0.1, -0.2, 0.01, None),
        ("wer", -0.1, None, None, None),
        ("task_f1", 0.1, 0.05, 0.2, True),
        ("contact_f1", -0.1, -0.2, -0.05, False),
    ],
)
def test_a_difference_is_shown_where_its_interval_leaves_out_zero(
    metric: str, value: float, low: float | None, high: float | None, better: bool | None
) -> None:
    assert SystemVerdict("x", metric, Rate(value, low, high, 9)).better is better


def test_slices_are_of_facts_that_calls_do_not_share(comparison: Comparison) -> None:
    slices = {(part.fact, part.value): part for part in comparison.slices("wer")}
    assert list(slices) == [("language", "de"), ("language", "fr"), ("agent", "Ana"), ("agent", "Ben")]
    french = slices["language", "fr"]
    assert (french.calls, french.seconds) == (6, 360.0)
    assert [rate and rate.value for rate in french.rates] == [0.1, 0.0, 0.0]
    assert [verdict and verdict.better for verdict in french.verdicts] == [True, None]


def test_the_worst_calls_come_first(comparison: Comparison) -> None:
    lines = comparison.calls("wer")
    assert [line.values for line in lines[:2]] == [(0.2, 0.1, 0.0), (0.2, 0.1, None)]
    assert lines[0].name == str(UUID(int=1))
    assert len(lines) == 12
    assert comparison.calls("rtfx")[0].worst == 10.0, "the slowest"


def test_moments_say_what_was_said_and_what_was_heard() -> None:
    turns = (
        TrueTurn("rep", 0.0, 4.0, tuple(map(TrueWord, ["Good", "morning", "Frau", "Kern"]))),
        TrueTurn("customer", 5.0, 9.0, tuple(map(TrueWord, ["my", "invoice", "is", "wrong"]))),
    )
    truth = TrueCall("x", turns, "en", 9.0)
    voice, morning = (tuple(map(TrueWord, text.split())) for text in ("the voice is wrong", "good morning"))
    first = replace(truth, turns=(turns[0], replace(turns[1], words=voice)))
    two = replace(truth, turns=(replace(turns[0], words=morning), turns[1]))
    moments = compare([truth], {"one": [first], "two": [two]}).moments("x")
    assert [(moment.start, moment.speaker) for moment in moments] == [(0.0, "rep"), (5.0, "customer")]
    assert [turn.pieces for turn in moments[0].outputs] == [
        (TurnPiece("Good morning Frau Kern", "same"),),
        (TurnPiece("good morning", "same"), TurnPiece("Frau Kern", "said")),
    ]
    assert moments[1].outputs[0].pieces == (
        TurnPiece("my invoice", "said"),
        TurnPiece("the voice", "heard"),
        TurnPiece("is wrong", "same"),
    )
    assert [turn.wrong for turn in moments[1].outputs] == [2, 0]


def test_words_where_nobody_speaks_are_a_moment() -> None:
    moments = compare([TrueCall("x", (), "en", 60.0)], {"one": [call(0, "thank you")], "two": []}).moments
    assert moments("x") == [], "another call"
    hypothesis = replace(call(0, "thank you"), name="x")
    (moment,) = compare([TrueCall("x", (), "en", 60.0)], {"one": [hypothesis]}).moments("x")
    assert moment.outputs[0].pieces == (TurnPiece("thank you", "heard"),)
    assert (moment.start, moment.speaker) == (0.0, None)


def test_frames_hold_what_is_pooled(comparison: Comparison) -> None:
    long = frames.by_call_and_metric(comparison)
    sums = long.groupby(["metric", "system"])[["count", "of"]].sum()
    summary = frames.summary(comparison).set_index(["metric", "system"])
    assert set(summary.index.get_level_values("metric")) == set(comparison.metrics)
    for key, row in summary.dropna(subset="value").iterrows():
        assert row["value"] == pytest.approx(sums.loc[key, "count"] / sums.loc[key, "of"]), key
    assert summary.loc[("wer", "better"), "verdict"] == "better"
    wide = frames.by_call(comparison)
    assert list(wide.columns[:7]) == ["system", "call_id", "seconds", "language", "layout", "duration", "agent"]
    assert len(wide) == 27
    assert wide[wide["system"] == "first"]["wer"].mean() == pytest.approx(0.15)
    slices = frames.slices(comparison, "wer")
    assert len(slices) == 12 and set(slices["slice"]) == {"language", "agent"}
