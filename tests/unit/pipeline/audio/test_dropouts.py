import numpy as np
import pytest
import soxr

from pipeline.asr.safety import settle
from pipeline.asr.words import clear_of
from pipeline.audio.labels import dropouts
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.audio.labels.labeling import label
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Label, LabelKind, Span, Word
from tests.support.channels_by_hand import sample
from tests.support.safety_by_hand import heard_as, said, sounding


@pytest.fixture(scope="module")
def talk() -> np.ndarray:
    """Return twenty seconds of one party at 8 kHz over a noisy line."""
    rep = soxr.resample(sample("01_invoice_stereo")[0][: 20 * SAMPLE_RATE], SAMPLE_RATE, 8000)
    return rep + np.random.default_rng(2).normal(0, 12, len(rep))


def heard(row: np.ndarray) -> AudioInMemory:
    return AudioInMemory(np.clip(soxr.resample(row, 8000, SAMPLE_RATE), -32768, 32767).astype(np.int16)[None])


def loud_moments(row: np.ndarray, count: int) -> list[float]:
    """Return the seconds, at least 1.5 s apart, at which the talk is loud."""
    level = np.convolve(np.abs(row), np.ones(400) / 400, "same")
    moments: list[float] = []
    for at in np.argsort(-level):
        if all(abs(at / 8000 - other) > 1.5 for other in moments):
            moments.append(at / 8000)
        if len(moments) == count:
            break
    return sorted(moments)


@pytest.mark.parametrize("silence", [0, 8])  # of mu-law, of A-law
def test_lost_packets_are_found_to_the_packet_and_marked(talk: np.ndarray, silence: int) -> None:
    cut = talk.copy()
    moments = loud_moments(talk, 5)
    for at in moments:
        cut[round(at * 8000) : round((at + 0.2) * 8000)] = silence
    audio = heard(cut)
    dropped = dropouts.find(audio, 0)
    assert [gap.start for gap in dropped] == pytest.approx(moments, abs=0.012)
    assert [gap.duration for gap in dropped] == pytest.approx([0.2] * 5, abs=0.02)
    marked = [gap for gap in label(audio, SpeechOptions())[0] if gap.kind is LabelKind.GAP]
    assert [gap.start for gap in marked] == pytest.approx(moments, abs=0.03)


def test_pauses_are_not_lost_however_silent(talk: np.ndarray) -> None:
    assert dropouts.find(heard(talk), 0) == ()
    quiet = np.convolve(np.abs(talk), np.ones(800) / 800, "same") < 60
    assert quiet.mean() > 0.2
    assert dropouts.find(heard(np.where(quiet, 0, talk)), 0) == ()
    assert dropouts.find(heard(talk * 0), 0) == ()
    assert dropouts.find(heard(talk[:10]), 0) == ()


def test_no_word_lasts_through_a_gap() -> None:
    times = {"before": (1.0, 1.4), "through": (1.4, 2.4), "late": (2.45, 3.5), "clear": (4.0, 4.3)}
    words = [Word(*time, text, 0.5) for text, time in times.items()]
    gaps = [Span(1.6, 1.8), Span(2.5, 2.7), Span(5.0, 5.2)]
    cleared = [(word.text, word.start, word.end) for word in clear_of(words, gaps)]
    assert cleared == [("before", 1.0, 1.4), ("through", 1.8, 2.4), ("late", 2.7, 3.5), ("clear", 4.0, 4.3)]


def test_a_word_inside_a_gap_stays_where_it_is() -> None:
    (word,) = clear_of([Word(1.0, 1.2, "no", confidence=0.5)], [Span(0.9, 1.3)])
    assert (word.start, word.end) == (1.0, 1.2)


def test_what_is_kept_of_a_call_has_no_word_through_a_gap() -> None:
    kinds = ((0.0, 1.9, LabelKind.SPEECH), (1.9, 2.1, LabelKind.GAP), (2.1, 4.0, LabelKind.SPEECH))
    labels = (tuple(Label(start, end, kind, 1.0) for start, end, kind in kinds),)
    analysis = heard_as([[(0.0, 1.9), (2.1, 4.0)]], labels=labels)
    (settled,), _ = settle(sounding((0, 0.0, 1.9), (0, 2.1, 4.0)), analysis, [said("one two three", 0.0, 4.0)], {})
    assert [(word.start, word.end) for word in settled.words] == [
        pytest.approx(time, abs=0.01) for time in ((0, 4 / 3), (4 / 3, 1.9), (8 / 3, 4))
    ]
