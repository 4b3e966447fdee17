"""Snapshots of the prompts, and examples in the call's language that are valid answers."""

import json

import pytest

from pipeline.analysis.llm import prompt
from pipeline.analysis.llm.answer import parsed
from pipeline.analysis.llm.asking import key_of
from pipeline.analysis.llm.findings import VERSION
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.prompt import EXAMPLES, example_of, messages, parts
from pipeline.analysis.llm.reading import ground
from tests.prompt_snapshots import FOLDER, VERSIONS, rendered, versions
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import LINES, options

OWN = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in EXAMPLES.glob("*.json")}


def test_other_texts_are_another_version():
    lines = (FOLDER / VERSIONS).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=f"version {VERSION} of the findings has other texts"):
        versions({**rendered(), "repair.txt": "Again."}, lines)


def test_an_example_that_changes_asks_again(endpoint, monkeypatch):
    (part,) = parts(call(*LINES).transcript, 1000)
    before = key_of(options(endpoint), messages(part, 1, 0, "en"))
    assert before == key_of(options(endpoint), messages(part, 1, 0, "en"))
    other = prompt.Example(("[0] rep (rep): Hello.",), example_of("en").answer)
    monkeypatch.setattr(prompt, "example_of", lambda language: other)
    assert before != key_of(options(endpoint), messages(part, 1, 0, "en"))


def test_the_languages_that_the_rules_know_have_an_example():
    assert set(OWN) == {"de", "en", "es", "fr"}
    assert example_of("pt") is not example_of("de") and example_of("de-AT").answer == OWN["de"]["answer"]
    assert example_of("pt").answer == example_of(None).answer == OWN["en"]["answer"]


@pytest.mark.parametrize("language", OWN)
def test_the_transcript_of_an_example_bears_out_all_of_its_answer(language):
    material = call(*OWN[language]["lines"], language=language)
    lines = tuple(line for part in parts(material.transcript, 10_000) for line in part.lines)
    assert example_of(language).lines == lines, "in the form in which calls are sent"
    stated = parsed(json.dumps(OWN[language]["answer"]))
    reading = ground(stated, Grounding(material))
    assert not +reading.dropped, reading.dropped
    (task,) = reading.tasks
    assert (task.task.title, task.task.owner) == (stated.tasks[0].title, "rep")
    assert task.task.due_date is not None
    assert reading.facts["name"].text == OWN[language]["answer"]["contact"]["name"]["value"]
    assert len(reading.sentences) == len(reading.topics) == len(reading.tones) == 2
    assert reading.outcome is not None and reading.outcome.text == "follow_up"
