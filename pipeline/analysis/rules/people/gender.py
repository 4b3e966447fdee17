"""Matches titles and first names: "Herr Sievers" is Holger, not Ines. None means doubt."""

import re
from functools import cache

from pipeline.language.pack import available, pack
from pipeline.language.spoken.phonetics import folded

FEMALE, MALE = "female", "male"


def of_title(title: str, language: str | None) -> str | None:
    """Return the gender of a title ("Mrs", "don", "Monsieur"); None for "Dr"."""
    plain = title.lower().strip(".")
    return next((kind for kind in (FEMALE, MALE) if plain in pack(language).words("people", f"{kind}_titles")), None)


def of_first_name(name: str, language: str | None) -> str | None:
    """Return the gender by this language's list (Jean), then all lists, then endings; None if these disagree."""
    plain, first = folded(name), folded(name.partition("-")[0])
    if first != plain and plain not in _names(FEMALE) | _names(MALE):
        plain = first  # Jean-Paul, Marie-Claude, Karl-Heinz
    for names in (_names_in(language), {kind: _names(kind) for kind in (FEMALE, MALE)}):
        listed = [kind for kind in (FEMALE, MALE) if plain in names[kind]]
        if len(listed) == 1:
            return listed[0]
        if listed:
            return None
    ends = [kind for kind in (FEMALE, MALE) if len(plain) > 2 and plain.endswith(_endings(kind, language))]
    return ends[0] if len(ends) == 1 else None


def listed(name: str) -> bool:
    plain = folded(name)
    return plain in _names(FEMALE) or plain in _names(MALE)


def _endings(kind: str, language: str | None) -> tuple[str, ...]:
    return tuple(folded(end) for end in pack(language).get("people", f"{kind}_endings", []))


@cache
def _names_in(language: str | None) -> dict[str, frozenset[str]]:
    return {kind: frozenset(map(folded, pack(language).words("people", f"{kind}_names"))) for kind in (FEMALE, MALE)}


@cache
def _names(kind: str) -> frozenset[str]:
    return frozenset(
        folded(name) for language in available() for name in pack(language).words("people", f"{kind}_names")
    )


def of_known(name: str | None, language: str | None) -> str | None:
    """Return the gender of a stored name: by its title ("Mrs Pillay"), else by its first name if there is one."""
    words = (name or "").split()
    titled = next((kind for word in words if (kind := of_title(word, language))), None)
    return titled or (of_first_name(words[0], language) if len(words) > 1 else None)


def differ(first_name: str, second_name: str, language: str | None) -> bool:
    """Return whether one is a woman's name and one a man's: Daniel, Daniela; but Chema is José."""
    kinds = {of_first_name(name, language) for name in (first_name, second_name)}
    return kinds == {FEMALE, MALE} and not _is_usual(first_name, second_name)


def short_form(first_name: str, second_name: str) -> bool:
    """Return whether one is short for the other: Bill is William, Encarna Encarnación; Dan is not Dana."""
    short, full = sorted((folded(first_name), folded(second_name)), key=len)
    stem = re.sub(r"(.)\1$", r"\1", re.sub(r"(?:ie|[iy])$", "", short))  # Paty of Patricia, Steffi of Stefanie
    is_start = len(full) - len(short) >= 3 and any(len(s) >= 3 and full.startswith(s) for s in (short, stem))
    is_end = len(short) >= 4 and full.endswith(short) and not listed(short)  # Cida of Aparecida
    return is_start or is_end or _is_usual(first_name, second_name)


def _is_usual(first_name: str, second_name: str) -> bool:
    short, full = sorted((folded(first_name), folded(second_name)), key=len)
    forms = _short_forms()
    return full in forms.get(short, ()) or short in forms.get(full, ())


def is_short_form(name: str) -> bool:
    return folded(name) in _short_forms()


def may_differ(first_name: str, second_name: str) -> bool:
    """Return whether a short form is also another name: Jan of Janelle."""
    return listed(min(first_name, second_name, key=len)) and not _is_usual(first_name, second_name)


@cache
def _short_forms() -> dict[str, frozenset[str]]:
    forms: dict[str, frozenset[str]] = {}
    for language in available():
        for short, names in pack(language).get("people", "short_names", {}).items():
            forms[folded(short)] = forms.get(folded(short), frozenset()) | {folded(name) for name in names.split()}
    return forms
