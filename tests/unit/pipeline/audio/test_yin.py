import numpy as np
import numpy.typing as npt
import pytest

from pipeline.audio import yin

RATE, WINDOW = 8000, 512


def windows(hertz: float, lowest_harmonic: int = 1) -> npt.NDArray[np.float32]:
    """Return twenty windows of a harmonic sound with different phases."""
    t = np.arange(WINDOW)[None, :] / RATE + np.arange(20)[:, None] * 0.0137
    numbers = [n for n in range(lowest_harmonic, 40) if n * hertz < 3600]
    return np.sum([np.cos(2 * np.pi * n * hertz * t + n) / n for n in numbers], axis=0).astype(np.float32)


@pytest.mark.parametrize("hertz", [71.0, 98.5, 133.0, 210.0, 304.7, 350.0])
@pytest.mark.parametrize("lowest_harmonic", [1, 3])
def test_the_pitch_is_found_where_the_fundamental_is_missing_too(hertz: float, lowest_harmonic: int) -> None:
    pitch = yin.pitch(windows(hertz, lowest_harmonic), RATE, 65.0, 500.0, 0.2)
    assert pitch.shape == (20,)
    assert np.abs(pitch / hertz - 1).max() < 0.01


def test_the_shortest_period_of_a_periodic_sound_is_taken_and_not_its_double() -> None:
    assert yin.pitch(windows(240.0), RATE, 65.0, 500.0, 0.2).min() > 230


def test_noise_silence_and_no_windows_give_figures_and_no_error() -> None:
    noise = np.random.default_rng(0).standard_normal((5, WINDOW)).astype(np.float32)
    with np.errstate(all="raise"):
        for rows in (noise, np.zeros((3, WINDOW), np.float32), np.zeros((0, WINDOW), np.float32)):
            pitch = yin.pitch(rows, RATE, 65.0, 500.0, 0.2)
            assert pitch.shape == (len(rows),) and np.isfinite(pitch).all()


@pytest.mark.slow
def test_real_speech_has_the_pitch_that_librosa_finds() -> None:
    import librosa
    import soundfile

    from tests.synthetic_calls import FOLDER

    samples, rate = soundfile.read(FOLDER / "03_repair_mono" / "call.flac", dtype="float32", frames=8 * RATE)
    assert rate == RATE
    theirs = librosa.yin(
        samples, fmin=65.0, fmax=500.0, sr=RATE, frame_length=WINDOW, hop_length=80, trough_threshold=0.2, center=False
    )
    rows = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::80]
    ours = yin.pitch(np.ascontiguousarray(rows), RATE, 65.0, 500.0, 0.2)
    loud = np.sqrt((rows**2).mean(axis=1)) > 0.01
    assert loud.sum() > 200
    apart = np.abs(ours[: len(theirs)] / theirs - 1) > 0.001
    assert apart[loud[: len(theirs)]].mean() < 0.002
