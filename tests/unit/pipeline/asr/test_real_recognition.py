"""Recognition of real telephone talk with real weights: pyannote's sample recording and Whisper tiny.en.

Both are official files: the recording comes with pyannote.audio, the weights with `switchboard checkpoints fetch`.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.asr import AsrOptions, doubt, load, words
from pipeline.audio.analyze import Loaded
from pipeline.domain.speech import AudioAnalysis, AudioInMemory, Chunk, Layout, LayoutKind, Span, text_of
from pipeline.language.identification import stretches
from pipeline.language.of_call import decide
from pipeline.runtime.workers import LocalWorkers, RemoteRef
from pipeline.steps.recognize import recognize

SAMPLE = Path(find_spec("pyannote.audio").origin).parent / "sample" / "sample.wav"  # 30 s of two people, 16 kHz


@pytest.fixture(scope="module")
def talk():
    samples, rate = soundfile.read(SAMPLE, dtype="float32")
    assert rate == 16_000
    return samples


def test_the_end_of_a_window_is_not_lost(tiny, talk):
    chunk = Chunk(0, 0.0, len(talk) / 16_000, "en")
    (text,) = tiny.transcribe([talk], [chunk])
    assert "call me a Yankee down here" in text_of(text.words)
    assert text_of(text.words).endswith("New Jersey now.")


def test_the_hypotheses_of_the_search_say_which_words_are_sure(tiny, talk):
    chunk, calibration = Chunk(0, 0.0, len(talk) / 16_000, "en"), doubt.calibration_of(tiny.name)
    hiss = np.random.default_rng(1).normal(0, np.sqrt(np.mean(talk**2)), len(talk)).astype(np.float32)
    clear, noisy = (tiny.transcribe([sound], [chunk])[0] for sound in (talk, talk + hiss))
    assert len(clear.supports) == len(clear.words) and len(noisy.supports) == len(noisy.words)
    assert min(noisy.supports) < 0.9 and max(noisy.supports) == 1.0
    marked = [np.mean(doubt.risks(text, calibration) >= calibration.threshold) for text in (clear, noisy)]
    assert marked[0] < 0.15 and marked[0] < marked[1], marked


async def test_words_that_are_probably_wrong_are_marked_in_a_call(tiny, talk):
    hiss = np.random.default_rng(1).normal(0, np.sqrt(np.mean(talk**2)) / 2, len(talk)).astype(np.float32)
    samples = np.clip((talk + hiss) * 32767, -32768, 32767).astype(np.int16)[None]
    layout = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand")
    loaded = Loaded(AudioInMemory(samples), layout)
    chunk = Chunk(0, 0.0, 30.0, "en")
    analysis = AudioAnalysis(layout, 30.0, ((Span(0.0, 30.0),),), (chunk,))
    result = await recognize(LocalWorkers(tiny, None), RemoteRef(loaded), analysis, tiny.name, ())
    marked = [word.text for text in result.texts for word in text.words if word.doubtful]
    assert marked and any("unsure" in doubt.reasons for doubt in result.doubts)


LINES = [
    "Hi, this is Maria Lopez. Please call me back at 555-867-5309 before 5:30 p.m. tomorrow.",
    "I will send the invoice for $1,250.50 to maria.lopez@example.com by Friday.",
    "My number is 415-555-0123, and the order number is 48-1193.",
    "Thank you, we will e-mail you a follow-up about the post-mortem. Goodbye.",
]


@pytest.mark.parametrize("line", LINES)
def test_tokens_of_the_real_tokenizer_become_whole_words(tiny, line):
    """So numbers, addresses and dates reach the analysis as they are written."""
    tokenizer = tiny._tokenizer("en")
    units, _ = tokenizer.split_tokens_on_unicode(tokenizer.encode(" " + line))
    assert len(units) > len(line.split())
    assert [word.text for word in words.in_words(units)] == line.split()


def test_a_model_of_one_language_does_not_claim_to_have_detected_it(tiny, talk):
    chunk = Chunk(0, 6.0, 14.0, "es")
    (text,) = tiny.transcribe([talk[96_000:224_000]], [chunk])
    assert (text.language, text.language_probability, text.languages) == ("en", 0.0, {})
    assert not text.language_detected
    call = decide([text], lambda text: text.chunk.seconds)
    assert (call.code, call.probability) == ("en", None)
    assert call.note == "The recognizer knows English only; the language was not detected."
    assert [stretch.probability for stretch in stretches([text])] == [None]


def test_a_short_window_is_padded_to_less_than_30_s_and_says_the_same_beside_longer_ones(tiny, talk, monkeypatch):
    lengths, encode = [], tiny._encode
    monkeypatch.setattr(tiny, "_encode", lambda features: lengths.append(features[0].shape[-1]) or encode(features))
    windows = [(talk[96_000:224_000], Chunk(0, 6.0, 14.0, "en")), (talk, Chunk(0, 0.0, len(talk) / 16_000, "en"))]
    sounds, chunks = zip(*windows, strict=True)
    beside, _ = tiny.transcribe(sounds, chunks)
    (alone,) = tiny.transcribe(sounds[:1], chunks[:1])
    assert beside == alone and len(alone.words) > 10
    assert sorted(lengths) == [1500, 1500, 3000]


def test_windows_that_a_cpu_encodes_one_by_one_are_encoded_as_together(talk):
    tiny = load(AsrOptions(model="tiny.en", device="cpu", encoder="ctranslate2"))
    features = [tiny._features(sound, Chunk(0, 0.0, 8.0, "en")) for sound in (talk[:128_000], talk[128_000:256_000])]
    together = np.asarray(tiny._model.encode(np.stack(features)))
    np.testing.assert_allclose(np.asarray(tiny._encode(features)), together, atol=1e-4)


def test_a_window_decoded_again_is_decoded_in_parts_not_once_more_whole_and_gives_the_same_text(
    tiny, talk, monkeypatch
):
    chunk, encoded, encode = Chunk(0, 6.0, 14.0, "en"), [], tiny._encode
    monkeypatch.setattr(tiny, "_encode", lambda features: encoded.append(len(features[0].T)) or encode(features))
    first, second = (tiny.transcribe([talk[96_000:224_000]], [chunk], with_fallback=True)[0] for _ in range(2))
    assert first == second
    assert (first.decodings, len(encoded)) == (2, 4)  # each of the two parts, twice
