"""Compares what the analysis found in a call with what is known of it; definitions for `analysis.py`.

A found task is right when it is one of the call's (`pipeline.evaluation.matching`), and the owner is the known one
or one of
`owner_alternatives`. A task marked `optional` costs nothing, found or not. Its due date is right when it is `due_date`
or one of `due_date_alternatives`, null where no date follows.
"""

from collections import defaultdict
from typing import Any

from pipeline.evaluation.matching import NEARBY, best_pairs, is_alike, likeness, same_field, stems

FIELDS = ("name", "company", "email", "phone", "address")

Answers = defaultdict[str, list[bool]]


def owner_right(predicted: dict[str, Any], expected: dict[str, Any]) -> bool:
    return predicted["owner"] in [expected["owner"], *expected["owner_alternatives"]]


def due_right(predicted: dict[str, Any], expected: dict[str, Any]) -> bool:
    return predicted["due_date"] in [expected["due_date"], *expected["due_date_alternatives"]]


def pairs(case: dict[str, Any], predicted: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return pairs of predicted and expected tasks, the most similar first, each once."""
    turns = [turn["text"] for turn in case["input"]["turns"]]
    fits = []
    for i, task in enumerate(predicted):
        for j, expected in enumerate(case["gold"]["tasks"]):
            at = expected["turn"]
            like = likeness(task["text"], expected["text"], turns[max(0, at - 1) : at + 1])
            near = abs(task["turn"] - at) <= NEARBY
            if is_alike(like, near):
                fits.append(
                    (like + 0.3 * owner_right(task, expected) + 0.2 * due_right(task, expected) + 0.2 * near, i, j)
                )
    return best_pairs(fits)


def tasks(case: dict[str, Any], predicted: list[dict[str, Any]], counts: dict[str, int], answers: Answers) -> list[str]:
    """Adds to `counts` (found, known, right); gives a line for each mistake."""
    expected, chosen, notes = case["gold"]["tasks"], pairs(case, predicted), []
    optional = {j for j, task in enumerate(expected) if task["optional"]}
    counts["found"] += len(predicted) - sum(j in optional for _, j in chosen)
    counts["known"] += len(expected) - len(optional)
    for i, j in chosen:
        if j in optional:
            continue
        counts["right"] += owner_right(predicted[i], expected[j])
        answers["due date" if expected[j]["due_date"] else "no due date"].append(due_right(predicted[i], expected[j]))
        if not owner_right(predicted[i], expected[j]) or not due_right(predicted[i], expected[j]):
            notes.append(f"owner or date: {predicted[i]} for {expected[j]['owner']}, {expected[j]['due_date']}")
    notes += [f"extra: {predicted[i]}" for i in set(range(len(predicted))) - {i for i, _ in chosen}]
    notes += [f"missed: {expected[j]['text']!r}" for j in set(range(len(expected))) - {j for _, j in chosen} - optional]
    return notes


def topic_hit(expected: str, predicted: list[str]) -> bool:
    """Return whether a predicted topic shares a word with the expected one; labels are seldom identical."""
    return any(stems(expected) & stems(topic) for topic in predicted)


def the_rest(gold: dict[str, Any], predicted: dict[str, Any], answers: Answers) -> list[str]:
    """Direction, agent, contact, tone, topics and outcome."""
    mistakes: list[str] = []

    def judge(name: str, right: bool, why: str) -> None:
        answers[name].append(right)
        if not right:
            mistakes.append(f"{name}: {why}")

    judge("direction", predicted["outgoing"] == gold["outgoing"], f"{predicted['outgoing']} for {gold['outgoing']}")
    agent, expected = predicted["agent"]["userId"], gold["agent"]["userId"]
    judge("agent", agent == expected, f"{agent} for {expected}")
    for field in FIELDS:
        value, expected = predicted["contact"][field], gold["contact"][field]
        if expected:
            judge("contact fields", same_field(field, value, expected), f"{field} {value!r} for {expected!r}")
        else:
            judge("contact fields left empty", not value, f"{field} {value!r}")
    match, expected = predicted["contact"]["match"], gold["contact"]["match"]
    judge("contact match", match == expected, f"{match} for {expected}")
    for party in ("rep", "customer"):
        if gold["tone"][party]:
            label, expected = predicted["tone"].get(party), gold["tone"][party]
            judge("tone", label == expected, f"{party} {label} for {expected}")
    for topic in gold["topics"]:
        judge("topics", topic_hit(topic, predicted["topics"]), f"{topic!r} is none of {predicted['topics']}")
    if "outcome" in gold:
        judge("outcome", predicted["outcome"] == gold["outcome"], f"{predicted['outcome']} for {gold['outcome']}")
    return mistakes


def figures(counts: dict[str, int], answers: Answers) -> dict[str, float | int]:
    """Shares from 0 to 1 by name, with how many answers each is made of."""
    predicted, expected, right = counts["found"], counts["known"], counts["right"]
    results: dict[str, float | int] = {
        "task precision": right / predicted if predicted else 1.0,
        "task recall": right / expected if expected else 1.0,
        "task F1": 2 * right / (predicted + expected) if predicted + expected else 1.0,
        "tasks found": predicted,
        "tasks known": expected,
    }
    for name, answer_list in answers.items():
        results[name] = sum(answer_list) / len(answer_list)
        results[f"{name}, of"] = len(answer_list)
    return results
