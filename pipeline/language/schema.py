"""The schema of a language pack: an incomplete pack fails when it is loaded, not during a call."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.domain.vocabulary import CallOutcome

REQUIRED: dict[str, str] = {
    "text": """
        abbreviations stopwords openers connecting asking interjections hesitations before_name before_known_name
        ordinary also_names
    """,
    "numbers": """
        units tens compose other not_digits repeat ordinals ordinal_digits hundreds thousand hundreds_join
        corrections fillers plus decimal scales point half half_after money cents percent
        other_decimal_in
    """,
    "dates": """
        weekdays months quarters offsets parts_of_day past from_agreed habit past_before past_after attributive rules
        times pm
    """,
    "people": """
        titles not_names name_cues also_called particles surnames towns_and_brands
        determiners articles places common_endings company_or_place self addressed asked_name asked_for
        voicemail_name company_after company_is calling_from answer third_person spoken_of wishing
        relations of_another asked_another short_names its_me its_me_only thats_me relative greetings transfer
        transfer_to not_here asked_company
        not_a_contact after_name answers_by_surname colleague female_titles male_titles female_names
        male_names female_endings male_endings business given asked_given before_own_name former_name predecessor
        first_time new_record
    """,
    "spelling": "not_letters as_in letters alphabet fillers with without asked repeat",
    "contact": """
        at dot symbols phone not_phone address_unit address_asked address address_shape mail_to mail_stop
        mail_placeholders mail_asides mail_rewrites ascii mail confirm deny on_file ours not_theirs of_another
        not_address mail_roles house_number number_first floors
    """,
    "direction": """
        asks_for follows_up waited right_place gives_help rep_received rep_placed customer_received
        customer_placed my_mistake rep_was_called rep_called customer_was_called customer_called resumed
    """,
    "tasks": """
        endings again fillers commit passive receive third offer request appointment action idle with_date
        you addressed follow_up in_call result idiom conditional leave accept refuse decline and preparing
        counter needed no border done at_once when colleague with_me joint coordinated only_with_date whether
        pronouns pronouns_at_verb dative aside permission from_us oblige promise tag thing reported concepts
        things not_things open_end genders for_things of
    """,
    "actions": "kinds resets passive done done_by_customer not_done border opening reader to_address",
    "tone": """
        polite positive negative trouble intensifiers negations neutral strong complaint laughter care warm
        wishes
    """,
    "statistics": "backchannels questions",
    "summary": """
        template parties day promised done_by quoted named_rep named_customer their introduction agreed reason
        voicemail wrong_number other_firm removal anything_else refused resolved closing declined
    """,
    "notice": "recorded not_recorded",
    "topics": "announcing capitals general",
    "roles": """
        welcome presents_company asks_particulars promises customer introduces introduced addresses titles
        yours mine ours
    """,
    "redaction": """
        card card_code card_expiry iban account national_id phone birth_date password email spelled_name address person
        other units between in_dates streets health not_names phrases
        states no_value no_value_first requests not_asked openers
    """,
}
"""By section, the keys that every pack has; a language that has no such thing says so with an empty list."""
OPTIONAL = {
    "summary": " ".join(CallOutcome),  # phrases of an outcome
    "numbers": "short_one ordinal_suffix other_ordinals upto",
    "dates": "other_weekdays other_months day_first",
    "tasks": """
        complement day_continues present open verb_last clitics listener speaker listener_is object_pronouns
        before_pronouns head_first plural roles persons for_persons adjectives
    """,
}
"""Keys for what only some languages have."""
TABLES = {
    "numbers": "tens other repeat hundreds other_ordinals upto scales",
    "dates": "other_weekdays other_months offsets",
    "people": "short_names",
    "spelling": "letters repeat",
    "contact": "symbols ascii floors",
    "tasks": "concepts listener_is genders persons",
    "actions": "kinds",
    "redaction": "phrases",
    "summary": "parties",
}
FLAGS = {
    "dates": "day_first",
    "people": "answers_by_surname",
    "contact": "number_first",
    "tasks": "verb_last head_first",
    "topics": "capitals",
}
PAIRS = {
    "dates": "rules times",
    "contact": "mail_rewrites",
    "tasks": "endings listener speaker",
    "actions": "reader",
    "summary": "promised done_by named_rep named_customer",
}
LENGTHS = {("dates", "weekdays"): 7, ("dates", "months"): 12, ("dates", "quarters"): 4}
DATE_RULES = """
    offset next_morning offset_week offset_fortnight offset_weeks weekday weekday_after next_weekday this_week_weekday
    weekday_after_next weekday_week weekday_fortnight weekday_weeks day_month day week_of_day day_next_month nth_weekday
    last_weekday nth_week last_week end_of_week middle_of_week start_of_next_week middle_of_next_week end_of_next_week
    week_after_next weekend next_weekend start_of_month start_of_next_month middle_of_month middle_of_next_month
    end_of_month end_of_next_month start_of_quarter end_of_quarter start_of_next_quarter end_of_next_quarter end_of_year
    in_working_days in_days in_ten_days in_weeks in_fortnight in_months in_years in_hours day_after day_before agreed
    open
