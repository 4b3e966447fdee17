import os
from collections import defaultdict

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.diarization import DiarizationOptions, load
from pipeline.domain.speech import CUSTOMER, REP, SAMPLE_RATE


@pytest.fixture(scope="module", params=["03", pytest.param("06", marks=pytest.mark.slow)])
def mono(request, sample_call, diarizer):
    call = sample_call(request.param)
    return call, diarizer.diarize(call.samples[0])


def overlap(a_start, a_end, b_start, b_end):
    return max(0.0, min(a_end, b_end) - max(a_start, b_start))


def cosine(a, b):
    return float(np.dot(a.vector, b.vector))


def spoken(call, channel, role):
    return [call.cut(channel, span.start, span.end) for span in call.speech(role)]


def test_an_unknown_engine_is_named_in_the_error():
    with pytest.raises(ValueError, match="nemo"):
        load(DiarizationOptions(engine="nemo"))


def test_bounds_on_speakers_must_be_in_order():
    with pytest.raises(ValidationError, match="below min_speakers"):
        DiarizationOptions(min_speakers=3, max_speakers=2)


def test_telemetry_is_off(diarizer):
    from pyannote.audio.telemetry.metrics import is_metrics_enabled

    assert os.environ["PYANNOTE_METRICS_ENABLED"] == "0"
    assert not is_metrics_enabled()


def test_a_mixed_recording_of_two_voices_has_two_speakers_in_order_of_appearance(mono):
    _, diarization = mono
    labels = list(dict.fromkeys(span.speaker for span in diarization.spans))
    assert labels == ["A", "B"]


def test_spans_are_in_order_and_do_not_overlap(mono):
    call, diarization = mono
    earliest = 0.0
    for span in diarization.spans:
        assert earliest <= span.start <= span.end <= call.samples.shape[1] / SAMPLE_RATE + 0.1
        earliest = span.end - 0.05


def test_almost_all_speech_goes_to_the_voice_that_spoke_it(mono):
    call, diarization = mono
    seconds = defaultdict(float)
    for segment in call.said():
        for span in diarization.spans:
            seconds[segment["speaker"], span.speaker] += overlap(segment["start"], segment["end"], span.start, span.end)
    straight = seconds["rep", "A"] + seconds["customer", "B"]
    spoken_seconds = sum(segment["end"] - segment["start"] for segment in call.said())
    assert straight / spoken_seconds > 0.85


def test_each_speaker_has_a_unit_voiceprint_with_its_seconds(mono):
    _, diarization = mono
    assert set(diarization.voiceprints) == {"A", "B"}
    for label, voiceprint in diarization.voiceprints.items():
        assert np.linalg.norm(voiceprint.vector) == pytest.approx(1.0, abs=1e-5)
        assert voiceprint.model == "pyannote diarization"
        spans = sum(span.end - span.start for span in diarization.spans if span.speaker == label)
        assert voiceprint.speech_seconds == pytest.approx(spans, abs=0.01)
    assert cosine(diarization.voiceprints["A"], diarization.voiceprints["B"]) < 0.5


def test_one_voice_in_two_calls_has_similar_voiceprints_and_other_voices_do_not(sample_call, diarizer):
    first, fourth = sample_call("01"), sample_call("04")  # the same two synthetic voices, roles exchanged
    woman, man = (
        diarizer.voiceprint(spoken(first, REP, "rep")),
        diarizer.voiceprint(spoken(first, CUSTOMER, "customer")),
    )
    man_again = diarizer.voiceprint(spoken(fourth, REP, "rep"))
    woman_again = diarizer.voiceprint(spoken(fourth, CUSTOMER, "customer"))
    assert cosine(woman, woman_again) > 0.7
    assert cosine(man, man_again) > 0.7
    assert cosine(woman, man) < 0.4
    assert cosine(woman_again, man_again) < 0.4


def test_a_voiceprint_of_a_channel_is_close_to_that_of_the_same_voice_in_a_mixed_recording(sample_call, diarizer):
    mixed = sample_call("03")  # the rep's voice there is the customer's in 02
    diarization = diarizer.diarize(mixed.samples[0])
    alone = diarizer.voiceprint(spoken(sample_call("02"), CUSTOMER, "customer"))
    assert cosine(diarization.voiceprints["A"], alone) > 0.6 > cosine(diarization.voiceprints["B"], alone)


def test_a_voiceprint_says_from_how_much_speech_it_was_made(sample_call, diarizer):
    pieces = spoken(sample_call("01"), REP, "rep")
    voiceprint = diarizer.voiceprint(pieces)
    assert voiceprint.speech_seconds == pytest.approx(sum(map(len, pieces)) / SAMPLE_RATE, abs=0.01)


def test_too_little_speech_gives_no_voiceprint(sample_call, diarizer):
    assert diarizer.voiceprint([]) is None
    assert diarizer.voiceprint([sample_call("01").cut(REP, 0.8, 2.8)]) is None
