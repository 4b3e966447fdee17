"""Whether a title and a first name go together: "Herr Sievers" is Holger, not Ines. Doubt is an answer."""

from functools import cache

from pipeline.analysis.rules.people.phonetics import folded
from pipeline.language.pack import available, pack

FEMALE, MALE = "female", "male"


def of_title(title: str, language: str | None) -> str | None:
    """What a title says of who bears it: "Mrs", "don", "Monsieur". None for "Dr"."""
    plain = title.lower().strip(".")
    return next((kind for kind in (FEMALE, MALE) if plain in pack(language).words("people", f"{kind}_titles")), None)


def of_first_name(name: str, language: str | None) -> str | None:
    """By this language's list (Jean), then the lists of all, then its endings; None where lists or endings disagree."""
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
    """Whether it is a first name of the lists."""
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
    """Of a name as it stands in a list: by its title ("Mrs Pillay"), else by its first name where there is one."""
    words = (name or "").split()
    titled = next((kind for word in words if (kind := of_title(word, language))), None)
    return titled or (of_first_name(words[0], language) if len(words) > 1 else None)


def short_form(one: str, other: str) -> bool:
    """Whether one is short for the other: Bill is William, Encarna Encarnación; Dan is not Dana."""
    short, full = sorted((folded(one), folded(other)), key=len)
    if len(short) >= 3 and len(full) - len(short) >= 3 and full.startswith(short):
        return True
    forms = _short_forms()
    return full in forms.get(short, ()) or short in forms.get(full, ())


@cache
def _short_forms() -> dict[str, frozenset[str]]:
    """Of all languages: short form -> the names that it stands for."""
    found: dict[str, frozenset[str]] = {}
    for language in available():
        for short, names in pack(language).get("people", "short_names", {}).items():
            found[folded(short)] = found.get(folded(short), frozenset()) | {folded(name) for name in names.split()}
    return found
