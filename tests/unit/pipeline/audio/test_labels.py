from itertools import pairwise

import numpy as np
import pytest
from faster_whisper.vad import VadOptions, get_speech_timestamps

from bench.lib import sounds
from pipeline.audio.labels import detector, music
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.audio.labels.frames import measure
from pipeline.audio.labels.labeling import label, speech_of
from pipeline.audio.labels.voice import MutedAudio
from pipeline.domain.speech import SAMPLE_RATE, Audio, AudioInMemory, Label, LabelKind, Span
from tests.support import made_music, scenes

pytestmark = pytest.mark.cases(3)

OPTIONS = SpeechOptions()
PAUSE = np.zeros(2 * sounds.RATE, np.float32)


def on_a_line(*parts: np.ndarray, codec: str = "mulaw", seed: int = 0) -> AudioInMemory:
    rng = np.random.default_rng(seed)
    return scenes.at_16_khz(sounds.through(scenes.line(np.concatenate(parts), rng, -65), codec))


def labels_of(audio: Audio) -> tuple[Label, ...]:
    (labels,) = label(audio, OPTIONS)
    assert labels[0].start == 0
    assert labels[-1].end == audio.duration
    assert all(label.end == other.start and label.start < label.end for label, other in pairwise(labels))
    assert all(0 <= label.confidence <= 1 for label in labels)
    return labels


def seconds(labels: tuple[Label, ...], kind: LabelKind) -> float:
    return sum(label.end - label.start for label in labels if label.kind is kind)


def inside(words: tuple[Span, ...], spans: tuple[Span, ...]) -> float:
    """Return the share of the seconds of `words` inside `spans`."""
    both = sum(max(0.0, min(w.end, s.end) - max(w.start, s.start)) for w in words for s in spans)
    return both / sum(word.duration for word in words)


def test_pieces_of_music_are_music_nearly_from_beginning_to_end() -> None:
    music = speech = 0.0
    for seed in range(50, 56):
        rng = np.random.default_rng(seed)
        piece = sounds.level(made_music.music(25, rng), rng.uniform(-30, -15))
        labels = labels_of(on_a_line(PAUSE, piece, PAUSE, codec=scenes.CODECS[seed % len(scenes.CODECS)]))
        music, speech = music + seconds(labels, LabelKind.MUSIC), speech + seconds(labels, LabelKind.SPEECH)
    assert music / 150 >= 0.96
    assert speech / 150 <= 0.01  # the first bar of one piece passes for a voice


def test_a_ring_lasts_through_its_pauses_and_a_number_keeps_its_digits() -> None:
    rng = np.random.default_rng(3)
    rings = sounds.level(sounds.cadence((440, 480), (2.0, 4.0), 14.0, rng), -20)
    labels = labels_of(on_a_line(PAUSE, rings, PAUSE, sounds.level(sounds.keys("4711#", rng), -18), PAUSE))
    kinds = [(label.kind, label.detail) for label in labels if label.kind is not LabelKind.SILENCE]
    assert [kind for kind, _ in kinds] == [LabelKind.RINGBACK, LabelKind.DTMF]
    assert kinds[1][1] == "4711#"
    assert seconds(labels, LabelKind.RINGBACK) == pytest.approx(14, abs=0.3)


def test_hum_hiss_and_silence_are_told_apart() -> None:
    rng = np.random.default_rng(4)
    hum, hiss = sounds.level(sounds.hum(6, rng), -25), sounds.level(scenes.noise(6, rng), -30)
    labels = labels_of(on_a_line(PAUSE, hum, PAUSE, hiss, PAUSE))
    kinds = [(label.kind, label.detail) for label in labels]
    silence = (LabelKind.SILENCE, None)
    assert kinds == [silence, (LabelKind.NOISE, "hum"), silence, (LabelKind.NOISE, None), silence]


