import numpy as np
import pytest

from bench.lib import sounds
from pipeline.audio.labels import frames, keys, tones
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, LabelKind
from tests.support import scenes

pytestmark = pytest.mark.cases(4)


def on_a_line(sound: np.ndarray, codec: str = "mulaw", dbfs: float = -20.0, seed: int = 0) -> AudioInMemory:
    rng = np.random.default_rng(seed)
    pause = np.zeros(4000, np.float32)
    whole = np.concatenate([pause, sounds.level(sound, dbfs), pause])
    return scenes.at_16_khz(sounds.through(scenes.line(whole, rng, -55), codec))


def signals(audio: AudioInMemory) -> list[tones.Signal]:
    return tones.signals(tones.find(frames.measure(audio, 0)))


@pytest.mark.parametrize("codec", ["mulaw", "amr"])
@pytest.mark.parametrize("country", sounds.RINGING)
def test_a_telephone_that_rings_is_heard_in_every_country(country: str, codec: str) -> None:
    sound = sounds.cadence(*sounds.RINGING[country], 13.0, np.random.default_rng(1))
    detected = signals(on_a_line(sound, codec))
    assert detected
    assert {signal.kind for signal in detected} == {LabelKind.RINGBACK}
    assert detected[0].tones[0].first / frames.STEP == pytest.approx(0.5, abs=0.1) or codec == "amr"


@pytest.mark.parametrize("country", sounds.ENGAGED)
def test_a_busy_signal_is_no_ringing(country: str) -> None:
    sound = sounds.cadence(*sounds.ENGAGED[country], 6.0, np.random.default_rng(1))
    assert [signal.kind for signal in signals(on_a_line(sound))] == [LabelKind.BUSY]


def test_ringing_that_ends_in_a_busy_signal_of_the_same_pitch_is_both() -> None:
    rng = np.random.default_rng(1)
    rings, busy = sounds.cadence((425,), (1.0, 4.0), 11.0, rng), sounds.cadence((425,), (0.48, 0.48), 6.0, rng)
    pause = np.zeros(2 * sounds.RATE, np.float32)
    detected = signals(on_a_line(np.concatenate([rings, pause, busy])))
    assert [signal.kind for signal in detected] == [LabelKind.RINGBACK, LabelKind.BUSY]


@pytest.mark.parametrize(
    ("sound", "kind", "detail"),
    [
        (sounds.tones((350, 440), 5.0, np.random.default_rng(0)), LabelKind.NOISE, "dial tone"),
        (sounds.information_tone(np.random.default_rng(0)), LabelKind.BUSY, "special information tone"),
        (sounds.tones((1000,), 0.4, np.random.default_rng(0)), LabelKind.BEEP, "Hz"),
        (sounds.tones((2100,), 3.0, np.random.default_rng(0)), LabelKind.NOISE, "fax tone"),
        (sounds.tones((425,), 1.0, np.random.default_rng(0)), LabelKind.RINGBACK, "Hz"),
    ],
)
def test_other_tones_are_called_what_they_are(sound: np.ndarray, kind: LabelKind, detail: str) -> None:
    (signal,) = signals(on_a_line(sound))
    assert signal.kind is kind
    assert detail in signal.detail


@pytest.mark.parametrize("codec", ["none", "mulaw", "amr", "g726", "opus"])
@pytest.mark.parametrize("on", [0.04, 0.08, 0.3])
def test_keys_are_read(codec: str, on: float) -> None:
    sound = sounds.keys("0123456789*#ABCD", np.random.default_rng(2), on, 0.06)
    pressed = keys.find(on_a_line(sound, codec, -18), 0)
    assert "".join(key.digit for key in pressed) == "0123456789*#ABCD"
    assert all(key.end - key.start == pytest.approx(on, abs=0.04) for key in pressed)


def test_no_voice_presses_keys_or_makes_a_sure_tone_that_lasts() -> None:
    for leg in scenes.legs():
        audio = scenes.at_16_khz(leg.sound)
        assert keys.find(audio, 0) == []
        assert all(tone.seconds < 0.5 for tone in tones.find(frames.measure(audio, 0)) if tone.sure), leg.name


def test_a_key_too_soft_or_too_short_or_of_one_tone_is_none() -> None:
    rng = np.random.default_rng(0)
    for sound in (sounds.keys("5", rng, 0.015), sounds.tones((770,), 0.2, rng), sounds.tones((1336,), 0.2, rng)):
        assert keys.find(on_a_line(sound, "none"), 0) == []
    assert keys.find(on_a_line(sounds.keys("5", rng), "none", -60), 0) == []


@pytest.mark.parametrize("length", [0, 1, 319, 321, 1024, SAMPLE_RATE * 61 + 7])
def test_frames_cover_any_length_and_blocks_make_no_seams(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(0).normal(0, 1000, (1, length)).astype(np.int16)
    whole = frames.measure(AudioInMemory(samples), 0)
    assert len(whole) == -(-length // frames.HOP)
    monkeypatch.setattr(frames, "BLOCK_FRAMES", 7)
    small = frames.measure(AudioInMemory(samples[:, : SAMPLE_RATE * 3]), 0)
    count = max(0, min(len(small), len(whole)) - 3)
    for name in ("level", "first", "share_both", "lines"):
        assert np.allclose(getattr(small, name)[:count], getattr(whole, name)[:count], atol=1e-3)
