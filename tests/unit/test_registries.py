"""Walks the registries and tries each entry on a sample."""

import pytest

from pipeline.analysis import STEPS, load
from tests.unit.calls_by_hand import call


@pytest.mark.parametrize("entry", STEPS)
def test_every_analysis_step_reads_a_sample(entry):
    step = load(entry)
    finding = step.run(call(("rep", "Thank you for calling."), ("customer", "I will pay by Friday.")))
    assert (finding.step, finding.version) == (step.name, step.version)
    assert isinstance(finding.value, dict)
