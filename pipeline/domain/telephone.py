"""The one reader of telephone numbers: of a call's parties, of contacts, and as spoken."""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    import phonenumbers  # imported when a number is read: commands that read none start sooner

_SCHEME = re.compile(r"(?:sips?|tel):", re.IGNORECASE)
_BRACKETS = re.compile(r"<([^<>]*)>")
_DIALED = re.compile(r"[+＋]?[\d\s().*#/-]+")  # the user of a SIP URI that is a number, not a name like "c8oqz84zk7z"
MIN_NATIONAL_DIGITS = 6  # a shorter one is an extension or a short code, even where such numbers exist
MIN_UNLISTED_DIGITS = 9  # of a national number in a range that phonenumbers does not know


@cache
def _withheld() -> frozenset[str]:
    """Return the numbers that carriers send for a withheld one: the word, typed on a telephone's keys (+266696687)."""
    import phonenumbers

    words = ("anonymous", "blocked", "private", "restricted", "unavailable", "unknown")
    return frozenset(map(phonenumbers.convert_alpha_characters_in_number, words))


@lru_cache(maxsize=4096)
def e164(number: str, default_country: str | None) -> str | None:
    """Return the number in E.164, or None for anything else ("anonymous", an extension, a SIP user name, 0000000000).

    Reads plain numbers and SIP and tel URIs, with a display name and parameters. `default_country` (ISO 3166 alpha-2)
    applies to national numbers, which must be valid there or begin with 0 as there; a number with + need only be
    possible. The extension after a number is left out, as E.164 has none.
    """
    import phonenumbers

    text = _dialed(number)
    try:
        parsed = phonenumbers.parse(text, default_country)
    except phonenumbers.NumberParseException:
        return None
    digits = phonenumbers.national_significant_number(parsed)
    is_international = text.startswith(("+", "＋"))
    if f"{parsed.country_code}{digits}" in _withheld() or (not is_international and len(digits) < MIN_NATIONAL_DIGITS):
        return None
    is_dialed = is_international or (len(digits) >= MIN_UNLISTED_DIGITS and re.sub(r"\D", "", text) == f"0{digits}")
    if not phonenumbers.is_valid_number(parsed) and not (is_dialed and _is_possible(parsed, digits)):
        return None
    return str(phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164))


def _dialed(number: str) -> str:
    """Return the part that was dialed: without display name, scheme, host and parameters; "" if it is no number."""
    bracketed = _BRACKETS.search(number)
    text = (bracketed[1] if bracketed else number).strip()
    scheme = _SCHEME.match(text)
    uri = text[scheme.end() :] if scheme else text
    if not scheme and "@" not in uri:
        return uri
    user, *parameters = re.split(r"[;?]", uri.partition("@")[0])
    user = unquote(user.partition(":")[0]).strip()
    context = next((value[14:] for value in parameters if value.lower().startswith("phone-context=")), "+")
    if not _DIALED.fullmatch(user) or not context.startswith("+"):
        return ""  # a name, or a number of a private network
    return user if user.startswith("+") or context == "+" else context + user


def _is_possible(number: "phonenumbers.PhoneNumber", digits: str) -> bool:
    """Return whether it has a length of its country's numbers, and is not one digit only: +10000000000."""
    import phonenumbers

    reason = phonenumbers.is_possible_number_with_reason(number)
    return reason == phonenumbers.ValidationResult.IS_POSSIBLE and len(set(digits)) > 1
