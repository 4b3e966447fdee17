"""Why there is a call: the sentences that tell it best."""

from pipeline.analysis.rules.commitments.titles import tokens
from pipeline.analysis.talk import Said, Sentence
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

# What speaks for a sentence, in points. Set by hand on `bench/analysis_cases/dev`, where half or twice of any of them
# changes little.
CALLER = 1.5  # said by who placed the call
SAYS_SO = 1.0  # worded as a reason ("I'm calling about ...")
ASKED = 1.5  # right after "how can I help?"
WORD = 0.15  # for each word that says something
MOST_WORDS = 10  # that count: more only make it long
TROUBLE = 0.5
QUESTION = INTRODUCTION = PROMISE = -1.0  # asks; says who speaks; tells what will be done
EMPTY = -2.0  # says next to nothing
LATER = -0.35  # for each turn before it
LITTLE, LEAST = 6, 3  # words that say something: fewer are only an introduction, or nothing
TURNS = 8  # to look at in any case; else half of the call

BEHIND, BESIDE = 1.5, 2  # a second sentence of the same party may have so many points less, so many turns away


def reason(
    said: tuple[Said, ...],
    outgoing: bool | None,
    promises: frozenset[Evidence],
    names: frozenset[str],
    alone: bool = False,
) -> tuple[Sentence, ...]:
    """The likeliest sentence of the first half and, unless it stands `alone`, a second one that is near it and nearly
    as likely, in order.

    `outgoing`: who placed the call, where that is known; `promises`: the sentences that commit somebody; `names`: of
    persons, in lower case, which say nothing. Empty where no person speaks.
    """
    people = [turn for turn in said if not turn.turn.machine]
    caller = {True: Role.REP, False: Role.CUSTOMER}.get(outgoing) if outgoing is not None else None
    scored = [
        (_points(sentence, at, people, caller, names) + PROMISE * (sentence.evidence() in promises), -at, sentence)
        for at, turn in enumerate(people[: max(TURNS, len(people) // 2)])
        for sentence in turn.sentences
    ]
    if not scored:
        return ()
    best = max(scored, key=lambda item: item[:2])
    beside = [
        item
        for item in scored
        if item is not best and item[2].role is best[2].role
        if abs(item[1] - best[1]) <= BESIDE and item[0] >= best[0] - BEHIND
    ]
    chosen = [best, max(beside, key=lambda item: item[:2])] if beside and not alone else [best]
    return tuple(sentence for sentence in (item[2] for item in scored) if any(sentence is one[2] for one in chosen))


def _points(sentence: Sentence, at: int, people: list[Said], caller: Role | None, names: frozenset[str]) -> float:
    words, text = sentence.pack, sentence.text
    nothing = names | words.numbers.keys()
    meaning = len({token for token in tokens(text, words) if token not in nothing and not token.isdigit()})
    points = WORD * min(meaning, MOST_WORDS) + LATER * at
    points += CALLER * (sentence.role is caller) + TROUBLE * words.matches("tone", "trouble", text)
    points += SAYS_SO * words.matches("summary", "reason", text)
    points += ASKED * (at > 0 and meaning >= LEAST and words.matches("direction", "gives_help", people[at - 1].text))
    points += QUESTION * text.endswith("?") + EMPTY * (meaning < LEAST)
    return points + INTRODUCTION * (meaning < LITTLE and words.matches("people", "self", text))
