"""How often are thirty questions answered rightly, and how often is "not said" said where nobody says it?

    python -m bench.questions [--detail] [--base-url http://127.0.0.1:8000/v1 --model NAME --answers FILE]

`question_cases/questions.toml` was written, phrases and all, before the six calls were read; `answers.json` has what a
person who read them answers: what is not in it is not said. By phrases; with an endpoint, by the model and phrases.
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import model_answers
from bench.analysis import material
from pipeline.analysis import analyze
from pipeline.analysis.llm.questions import NOT_BORNE_OUT
from pipeline.domain.insight import Material
from pipeline.domain.questions import Question
from serve_app.records.question_files import read_file

HERE = Path(__file__).resolve().parent
CASES, ASKED = HERE / "analysis_cases", HERE / "question_cases"


def right(answer: dict[str, Any], wanted: str | float | None) -> bool:
    """Whether an answer is what the person says; of a text, whether it has the person's word."""
    if wanted is None or answer["state"] != "said":
        return wanted is None and answer["state"] != "said"
    if answer["type"] == "text":
        return str(wanted).casefold() in str(answer["answer"]).casefold()
    return bool(answer["answer"] == wanted)


def asked_calls() -> dict[str, Material]:
    """The calls by name, each with all questions."""
    asked = tuple(one for one in read_file(ASKED / "questions.toml", {}) if isinstance(one, Question))
    names = json.loads((ASKED / "answers.json").read_text(encoding="utf-8"))
    calls = {name: material(json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))) for name in names}
    return {name: replace(call, roster=replace(call.roster, questions=asked)) for name, call in calls.items()}


def score(calls: dict[str, Material], answers: model_answers.KeptAnswers | None, detail: bool) -> dict[str, int]:
    """Counts over all questions of all calls. `answers`: the model's; None: by phrases."""
    counts: Counter[str] = Counter()
    for name, truth in json.loads((ASKED / "answers.json").read_text(encoding="utf-8")).items():
        findings = answers.findings(calls[name], "questions") if answers else analyze(calls[name])
        (finding,) = [one for one in findings if one.step == "questions"]
        counts["calls without an answer of the model"] += finding.note is not None
        for answer in finding.value["answers"]:
            wanted = truth.get(answer["key"])
            kind = "not said" if wanted is None else "said"
            good = right(answer, wanted)
            counts[kind] += 1
            counts[f"{kind}, right"] += good
            counts["answered"] += answer["state"] == "said"
            by_model = answer["found_by"] == "model"
            counts["answered by model"] += by_model
            counts["answered by model, right"] += by_model and good
            counts["not borne out"] += answer["reason"] == NOT_BORNE_OUT
            if detail and not good:
                quote = (answer["evidence"] or {}).get("quote", "")
                print(f"{name}: {answer['key']}: {answer['answer']} ({quote!r}), not {wanted}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--detail", action="store_true", help="print each wrong answer")
    model_answers.add_arguments(parser)
    given = parser.parse_args()
    answers = model_answers.KeptAnswers(model_answers.options_of(given), given.answers) if given.base_url else None
    calls = asked_calls()
    if answers:
        answers.ask_all([*calls.values()], "questions", given.at_once)
    found = score(calls, answers, given.detail)
    said, unsaid, answered = found["said"], found["not said"], found["answered"]
    hits, silent = found["said, right"], found["not said, right"]
    print(f"{said + unsaid} questions, {said} of them answered in the calls")
    print(f"accuracy {(hits + silent) / (said + unsaid):.3f}")
    print(f'recall of "not said" {silent / unsaid:.3f} ({silent} of {unsaid})')
    print(f"recall of answers {hits / said:.3f} ({hits} of {said})")
    print(f"precision of answers {hits / max(1, answered):.3f} ({hits} of {answered})")
    if answers:
        for name in ("answered by model", "answered by model, right", "not borne out"):
            print(name, found[name])
        print(
            "calls:",
            ", ".join(f"{name} {value:g}" for name, value in answers.cost([*calls.values()], "questions").items()),
        )


if __name__ == "__main__":
    main()
