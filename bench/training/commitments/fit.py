"""Fits the weights and trees that separate tasks from talk, and scores them on calls that were not used for fitting.

    python -m bench.training.commitments.fit [--folds 5 | --leave-one-out | --authors]
    [--calls FOLDER ...] [--calls-only] [--write] [--json F]

Every fold is fitted on the corpus and on the calls of the other folds and scored on its own calls, by the scorer of
`bench/analysis.py`. The trees of a fold are fitted on the tasks of the other folds as weights of this kind find them.
`--write` fits on everything and writes the files that ship.
"""

import argparse
import itertools
import json
import re
import sys
from bisect import bisect_left
from collections import Counter
from pathlib import Path
from typing import Any

from bench import analysis
from bench.lib import analysis_score
from bench.training.commitments import examples, selection
from bench.training.commitments.examples import Excerpt, LabeledClause
from pipeline.analysis.rules.commitments.classifier import CLASSES, FILE, SCALE, CommitmentWeights
from pipeline.analysis.rules.commitments.selection import FILE as TREES
from pipeline.analysis.rules.commitments.selection import Selection
from pipeline.analysis.rules.commitments.tasks import TasksStep

CALLS = Path(__file__).resolve().parents[3] / "bench" / "analysis_cases" / "dev"
CORPUS = "of the corpus "  # before a feature of form: how far to believe the rules differs between corpus and calls
STRENGTH = 0.03  # C of the regression: the inverse of how strongly weights are held near 0
CALL_WEIGHT = 4.0  # of an example from a call, relative to one of the corpus
WORDS = 0.7  # value of a feature of words or conjunctions; others have 1, since there are fewer, each more frequent
MIN_WEIGHT = 2  # in units of 1 / SCALE: smaller weights are left out
RARE = 2  # examples in which a feature must occur
OF_WORDS = re.compile("[a-z]{2,3}[:/^$>]")  # a feature of words begins with a language; the others are of form
JOINT = re.compile("k .*[+>]|[sb] ")  # of several concepts
LAST_CALLS = (10, 20, 30, 45, 60, 80, 86, 92, 98, 106)  # the number of each author's last call
FIRST_OF_ITS_OWN = 113  # from here on, each number is an author
MIN_PROBABILITY = 0.32  # the probability from which a clause is a candidate for a task
BINS = (0.0, 0.42, 0.7, 0.85, 0.95, 1.001)  # of confidence, to compare with how often it is right


def serialized(weights: CommitmentWeights) -> str:
    """Return the file's text: a head (feature, classes, least probability), then a line for each feature."""
    head = "\t".join(("feature", *CLASSES, str(weights.min_probability)))
    lines = ("\t".join((feature, *map(str, of))) for feature, of in sorted(weights.by_feature.items()))
    return "\n".join((head, *lines)) + "\n"


def fitted(clauses: list[LabeledClause], min_probability: float = MIN_PROBABILITY) -> CommitmentWeights:
    """Return the weights of one multinomial logistic regression; deterministic."""
    import numpy as np
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    counts = Counter(feature for clause in clauses for feature in clause.features)
    frequent = {feature for feature, count in counts.items() if count >= RARE}
    names = DictVectorizer()
    table = names.fit_transform([_row(clause, frequent) for clause in clauses])
    model = LogisticRegression(C=STRENGTH, max_iter=500, tol=1e-3)
    weight = np.array([_weight(clause) for clause in clauses])
    labels = [clause.label for clause in clauses]
    model.fit(table, [CLASSES.index(label) for label in labels], sample_weight=weight)
    if list(model.classes_) != list(range(len(CLASSES))):
        sys.exit(f"the examples have only {sorted(set(labels))}: every one of {CLASSES} is needed to fit")
    of = {"": _whole(model.intercept_)}
    for at, feature in enumerate(names.get_feature_names_out()):
        whole = _whole(model.coef_[:, at] * _value(feature))
        if not feature.startswith(CORPUS) and max(map(abs, whole)) >= MIN_WEIGHT:
            of[str(feature)] = whole
    return CommitmentWeights(of, min_probability)


def _weight(clause: LabeledClause) -> float:
    return 1.0 if clause.excerpt else CALL_WEIGHT


def _whole(weights: Any) -> tuple[int, ...]:
    return tuple(round(float(weight) * SCALE) for weight in weights)


def _value(feature: str) -> float:
    return WORDS if OF_WORDS.match(feature) or JOINT.match(feature) else 1.0


def _row(clause: LabeledClause, frequent: set[str]) -> dict[str, float]:
    row = {feature: _value(feature) for feature in clause.features if feature in frequent}
    if clause.excerpt:
        row.update(
            {
                CORPUS + feature: 1.0
                for feature in clause.features
                if feature in frequent and not OF_WORDS.match(feature)
            }
        )
        row[CORPUS] = 1.0
    return row


def folds(cases: list[dict[str, Any]], count: int) -> dict[str, int]:
    """Assign calls to folds in the order of their names, so that every language is spread evenly."""
    return {name: at % count for at, name in enumerate(sorted(case["id"] for case in cases))}


def authors(cases: list[dict[str, Any]]) -> dict[str, int]:
    """Assign calls to folds by author, which their names show: a letter, or a range of numbers."""
    of = {case["id"]: _author(case["id"].rpartition("_")[2]) for case in cases}
    numbers = {author: number for number, author in enumerate(sorted(set(of.values())))}
    return {name: numbers[author] for name, author in of.items()}


