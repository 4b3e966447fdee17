"""The whole name as the other party completes, corrects and spells it."""

import re
from collections.abc import Iterator
from dataclasses import replace

from pipeline.analysis.rules.people.claim import NameClaim
from pipeline.analysis.rules.people.introductions import bare, given_after, given_name, plausible, trimmed, words_of
from pipeline.analysis.rules.people.statements import asks_for_another
from pipeline.analysis.talk import SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role
from pipeline.language.pack import PROPER
from pipeline.language.spoken.phonetics import alike, folded
from pipeline.language.spoken.spelling import Remark, remarks, rewritten, spelled_words

MIN_RATIO = 60  # rapidfuzz ratio, 0..100, of a part of a name and its spelling


def with_letters(claim: NameClaim, letters: list[tuple[str, Evidence, bool, int]], turns: Turns) -> NameClaim:
    """Return the claim with its first name, corrections, spelled letters and remarks on letters."""
    full, is_spelled = _corrected(_with_given(claim, turns), claim, turns), False
    for word, _, asked, turn in letters:
        corrected = _spelled(full, word, asked or turn == claim.spoken.turn)
        if corrected is None and len(full.split()) == 1 and _opens_with(word, turn, turns):
            corrected = f"{full} {word.capitalize()}"
        full, is_spelled = (corrected, True) if corrected else (full, is_spelled)
    full = _remarked(full, turns) if not is_spelled else full
    return replace(claim, spoken=replace(claim.spoken, name=bare(full), full=full), is_spelled=is_spelled)


def _opens_with(word: str, turn: int, turns: Turns) -> bool:
    """Return whether a turn begins with the word that it spells: "Branagh. B, R, A"."""
    return any(folded(spoken.text).startswith(folded(word)) for spoken in turns if spoken.turn.index == turn)


def _with_given(best: NameClaim, turns: Turns) -> str:
    """Complete the name by a separate first name ("Pawlak. Jessica mit Vornamen.")."""
    if len(words_of(bare(best.spoken.full))) > 1:
        return best.spoken.full
    for before, turn in zip((None, *turns), turns, strict=False):
        if turn.role is not Role.CUSTOMER or turn.turn.machine or turn.turn.index < best.spoken.turn:
            continue
        asked = before is not None and before.pack.matches("people", "asked_given", before.text)
        same = turn.turn.index == best.spoken.turn
        first_name = given_name(turn, asked) or (given_after(turn, bare(best.spoken.name)) if same else None)
        if first_name and folded(first_name) != folded(best.spoken.name):
            return f"{first_name} {bare(best.spoken.full)}"
    return best.spoken.full


def _corrected(name: str, claim: NameClaim, turns: Turns) -> str:
    """Return the name with the last name that corrects it: "Kate Pepin, no, not Pepin, Paquin"."""
    for turn in (turn for turn in turns if turn.turn.index == claim.spoken.turn):
        last = re.escape(name.rsplit(maxsplit=1)[-1])
        words = sorted(turn.pack.get("numbers", "corrections", ()), key=len, reverse=True)
        denials = turn.pack.get("tasks", "concepts", {}).get("not", "").split()
        breaks = "|".join(map(re.escape, words))
        not_this = rf"(?:\w+[,. ]+){{0,4}}?(?:{'|'.join(map(re.escape, denials))}) {last}"
        pattern = rf"\b{last}[,.…]* (?i:{not_this}|(?:\w{{1,4}}, )?(?:{breaks}))[,.…]* (?P<new>{PROPER})(?=[,.!?]|$)"
        match = re.search(pattern, turn.text) if words and denials else None
        if (
            match
            and trimmed(match["new"], turn.pack) == match["new"]
            and plausible(match["new"], match["new"], turn.pack)
        ):
            return " ".join([*name.split()[:-1], match["new"]])
    return name


def spelled_letters(turns: Turns) -> Iterator[tuple[str, Evidence, bool, int]]:
    """Yield spelled words of the other party outside e-mail addresses: word, evidence, whether requested, turn."""
    for before, turn in zip((None, *turns), turns, strict=False):
        if not turn.by_customer or (before is not None and asks_for_another(before)):
            continue
        asked = before is not None and _asks_for_letters(before)
        mail = before is not None and before.pack.matches("contact", "mail", before.text)
        for sentence in () if mail else turn.sentences:
            if sentence.pack.matches("contact", "mail", sentence.text) or _mail_words(sentence.text, turn):
                continue
            for word in spelled_words(sentence.text, sentence.pack):
                if _has_vowel(word.text):
                    yield word.text, sentence.evidence((word.first, word.last)), asked, turn.turn.index


def _asks_for_letters(turn: SpokenTurn) -> bool:
    return turn.pack.matches("spelling", "asked", turn.text) or turn.pack.matches("people", "asked_name", turn.text)


def _has_vowel(letters: str) -> bool:
    """Return whether it has a vowel: two h and two f are no name."""
    return bool(set(folded(letters)) & set("aeiouy"))


def _mail_words(text: str, turn: SpokenTurn) -> bool:
    words = set(text.lower().replace(",", " ").rstrip(".").split())
    return bool(words & turn.pack.words("contact", "at")) and bool(words & turn.pack.words("contact", "dot"))


def _spelled(name: str, letters: str, asked: bool) -> str | None:
    """Return the name with its spelled part corrected; None if the letters fit no part.

    Letters that contain a part, or are some of its letters ("with a, y and two f"), confirm it.
    """
    from rapidfuzz import fuzz

    parts, spelled = name.split(), folded(letters)
    likeness = [fuzz.ratio(folded(part), spelled) for part in parts]
    at = max(range(len(parts)), key=likeness.__getitem__)
    part = folded(parts[at])
    if spelled == folded("".join(parts)) or any(spelled.endswith(folded(part)) for part in parts if len(part) > 2):
        return name
    if any(_are_details(spelled, folded(part)) for part in parts):
        return name
    if likeness[at] < MIN_RATIO and spelled not in part:
        return f"{name} {letters.capitalize()}" if asked and len(parts) == 1 and spelled[:1] != part[:1] else None
    if spelled not in part or len(letters) == len(parts[at]):
        parts[at] = letters.capitalize() if part != spelled else parts[at]
    return " ".join(parts)


def _are_details(spelled: str, part: str) -> bool:
    """Return whether these are letters of the part in its order, but not its spelling: a, y, f, f of Mayerhoff."""
    rest = iter(part)
    return all(letter in rest for letter in spelled) and (spelled[0] != part[0] or len(spelled) < 0.6 * len(part))


def _remarked(name: str, turns: Turns) -> str:
    for before, turn in zip((None, *turns), turns, strict=False):
        if turn.role is not Role.CUSTOMER:
            continue
        for sentence in turn.sentences:
            near = f"{before.text if before else ''} {sentence.text}"
            words = [word.strip(".,!?;:") for word in near.split()]
            for remark in remarks(sentence.text, sentence.pack):
                name = _with_remark(name, remark, words, turn.turn.language)
    return name


def _with_remark(name: str, remark: Remark, words: list[str], language: str | None) -> str:
    """Apply a remark to the last part of the name that is among the nearby words."""
    parts = name.split()
    if not remark.without and any(remark.letters * remark.times in part.lower() for part in parts):
        return name  # the name has this spelling already: "Karine Bouchard, avec un K"
    for at in range(len(parts) - 1, -1, -1):
        near = any(alike(parts[at], word, language) for word in words if word)
        new = rewritten(parts[at], remark) if near else parts[at]
        if new != parts[at]:
            parts[at] = new
            break
    return " ".join(parts)
