"""Kept calls with announcements are scored as they were labeled."""

from pathlib import Path

from bench.real.announced import Labeled, LabeledWord, SpokenPart, figures, keep, read


def call(name: str, form: str, machine: str) -> Labeled:
    """Return a prompt of five words on channel 0 and a turn of five on channel 1; `machine`: which are labeled."""
    parts = (SpokenPart("prompt", 0, 0, 5, "begin", "a b c d e"), SpokenPart("turn", 1, 0, 5))
    words = tuple(LabeledWord(at // 5, at % 5, at % 5 + 0.5, "x", machine[at] == "M") for at in range(10))
    return Labeled(name, form, parts, words)


def test_a_prompt_needs_most_of_its_words_labeled_and_a_turn_few_to_be_wrong() -> None:
    calls = [call("en000", "separated", "MMMM-M----"), call("en003", "separated", "MMM-------")]
    results = figures([*calls, call("es000", "mixed", "MMMMM-----")])
    assert {language: entry["prompts"]["of"] for language, entry in results.items()} == {"en": 2, "es": 1}
    results = results["en"]
    assert results["prompts"] == {"value": 50.0, "low": 0.0, "high": 100.0, "of": 2}
    assert results["turns of people"]["value"] == 50.0
    assert set(results) == {
        *("prompts", "prompts, separated", "prompts, separated, begin"),
        *("turns of people", "turns of people, separated"),
    }


def test_calls_are_read_as_they_were_kept(tmp_path: Path) -> None:
    calls = [call("en000", "mixed", "M---------"), call("en000", "separated", "MMMMM-----")]
    keep(calls[::-1], path := tmp_path / "kept.jsonl.gz")
    assert read(path) == calls
    keep(other := [call("es000", "mixed", "----------")], path)
    assert read(path) == [*calls, *other]
    keep(calls[:1], path)
    assert read(path) == [calls[0], *other]
