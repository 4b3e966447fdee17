"""Walks the registries and tries each entry on a sample; engines that hear: test_engine_contract.py."""

import pytest

from pipeline import analysis, embedding
from tests.unit.calls_by_hand import call


@pytest.mark.parametrize("entry", analysis.STEPS)
def test_every_analysis_step_reads_a_sample(entry):
    step = analysis.load(entry)
    finding = step.run(call(("rep", "Thank you for calling."), ("customer", "I will pay by Friday.")))
    assert (finding.step, finding.version) == (step.name, step.version)
    assert isinstance(finding.value, dict)


@pytest.mark.parametrize("name", embedding.ENGINES)
def test_every_embedding_engine_compares_a_sample(name):
    engine = embedding.load(embedding.EmbeddingOptions(engine=name))
    assert isinstance(engine, embedding.Engine)
    vectors = engine.passages(["Thank you for calling.", "I will pay the invoice by Friday."])
    assert vectors.shape == (2, embedding.DIMENSION)
    first, second = vectors @ engine.query("When is the money due?")[0]
    assert first < second
