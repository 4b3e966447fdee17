import re
import unicodedata


def plain(text: str) -> str:
    """Return lower case without accents, punctuation (except apostrophes) and repeated spaces, to compare phrases."""
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))
    return " ".join(re.sub(r"[^\w' ]", " ", text.replace("’", "'")).split())