"""
TIME_RULES = "clock half half_to quarter quarter_to quarter_of past to noon midnight"
"""Names that the entries of `rules` and `times` may have; what each means is code (`analysis/rules/dates`)."""


class LanguagePackInvalid(ValueError):
    """A language pack lacks something or holds what nothing reads; the message names the file and the keys."""


def faults(data: Mapping[str, Any]) -> list[str]:
    """Return one sentence per problem of a pack, naming the key as `section.key`; empty if it is valid."""
    if unknown := sorted(data.keys() - REQUIRED.keys()):
        return [f"nothing reads the section {name}" for name in unknown]
    return [fault for section in REQUIRED for fault in _of_section(section, data.get(section, {}))] or [
        *_of_values(data)
    ]


def _of_section(section: str, content: Mapping[str, Any]) -> Iterator[str]:
    required, optional = REQUIRED[section].split(), OPTIONAL.get(section, "").split()
    yield from (f"{section}.{key} is missing" for key in required if key not in content)
    for key, value in content.items():
        if key not in required and key not in optional:
            yield f"nothing reads {section}.{key}"
        elif not _has_form(section, key, value):
            yield f"{section}.{key} must be {_form(section, key)}"


def _form(section: str, key: str) -> str:
    forms = (("a table", TABLES), ("true or false", FLAGS), ("a list of pairs", PAIRS))
    form = next((form for form, of in forms if key in of.get(section, "").split()), "text or a list of text")
    length = LENGTHS.get((section, key))
    return f"a list of {length}" if length else form


def _has_form(section: str, key: str, value: Any) -> bool:
    match _form(section, key):
        case "a table":
            return isinstance(value, dict)
        case "true or false":
            return isinstance(value, bool)
        case "a list of pairs":
            return isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    if length := LENGTHS.get((section, key)):
        return isinstance(value, list) and len(value) == length
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _of_values(data: Mapping[str, Any]) -> Iterator[str]:
    """Check the values of a pack whose keys and types are valid."""
    numbers, dates = data["numbers"], data["dates"]
    most = max([9, *numbers.get("upto", {}).values()])
    if len(numbers["units"].split()) <= most:
        yield f"numbers.units must hold the words for 0 to {most}"
    if not all(part in numbers["compose"] for part in ("{tens}", "{unit}")):
        yield "numbers.compose must hold {tens} and {unit}"
    yield from (f"dates.rules has no rule {name}" for name, _ in dates["rules"] if name not in DATE_RULES.split())
    times = (name.removeprefix("loose:") for name, _ in dates["times"])
    yield from (f"dates.times has no rule {name}" for name in times if name not in TIME_RULES.split())
