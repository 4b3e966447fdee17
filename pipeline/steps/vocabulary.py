from collections.abc import Iterable

from pipeline.domain.call import Call
from pipeline.domain.insight import Member, Roster


def vocabulary(call: Call, roster: Roster) -> tuple[str, ...]:
    """Return names and terms by relevance, without repetitions (case does not matter).

    The order: the member who handles the call, the contact with the other number and their company, the workspace's
    terms, then the other members and their aliases. An engine takes as many from the front as fit. Contacts with other
    numbers are left out: a name in the vocabulary is also recognized when another one was said.
    """
    handling = str(call.user_id) if call.user_id else None
    first = [member for member in roster.members if member.user_id == handling]
    others = [member for member in roster.members if member.user_id != handling]
    words: dict[str, str] = {}
    for word in (*_members(first), *_contacts(call, roster), *roster.terms, *_members(others)):
        tidy = " ".join(word.split())
        if tidy:
            words.setdefault(tidy.casefold(), tidy)
    return tuple(words.values())


def _members(members: Iterable[Member]) -> Iterable[str]:
    return (name for member in members for name in (member.name, *member.aliases))


def _contacts(call: Call, roster: Roster) -> Iterable[str]:
    numbers = {_digits(number, roster.default_country) for number in _other_numbers(call)} - {None}
    contacts = (contact for contact in roster.contacts if _digits(contact.phone, roster.default_country) in numbers)
    return (word for contact in contacts for word in (contact.name, contact.company) if word)


def _other_numbers(call: Call) -> tuple[str, ...]:
    """Return the other party's number; both if the direction is unknown."""
    if call.outgoing is None:
        return call.from_number, call.to_number
    return (call.to_number,) if call.outgoing else (call.from_number,)


def _digits(number: str | None, region: str | None) -> str | None:
    """Return the number in E.164; None if it cannot be parsed."""
    import phonenumbers

    try:
        parsed = phonenumbers.parse(number or "", region)
    except phonenumbers.NumberParseException:
        return None
    return str(phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164))
