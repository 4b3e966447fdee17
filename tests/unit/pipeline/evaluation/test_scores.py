"""Scores against independent computations: edit distance by hand, speakers on a grid of milliseconds."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.report import METRICS, RESAMPLES, SEED, difference, duration_band, pooled
from pipeline.evaluation.score import CallScore, Errors, normalized, score
from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord

VOCABULARY = ["alpha", "bravo", "carlo", "delta"]


def distance(first: list[str], second: list[str]) -> int:
    """Levenshtein's, as the textbook has it."""
    row = list(range(len(second) + 1))
    for i, word in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, second_word in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != second_word))
    return row[-1]


def call(*turns: tuple[str, float, str], channels: bool = False, language: str = "de", name: str = "x") -> TrueCall:
    """Turns as (speaker, start, words); each word takes 400 ms and half a second passes until the next."""
    call_turns = []
    for speaker, start, text in turns:
        words = tuple(TrueWord(w, start + 0.5 * n, start + 0.5 * n + 0.4) for n, w in enumerate(text.split()))
        end = start + 0.5 * max(len(words), 1)
        call_turns.append(TrueTurn(speaker, start, end, words, {"rep": 0}.get(speaker, 1) if channels else None))
    return TrueCall(name, tuple(call_turns), language)


@st.composite
def calls(draw: st.DrawFn) -> TrueCall:
    words = st.lists(st.sampled_from(VOCABULARY), max_size=5).map(" ".join)
    turns = draw(st.lists(st.tuples(st.sampled_from(["rep", "customer"]), words), max_size=5))
    return call(*((speaker, 4.0 * at, text) for at, (speaker, text) in enumerate(turns)), channels=True)


def said(call: TrueCall, speaker: str | None = None) -> list[str]:
    return [w.text for turn in call.turns if speaker in (None, turn.speaker) for w in turn.words or ()]


@given(truth=calls(), output=calls())
def test_words_wrong_are_the_edit_distance_of_each_channel(truth: TrueCall, output: TrueCall) -> None:
    result = score(truth, output)
    assert result.normalized is not None
    parties = ("rep", "customer")
    assert result.normalized.all == sum(distance(said(truth, who), said(output, who)) for who in parties)
    assert result.normalized.reference == len(said(truth))
    one_channel = score(*(replace(c, turns=tuple(replace(t, channel=None) for t in c.turns)) for c in (truth, output)))
    assert one_channel.normalized is not None
    assert one_channel.normalized.all == distance(said(truth), said(output))


@given(truth=calls(), output=calls())
def test_cpwer_is_of_the_best_pairing_of_speakers(truth: TrueCall, output: TrueCall) -> None:
    result = score(truth, output)
    assert result.cp is not None
    parties = ("rep", "customer")
    best = min(
        sum(distance(said(truth, a), said(output, b)) for a, b in zip(parties, order, strict=True))
        for order in itertools.permutations(parties)
    )
    assert result.cp.all == best


@given(truth=calls(), output=calls())
def test_speech_with_the_wrong_speaker_is_what_a_grid_counts(truth: TrueCall, output: TrueCall) -> None:
    result = score(truth, output)
    length = round(100 * result.seconds)
    grids = []
    for call in (truth, output):
        grid = np.zeros((2, max(length, 1)), dtype=bool)
        for turn in call.turns:
            grid[0 if turn.speaker == "rep" else 1, round(100 * turn.start) : round(100 * turn.end)] = True
        grids.append(grid)
    reference, other = grids
    wrong = min(
        np.maximum(reference.sum(0), mapped.sum(0)).sum() - (reference & mapped).sum()
        for mapped in (other, other[::-1])
    )
    assert result.spoken == pytest.approx(reference.sum() / 100, abs=0.02)
    assert result.diarization == pytest.approx(wrong / 100, abs=0.05)


