"""Text as phrases are compared."""

import re
import unicodedata


def plain(text: str) -> str:
    """Lower case, no accents, no punctuation but apostrophes, single spaces."""
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))
    return " ".join(re.sub(r"[^\w' ]", " ", text.replace("’", "'")).split())
