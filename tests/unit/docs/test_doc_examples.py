"""Code on the pages of the documentation runs."""

import re
from typing import Any

from pipeline.analysis.evidence import checked, quote
from pipeline.domain.insight import Finding, Material
from tests.paths import ROOT
from tests.support.calls_by_hand import call


def test_the_step_of_the_page_on_extending_finds_what_is_said_and_quotes_it() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(class RecordingNoticeStep.*?)```", page, re.DOTALL)
    assert block
    names: dict[str, Any] = {"quote": quote, "Finding": Finding, "Material": Material}
    exec(block[1], names)
    step = names["RecordingNoticeStep"]()
    material = call(("rep", "Hello. This call is recorded."), ("customer", "That is fine."))
    found = checked(step.run(material), material.transcript)
    assert found.value == {"announced": True}
    assert [one.quote for one in found.evidence] == ["Hello. This call is recorded."]


def test_the_notebook_code_of_the_pipelines_readme_names_what_there_is() -> None:
    page = (ROOT / "pipeline" / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)outcome = await", page, re.DOTALL)
    assert block
    names: dict[str, Any] = {}
    exec(block[1], names)
    assert names["call"].recording_url == "https://pbx.example/call.wav"
