import re
from collections.abc import Collection

from rapidfuzz import fuzz, process

MAX_NAME_CHARACTERS = 40
_WORD = re.compile(f"[A-Za-z_]{{1,{MAX_NAME_CHARACTERS}}}")


def closest(sent: str, names: Collection[str]) -> str | None:
    """Return the name that is most similar to `sent`, whatever its case and punctuation; None if none is."""
    if len(sent) > MAX_NAME_CHARACTERS:
        return None
    squeezed = {name.lower(): name for name in names}
    text = "".join(letter for letter in sent.lower() if letter.isalnum())
    match = process.extractOne(text, squeezed.keys(), scorer=fuzz.ratio, score_cutoff=75)
    return squeezed[match[0]] if match else None


def unknown(kind: str, sent: str, names: Collection[str]) -> str:
    """Return the sentences about a parameter or field that does not exist.

    A name that is not a plain word is left out: it may be personal data in the wrong place.
    """
    name = f" {sent}" if _WORD.fullmatch(sent) else ""
    near = closest(sent, names)
    return f"Unknown {kind}{name}." + (f" Did you mean {near}?" if near else "")
