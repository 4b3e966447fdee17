"""What every engine of the registries keeps, whatever computes in it: one suite for all, on real speech."""

import re
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline import asr, diarization, embedding
from pipeline.asr import alignment
from pipeline.domain.speech import CUSTOMER, SAMPLE_RATE, AudioInMemory, Chunk, Span, text_of
from pipeline.engines.registry import identity_of
from pipeline.errors import CheckpointMissing, EngineError
from tests import engine_cases
from tests.engine_cases import speech

TEXT = "If the medical practitioner is in doubt on any point, he should obtain technical assistance"
SPOKEN = 5.4  # seconds of `speech()` that hold this text


@pytest.fixture(scope="module", params=asr.ENGINES)
def recognizer(request):
    return engine_cases.load_recognizer(request.param, request)


@pytest.fixture(scope="module", params=alignment.ENGINES)
def aligner(request):
    return engine_cases.load_aligner(request.param, request)


@pytest.fixture(scope="module", params=diarization.ENGINES)
def diarizer(request):
    return engine_cases.load_diarizer(request.param, request)


def cut(first, last, start=None, language="en", channel=CUSTOMER):
    """Return the sound of `speech()` between two times, and its chunk at `start` of a recording."""
    begin = first if start is None else start
    sound = speech()[round(first * SAMPLE_RATE) : round(last * SAMPLE_RATE)]
    return sound, Chunk(channel, begin, begin + len(sound) / SAMPLE_RATE, language)


@pytest.fixture(scope="module")
def asked():
    """Three chunks of different lengths, of two calls, one with a pause of 20 s left out between its pieces."""
    first, second = cut(0.0, 3.0, 50.0), cut(2.0, 4.2, 7.0, channel=0)
    sound = np.concatenate([cut(0.0, 3.0)[0], cut(3.0, SPOKEN)[0]])
    pieces = (Span(10.0, 13.0), Span(33.0, 33.0 + SPOKEN - 3.0))
    third = sound, Chunk(CUSTOMER, 10.0, pieces[1].end, "en", pieces)
    return [first, second, third]


@pytest.fixture(scope="module")
def recognized(recognizer, asked):
    return recognizer.transcribe([sound for sound, _ in asked], [chunk for _, chunk in asked])


def lies_in_a_piece(word, chunk):
    return any(piece.start <= word.start <= word.end <= piece.end + 1e-6 for piece in chunk.sound)


def test_a_recognition_engine_is_one(recognizer):
    assert isinstance(recognizer, asr.Engine)
    assert recognizer.name
    assert recognizer.batch_size >= 1
    assert recognizer.batches_at_once >= 1
    assert recognizer.max_chunk_seconds > SPOKEN
    kind = type(recognizer)
    if kind.CHECKPOINTS is None:
        assert isinstance(recognizer, asr.RemoteEngine)


def test_answers_come_in_the_order_of_the_chunks_and_name_them(recognized, asked):
    assert [text.chunk for text in recognized] == [chunk for _, chunk in asked]
    assert all("medical" in text_of(recognized[at].words) for at in (0, 2))
    assert all(text.words for text in recognized)


def test_word_times_rise_and_lie_inside_one_piece_of_their_chunk(recognized):
    for text in recognized:
        assert all(lies_in_a_piece(word, text.chunk) for word in text.words), text
        assert all(a.end <= b.start + 1e-6 for a, b in pairwise(text.words))
        assert all(word.text == word.text.strip() != "" for word in text.words)
        assert all(0 <= word.confidence <= 1 for word in text.words)
    assert {0, 1} == {int(word.start > 20) for word in recognized[2].words}  # words on both sides of the pause


