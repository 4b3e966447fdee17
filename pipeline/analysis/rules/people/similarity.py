"""Compares spoken names and companies with stored ones."""

import re
from functools import lru_cache

from pipeline.analysis.rules.people.companies import without_form
from pipeline.analysis.rules.people.gender import differ, listed, may_differ, short_form
from pipeline.analysis.rules.people.introductions import bare, words_of
from pipeline.language.spoken.phonetics import alike, folded

MIN_RATIO, MIN_RATIO_OF_SOUND = 85, 60  # rapidfuzz ratio, 0..100, of similar words; of words that sound alike
SAME_COMPANY = 80
LIKE, SHORT, PART = 0.85, 0.95, 0.9  # of 1, the same name: similar; a short form; some words of it
OTHER_FIRST = -0.4  # a first name alone, and another one


def name_fit(spoken: str, stored: str, language: str | None, is_spelled: bool = False) -> float:
    """Return 1 for the same name or one word of it, less for a similar one, and -1 for another person's.

    Names that share a word are different persons' if each has a word that the other lacks. A spelled name must match
    exactly.
    """
    shorter, longer = sorted((words_of(bare(name)) for name in (spoken, stored)), key=len)
    last = {names[-1] for names in (shorter, longer) if len(names) > 1}
    fits = [
        max(_word_fit(word, other, language, is_last=word in last or other in last) for other in longer)
        for word in shorter
    ]
    if is_spelled:
        fits = [fit if fit > LIKE else 0.0 for fit in fits]
    if not all(fits):
        is_other = len(shorter) == 1 and listed(shorter[0]) and listed(longer[0])
        return -1.0 if any(fits) else OTHER_FIRST if is_other else 0.0
    return min(fits) * (PART if 1 < len(shorter) < len(longer) else 1.0)


@lru_cache(maxsize=16384)
def _word_fit(spoken: str, stored: str, language: str | None, is_last: bool) -> float:
    """Return 1 for the same word, less for a short form or a similar one, and 0 for another.

    A last name has no short form: Booth is not Boothroyd.
    """
    from rapidfuzz import fuzz

    if written(spoken) == written(stored):
        return 1.0
    surnames = [set(written(name).split("-")) for name in (spoken, stored)]
    if folded(spoken) == folded(stored) or (is_last and not surnames[0].isdisjoint(surnames[1])):
        return SHORT  # Diaz of Diaz-Lopez
    if not is_last and differ(spoken, stored, language):
        return 0.0
    if not is_last and short_form(spoken, stored):
        return LIKE if may_differ(spoken, stored) else SHORT
    are_sure = language in ("es", "pt") and _vowels(spoken) != _vowels(stored)  # each vowel has one sound
    if not is_last and listed(spoken) and listed(stored) and (are_sure or not alike(spoken, stored, language)):
        return 0.0  # Marina, Mariana; Romina, Ramona
    initial, name = sorted((folded(word).rstrip(".") for word in (spoken, stored)), key=len)
    min_ratio = MIN_RATIO_OF_SOUND if alike(spoken, stored, language) else MIN_RATIO
    is_initial = len(initial) == 1 and name.startswith(initial)
    return LIKE if is_initial or fuzz.ratio(initial, name) >= min_ratio else 0.0


def _vowels(name: str) -> str:
    return re.sub(r"[^aeiou]", "", folded(name).replace("y", "i"))


def written(name: str) -> str:
    """Return a name in the letters of an address, with German umlauts as two: ä is ae, never a."""
    return folded(name.lower().replace("ä", "ae").replace("ö", "oe").replace("ü", "ue"))


def same_person(spoken: str, stored: str, is_spelled: bool = False) -> bool:
    """Return whether the spoken name is the stored one or a part of it; a spelled name must match exactly."""
    return name_fit(spoken, stored, None, is_spelled) > 0


def same_company(spoken: str, stored: str | None) -> bool:
    """Return whether two names are one company's, except for legal form, spaces and accents, or a part of it."""
    from rapidfuzz import fuzz

    if not stored:
        return False
    if sorted(without_form(folded(spoken)).split()) == sorted(without_form(folded(stored)).split()):
        return True  # Excavation Simard, Simard Excavation
    words = [without_form(folded(name)).split() for name in (spoken, stored)]
    rest = [" ".join(word for word in words[at] if word not in words[1 - at]) for at in (0, 1)]
    if len(words[0]) == len(words[1]) > 1 and all(rest) and fuzz.ratio(*rest) < SAME_COMPANY:
        return False  # Gráficas Llobera, Gráficas Llobregat
    first, second = (_plain_company(name) for name in (spoken, stored))
    shorter, longer = sorted((first, second), key=len)
    return fuzz.ratio(first, second) >= SAME_COMPANY or (len(shorter) >= 5 and shorter in longer)


def _plain_company(name: str) -> str:
    plain = re.sub(r"['’]s\b", "", without_form(folded(name)))
    return "".join(sign for sign in plain if sign.isalnum())
