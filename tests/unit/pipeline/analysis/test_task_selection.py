"""Talks that state or explain a task several times have it once; talk about the matter itself is none."""

from pathlib import Path

from pipeline.analysis.rules.commitments.selection import NO_TASK, PLACES, features, shipped_selection
from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.support.calls_by_hand import call

MIN_DIFFERENCE = 0.1  # of log odds
MAX_WRONG = 4  # of 14 talks, with another number of tasks than known
TALKS = Path(__file__).parents[3] / "fixtures" / "talks_with_tasks.txt"


def test_most_talks_have_each_of_their_tasks_once() -> None:
    wrong = []
    for line in TALKS.read_text(encoding="utf-8").splitlines()[1:]:
        head, *turns = line.split(" | ")
        language, count = head.split()
        spoken = [(("rep", "customer")[at % 2], turn) for at, turn in enumerate(turns)]
        titles = [task["title"] for task in TasksStep().run(call(*spoken, language=language)).value["tasks"]]
        if len(titles) != int(count):
            wrong.append((line, titles))
    assert len(wrong) <= MAX_WRONG, wrong


def test_a_doubtful_clause_is_a_task_late_and_alone_rather_than_early_or_next_to_a_surer_one() -> None:
    doubtful = {"probability": 0.0, "position": 0.9, "words": 4.0, "form promise": 1.0, "owner rep": 1.0}
    alone = doubtful | {f"{place} probability": NO_TASK for place in PLACES}
    next_to_a_surer_one = alone | {"sentence probability": 3.0, "sentence earlier": 1.0, "sentence dated": 1.0}
    changes = [("surer", alone, {"probability": 2.0}), ("late", alone | {"position": 0.1}, {"position": 0.9})]
    changes += [
        ("dated", alone, {"dated": 1.0}),
        ("alone", next_to_a_surer_one, dict.fromkeys(next_to_a_surer_one, 0.0) | alone),
    ]
    trees = shipped_selection().trees
    for name, before, change in changes:
        less, more = (sum(tree.value(named) for tree in trees) for named in (before, before | change))
        assert more > less + MIN_DIFFERENCE, name


def test_trees_split_only_by_features_that_tasks_have() -> None:
    spoken = [("rep", "I'll send you the form tomorrow."), ("customer", "Thanks. I'll fill it in on Monday.")]
    material = call(*spoken)
    names = set(features(TasksStep().distinct(material), 0, len(spoken)))
    used = {feature for tree in shipped_selection().trees for feature, _ in (tree.root, *tree.branches)}
    assert {name for name in used if name and name.split()[0] not in ("form", "owner")} <= names
    assert {name for name in names if name.split()[0] in PLACES} & used, "no tree looks at other tasks"