def _author(label: str) -> str:
    if not label.isdigit():
        return label[0]
    return label if int(label) >= FIRST_OF_ITS_OWN else str(bisect_left(LAST_CALLS, int(label)))


def found(case: dict[str, Any], weights: CommitmentWeights, trees: Selection) -> list[dict[str, Any]]:
    """Return the tasks of a call in the scorer's form, with their confidence."""
    material = analysis.material(case)
    tasks = TasksStep(weights, trees).run(material).value["tasks"]
    return [{**analysis.scored(task), "confidence": task["confidence"]} for task in tasks]


def judged(cases: list[dict[str, Any]], tasks: dict[str, Any]) -> dict[str, dict[str, float | int]]:
    results = {}
    for language in (*sorted({case["input"]["language"] for case in cases}), "all"):
        counts, answers = dict.fromkeys(("found", "known", "right"), 0), analysis_score.Answers(list)
        for case in cases:
            if language in ("all", case["input"]["language"]):
                analysis_score.tasks(case, tasks[case["id"]], counts, answers)
        results[language] = analysis_score.figures(counts, answers)
    return results


def calibration(cases: list[dict[str, Any]], tasks: dict[str, Any]) -> list[tuple[float, int, float]]:
    """Per bin of confidence: its mean, how many tasks, and the share that is right in words and owner."""
    seen: list[tuple[float, bool]] = []
    for case in cases:
        expected, predicted = case["gold"]["tasks"], tasks[case["id"]]
        fits = dict(analysis_score.pairs(case, predicted))
        for at, task in enumerate(predicted):
            if at in fits and expected[fits[at]]["optional"]:
                continue
            seen.append((task["confidence"], at in fits and analysis_score.owner_right(task, expected[fits[at]])))
    rows = []
    for first, last in itertools.pairwise(BINS):
        inside = [(figure, right) for figure, right in seen if first <= figure < last]
        if inside:
            mean = sum(figure for figure, _ in inside) / len(inside)
            rows.append((mean, len(inside), sum(right for _, right in inside) / len(inside)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--leave-one-out", action="store_true", help="as many folds as calls: takes minutes")
    parser.add_argument("--authors", action="store_true", help="a fold for each author of calls")
    parser.add_argument("--calls", type=Path, nargs="+", default=[CALLS], help="folders of calls (default: dev)")
    parser.add_argument("--calls-only", action="store_true", help="without the corpus")
    parser.add_argument("--write", action="store_true", help="fit on everything and write the weights that ship")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    paths = sorted(path for folder in arguments.calls for path in folder.glob("*.json"))
    cases = [json.loads(path.read_text()) for path in paths]
    calls = [clause for case in cases for clause in examples.of_call(case)]
    files = [] if arguments.calls_only else sorted(examples.CORPUS.glob("*.txt"))
    excerpts = [excerpt for path in files for excerpt in examples.excerpts(path)]
    corpus = [clause for excerpt in excerpts for clause in examples.of_excerpt(excerpt)]
    counted = Counter(
        (clause.language, "corpus" if clause.excerpt else "calls", clause.label) for clause in calls + corpus
    )
    for (language, source, label), count in sorted(counted.items()):
        print(f"{language} {source:7} {label:9} {count:5}")
    count = len(cases) if arguments.leave_one_out else arguments.folds
    fold = authors(cases) if arguments.authors else folds(cases, count)
    tasks, rated = _crossed(cases, excerpts, calls + corpus, fold)
    figures = judged(cases, tasks)
    print("\nOn calls not fitted on:")
    print(analysis.table(figures))
    rows = calibration(cases, tasks)
    print("\nconfidence  tasks  right")
    for mean, count, right in rows:
        print(f"{mean:10.2f} {count:6} {right:6.2f}")
    if arguments.write:
        weights = fitted(calls + corpus)
        FILE.write_text(serialized(weights), encoding="utf-8")
        print(f"\n{FILE}: {len(weights.by_feature)} features, {FILE.stat().st_size / 1024:.0f} KiB")
        TREES.write_text(selection.serialized(selection.fitted(rated)), encoding="utf-8")
    if arguments.json:
        report = {"by_language": figures, "calibration": rows, "examples": {" ".join(k): v for k, v in counted.items()}}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _crossed(
    cases: list[dict[str, Any]], excerpts: list[Excerpt], clauses: list[LabeledClause], fold: dict[str, int]
) -> tuple[dict[str, list[dict[str, Any]]], list[selection.Rated]]:
    """Return the tasks of every call, fitted without it, and the candidates for a task of all calls and excerpts, by
    weights fitted without them.
    """
    numbers = sorted(set(fold.values()))
    fold |= {excerpt.group: number for excerpt, number in zip(excerpts, itertools.cycle(numbers), strict=False)}
    weights, rated = {}, {}
    for at in numbers:
        weights[at] = fitted([clause for clause in clauses if fold[clause.group] != at])
        rated[at] = [task for case in cases if fold[case["id"]] == at for task in selection.rated(case, weights[at])]
        for excerpt in excerpts:
            if fold[excerpt.group] == at:
                rated[at] += selection.rated_excerpt(excerpt, weights[at])
        print(f"fold {at + 1} of {len(numbers)}", file=sys.stderr)
    tasks = {}
    for at in numbers:
        trees = selection.fitted([task for other in numbers if other != at for task in rated[other]])
        tasks.update({case["id"]: found(case, weights[at], trees) for case in cases if fold[case["id"]] == at})
    return tasks, [task for at in numbers for task in rated[at]]


if __name__ == "__main__":
    main()
