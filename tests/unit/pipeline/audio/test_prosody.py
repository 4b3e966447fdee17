from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy.signal import butter, sosfiltfilt

from pipeline.analysis import AnalysisOptions
from pipeline.audio import prosody
from pipeline.domain.insight import Roster
from pipeline.domain.speech import (
    SAMPLE_RATE,
    Audio,
    AudioInMemory,
    Layout,
    LayoutKind,
    Prosody,
    Slices,
    Span,
)
from pipeline.domain.stage import Stage
from pipeline.errors import StorageError
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.process import process
from pipeline.runtime.workers import LocalWorkers
from tests.recordings import stored
from tests.support.calls_by_hand import call
from tests.synthetic_calls import FOLDER
from tests.unit.pipeline.test_process import spoken

pytestmark = pytest.mark.cases(3)

FORMANTS = ((500, 150, 1.0), (1500, 200, 0.5), (2500, 250, 0.25))


def voice(middle: float, seconds: float, sway: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Return harmonics under the formants of a vowel, whose pitch varies by some semitones about `middle`, and the
    pitch.
    """
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    pitch = middle * 2 ** (np.sin(2 * np.pi * 0.7 * time) * sway / 12)
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    sound = np.zeros(len(time))
    for number in range(1, int(3800 * 1.5 / middle)):
        frequency = number * pitch
        strength = sum(gain * np.exp(-0.5 * ((frequency - at) / width) ** 2) for at, width, gain in FORMANTS) + 0.02
        sound += np.where(frequency < 3800, strength * np.cos(number * phase + 0.3 * number**2), 0)
    return sound / np.abs(sound).max() * 0.3, pitch


def telephone(sound: np.ndarray, snr: float) -> np.ndarray:
    """Limit to 300 to 3400 Hz with noise and mu-law: the fundamental of most voices is gone."""
    band = sosfiltfilt(butter(6, (300, 3400), "bandpass", fs=SAMPLE_RATE, output="sos"), sound)
    band = band + np.random.default_rng(1).normal(0, np.std(band) * 10 ** (-snr / 20), len(band))
    pressed = np.sign(band) * np.log1p(255 * np.minimum(np.abs(band), 1)) / np.log(256)
    steps = np.round(pressed * 127) / 127
    return np.sign(steps) * np.expm1(np.abs(steps) * np.log(256)) / 255


def audio(*channels: np.ndarray) -> AudioInMemory:
    return AudioInMemory((np.vstack(channels) * 32767).clip(-32768, 32767).astype(np.int16))


@pytest.mark.parametrize("snr", [30, 10])
@pytest.mark.parametrize("middle", [80, 110, 150, 210, 280, 350])
def test_the_pitch_of_a_voice_on_a_telephone_is_found(middle: float, snr: float) -> None:
    """Gross errors are those above 20 %, as in the literature on pitch trackers."""
    sound, pitch = voice(middle, 12)
    track = prosody.track(audio(telephone(sound, snr)), 0, [Span(0, 12)])
    true_pitch = pitch[(track.time * SAMPLE_RATE).astype(int)]
    wrong = np.abs(track.pitch / true_pitch - 1)[track.voiced]
    assert track.voiced.mean() > 0.7
    assert (wrong > 0.2).mean() <= 0.01
    assert np.median(wrong) < 0.005


def test_noise_and_silence_are_not_voiced() -> None:
    hiss = np.random.default_rng(2).normal(0, 0.05, 8 * SAMPLE_RATE)
    measured = prosody.measure(audio(hiss, np.zeros(len(hiss))), [[Span(0, 8)], [Span(0, 8)]])
    noise, silence = measured.channels
    assert max(noise.voiced) < 0.2
    assert set(silence.voiced) == {0.0}
    assert set(silence.level) == {-100.0}
    assert set(silence.pitch) == {None}


def test_level_is_that_of_the_speech_in_decibels() -> None:
    sound, _ = voice(120, 4)
    loud, soft = (prosody.measure(audio(sound * gain), [[Span(0, 4)]]).channels[0] for gain in (1.0, 0.25))
    assert np.allclose(np.subtract(loud.level, soft.level), 20 * np.log10(4), atol=0.11)  # rounded to 0.1 each


def test_a_livelier_voice_spreads_its_pitch_more() -> None:
    even, lively = (prosody.measure(audio(voice(160, 10, sway)[0]), [[Span(0, 10)]]) for sway in (0.2, 6.0))
    assert np.median(lively.channels[0].spread) > 5 * np.median(even.channels[0].spread)


def test_only_speech_is_measured_and_slices_say_where_it_is() -> None:
    sound, _ = voice(150, 72)
    (slices,) = prosody.measure(audio(sound), [[Span(2, 3), Span(29.5, 30.5), Span(70.1, 70.15)]]).channels
    assert slices.index == (4, 5, 59, 60)


def test_blocks_leave_no_seam() -> None:
    """Reading in blocks gives the same result as one block, here shifted by less than a block."""
    sound, _ = voice(140, 65)
    whole = prosody.measure(audio(sound), [[Span(0, 65)]]).channels[0]
    later = prosody.measure(audio(np.concatenate([np.zeros(7 * SAMPLE_RATE), sound])), [[Span(7, 72)]]).channels[0]
    assert [at - 14 for at in later.index] == list(whole.index)
    shared = [(a, b) for a, b in zip(whole.pitch, later.pitch, strict=True) if a and b]
    assert len(shared) > 100
    assert max(abs(a / b - 1) for a, b in shared) < 0.02


class Watched(Audio):
    """Six hours of a generated voice; records the largest read."""

    def __init__(self, hours: float) -> None:
        self.piece = (voice(130, 40)[0] * 32767).astype(np.int16)
        self.hours, self.most = hours, 0

    @property
    def channels(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return round(self.hours * 3600 * SAMPLE_RATE)

    def read(self, channel: int, first: int, last: int) -> np.ndarray:
        first, last = max(0, first), min(last, self.length)
        self.most = max(self.most, last - first)
        return self.piece[np.arange(first, last) % len(self.piece)]


def test_a_long_call_is_read_in_blocks() -> None:
    long = Watched(0.25)
    (slices,) = prosody.measure(long, [[Span(start, start + 20) for start in range(0, 900, 30)]]).channels
    assert len(slices.index) == 30 * 40
    assert long.most <= 31 * SAMPLE_RATE


@pytest.mark.parametrize("samples", [0, 1, 300, 2000])
def test_hardly_any_audio_has_no_slices(samples: int) -> None:
    measured = prosody.measure(audio(np.zeros(samples)), [[Span(0, samples / SAMPLE_RATE)]])
    assert measured.channels == (Slices(),)


def test_it_travels_as_json() -> None:
    measured = prosody.measure(audio(voice(150, 3)[0], np.zeros(3 * SAMPLE_RATE)), [[Span(0, 3)], []])
    adapter: TypeAdapter[Any] = TypeAdapter(Stage.PROSODY.result)
    assert adapter.validate_json(adapter.dump_json(measured)) == measured
    assert measured.channels[0].index
    assert measured.channels[1] == Slices()


async def after_recognition(recording: Path, whose: Any = "customers") -> tuple[Any, dict[str, Any]]:
    """Run the stages after recognition; return the outcome and the stored prosody."""
    analysis = replace(spoken().audio, layout=Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "by hand"))
    analysis = replace(analysis, speech=((Span(0, 3),), (Span(0, 8),)))
    results = {"audio": analysis, "asr": spoken().recognized, "voiceprint": None}
    results["fetch"] = (stored(recording),)
    options = ProcessOptions(analysis=AnalysisOptions(tone_by_voice=whose))
    journal = MemoryJournal(results)
    outcome = await process(call().call, LocalWorkers(None, None), Roster(), journal, options)
    return outcome, {stage: result for stage, result in journal.results.items() if stage not in results}


async def test_it_is_measured_while_the_recording_is_stored() -> None:
    outcome, stored_prosody = await after_recognition(FOLDER / "01_invoice_stereo" / "call.flac")
    assert stored_prosody["prosody"].channels[1].index
    assert outcome.recognized_call.prosody == stored_prosody["prosody"]
    assert outcome.warnings == ()


@pytest.mark.parametrize(
    ("whose", "measured"), [("customers", [False, True]), ("nobody", [False, False]), ("everybody", [True, True])]
)
async def test_only_voices_that_may_be_judged_are_measured_and_the_record_says_so(
    whose: str, measured: list[bool]
) -> None:
    outcome, stored_prosody = await after_recognition(FOLDER / "01_invoice_stereo" / "call.flac", whose)
    assert [bool(channel.index) for channel in stored_prosody["prosody"].channels] == measured
    (tone,) = [finding for finding in outcome.findings if finding.step == "tone"]
    assert ("no voice is judged" in (tone.note or "")) == (whose == "nobody")


async def test_nobody_is_asked_for_a_recording_again_for_the_sake_of_its_tone(tmp_path: Path) -> None:
    outcome, stored_prosody = await after_recognition(tmp_path / "gone.flac")
    assert outcome.transcript.turns
    assert (outcome.recognized_call.prosody, outcome.warnings) == (None, ())
    assert "prosody" not in stored_prosody


async def test_its_failure_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Prosody:
        raise StorageError("The disk is gone.")

    monkeypatch.setattr(prosody, "measure", broken)
    outcome, stored_prosody = await after_recognition(FOLDER / "01_invoice_stereo" / "call.flac")
    assert outcome.transcript.turns
    assert outcome.warnings == ("The prosody of the voices could not be measured: The disk is gone.",)
    assert "prosody" not in stored_prosody