def test_chunks_transcribed_alone_in_parallel_threads_give_the_words_of_the_batch(recognizer, recognized, asked):
    with ThreadPoolExecutor(len(asked)) as pool:
        texts = list(pool.map(lambda pair: recognizer.transcribe([pair[0]], [pair[1]])[0], asked))
    for alone, together in zip(texts, recognized, strict=True):
        assert [(w.text, w.start, w.end) for w in alone.words] == [(w.text, w.start, w.end) for w in together.words]


def test_a_language_that_is_given_is_kept_and_none_is_invented(recognizer, asked):
    sound, chunk = asked[0]
    (text,) = recognizer.transcribe([sound], [replace(chunk, language=None)])
    assert text.language == "en"
    assert all(0 <= probability <= 1 for probability in text.languages.values())
    assert 0 <= text.language_probability <= 1
    assert text.chunk.language is None


def test_no_chunks_give_no_answers(recognizer):
    assert list(recognizer.transcribe([], [])) == []


def test_in_silence_nothing_is_said(recognizer):
    """Whisper may write a lone mark there."""
    (text,) = recognizer.transcribe([np.zeros(3 * SAMPLE_RATE, np.float32)], [Chunk(0, 5.0, 8.0, "en")])
    assert not any(map(str.isalnum, text_of(text.words)))


@pytest.mark.parametrize("flaw", ["empty", "not finite", "too long"])
def test_sound_that_cannot_be_recognized_is_an_error(recognizer, flaw):
    sound, chunk = cut(0.0, 2.0)
    if flaw == "empty":
        sound, chunk = sound[:0], replace(chunk, end=chunk.start)
    elif flaw == "not finite":
        sound = np.where(np.arange(len(sound)) == 99, np.nan, sound).astype(np.float32)
    else:
        sound = np.zeros(round((recognizer.max_chunk_seconds + 1) * SAMPLE_RATE), np.float32)
        chunk = replace(chunk, end=len(sound) / SAMPLE_RATE)
    with pytest.raises(EngineError):
        recognizer.transcribe([sound], [chunk])


def test_decoding_again_repeats_itself_and_says_so(recognizer, asked):
    sound, chunk = asked[0]
    first, second = (recognizer.transcribe([sound], [chunk], [("Hale",)], with_fallback=True)[0] for _ in range(2))
    assert first == second
    assert first.with_fallback
    assert first.decodings >= 1
    assert first.words


# aligners


@pytest.fixture(scope="module")
def texts():
    return ["If the medical practitioner is", "is in doubt on any point,", TEXT]


@pytest.fixture(scope="module")
def timed(aligner, asked, texts):
    return aligner.align([sound for sound, _ in asked], [chunk for _, chunk in asked], texts)


def test_an_aligner_is_one(aligner):
    assert isinstance(aligner, alignment.Aligner)
    assert aligner.name
    assert aligner.max_chunk_seconds > SPOKEN


def test_the_words_are_those_of_the_text_in_their_order(timed, texts):
    assert [text_of(words) for words in timed] == texts


def test_aligned_words_rise_and_lie_inside_one_piece_of_their_chunk(timed, asked):
    for words, (_, chunk) in zip(timed, asked, strict=True):
        assert all(lies_in_a_piece(word, chunk) for word in words), words
        assert all(a.end <= b.start + 1e-6 for a, b in pairwise(words))
        assert all(0 <= word.confidence <= 1 for word in words)
    assert {0, 1} == {int(word.start > 20) for word in timed[2]}


def test_words_are_where_they_are_said(aligner, tiny):
    """Also check that a second of silence before them delays all words by it."""
    sound, chunk = cut(0.0, SPOKEN)
    (text,) = tiny.transcribe([sound], [chunk])
    (words,) = aligner.align([sound], [chunk], [text_of(text.words)])
    apart = [a.start - b.start for a, b in zip(words, text.words, strict=True)]
    assert np.median(np.abs(apart)) < 0.15, apart
    later = np.concatenate([np.zeros(SAMPLE_RATE, np.float32), sound])
    (moved,) = aligner.align([later], [replace(chunk, end=chunk.end + 1)], [text_of(text.words)])
    assert np.median([b.start - a.start for a, b in zip(words, moved, strict=True)]) == pytest.approx(1.0, abs=0.05)


