"""Invented words over sounds without speech are removed; short speech keeps its words.

The speech detector sometimes passes the first bar of a piece, a ring or a click. These sounds are given to the
recognizer as if it had: Whisper tiny.en writes "Thank you." or "beep" over most of them.
"""

import numpy as np
import pytest
import soxr

from bench.lib import sounds
from bench.real.sources import Sources, load
from pipeline.asr.plausible import plain
from pipeline.asr.safety import review, settle
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Chunk
from tests.support import made_music
from tests.support.safety_by_hand import heard_as, words_of


def window(sound, codec):
    """Return a telephone recording of the sound, marked as speech from beginning to end."""
    quiet = np.zeros(sounds.RATE // 5, np.float32)
    hiss = np.random.default_rng(1).normal(0, 0.0008, len(sound) + 2 * len(quiet)).astype(np.float32)
    line = sounds.through(np.concatenate([quiet, sounds.level(sound, -22), quiet]) + hiss, codec)
    return AudioInMemory((soxr.resample(line, sounds.RATE, SAMPLE_RATE) * 32767).astype(np.int16)[None])


def netted(tiny, audio):
    """Return the recognizer's first words, the remaining words, and the doubts."""
    analysis, chunk = heard_as([[(0.0, audio.duration)]], audio.duration), Chunk(0, 0.0, audio.duration, "en")
    texts = tiny.transcribe([audio.sound(chunk)], [chunk])
    again = tiny.transcribe([audio.sound(chunk)], [chunk], with_fallback=True) if review(audio, analysis, texts) else []
    settled, doubts = settle(audio, analysis, texts, dict(enumerate(again)))
    return words_of(texts), words_of(settled), doubts


def first_bar(seed):
    return made_music.music(1.5 + seed % 3, np.random.default_rng(seed))


def ring(seed):
    country = list(sounds.RINGING)[seed % len(sounds.RINGING)]
    return sounds.cadence(*sounds.RINGING[country], 1.2 + 0.2 * (seed % 7), np.random.default_rng(seed))


def clicks(seed):
    return sounds.clicks(1.2, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("codec", "seeds"),
    [
        ("mulaw", 2),
        pytest.param("mulaw", 6, marks=pytest.mark.slow),
        pytest.param("amr low", 6, marks=pytest.mark.slow),
    ],
)
def test_words_written_over_music_rings_and_clicks_are_taken_out_and_kept_in_a_doubt(tiny, codec, seeds):
    invented = 0
    for make in (first_bar, ring, clicks):
        for seed in range(seeds):
            before, after, doubts = netted(tiny, window(make(seed), codec))
            assert after == [], (make.__name__, seed, after)
            assert not before or any(not doubt.kept and doubt.text for doubt in doubts)
            invented += bool(before)
    assert invented >= 2 * seeds // 3, "the recognizer writes words over many of these sounds"


@pytest.mark.parametrize(
    ("codec", "noise_db", "step"),
    [
        ("amr low", None, 3),
        pytest.param("amr low", None, 1, marks=pytest.mark.slow),
        pytest.param("mulaw", 10.0, 1, marks=pytest.mark.slow),
    ],
)
def test_short_turns_of_real_talk_keep_every_word(tiny, codec, noise_db, step):
    telephone = Sources.telephone()
    talk = load(telephone.path)
    sentences, turns = telephone.sentences[::step], 0
    for sentence in sentences:
        sound = soxr.resample(talk[int(sentence.start * SAMPLE_RATE) : int(sentence.end * SAMPLE_RATE)], 16_000, 8_000)
        if noise_db is not None:
            power = np.sqrt(np.mean(sound**2)) * 10 ** (-noise_db / 20)
            sound = sound + np.random.default_rng(2).normal(0, power, len(sound)).astype(np.float32)
        _, after, doubts = netted(tiny, window(sound, codec))
        taken_out = [doubt.text for doubt in doubts if doubt.text and not doubt.kept]
        remaining = plain(" ".join(after))
        assert all(plain(text) in remaining for text in taken_out), (sentence.text, doubts)  # it was written twice
        turns += bool(after)
    assert turns >= 0.9 * len(sentences)
