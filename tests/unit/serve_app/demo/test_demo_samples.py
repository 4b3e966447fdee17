"""The demo's sample calls: what they say about themselves, and how those with a recipe are composed."""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio.decode.decoder import DecodeOptions, decode_file
from pipeline.domain.speech import LabelKind, LayoutKind
from serve_app.cli.run.demo import VOICES, demo_settings, ready_samples
from serve_app.demo import compose, sounds
from serve_app.demo.compare import ROLES, words_of
from serve_app.demo.samples import Sample, load_samples

SAMPLES = load_samples()
LAYOUTS = {LayoutKind.STEREO, LayoutKind.TWO_FILES, LayoutKind.MONO, LayoutKind.IDENTICAL}
RATE = compose.RATE


def part(**changes: Any) -> dict[str, Any]:
    return {"channel": 0, "at": 0.5, "ringback": "us", "seconds": 3.0, **changes}


def tone(line: np.ndarray, start: float, frequency: float) -> float:
    """The level (dBFS of a sine) of one frequency in the 0.1 s from `start`."""
    piece = line[round(start * RATE) : round((start + 0.1) * RATE)] / 32768
    wave = np.exp(-2j * np.pi * frequency * np.arange(len(piece)) / RATE)
    return float(20 * np.log10(2 * abs(piece @ wave) / len(piece) + 1e-9))


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
    for held in expected.get("sounds", ()):
        assert LabelKind(held["kind"]) is not LabelKind.SPEECH
        assert 0 <= held["start"] < held["end"] <= expected["duration"]
    quotes = {segment["text"] for segment in expected["segments"]}
    assert all(task["quote"] in quotes for task in expected["tasks"])


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.recipe is None], ids=lambda sample: sample.name)
def test_a_recording_is_as_long_as_its_truth_says(sample: Sample) -> None:
    for recording in sample.recordings:
        assert decode_file(recording, DecodeOptions()).audio.duration == pytest.approx(
            sample.expected["duration"], abs=0.1
        )


def test_a_machine_without_apt_shows_the_calls_that_need_no_sounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(sounds.SoundsMissing, match="apt-get is not installed"):
        sounds.fetch()
    shown = ready_samples(tmp_path / "calls")
    assert [sample.name for sample in shown] == [sample.name for sample in SAMPLES if not sample.needs_sounds]
    assert all(recording.is_file() for sample in shown for recording in sample.recordings)
    message = capsys.readouterr().err
    assert all(sample.name in message for sample in SAMPLES if sample.needs_sounds)


def test_a_call_holds_each_part_on_its_line_at_its_time_and_level() -> None:
    parts = [part(), part(channel=1, at=1.0, keys="5", level=-16.0)]
    del parts[1]["ringback"], parts[1]["seconds"]
    rep, customer = compose.compose({"seconds": 4.0, "parts": parts}, Path(), None)
    assert len(rep) == len(customer) == 4 * RATE
    assert tone(rep, 1.0, 440) == pytest.approx(tone(rep, 1.0, 480), abs=0.5)
    assert tone(rep, 1.0, 440) == pytest.approx(-23, abs=1.0), "two sines of -26 dBFS RMS, which peak 3 dB above"
    assert tone(rep, 2.8, 440) < -50, "two seconds of ringing, four of silence"
    assert tone(customer, 1.01, 770) > -20 and tone(customer, 1.01, 1336) > -20
    assert tone(customer, 0.5, 770) < -50 and tone(customer, 1.2, 770) < -50


def test_composing_twice_gives_the_same_file(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.json"
    recipe.write_text('{"seconds": 1.5, "parts": [{"channel": 1, "at": 0.2, "keys": "42"}]}')
    assert not compose.needs_sounds(recipe)
    for name in ("one.wav", "two.wav"):
        compose.write(recipe, None, tmp_path / name)
    assert (tmp_path / "one.wav").read_bytes() == (tmp_path / "two.wav").read_bytes()
    with wave.open(str(tmp_path / "one.wav")) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (2, RATE, 12_000)


def test_a_prompt_needs_fetched_sounds() -> None:
    with pytest.raises(ValueError, match="fetched"):
        compose.compose({"seconds": 1.0, "parts": [{"channel": 0, "at": 0.0, "prompt": "en/beep"}]}, Path(), None)


def test_mu_law_keeps_speech_within_its_step() -> None:
    """Logarithmic steps: the error is a share of the value, 38 dB below it."""
    sound = np.sin(np.linspace(0, 400, 8000)).astype(np.float32) * 0.3
    error = compose.mulaw(sound) / 32767 - sound
    assert 20 * np.log10(np.sqrt((error**2).mean() / (sound**2).mean())) < -33
    assert compose.mulaw(np.array([5.0, -5.0, 0.0], np.float32)).tolist() == pytest.approx([32767, -32767, 0], abs=1)


def test_the_demo_takes_the_engines_of_the_settings_and_its_own_models_for_the_default_ones(monkeypatch, tmp_path):
    made = demo_settings(tmp_path, 8000)
    assert (made.asr.model, made.diarization.pipeline) == ("base", "segmentation-3.0+campplus")
    monkeypatch.setenv("SWITCHBOARD_DIARIZATION__ENGINE", "clustering")
    made = demo_settings(tmp_path, 8000)
    assert (made.diarization.engine, made.diarization.pipeline) == ("clustering", "auto")
