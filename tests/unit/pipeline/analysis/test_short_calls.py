from dataclasses import replace

import pytest

from pipeline.analysis.evidence import checked
from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.agent import AgentStep
from pipeline.analysis.rules.people.contacts import ContactsStep
from tests.support.calls_by_hand import call
from tests.support.short_calls import CALLS, plain


@pytest.mark.parametrize("short", CALLS, ids=str)
def test_a_short_call_shows_who_is_who(short):
    direction, agent = DirectionStep().run(short.material), AgentStep().run(short.material)
    finding = ContactsStep().run(replace(short.material, findings={"direction": direction, "agent": agent}))
    value = finding.value
    spoken = {field: plain(fact["value"]) for field, fact in value["heard"].items() if fact}
    if "phone" in spoken:
        spoken["phone"] = value["heard_number"]
    assert direction.value["outgoing"] is short.outgoing, direction.value["cues"]
    assert agent.value["user_id"] == short.agent
    assert {"matched": value["contact_id"]}.get(value["match"], value["match"]) == short.match, value["reason"]
    assert spoken == {field: text if field == "phone" else plain(text) for field, text in short.facts.items()}
    for result in (direction, agent, finding):
        assert checked(result, short.material.transcript) == result


@pytest.mark.parametrize("language", ["en", "de", "es", "fr"])
@pytest.mark.parametrize(
    "text", ["Hello, Moore's Yard Supplies.", "Is that O'Neill's Bar?", "Mrs Hart's Sons, hello.", "Dr.", "Frau"]
)
def test_names_with_an_s_of_possession_make_no_error(language, text):
    for speaker in ("rep", "customer"):
        material = call(
            (speaker, text), ("customer", f"This is {text}"), ("rep", f"Thank you, {text}"), language=language
        )
        findings = {step.name: step.run(material) for step in (DirectionStep(), AgentStep())}
        for finding in (*findings.values(), ContactsStep().run(replace(material, findings=findings))):
            assert checked(finding, material.transcript) == finding