def test_a_call_by_hand() -> None:
    truth = call(("rep", 0.0, "Guten Tag Frau Kern"), ("customer", 4.0, "Hallo"), channels=True)
    hypothesis = call(("rep", 0.2, "guten tag frau"), ("customer", 4.1, "hallo hallo"), channels=True)
    result = score(truth, hypothesis)
    assert result.normalized == Errors(reference=5, deleted=1, inserted=1)
    assert result.written == Errors(reference=5, substituted=4, deleted=1, inserted=1)
    assert result.times == pytest.approx((0.2, 0.2, 0.2, 0.1))
    assert (result.speakers, round(result.seconds, 3)) == (2, 5.1)
    assert METRICS["lost_per_minute"](result) == (1, pytest.approx(5.1 / 60))


def test_normalizers_are_whispers() -> None:
    assert normalized("Mr. Smith won't pay twenty dollars.", "en") == "mister smith will not pay $20"
    assert normalized("Grüß Gott, Frau Müller!", "de") == "grüß gott frau müller"
    assert normalized("Nobody knows", None) == "nobody knows"


def test_what_is_not_known_is_not_measured() -> None:
    truth = call(("rep", 0.0, "one two"), ("customer", 2.0, "three"))
    hypothesis = call(("A", 0.0, "one two"), ("B", 2.0, "tree"))
    untimed = replace(
        truth, turns=tuple(replace(t, words=tuple(TrueWord(w.text) for w in t.words or ())) for t in truth.turns)
    )
    assert score(untimed, hypothesis).times == ()
    nobody = replace(truth, turns=tuple(replace(turn, speaker=None) for turn in truth.turns))
    result = score(nobody, hypothesis)
    assert (result.cp, result.diarization, result.jaccard) == (None, None, None)
    assert result.normalized == Errors(reference=3, substituted=1)
    silent = replace(truth, turns=tuple(replace(turn, words=None) for turn in truth.turns))
    result = score(silent, hypothesis)
    assert (result.normalized, result.written, result.cp) == (None, None, None)
    assert result.diarization == pytest.approx(0.0)
    nothing = score(TrueCall("x", ()), hypothesis)
    assert nothing.normalized == Errors(reference=0, inserted=3)


def scored(name: str, wrong: int, words: int, seconds: float = 60.0) -> CallScore:
    errors = Errors(reference=words, substituted=wrong)
    return CallScore(name, seconds, errors, errors, None, None, None, None, None, ())


def test_intervals_are_of_resampled_calls() -> None:
    chance = random.Random(3)
    scores = [scored(str(n), chance.randrange(20), 100) for n in range(30)]
    rate = pooled(scores, "wer")
    assert rate is not None and rate.low is not None and rate.high is not None
    assert rate.value == pytest.approx(sum(s.normalized.all for s in scores if s.normalized) / 3000)
    drawn = np.random.default_rng(SEED).integers(0, 30, (RESAMPLES, 30))
    wrong = np.array([s.normalized.all if s.normalized else 0 for s in scores])
    low, high = np.percentile(wrong[drawn].sum(1) / 3000, [2.5, 97.5])
    assert (rate.low, rate.high) == (pytest.approx(low), pytest.approx(high))
    assert pooled(scores[:4], "wer").low is None  # type: ignore[union-attr]
    assert pooled(scores, "der") is None


def test_a_difference_is_of_the_same_calls() -> None:
    scores = [scored(str(n), 10 + n % 3, 100) for n in range(20)]
    other = [scored(str(n), 8 + n % 3, 100) for n in range(5, 25)]
    rate = difference(scores, other, "wer")
    assert rate is not None and rate.high is not None
    assert rate.calls == 15
    assert rate.value == pytest.approx(-0.02)
    assert rate.low == pytest.approx(-0.02) and rate.high == pytest.approx(-0.02), "each call differs by the same"


def test_bands_of_duration() -> None:
    bands = [duration_band(seconds) for seconds in (5, 60, 899, 900)]
    assert bands == ["under 1 min", "1 to 5 min", "5 to 15 min", "15 min and more"]
