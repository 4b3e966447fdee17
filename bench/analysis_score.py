"""Compares what the analysis found in a call with what is known of it; definitions for `analysis.py`.

A found task is right when one task of the call fits it: their words are alike (`likeness` of at least 0.45, or 0.25
where the evidence lies within two turns of the task's), each fits one at most, and the owner is the known one or one of
`owner_alternatives`. A task marked `optional` costs nothing, found or not. Its due date is right when it is `due_date`
or one of `due_date_alternatives`, null where no date follows.
"""

import re
import unicodedata
from collections import defaultdict
from difflib import SequenceMatcher
from typing import Any

ALIKE, ALIKE_NEARBY, NEARBY = 0.45, 0.25, 2  # likeness, likeness within so many turns, turns
FIELDS = ("name", "company", "email", "phone", "address")
_SMALL = """
a an the of to for with and or in on at by from that this it is be will would have has do does his her their our your
my me you he she they we i as so if not no el la los las un una de del al y o en con por para que se le lo su mi es
der die das den dem des ein eine einen und oder mit fur von zu im am an auf ist wird les une des du au aux et ou dans
avec pour sa son ses est l d s
"""
SMALL = frozenset(_SMALL.split())
ALIKE_WORDS = (
    "send email mail upload text forward share submit provide deliver",
    "photo picture image pic screenshot",
    "call phone ring",
    "fix repair",
    "visit come",
    "bring drop take",
    "quote quotation estimate price",
    "meeting appointment visit",
    "check inspect review",
    "enviar mandar remitir",
    "schicken mailen senden",
    "envoyer transmettre",
    "tell inform notify confirm",
    "cancel remove delete",
    "bill invoice",
)

Answers = defaultdict[str, list[bool]]


def folded(text: str | None) -> str:
    """Lower case without accents."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text or "") if not unicodedata.combining(c))
    return plain.lower().replace("ß", "ss")


def stem(word: str) -> str:
    return re.sub(r"^(.{4,}?)(ing|ed|es|s)$", r"\1", word)[:5]


_SAME = {stem(word): stem(group.split()[0]) for group in reversed(ALIKE_WORDS) for word in group.split()}


def stems(text: str | None) -> set[str]:
    """The beginnings of the words that mean something; words of one meaning are one."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\be-mail", "email", folded(text)))
    return {_SAME.get(stem(word), stem(word)) for word in words if word not in SMALL}


def dice(a: set[str], b: set[str]) -> float:
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


def likeness(said: str, known: str, around: list[str]) -> float:
    """0..1: do the words of a found task say the known one? `around`: what was said where it was committed to."""
    found, wanted = stems(said), stems(known)
    talk = wanted | stems(" ".join(around))
    best = dice(found, wanted)
    if len(found & wanted) >= 2 and len(found) <= 5 * len(wanted):
        best = max(best, 0.9 * len(found & wanted) / len(wanted))
    if len(found) >= 2 and found & talk:
        best = max(best, 0.85 * len(found & talk) / len(found) * (1 if found & wanted else 0.6))
    return max(best, 0.9 * SequenceMatcher(None, folded(said), folded(known)).ratio() - 0.15)


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
            if like >= ALIKE or (near and like >= ALIKE_NEARBY):
                rank = like + 0.3 * owner_right(one, known) + 0.2 * due_right(one, known) + 0.2 * near
                fits.append((rank, i, j))
    chosen: list[tuple[int, int]] = []
    for _, i, j in sorted(fits, reverse=True):
        if all(i != a and j != b for a, b in chosen):
            chosen.append((i, j))
    return chosen


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


def _alike(a: str, b: str, least: float) -> bool:
    return SequenceMatcher(None, folded(a), folded(b)).ratio() >= least or dice(stems(a), stems(b)) >= least


def _same_name(a: str, b: str) -> bool:
    titles = r"^(mr|mrs|ms|dr|frau|herr|monsieur|madame|don|dona|senora|senor)\.?\s+"
    one, two = (re.sub(titles, "", folded(name)).strip() for name in (a, b))
    return SequenceMatcher(None, one, two).ratio() >= 0.87 or (len(two.split()) == 1 and two in one.split())


def _same_number(a: str, b: str) -> bool:
    one, two = (re.sub(r"\D", "", number).lstrip("0") for number in (a, b))
    length = min(len(one), len(two))
    return length >= 7 and one[-length:] == two[-length:]


def _same_place(a: str, b: str) -> bool:
    one, two = (set(re.findall(r"\d+[a-z]?", folded(place))) for place in (a, b))
    return two <= one and _alike(a, b, 0.6)


def field_right(field: str, heard: str | None, known: str) -> bool:
    if not heard:
        return False
    same = {"name": _same_name, "phone": _same_number, "address": _same_place}
    if field in same:
        return same[field](heard, known)
    return folded(heard).strip() == folded(known).strip() if field == "email" else _alike(heard, known, 0.8)


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
            judge("contact fields", field_right(field, heard, wanted), f"{field} {heard!r} for {wanted!r}")
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
