"""Files of questions: what they may say, and faults that name the line and what to do."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from pipeline.domain.questions import Question
from serve_app.records.question_files import DefinitionRefused, as_toml, read_file

TEAM = UUID(int=7)
TEAMS = {"sales": TEAM, str(TEAM): TEAM}
WHOLE = """\
# what we ask
[[questions]]
key = "appointment_offered"
question = "Did the agent offer an appointment?"
party = "rep"
first = 5
outgoing = false
languages = ["en"]
teams = ["Sales"]
phrases = ["offer you an appointment", "book ... in"]
unless = ["cannot"]
weight = 2

[[questions]]
key = "product"
question = "Which product?"
type = "choice"
[questions.choices]
Gigabox = ["gigabox", "giga box"]
"Metro Cable" = []

[[trackers]]
key = "recording_notice"
party = "rep"
first = 1
required = true
phrases = ["call is recorded"]
"""
QUESTIONS = [
    Question(
        "appointment_offered",
        question="Did the agent offer an appointment?",
        party="rep",
        first=5.0,
        outgoing=False,
        languages=("en",),
        teams=(str(TEAM),),
        phrases=("offer you an appointment", "book ... in"),
        unless=("cannot",),
        weight=2.0,
    ),
    Question("product", "choice", "Which product?", choices={"Gigabox": ("gigabox", "giga box"), "Metro Cable": ()}),
    Question("recording_notice", "tracker", party="rep", first=1.0, required=True, phrases=("call is recorded",)),
]


def read(tmp_path: Path, text: str, name: str = "q.toml") -> list[Question]:
    (tmp_path / name).write_text(text)
    return read_file(tmp_path / name, TEAMS)


def refused(tmp_path: Path, text: str, name: str = "q.toml") -> list[str]:
    with pytest.raises(DefinitionRefused) as error:
        read(tmp_path, text, name)
    return error.value.faults


def test_a_file_says_what_is_asked_and_is_written_again_as_it_was(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert found == QUESTIONS
    assert read(tmp_path, as_toml(found, {str(TEAM): "Sales"})) == QUESTIONS


def test_json_says_the_same_also_with_the_versions_that_are_shown(tmp_path: Path) -> None:
    first = {"key": "why", "question": "Why?", "version": 3}
    watched = {"key": "refund", "phrases": ["refund"]}
    both = json.dumps({"questions": [first], "trackers": [watched]})
    assert [(one.key, one.type, one.version) for one in read(tmp_path, both, "q.json")] == [
        ("why", "yes/no", 0),
        ("refund", "tracker", 0),
    ]
    assert [one.key for one in read(tmp_path, json.dumps([first]), "q.json")] == ["why"]


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ('phrases = ["offer', 'phrasess = ["offer', 10, "phrasess is not a field. Did you mean phrases?"),
        ('party = "rep"\nfirst = 5', 'party = "agent"\nfirst = 5', 5, "party: input should be 'rep', 'customer'"),
        ("first = 5", "first = 0", 6, "first: input should be greater than 0 (it is 0)."),
        ("first = 5", 'first = "soon"', 6, "first: input should be a valid number"),
        ('key = "product"', 'key = "The Product"', 15, "key: string should match pattern"),
        ('question = "Which product?"\n', "", 14, 'question: required, such as "Did'),
        ('type = "choice"', 'type = "text"', 18, "choices: allowed for the type choice only."),
        ('"Metro Cable" = []\n', "", 18, "choices: the type choice requires two or more"),
        ('phrases = ["call is recorded"]', "phrases = []", 27, "phrases: required for a tracker."),
        ('"cannot"', '"!?"', 11, "unless[0]: must contain a word"),
        ("weight = 2", "required = true", 12, "required: allowed for trackers only."),
        ('teams = ["Sales"]', 'teams = ["Nobody"]', 2, "teams: the workspace has no team 'Nobody'."),
        ('key = "recording_notice"', 'key = "product"', 22, "the key 'product' is already used in line 14."),
        ('key = "recording_notice"\n', "", 22, "key is missing."),
    ],
)
def test_a_fault_names_its_line_and_what_is_wrong(
    before: str, after: str, line: int, told: str, tmp_path: Path
) -> None:
    assert before in WHOLE
    (fault,) = refused(tmp_path, WHOLE.replace(before, after))
    assert fault.startswith(f"q.toml, line {line}: {told}"), fault


def test_a_fault_in_json_names_its_line_too(tmp_path: Path) -> None:
    whole = json.dumps([{"key": "a", "question": "A?"}, {"key": "b", "question": "B?", "party": "us"}], indent=1)
    (fault,) = refused(tmp_path, whole, "q.json")
    assert fault.startswith("q.json, line 9: party: ")


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    faults = refused(tmp_path, WHOLE.replace("first = 5", "first = -1").replace("required = true", "required = 3"))
    assert [one.split(":")[0] for one in faults] == ["q.toml, line 6", "q.toml, line 26"]


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("key = ", "q.toml", "q.toml is not valid TOML"),
        ("{", "q.json", "q.json is not valid JSON"),
        ("", "q.toml", "q.toml has no definition. Start a question with the line [[questions]]."),
        (
            "[[scores]]\nkey = 'a'",
            "q.toml",
            "q.toml must contain only the lists questions, trackers and scorecards.",
        ),
        ("questions = 'all'", "q.toml", "q.toml must contain only"),
        ("[1]", "q.json", "q.json, line 1: "),
    ],
)
def test_what_is_no_such_file_is_refused(text: str, name: str, told: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text, name)[0].startswith(told)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DefinitionRefused, match="is not UTF-8 text"):
        read_file(tmp_path / "q.toml", {})