def test_texts_aligned_alone_in_parallel_threads_have_the_times_of_the_batch(aligner, timed, asked, texts):
    rows = [(*pair, text) for pair, text in zip(asked, texts, strict=True)]
    with ThreadPoolExecutor(len(rows)) as pool:
        aligned = list(pool.map(lambda row: aligner.align([row[0]], [row[1]], [row[2]])[0], rows))
    for alone, together in zip(aligned, timed, strict=True):
        assert [(w.text, w.start, w.end) for w in alone] == [(w.text, w.start, w.end) for w in together]


def test_a_text_without_words_has_none(aligner, asked):
    sound, chunk = asked[0]
    assert aligner.align([sound, sound], [chunk, chunk], ["", "  "]) == [(), ()]
    assert aligner.align([], [], []) == []


def test_digits_and_marks_that_nobody_says_are_words_too(aligner, asked):
    sound, chunk = asked[0]
    (words,) = aligner.align([sound], [chunk], ["If the 7 medical - practitioner, 12:30 is"])
    assert text_of(words) == "If the 7 medical - practitioner, 12:30 is"
    assert all(lies_in_a_piece(word, chunk) for word in words)


@pytest.mark.parametrize("flaw", ["empty", "not finite", "too long a text"])
def test_what_cannot_be_aligned_is_an_error(aligner, flaw):
    (sound, chunk), text = cut(0.0, 2.0), "If the"
    if flaw == "empty":
        sound, chunk = sound[:0], replace(chunk, end=chunk.start)
    elif flaw == "not finite":
        sound = np.where(np.arange(len(sound)) == 99, np.nan, sound).astype(np.float32)
    else:
        text = "practitioner " * 500
    with pytest.raises(EngineError):
        aligner.align([sound], [chunk], [text])


# embedding


@pytest.mark.parametrize("name", embedding.ENGINES)
def test_an_embedding_engine_ranks_the_passage_that_answers_first(name):
    engine = embedding.load(embedding.EmbeddingOptions(engine=name))
    assert isinstance(engine, embedding.Engine)
    vectors = engine.passages(["Thank you for calling.", "I will pay the invoice by Friday."])
    assert vectors.shape == (2, embedding.DIMENSION)
    first, second = vectors @ engine.query("When is the money due?")[0]
    assert first < second


# diarization


@pytest.fixture(scope="module")
def two_voices(diarizer, sample_call):
    """Return a mixed call, int16 values, of two voices that the engine's weights can separate."""
    return np.clip(np.round(engine_cases.two_voices(diarizer, sample_call) * 32768), -32768, 32767).astype(np.int16)


@pytest.fixture(scope="module")
def inferred(diarizer, two_voices):
    parts = list(diarizer.parts(two_voices.astype(np.float32) / np.float32(32768)))
    size = diarizer.batch_size
    return [output for at in range(0, len(parts), size) for output in diarizer.infer(parts[at : at + size])]


def test_a_diarization_engine_separates_the_voices_of_a_sample(diarizer, inferred, two_voices):
    assert isinstance(diarizer, diarization.Engine)
    diarized = diarizer.finalize(inferred)
    assert list(dict.fromkeys(span.speaker for span in diarized.spans)) == ["A", "B"]
    assert all(a.end <= b.start for a, b in pairwise(diarized.spans))
    assert all(0 <= span.start < span.end <= len(two_voices) / SAMPLE_RATE + 0.1 for span in diarized.spans)
    assert diarized.engine == diarizer.name


