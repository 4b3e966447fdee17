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


def owner_right(found: dict[str, Any], known: dict[str, Any]) -> bool:
    return found["owner"] in [known["owner"], *known["owner_alternatives"]]


def due_right(found: dict[str, Any], known: dict[str, Any]) -> bool:
    return found["due_date"] in [known["due_date"], *known["due_date_alternatives"]]


def pairs(case: dict[str, Any], found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Which found task is which known one; the likest first, each once."""
    turns = [turn["text"] for turn in case["input"]["turns"]]
    fits = []
    for i, one in enumerate(found):
        for j, known in enumerate(case["gold"]["tasks"]):
            at = known["turn"]
            like = likeness(one["text"], known["text"], turns[max(0, at - 1) : at + 1])
            near = abs(one["turn"] - at) <= NEARBY
            if is_alike(like, near):
                fits.append((like + 0.3 * owner_right(one, known) + 0.2 * due_right(one, known) + 0.2 * near, i, j))
    return best_pairs(fits)


def tasks(case: dict[str, Any], found: list[dict[str, Any]], counts: dict[str, int], answers: Answers) -> list[str]:
    """Adds to `counts` (found, known, right); gives a line for each mistake."""
    known, chosen, notes = case["gold"]["tasks"], pairs(case, found), []
    optional = {j for j, task in enumerate(known) if task["optional"]}
    counts["found"] += len(found) - sum(j in optional for _, j in chosen)
    counts["known"] += len(known) - len(optional)
    for i, j in chosen:
        if j in optional:
            continue
        counts["right"] += owner_right(found[i], known[j])
        answers["due date" if known[j]["due_date"] else "no due date"].append(due_right(found[i], known[j]))
        if not owner_right(found[i], known[j]) or not due_right(found[i], known[j]):
            notes.append(f"owner or date: {found[i]} for {known[j]['owner']}, {known[j]['due_date']}")
    notes += [f"extra: {found[i]}" for i in set(range(len(found))) - {i for i, _ in chosen}]
    notes += [f"missed: {known[j]['text']!r}" for j in set(range(len(known))) - {j for _, j in chosen} - optional]
    return notes


def topic_hit(known: str, found: list[str]) -> bool:
    """Whether a found topic shares a word with the known one: a label and a thing spoken of are seldom the same."""
    return any(stems(known) & stems(topic) for topic in found)


def the_rest(gold: dict[str, Any], found: dict[str, Any], answers: Answers) -> list[str]:
    """Direction, agent, contact, tone, topics and outcome."""
    mistakes: list[str] = []

    def judge(name: str, right: bool, why: str) -> None:
        answers[name].append(right)
        if not right:
            mistakes.append(f"{name}: {why}")

    judge("direction", found["outgoing"] == gold["outgoing"], f"{found['outgoing']} for {gold['outgoing']}")
    agent, known = found["agent"]["userId"], gold["agent"]["userId"]
    judge("agent", agent == known, f"{agent} for {known}")
    for field in FIELDS:
        heard, wanted = found["contact"][field], gold["contact"][field]
        if wanted:
            judge("contact fields", same_field(field, heard, wanted), f"{field} {heard!r} for {wanted!r}")
        else:
            judge("contact fields left empty", not heard, f"{field} {heard!r}")
    match, wanted = found["contact"]["match"], gold["contact"]["match"]
    judge("contact match", match == wanted, f"{match} for {wanted}")
    for party in ("rep", "customer"):
        if gold["tone"][party]:
            label, wanted = found["tone"].get(party), gold["tone"][party]
            judge("tone", label == wanted, f"{party} {label} for {wanted}")
    for topic in gold["topics"]:
        judge("topics", topic_hit(topic, found["topics"]), f"{topic!r} is none of {found['topics']}")
    if "outcome" in gold:
        judge("outcome", found["outcome"] == gold["outcome"], f"{found['outcome']} for {gold['outcome']}")
    return mistakes


def figures(counts: dict[str, int], answers: Answers) -> dict[str, float | int]:
    """Shares from 0 to 1 by name, with how many answers each is made of."""
    found, known, right = counts["found"], counts["known"], counts["right"]
    made: dict[str, float | int] = {
        "task precision": right / found if found else 1.0,
        "task recall": right / known if known else 1.0,
        "task F1": 2 * right / (found + known) if found + known else 1.0,
        "tasks found": found,
        "tasks known": known,
    }
    for name, given in answers.items():
        made[name] = sum(given) / len(given)
        made[f"{name}, of"] = len(given)
    return made
