from pipeline.analysis.rules.commitments.titles import tokens
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

# Points for a sentence. Set by hand on `bench/analysis_cases/dev`, where half or twice of any of them
# changes little.
CALLER = 1.5  # spoken by the caller
SAYS_SO = 1.0  # worded as a reason ("I'm calling about ...")
ASKED = 1.5  # right after "how can I help?"
WORD = 0.15  # for each content word
MAX_WORDS = 10  # content words that count
TROUBLE = 0.5
QUESTION = INTRODUCTION = PROMISE = -1.0  # a question; an introduction; a commitment
EMPTY = -2.0  # hardly any content
LATER = -0.35  # for each turn before it
FEW_WORDS, MIN_WORDS = 6, 3  # content words: below, an introduction or empty
TURNS = 8  # searched at least; else half of the call

MAX_POINTS_BEHIND, MAX_TURNS_APART = (1.5, 2)  # of a second sentence of the same party


def reason(
    turns: Turns, outgoing: bool | None, promises: frozenset[Evidence], names: frozenset[str], alone: bool = False
) -> tuple[Sentence, ...]:
    """Return the most likely sentence of the first half and, unless `alone`, a second one near it with a similar score.

    `outgoing`: True for an outbound call, None if unknown; `promises`: sentences that are commitments; `names`: names
    of persons in lower case, which count as empty words. Empty if no person speaks.
    """
    people = [turn for turn in turns if not turn.turn.machine]
    caller = {True: Role.REP, False: Role.CUSTOMER}.get(outgoing) if outgoing is not None else None
    scored = [
        (_points(sentence, at, people, caller, names) + PROMISE * (sentence.evidence() in promises), -at, sentence)
        for at, turn in enumerate(people[: max(TURNS, len(people) // 2)])
        for sentence in turn.sentences
    ]
    if not scored:
        return ()
    best = max(scored, key=lambda item: item[:2])
    nearby = [
        item
        for item in scored
        if item is not best and item[2].role is best[2].role
        if abs(item[1] - best[1]) <= MAX_TURNS_APART and item[0] >= best[0] - MAX_POINTS_BEHIND
    ]
    chosen = [best, max(nearby, key=lambda item: item[:2])] if nearby and not alone else [best]
    return tuple(sentence for sentence in (item[2] for item in scored) if any(sentence is pick[2] for pick in chosen))


def _points(sentence: Sentence, at: int, people: list[SpokenTurn], caller: Role | None, names: frozenset[str]) -> float:
    words, text = sentence.pack, sentence.text[introduction(sentence) :]
    nothing = names | words.numbers.keys()
    meaning = len({token for token in tokens(text, words) if token not in nothing and not token.isdigit()})
    points = WORD * min(meaning, MAX_WORDS) + LATER * at
    points += CALLER * (sentence.role is caller) + TROUBLE * words.matches("tone", "trouble", text)
    points += SAYS_SO * words.matches("summary", "reason", text)
    is_asked = at > 0 and words.matches("direction", "gives_help", people[at - 1].text)
    points += ASKED * (is_asked and meaning >= MIN_WORDS)
    points += QUESTION * text.endswith("?") + EMPTY * (meaning < MIN_WORDS)
    return points + INTRODUCTION * (meaning < FEW_WORDS and words.matches("people", "self", sentence.text))


def introduction(sentence: Sentence) -> int:
    """Return the number of characters of greeting and name at the beginning of a sentence."""
    matches = (pattern.match(sentence.text) for pattern in sentence.pack.patterns("summary", "introduction"))
    return max((match.end() for match in matches if match), default=0)
