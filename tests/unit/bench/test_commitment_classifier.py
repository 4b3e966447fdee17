import re

import pytest

from bench.training.commitments import examples, selection
from bench.training.commitments.fit import serialized
from pipeline.analysis.rules.commitments import classifier
from pipeline.analysis.rules.commitments.selection import Selection, Tree, read_selection, shipped_selection
from pipeline.analysis.rules.commitments.tasks import TasksStep
from tests.support.calls_by_hand import call


def tasks(*lines, language="en", weights=None):
    return TasksStep(weights, weights and selection.EVERY_TASK).run(call(*lines, language=language)).value["tasks"]


def test_the_probabilities_of_who_does_it_and_nobody_are_one_together():
    probabilities = classifier.shipped_weights().probabilities(["form commit", "en:send", "no such feature"])
    assert len(probabilities) == len(classifier.CLASSES)
    assert sum(probabilities) == pytest.approx(1.0)
    assert all(0 < probability < 1 for probability in probabilities)


def test_a_feature_moves_the_probability_as_far_as_its_weight_says():
    weights = classifier.CommitmentWeights({"": (0, 0, 0, 0), "form commit": (0, 100, 0, 0)}, min_probability=0.5)
    nobody, speaker, *_ = weights.probabilities(["form commit"])
    assert speaker / nobody == pytest.approx(2.71828, rel=1e-4)


def test_weights_are_read_as_they_were_written(tmp_path):
    weights = classifier.CommitmentWeights({"": (1, -2, 3, 0), "en:send it": (0, 40, 0, -7)}, min_probability=0.4)
    (tmp_path / "weights.tsv").write_text(serialized(weights))
    assert classifier.read_weights(tmp_path / "weights.tsv") == weights


def test_weights_of_other_classes_are_refused_with_what_to_do(tmp_path):
    (tmp_path / "weights.tsv").write_text("feature\tno\tyes\t0.5\n\t1\t2\n")
    with pytest.raises(ValueError, match=r"fit it again with bench/training/commitments/fit\.py"):
        classifier.read_weights(tmp_path / "weights.tsv")


def test_trees_are_read_as_they_were_written_and_add_their_values(tmp_path):
    no_split = selection.NO_SPLIT
    trees = Selection((Tree(("words", 3.5), (("dated", 0.5), no_split), (-1.0, 0.25, 2.0, 2.0)),), -0.5, 0.4)
    (tmp_path / "trees.tsv").write_text(selection.serialized(trees))
    assert read_selection(tmp_path / "trees.tsv") == trees
    values = [trees.trees[0].value(named) for named in ({"words": 3}, {"dated": 1}, {"words": 4}, {})]
    assert values == [-1.0, 0.25, 2.0, -1.0]


def test_fitted_trees_separate_what_is_right_by_another_feature_each():
    examples_of_tasks = [({"words": at % 7, "dated": at % 2}, at % 2 == 1 and at % 7 > 2, 1.0) for at in range(400)]
    trees = selection.fitted(examples_of_tasks)
    rated = [(trees._probability(named) > 0.5) == right for named, right, _ in examples_of_tasks]
    assert sum(rated) > 0.95 * len(rated)


def test_the_least_probability_decides_what_holds_and_is_the_least_confidence():
    lines = [("rep", "I will send you the invoice tomorrow."), ("customer", "Okay, thanks.")]
    (task,) = tasks(*lines)
    assert shipped_selection().min_probability <= task["confidence"] <= 1
    strict = classifier.CommitmentWeights(classifier.shipped_weights().by_feature, min_probability=1.01)
    assert tasks(*lines, weights=strict) == []


def test_the_same_call_gives_the_same_tasks_again():
    lines = [("customer", "I'll pop the key through your letterbox on Friday."), ("rep", "Lovely, ta.")]
    assert tasks(*lines) == tasks(*lines) != []


def test_a_sentence_without_any_form_is_weighed_too():
    lines = [("rep", "And the certificate?"), ("customer", "Tonight, in the post.")]
    (task,) = tasks(*lines, weights=classifier.CommitmentWeights({"day": (0, 500, 0, 0)}, min_probability=0.5))
    assert (task["owner"], task["due_date"], task["evidence"]["quote"]) == (
        "customer",
        "2025-04-16",
        "Tonight, in the post.",
    )


def test_what_is_asked_for_and_agreed_to_holds_at_a_lower_probability():
    lines = [("customer", "Could you send me the new offer?"), ("rep", "Sure, no problem.")]
    (task,) = tasks(
        *lines, weights=classifier.CommitmentWeights({"": (300, 0, 0, 0)}, min_probability=0.5)
    )  # 0.13 that it is a commitment
    assert tasks(*lines, weights=classifier.CommitmentWeights({"": (500, 0, 0, 0)}, min_probability=0.5)) == []  # 0.02
    assert (task["owner"], task["kind"]) == ("rep", "request")
    assert tasks(("customer", "Could you send me the new offer?"), ("rep", "No, I am afraid we cannot.")) == []


def test_marks_of_the_corpus_are_taken_out_of_the_text_and_kept_with_their_places():
    turns, marks = examples._parsed("c: Right. +I'll call, >you write. / r: Fine.", 0)
    assert turns == [("customer", "Right. I'll call, you write."), ("rep", "Fine.")]
    assert marks == [[(7, "+"), (18, ">")], []]


def test_a_line_of_the_corpus_with_a_turn_without_words_is_refused_with_its_number():
    with pytest.raises(ValueError, match="line 8: a turn without words"):
        examples._parsed("r: Fine. / c: ", 7)


def test_every_line_of_the_corpus_is_well_formed():
    for path in sorted(examples.CORPUS.glob("*.txt")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            if not line.strip() or line.startswith("#"):
                continue
            turns, marks = examples._parsed(line.removeprefix(examples.TYPICAL), number)
            assert not any(re.search(r"(?:^| )[+>*~]", text) for _, text in turns), (path.name, number + 1)
            assert sum(map(len, marks)) <= 4, (path.name, number + 1)


def test_examples_are_labelled_by_the_marks_of_their_clauses(tmp_path):
    path = tmp_path / "en.txt"
    path.write_text("r: I sent it on Monday. +I'll send you another one tomorrow. / c: Thanks.\n")
    (excerpt,) = examples.excerpts(path)
    labels = [(clause.label, clause.text) for clause in examples.of_excerpt(excerpt)]
    assert ("speaker", "I'll send you another one tomorrow.") in labels
    assert all(label == "nobody" for label, text in labels if "Monday" in text)