def test_stored_sound_in_batches_with_another_call_gives_what_its_samples_give_alone(diarizer, inferred, two_voices):
    other = list(diarizer.parts(speech()))
    mixed = [*other, *diarizer.parts(AudioInMemory(two_voices[None]))]
    size = diarizer.batch_size + 1
    outputs = [output for at in range(0, len(mixed), size) for output in diarizer.infer(mixed[at : at + size])]
    assert diarizer.finalize(outputs[len(other) :]).spans == diarizer.finalize(inferred).spans


def test_one_voice_is_one_speaker(diarizer, sample_call):
    diarized = diarizer.diarize(engine_cases.one_voice(diarizer, sample_call))
    assert {span.speaker for span in diarized.spans} == {"A"}
    assert set(diarized.voiceprints) == {"A"}


def test_a_call_has_at_most_the_allowed_number_of_speakers(diarizer, inferred, monkeypatch):
    monkeypatch.setattr(diarizer, "options", diarizer.options.model_copy(update={"max_speakers": 1}))
    assert {span.speaker for span in diarizer.finalize(inferred).spans} == {"A"}


def test_a_diarization_engine_is_known_by_its_checkpoint_and_its_options(diarizer):
    kind = type(diarizer)
    assert kind.name_of(diarizer.checkpoint.name) == diarizer.name
    assert kind.CHECKPOINTS.setting == "SWITCHBOARD_DIARIZATION__PIPELINE"
    assert re.fullmatch("[0-9a-f]{32}", identity_of(diarizer))
    other = copy(diarizer)
    other.__dict__.pop("_identity")
    other.options = diarizer.options.model_copy(update={"max_speakers": 7})
    assert identity_of(other) != identity_of(diarizer)


@pytest.mark.parametrize("name", diarization.ENGINES)
def test_an_option_that_no_diarization_engine_has_is_named(name):
    with pytest.raises(ValidationError, match="no_such_option"):
        diarization.DiarizationOptions(engine=name, no_such_option=1)


@pytest.mark.parametrize("name", diarization.ENGINES)
def test_a_model_that_a_diarization_engine_does_not_know_is_an_error_that_says_what_to_set(name):
    options = diarization.DiarizationOptions(engine=name, pipeline="no-such-model", device="cpu")
    with pytest.raises(CheckpointMissing, match=r"no-such-model.*SWITCHBOARD_DIARIZATION__PIPELINE"):
        diarization.load(options)


@pytest.mark.parametrize("seconds", [0.0, 0.05, 12.0])
def test_a_recording_in_which_nobody_speaks_has_no_spans(diarizer, seconds):
    diarization = diarizer.diarize(np.zeros(round(seconds * SAMPLE_RATE), np.float32))
    assert (diarization.spans, dict(diarization.voiceprints)) == ((), {})


def test_sound_that_is_not_finite_is_an_error(diarizer):
    with pytest.raises(EngineError):
        diarizer.diarize(np.full(5 * SAMPLE_RATE, np.nan, np.float32))


def test_a_voiceprint_is_a_unit_vector_and_needs_enough_speech(diarizer):
    voiceprint = diarizer.voiceprint([speech()])
    assert np.linalg.norm(voiceprint.vector) == pytest.approx(1.0, abs=1e-3)
    assert voiceprint.model == diarizer.name
    assert voiceprint.speech_seconds == pytest.approx(len(speech()) / SAMPLE_RATE, abs=0.1)
    assert diarizer.voiceprint([speech()[:SAMPLE_RATE]]) is None
    assert diarizer.voiceprint([]) is None


def test_each_piece_has_a_voice_of_its_own_and_the_same_alone(diarizer):
    pieces = [speech()[:SAMPLE_RATE], speech()[:100], speech()[SAMPLE_RATE : 4 * SAMPLE_RATE]]
    voiceprints = diarizer.voices(pieces)
    assert [voiceprint is None for voiceprint in voiceprints] == [False, True, False]
    (alone,) = diarizer.voices(pieces[2:])
    assert np.dot(alone.vector, voiceprints[2].vector) == pytest.approx(1.0, abs=1e-3)
