"""Titles of tasks make sense to readers who did not hear the call, in every language."""

from pathlib import Path

from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.support.calls_by_hand import call

EXAMPLES = Path(__file__).parents[3] / "fixtures" / "titles.txt"


def test_a_title_says_what_it_is_about(subtests) -> None:
    for line in EXAMPLES.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        talk, title = line.split(" => ")
        head, *turns = talk.split(" | ")
        language, owner = head.split()
        spoken = [(("rep", "customer")[at % 2], turn) for at, turn in enumerate(turns)]
        with subtests.test(line):
            tasks = TasksStep().run(call(*spoken, language=language)).value["tasks"]
            assert [(task["owner"], task["title"]) for task in tasks] == [(owner, title)]