@pytest.mark.parametrize("at", [0, 1, 2, *(pytest.param(at, marks=pytest.mark.slow) for at in (3, 4, 5))])
def test_speech_among_rings_music_and_keys_stays_speech(at: int) -> None:
    leg = scenes.legs()[at]
    changed = scenes.interrupted(leg, np.random.default_rng(77))
    labels = labels_of(scenes.at_16_khz(changed.sound))
    assert inside(changed.words, speech_of(labels)) >= 0.97
    others = (LabelKind.MUSIC, LabelKind.RINGBACK, LabelKind.BUSY, LabelKind.DTMF, LabelKind.BEEP, LabelKind.NOISE)
    assert sum(seconds(labels, kind) for kind in others) > 5


@pytest.mark.parametrize("level_db", [0, -20])
def test_speech_over_music_and_soft_speech_stay_speech(level_db: float) -> None:
    leg = scenes.legs()[0]
    sound = scenes.beneath(leg, np.random.default_rng(5), "music", 10).sound * np.float32(10 ** (level_db / 20))
    assert inside(leg.words, speech_of(labels_of(scenes.at_16_khz(sound)))) >= 0.97


@pytest.mark.parametrize("samples", [0, 1, 100, 511, 513])
def test_a_recording_of_hardly_anything_is_labelled_to_its_end(samples: int) -> None:
    audio = AudioInMemory(np.zeros((2, samples), np.int16))
    labeled = label(audio, OPTIONS)
    assert len(labeled) == 2
    for labels in labeled:
        assert [item.kind for item in labels] == ([LabelKind.SILENCE] if samples else [])
        assert sum(item.end - item.start for item in labels) == audio.duration


def test_a_recording_at_full_scale_is_labelled() -> None:
    square = np.where(np.arange(4 * SAMPLE_RATE) // 10 % 2, 32767, -32768).astype(np.int16)
    assert seconds(labels_of(AudioInMemory(square[None])), LabelKind.SPEECH) == 0


def test_spans_are_those_of_the_detectors_own_rules() -> None:
    options = VadOptions(threshold=0.3, min_speech_duration_ms=100, min_silence_duration_ms=500, speech_pad_ms=200)
    for leg in scenes.legs()[:4]:
        audio = scenes.at_16_khz(leg.sound)
        theirs = get_speech_timestamps(audio.samples[0].astype(np.float32) / 32768, options)
        ours = detector.spans(detector.activity(audio, 0), audio.length, OPTIONS)
        expected = [(timestamp["start"] / SAMPLE_RATE, timestamp["end"] / SAMPLE_RATE) for timestamp in theirs]
        assert [(span.start, span.end) for span in ours] == [pytest.approx(pair, abs=1e-4) for pair in expected]


def test_what_is_muted_is_soft_and_nothing_else_changes() -> None:
    samples = np.random.default_rng(0).normal(0, 5000, (2, 5000)).astype(np.int16)
    silenced = np.arange(16) % 3 == 1
    muted = MutedAudio(AudioInMemory(samples), 1, silenced)
    expected = np.where(np.repeat(silenced, 320)[:5000], samples[1] // 64, samples[1])
    for first, last in ((0, 5000), (100, 900), (-50, 330), (4900, 6000)):
        assert (muted.read(0, first, last) == expected[max(0, first) : last]).all()


def test_a_machine_repeats_its_lines_and_a_melody_moves_on() -> None:
    t = np.arange(6 * 16000) / 16000
    drone = 3000 * np.sin(2 * np.pi * 250 * t) + 1500 * np.sin(2 * np.pi * 350 * t)
    stirred = drone + np.where(np.sin(2 * np.pi * 3 * t) > 0, 4000, 0) * np.sin(2 * np.pi * 450 * t)
    melody = 3000 * np.sin(2 * np.pi * np.repeat([262, 330, 392, 330, 294, 349], 16000) * t)
    for sound, machine in ((drone, True), (stirred, True), (melody, False)):
        frames = measure(AudioInMemory(sound.astype(np.int16)[None]), 0)
        playing = np.arange(len(frames)) >= 50
        assert (music.machines(frames, playing) == (playing & machine)).all()
