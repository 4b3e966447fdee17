"""Walks the registries and tries each entry on a sample."""

import pytest

from pipeline import analysis, asr, diarization, embedding
from pipeline.domain.speech import CUSTOMER, SAMPLE_RATE
from tests import fixture_checkpoints
from tests.unit.calls_by_hand import call

# What an engine is loaded with here, where that is not what the fixtures have loaded already.
ASR_OPTIONS = {"model": str(fixture_checkpoints.RECOGNITION), "device": "cpu", "cpu_threads": 1}
DIARIZATION_OPTIONS = {"pipeline": str(fixture_checkpoints.DIARIZATION), "device": "cpu"}


@pytest.fixture(params=asr.ENGINES)
def recognition_engine(request, transcriber):
    if request.param == asr.AsrOptions().engine:
        return transcriber
    return asr.load(asr.AsrOptions(engine=request.param, **ASR_OPTIONS))


@pytest.fixture(params=diarization.ENGINES)
def diarization_engine(request, diarizer):
    if request.param == diarization.DiarizationOptions().engine:
        return diarizer
    return diarization.load(diarization.DiarizationOptions(engine=request.param, **DIARIZATION_OPTIONS))


@pytest.mark.parametrize("entry", analysis.STEPS)
def test_every_analysis_step_reads_a_sample(entry):
    step = analysis.load(entry)
    finding = step.run(call(("rep", "Thank you for calling."), ("customer", "I will pay by Friday.")))
    assert (finding.step, finding.version) == (step.name, step.version)
    assert isinstance(finding.value, dict)


def test_every_recognition_engine_hears_a_sample(recognition_engine, sample_call, chunks_of):
    assert isinstance(recognition_engine, asr.Engine)
    spoken = sample_call("01")
    seconds = spoken.samples.shape[1] / SAMPLE_RATE
    longest = recognition_engine.max_chunk_seconds
    chunks = chunks_of(spoken.speech("customer"), CUSTOMER, seconds, longest)[:2]
    samples = [spoken.cut(CUSTOMER, chunk.start, chunk.end) for chunk in chunks]
    texts = recognition_engine.transcribe(samples, chunks)
    assert [text.chunk for text in texts] == list(chunks)
    assert any(text.words for text in texts)
    assert all(0 <= probability <= 1 for text in texts for probability in text.languages.values())
    for text in texts:
        starts = [word.start for word in text.words]
        assert starts == sorted(starts)
        assert all(text.chunk.start <= word.start <= word.end <= text.chunk.end for word in text.words)


def test_every_diarization_engine_tells_the_voices_of_a_sample_apart(diarization_engine, sample_call):
    assert isinstance(diarization_engine, diarization.Engine)
    mixed = sample_call("03")
    found = diarization_engine.diarize(mixed.samples[0])
    assert list(dict.fromkeys(span.speaker for span in found.spans)) == ["A", "B"]
    assert all(a.end <= b.start for a, b in zip(found.spans, found.spans[1:], strict=False))
    separated = sample_call("01")
    spoken = [separated.cut(CUSTOMER, span.start, span.end) for span in separated.speech("customer")]
    voiceprint = diarization_engine.voiceprint(spoken)
    assert voiceprint is not None
    assert sum(value * value for value in voiceprint.vector) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("name", embedding.ENGINES)
def test_every_embedding_engine_compares_a_sample(name):
    engine = embedding.load(embedding.EmbeddingOptions(engine=name))
    assert isinstance(engine, embedding.Engine)
    vectors = engine.passages(["Thank you for calling.", "I will pay the invoice by Friday."])
    assert vectors.shape == (2, embedding.DIMENSION)
    first, second = vectors @ engine.query("When is the money due?")[0]
    assert first < second
