"""Fits the weights by which tasks are told from talk, and says how well they do on calls they were not fitted on.

    python -m bench.training.commitments.fit [--folds 5 | --leave-one-out] [--calls-only | --corpus-only] [--write]
    [--json F]

Every fold is fitted on the corpus and on the calls of the other folds and judged on its own calls, by the scorer of
`bench/analysis.py`. `--write` fits on everything and writes the weights that ship.
"""

import argparse
import itertools
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench import analysis
from bench.lib import analysis_score
from bench.training.commitments import examples
from bench.training.commitments.examples import LabeledClause
from pipeline.analysis.rules.commitments.classifier import CLASSES, FILE, SCALE, CommitmentWeights
from pipeline.analysis.rules.commitments.tasks import TasksStep

CALLS = Path(__file__).resolve().parents[3] / "bench" / "analysis_cases" / "dev"
CORPUS = "of the corpus "  # before a feature of form: how far to believe the rules differs between corpus and calls
STRENGTH = 0.05  # C of the regression: the inverse of how strongly weights are held near 0
CALL_WEIGHT = 2.0  # of an example from a call beside one of the corpus
WORDS = 0.7  # the value of a feature of words beside that of a feature of form, 1: there are more of them, each rarer
RARE = 2  # examples in which a feature must occur
OF_WORDS = re.compile("[a-z]{2,3}[:/^$>]")  # a feature of words begins with a language; the others are of form
LEAST = 0.5  # the probability from which a commitment holds
BINS = (0.0, 0.5, 0.7, 0.85, 0.95, 1.001)  # of confidence, to compare with how often it is right


def serialized(weights: CommitmentWeights) -> str:
    """Return the file's text: a head (feature, classes, least probability), then a line for each feature."""
    head = "\t".join(("feature", *CLASSES, str(weights.min_probability)))
    lines = ("\t".join((feature, *map(str, of))) for feature, of in sorted(weights.by_feature.items()))
    return "\n".join((head, *lines)) + "\n"


def fitted(given: list[LabeledClause], least: float = LEAST) -> CommitmentWeights:
    """The weights of one multinomial logistic regression; the same examples give the same weights."""
    import numpy as np
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    counts = Counter(feature for one in given for feature in one.features)
    known = {feature for feature, count in counts.items() if count >= RARE}
    names = DictVectorizer()
    table = names.fit_transform([_row(one, known) for one in given])
    model = LogisticRegression(C=STRENGTH, max_iter=500, tol=1e-3)
    weight = np.array([_weight(one) for one in given])
    labels = [one.label for one in given]
    model.fit(table, [CLASSES.index(label) for label in labels], sample_weight=weight)
    if list(model.classes_) != list(range(len(CLASSES))):
        sys.exit(f"the examples have only {sorted(set(labels))}: every one of {CLASSES} is needed to fit")
    of = {"": _whole(model.intercept_)}
    for at, feature in enumerate(names.get_feature_names_out()):
        whole = _whole(model.coef_[:, at] * _value(feature))
        if not feature.startswith(CORPUS) and any(whole):
            of[str(feature)] = whole
    return CommitmentWeights(of, least)


def _weight(one: LabeledClause) -> float:
    return 1.0 if one.excerpt else CALL_WEIGHT


def _whole(weights: Any) -> tuple[int, ...]:
    return tuple(round(float(one) * SCALE) for one in weights)


def _value(feature: str) -> float:
    return WORDS if OF_WORDS.match(feature) else 1.0


def _row(one: LabeledClause, known: set[str]) -> dict[str, float]:
    row = {feature: _value(feature) for feature in one.features if feature in known}
    if one.excerpt:
        row.update(
            {CORPUS + feature: 1.0 for feature in one.features if feature in known and not OF_WORDS.match(feature)}
        )
        row[CORPUS] = 1.0
    return row


def folds(cases: list[dict[str, Any]], count: int) -> dict[str, int]:
    """Which fold each call is in; in the order of their names, so that every language is spread evenly."""
    return {name: at % count for at, name in enumerate(sorted(case["id"] for case in cases))}


