"""Fits the trees that select among the distinct tasks of a call, for `fit.py`."""

import math
from collections.abc import Iterator
from typing import Any

from bench import analysis
from bench.lib import analysis_score
from bench.training.commitments.examples import Excerpt, marked
from pipeline.analysis.rules.commitments.classifier import CommitmentWeights
from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS
from pipeline.analysis.rules.commitments.selection import Selection, Split, Tree, features
from pipeline.analysis.rules.commitments.tasks import TasksStep

MIN_PROBABILITY = 0.4
BOOSTING: dict[str, Any] = {
    "n_estimators": 80,
    "learning_rate": 0.08,
    "max_depth": 2,
    "min_samples_leaf": 20,
    "subsample": 0.6,
    "max_features": 0.4,
    "random_state": 0,
}
EVERY_TASK = Selection((), 0.0, 0.0)
NO_SPLIT: Split = ("", float("inf"))

CALL_WEIGHT = 4.0  # of a task of a call, relative to one of the corpus
MIN_OF_CORPUS = 0.45  # probability of a task of the corpus: its doubtful clauses are more often tasks than in calls

Rated = tuple[dict[str, float], bool, float]
"""Features of a task, whether it is right, and its weight."""


def rated(case: dict[str, Any], weights: CommitmentWeights) -> list[Rated]:
    """Return the distinct tasks of a call by `weights`, except those that are optional."""
    material, step = analysis.material(case), TasksStep(weights, EVERY_TASK)
    predicted = [analysis.scored(task) for task in step.run(material).value["tasks"]]
    tasks, turns, expected = step.distinct(material), len(material.transcript.turns), case["gold"]["tasks"]
    pairs = dict(analysis_score.pairs(case, predicted))
    optional = {at for at, gold in pairs.items() if expected[gold]["optional"]}
    right = {at for at, gold in pairs.items() if analysis_score.owner_right(predicted[at], expected[gold])}
    return [(features(tasks, at, turns), at in right, CALL_WEIGHT) for at in range(len(tasks)) if at not in optional]


def rated_excerpt(excerpt: Excerpt, weights: CommitmentWeights) -> Iterator[Rated]:
    """Yield the likely distinct tasks of a line of the corpus, except those that its author left undecided."""
    tasks, turns = TasksStep(weights).distinct(excerpt.material), len(excerpt.material.transcript.turns)
    weight = CALL_WEIGHT if excerpt.typical else 1.0
    for at, task in enumerate(tasks):
        clauses = [part.candidate for part in (*task.parts, task)]
        labels = [(clause.actor, marked(clause, excerpt.marks)) for clause in clauses]
        sure = task.task.confidence >= MIN_OF_CORPUS or task.candidate.form in AGREED_FORMS
        if sure and any(label for _, label in labels):
            yield features(tasks, at, turns), any(actor == label for actor, label in labels), weight


def fitted(examples: list[Rated]) -> Selection:
    """Return boosted trees; deterministic."""
    import numpy as np
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.feature_extraction import DictVectorizer

    names = DictVectorizer(sparse=False)
    table = names.fit_transform([features for features, _, _ in examples])
    labels, weight = (np.array([example[at] for example in examples]) for at in (1, 2))
    model = GradientBoostingClassifier(**BOOSTING).fit(table, labels, sample_weight=weight)
    share = float(np.average(labels, weights=weight))
    trees = tuple(_tree(regression.tree_, names.get_feature_names_out()) for (regression,) in model.estimators_)
    return Selection(trees, round(math.log(share / (1 - share)), 4), MIN_PROBABILITY)


def serialized(selection: Selection) -> str:
    """Return the file's text: the log odds and the least probability, then a line for each tree."""
    lines: list[tuple[object, ...]] = [(selection.log_odds, selection.min_probability)]
    lines += [(*tree.root, *tree.branches[0], *tree.branches[1], *tree.values) for tree in selection.trees]
    return "".join("\t".join(map(str, line)) + "\n" for line in lines)


def _tree(nodes: Any, names: Any) -> Tree:
    low, high = (int(side[0]) for side in (nodes.children_left, nodes.children_right))
    splits, values = [], []
    for branch in (low, high):
        splits.append(_split(nodes, names, branch))
        leaf = nodes.children_left[branch] < 0
        ends = (branch, branch) if leaf else (nodes.children_left[branch], nodes.children_right[branch])
        values += [round(float(nodes.value[end].item()) * BOOSTING["learning_rate"], 4) for end in ends]
    return Tree(_split(nodes, names, 0), (splits[0], splits[1]), (values[0], values[1], values[2], values[3]))


def _split(nodes: Any, names: Any, at: int) -> Split:
    if nodes.children_left[at] < 0:
        return NO_SPLIT
    return str(names[nodes.feature[at]]), round(float(nodes.threshold[at]), 4)
