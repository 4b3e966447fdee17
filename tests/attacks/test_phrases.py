"""Phrases of a workspace at their limits slow no other workspace, and no phrase matches every word."""

import random
import time
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest

from pipeline.analysis.questions.step import QuestionsStep
from pipeline.domain.insight import Material
from pipeline.domain.questions import Question
from serve_app.records.question_files import DefinitionRefused, read_file
from tests.support.calls_by_hand import call

TEXT = (
    "the a to and I you of it that is in for on so we have with this be my your are what not can do just if but at "
    "about will yes okay right now from was me get would there please like as well account number think see order "
    "want "
)
WORDS = TEXT.split()
MATCHES_EVERY_WORD = "ﾞ*"


def talk(turns: int, words: int) -> Material:
    """Return a call of frequent words."""
    chance = random.Random(turns)
    lines = (("rep" if at % 2 else "customer", " ".join(chance.choices(WORDS, k=words))) for at in range(turns))
    return call(*lines)


def tracker(key: str, phrases: list[str], **fields: Any) -> Question:
    return Question(key, "tracker", phrases=tuple(phrases), **fields)


def seconds(material: Material, *questions: Question) -> float:
    """Return the processor time of the questions."""
    asked = replace(material, roster=replace(material.roster, questions=questions))
    began = time.process_time()
    QuestionsStep().run(asked)
    return time.process_time() - began


def trackers_of(material: Material, *questions: Question) -> list[dict[str, Any]]:
    asked = replace(material, roster=replace(material.roster, questions=questions))
    trackers: list[dict[str, Any]] = QuestionsStep().run(asked).value["trackers"]
    return trackers


def ordinary() -> Question:
    return tracker("ordinary", [f"please {word} the order number {word}" for word in WORDS])


def backtracking(key: str) -> Question:
    """Return a tracker whose phrases almost match at each word."""
    chance = random.Random(key)
    firsts = [chance.choices("taiwo", k=4) for _ in range(100)]
    return tracker(key, ["{}* ... {}* ... {}* ... {}* yes yes yes".format(*letters) for letters in firsts])


def test_a_hundred_trackers_at_their_limits_take_no_longer_than_ordinary_ones() -> None:
    material = talk(turns=200, words=15)
    one = max(seconds(replace(material, transcript=replace(material.transcript)), ordinary()) for _ in range(2))
    most = seconds(material, *(backtracking(f"t{at}") for at in range(100)))
    assert most < 100 * one, f"{most:.2f} s instead of {one:.2f} s"


def test_phrases_that_match_everywhere_take_no_longer_in_one_long_turn() -> None:
    anything = [f"{letter}*" for letter in ascii_lowercase]
    late = [tracker(f"t{at}", anything, last=0.001, unless=("the",)) for at in range(3)]
    in_turns, in_one_turn = (seconds(talk(*size), *late) for size in ((200, 15), (1, 3000)))
    assert in_one_turn < 10 * in_turns, f"{in_one_turn:.2f} s instead of {in_turns:.2f} s"


def test_a_sentence_is_searched_for_numbers_once_for_all_its_matches() -> None:
    rare = Question("q", "number", phrases=("account",))
    material = talk(turns=1, words=1000)
    one = seconds(material, rare)
    every_word = replace(rare, phrases=tuple(f"{letter}*" for letter in ascii_lowercase))
    most = seconds(replace(material, transcript=replace(material.transcript)), every_word)
    assert most < 10 * one, f"{most:.2f} s instead of {one:.2f} s"


def test_what_exceeds_the_limit_is_reported_and_not_missing() -> None:
    required = replace(backtracking("disclosure"), required=True)
    first, second = trackers_of(talk(turns=200, words=15), required, tracker("order", ["order"]))
    assert (first["state"], first["raised"]) == ("not_asked", False)
    assert "could not look for all phrases" in first["reason"]
    assert (second["state"], second["raised"]) == ("said", True), "the limit is that of one question"


def test_a_stored_phrase_that_matches_every_word_is_ignored_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    material = call(("rep", "Hello, this is Anna."))
    alone, with_another = trackers_of(
        material,
        tracker("alone", [MATCHES_EVERY_WORD], required=True),
        tracker("with_another", [MATCHES_EVERY_WORD, "hello"]),
    )
    assert (alone["state"], alone["raised"], alone["matches"]) == ("not_asked", False, [])
    assert MATCHES_EVERY_WORD in alone["reason"]
    assert [match["evidence"]["quote"] for match in with_another["matches"]] == ["Hello,"]
    assert "phrases are ignored" in caplog.text


@pytest.mark.parametrize(
    ("phrase", "fault"),
    [
        (MATCHES_EVERY_WORD, "write letters before each *"),
        ("hello ﾟ*", "write letters before each *"),
        ("ที่*", "write letters before each *"),
        ("ﾞ", "must contain a word"),
        ("*", "must contain a word"),
        ("... *", "must contain a word"),
        ("-- !", "must contain a word"),
        ("hello * there", "at the end of a word"),
        ("* hello", "at the end of a word"),
    ],
)
@pytest.mark.parametrize("field", ["phrases", "unless"])
def test_a_phrase_that_can_match_no_word_is_refused_by_name(
    phrase: str, fault: str, field: str, tmp_path: Path
) -> None:
    others = 'phrases = ["hello"]\n' if field == "unless" else ""
    (tmp_path / "q.toml").write_text(f'[[trackers]]\nkey = "t"\n{others}{field} = ["thanks", "{phrase}"]\n')
    with pytest.raises(DefinitionRefused) as refused:
        read_file(tmp_path / "q.toml", {})
    assert f"{field}[1]: " in str(refused.value) and repr(phrase) in str(refused.value)
    assert fault in str(refused.value)


def test_words_of_signs_that_fold_to_nothing_are_still_words(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text('[[trackers]]\nkey = "t"\nphrases = ["ที่นี่", "ｶﾞ*", "C*"]\n')
    (question,) = read_file(tmp_path / "q.toml", {})
    assert isinstance(question, Question)
    (result,) = trackers_of(call(("rep", "อยู่ที่นี่"), language="th"), question)
    assert result["state"] == "said"
