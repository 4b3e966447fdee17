"""By which weights do cues of the talk show who placed a call, and how often are they right on a call left out?

    python -m bench.training.direction.fit [--strength 1.0] [--write] [--json FILE]

Fits the log odds of an outgoing call to the calls of analysis_cases/dev and to the open half of
bench/training/people/rows/,
by logistic regression with a ridge (`--strength` is its inverse) and no constant, so that a talk without a cue says
nothing. Judged: each call of `dev` by weights fitted without it, and the rows of the other half of the tables.
`--write` puts the weights into pipeline/analysis/rules/direction/weights.json. Needs scikit-learn, a development
dependency.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from bench import analysis
from bench.training.people import table
from pipeline.analysis.rules.direction.cues import find_cues
from pipeline.analysis.rules.direction.direction import MIN_LOG_ODDS, WEIGHTS
from pipeline.analysis.rules.people.introductions import parts
from pipeline.analysis.talk import read
from pipeline.domain.insight import Material

RARE = {  # by hand: too rare in these calls to be fitted, and as good as certain
    "customer:machine_answers": 3.0, "rep:machine_answers": -3.0, "rep:my_mistake": 3.0, "customer:my_mistake": -3.0,
    "rep:not_here": -3.0,
}  # fmt: skip
SHORT = 0.5  # what a row of a table weighs against a call
Case = tuple[str, frozenset[str], bool | None, float]  # language, cues, whether outgoing, weight


def cues(material: Material) -> frozenset[str]:
    roster = material.roster
    name_parts = {part for contact in roster.contacts for part in parts(contact.name)}
    cues = find_cues(read(material, machines=True), name_parts, {member.name for member in roster.members})
    return frozenset(cue.name for cue in cues)


def calls() -> list[Case]:
    folder = Path(__file__).resolve().parents[3] / "bench" / "analysis_cases" / "dev"
    cases = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [(case["input"]["language"], cues(analysis.material(case)), case["gold"]["outgoing"], 1.0) for case in cases]


def short(half: str) -> list[Case]:
    chosen = [row for part in table.TABLES for row in table.rows(part)]
    chosen = [row for row in chosen if row.section == "direction" and row.half == half]
    return [(row.language, cues(row.material), table.OUTGOING[row.gold], SHORT) for row in chosen]


def fitted(cases: list[Case], strength: float) -> dict[str, float]:
    """Log odds by cue; calls that do not show who placed them teach nothing."""
    from sklearn.linear_model import LogisticRegression

    shown = [case for case in cases if case[2] is not None]
    names = sorted({name for case in shown for name in case[1]} - RARE.keys())
    rows = [[float(name in case[1]) for name in names] for case in shown]
    model = LogisticRegression(C=strength, fit_intercept=False, max_iter=1000)
    model.fit(rows, [case[2] for case in shown], sample_weight=[case[3] for case in shown])
    return RARE | {name: round(float(weight), 2) for name, weight in zip(names, model.coef_[0], strict=True)}


def told(weights: dict[str, float], cues: frozenset[str]) -> bool | None:
    total = sum(weights.get(name, 0.0) for name in cues)
    return None if abs(total) < MIN_LOG_ODDS else total > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    full, teaching, checking = calls(), short("open"), short("check")
    weights = fitted(full + teaching, arguments.strength)
    judged = {
        "dev, fitted": [(case, told(weights, case[1])) for case in full],
        "dev, left out": [
            (case, told(fitted(full[:at] + full[at + 1 :] + teaching, arguments.strength), case[1]))
            for at, case in enumerate(full)
        ],
        "tables, fitted": [(case, told(weights, case[1])) for case in teaching],
        "tables, kept apart": [(case, told(weights, case[1])) for case in checking],
    }
    fitted_weights = _table(judged, sorted({case[0] for case in full}))
    print(*(f"{weight:+.2f} {name}" for name, weight in sorted(weights.items(), key=lambda item: item[1])), sep="\n")
    if arguments.write:
        about = "Log odds of an outgoing call by cue (cues.py), fitted by bench/training/direction/fit.py"
        WEIGHTS.write_text(json.dumps({"about": about, "weights": weights}, indent=1) + "\n")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"strength": arguments.strength, "judged": fitted_weights, "weights": weights}, indent=2)
        )


def _table(judged: dict[str, list[tuple[Case, bool | None]]], languages: list[str]) -> dict[str, dict[str, int]]:
    """Prints a line for each entry of `judged` and returns its figures."""
    print(f"{'':20}" + "".join(f"{name:>10}" for name in (*languages, "all", "wrong", "open")))
    results = {}
    for name, answers in judged.items():
        right = Counter(case[0] for case, answer in answers if answer is case[2])
        of = Counter(case[0] for case, _ in answers)
        wrong = sum(answer is not None and answer is not case[2] for case, answer in answers)
        unsaid = sum(answer is None and case[2] is not None for case, answer in answers)
        cells = [f"{right[language]}/{of[language]}" for language in languages]
        cells += [f"{right.total()}/{of.total()}", str(wrong), str(unsaid)]
        print(f"{name:20}" + "".join(f"{cell:>10}" for cell in cells))
        results[name] = {"right": right.total(), "of": of.total(), "wrong": wrong, "left open": unsaid}
    return results


if __name__ == "__main__":
    main()