def found(case: dict[str, Any], weights: CommitmentWeights) -> list[dict[str, Any]]:
    """The tasks of a call in the scorer's form, with their confidence."""
    material = analysis.material(case)
    tasks = TasksStep(weights).run(material).value["tasks"]
    return [{**analysis.scored(task), "confidence": task["confidence"]} for task in tasks]


def judged(cases: list[dict[str, Any]], tasks: dict[str, Any]) -> dict[str, dict[str, float | int]]:
    made = {}
    for language in (*sorted({case["input"]["language"] for case in cases}), "all"):
        counts, answers = dict.fromkeys(("found", "known", "right"), 0), analysis_score.Answers(list)
        for case in cases:
            if language in ("all", case["input"]["language"]):
                analysis_score.tasks(case, tasks[case["id"]], counts, answers)
        made[language] = analysis_score.figures(counts, answers)
    return made


def calibration(cases: list[dict[str, Any]], tasks: dict[str, Any]) -> list[tuple[float, int, float]]:
    """Per bin of confidence: its mean, how many tasks, and the share that is right in words and owner."""
    seen: list[tuple[float, bool]] = []
    for case in cases:
        known, given = case["gold"]["tasks"], tasks[case["id"]]
        fits = dict(analysis_score.pairs(case, given))
        for at, one in enumerate(given):
            if at in fits and known[fits[at]]["optional"]:
                continue
            seen.append((one["confidence"], at in fits and analysis_score.owner_right(one, known[fits[at]])))
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
    parser.add_argument("--calls-only", action="store_true", help="without the corpus")
    parser.add_argument("--corpus-only", action="store_true", help="without the calls")
    parser.add_argument("--write", action="store_true", help="fit on everything and write the weights that ship")
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args()
    cases = [json.loads(path.read_text()) for path in sorted(CALLS.glob("*.json"))]
    calls = [] if given.corpus_only else [one for case in cases for one in examples.of_call(case)]
    files = [] if given.calls_only else sorted(examples.CORPUS.glob("*.txt"))
    corpus = [one for path in files for one in examples.excerpts(path)]
    counted = Counter((one.language, "corpus" if one.excerpt else "calls", one.label) for one in calls + corpus)
    for (language, source, label), count in sorted(counted.items()):
        print(f"{language} {source:7} {label:9} {count:5}")
    if given.corpus_only:
        weights = fitted(corpus)
        tasks = {case["id"]: found(case, weights) for case in cases}
    else:
        tasks = _crossed(cases, calls, corpus, len(cases) if given.leave_one_out else given.folds)
    figures = judged(cases, tasks)
    print("\nOn calls not fitted on:")
    print(analysis.table(figures))
    rows = calibration(cases, tasks)
    print("\nconfidence  tasks  right")
    for mean, count, right in rows:
        print(f"{mean:10.2f} {count:6} {right:6.2f}")
    if given.write:
        weights = fitted(calls + corpus)
        FILE.write_text(serialized(weights), encoding="utf-8")
        print(f"\n{FILE}: {len(weights.by_feature)} features, {FILE.stat().st_size / 1024:.0f} KiB")
    if given.json:
        report = {"by_language": figures, "calibration": rows, "examples": {" ".join(k): v for k, v in counted.items()}}
        given.json.write_text(json.dumps(report, indent=2) + "\n")


def _crossed(
    cases: list[dict[str, Any]], calls: list[LabeledClause], corpus: list[LabeledClause], count: int
) -> dict[str, list[dict[str, Any]]]:
    """The tasks of every call, found with weights that were fitted without it."""
    tasks, fold = {}, folds(cases, count)
    for at in sorted(set(fold.values())):
        weights = fitted([one for one in calls if fold[one.group] != at] + corpus)
        tasks.update({case["id"]: found(case, weights) for case in cases if fold[case["id"]] == at})
        print(f"fold {at + 1} of {count}", file=sys.stderr)
    return tasks


if __name__ == "__main__":
    main()
