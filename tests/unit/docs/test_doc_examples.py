import re
from typing import Any

from pipeline.analysis.evidence import checked, quote
from pipeline.domain.insight import Finding, Material
from tests.paths import ROOT
from tests.support.calls_by_hand import call


def test_the_step_of_the_page_on_extending_returns_and_quotes_its_finding() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(class RecordingNoticeStep.*?)```", page, re.DOTALL)
    assert block
    names: dict[str, Any] = {"quote": quote, "Finding": Finding, "Material": Material}
    exec(block[1], names)
    step = names["RecordingNoticeStep"]()
    material = call(("rep", "Hello. This call is recorded."), ("customer", "That is fine."))
    finding = checked(step.run(material), material.transcript)
    assert finding.value == {"announced": True}
    assert [evidence.quote for evidence in finding.evidence] == ["Hello. This call is recorded."]
