import pytest

from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import LabelKind, LayoutKind
from serve_app.cli.run.demo import VOICES, chosen_samples, demo_settings
from serve_app.cli.ui.errors import CommandError
from serve_app.demo.compare import ROLES, words_of
from serve_app.demo.samples import Sample, load_samples

SAMPLES = load_samples()
LAYOUTS = {LayoutKind.STEREO, LayoutKind.TWO_FILES, LayoutKind.MONO, LayoutKind.IDENTICAL}


def test_there_are_nine_calls_of_every_layout_in_three_languages_most_of_real_voices() -> None:
    assert len(SAMPLES) == 9
    assert {sample.expected["layout"] for sample in SAMPLES} == LAYOUTS
    assert {sample.expected["language"] for sample in SAMPLES} == {"en", "es", "de"}
    assert sum(sample.expected["voices"] == "real" for sample in SAMPLES) >= 6
    assert all(len(sample.name) <= 16 for sample in SAMPLES), "the demo's table has to fit 80 columns"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_is_true_to_itself(sample: Sample) -> None:
    expected = sample.expected
    assert expected["name"] == sample.name
    assert expected["voices"] in VOICES
    assert sample.body["duration"] == round(expected["duration"])
    for segment in expected["segments"]:
        words = [word for timed in segment["words"] for word in words_of(timed["text"])]
        assert words == words_of(segment["text"])
        times = [(word["start"], word["end"]) for word in segment["words"]]
        assert times == sorted(times) and all(start < end for start, end in times)
        assert times[0][0] >= 0 and times[-1][1] <= expected["duration"]
        assert LayoutKind(expected["layout"]).separated is False or segment["speaker"] in ROLES
    for sound_ in expected.get("sounds", ()):
        assert LabelKind(sound_["kind"]) is not LabelKind.SPEECH
        assert 0 <= sound_["start"] < sound_["end"] <= expected["duration"]
    quotes = {segment["text"] for segment in expected["segments"]}
    assert all(task["quote"] in quotes for task in expected["tasks"])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_recording_is_as_long_as_its_truth_says(sample: Sample) -> None:
    for recording in sample.recordings:
        assert decode_file(recording, DecodeOptions()).audio.duration == pytest.approx(
            sample.expected["duration"], abs=0.1
        )


def test_prefixes_choose_samples_and_an_unknown_one_is_answered_with_the_names() -> None:
    assert [sample.name for sample in chosen_samples(("04", "08"))] == ["04_two_files", "08_invoice"]
    assert chosen_samples(()) == SAMPLES
    with pytest.raises(CommandError, match="No sample call starts with 99") as error:
        chosen_samples(("99",))
    assert all(sample.name in error.value.explanation.advice for sample in SAMPLES)


def test_the_demo_takes_the_engines_of_the_settings_and_its_own_models_for_the_default_ones(monkeypatch, tmp_path):
    settings_ = demo_settings(tmp_path, 8000)
    assert (settings_.asr.model, settings_.diarization.pipeline) == ("base", "segmentation-3.0+campplus")
    monkeypatch.setenv("SWITCHBOARD_DIARIZATION__ENGINE", "clustering")
    settings_ = demo_settings(tmp_path, 8000)
    assert (settings_.diarization.engine, settings_.diarization.pipeline) == ("clustering", "auto")
