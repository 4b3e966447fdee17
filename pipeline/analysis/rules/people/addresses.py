import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from pipeline.analysis.rules.people.fact import Fact, refers_to_caller
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.language.spoken.numbers import TOKEN, number_at
from pipeline.language.spoken.spelling import letter_at

MAX_PLACE = 8  # words of a town before its post code
_POST_CODE = re.compile(r"^(?P<unit>[A-Z]{1,2}\d{1,2}[A-Z]?,? \d[A-Z]{2})\b")  # S6, 4QT


def address_of(turns: Turns) -> Fact | None:
    """Return the other party's address: the last one with a number, else the first."""
    facts = list(_addresses(turns))
    numbered = [fact for fact in facts if any(sign.isdigit() for sign in fact.text)]
    return numbered[-1] if numbered else _numbered(facts[0], turns) if facts else None


def _numbered(street: Fact, turns: Turns) -> Fact:
    """Add a house number from another sentence ("Orchard Terrace." - "Number twelve?")."""
    for at, turn in enumerate(turns):
        for sentence, match in turn.searches("contact", "house_number"):
            if refers_to_caller(turns, at, sentence):
                figures = in_figures(match["number"], sentence)
                first = turn.pack.get("contact", "number_first", False)
                return replace(street, text=f"{figures} {street.text}" if first else f"{street.text} {figures}")
    return street


def _addresses(turns: Turns) -> Iterator[Fact]:
    for at, turn in enumerate(turns):
        is_asked = at > 0 and turns[at - 1].pack.matches("contact", "address_asked", turns[at - 1].text)
        keys = ("address", "address_shape") if is_asked else ("address",)
        for sentence in turn.sentences:
            if not refers_to_caller(turns, at, sentence):
                continue
            for pattern in (pattern for key in keys for pattern in turn.pack.patterns("contact", key)):
                match = pattern.search(sentence.text)
                if match and not turn.pack.matches("contact", "not_address", match["address"]):
                    text = _number_before(turn, sentence) + in_figures(match["address"].strip(" ,.?!"), sentence)
                    last = match.end("address")
                    text += _rest(turn, sentence, last) or (_place(turns, at, sentence, last) if is_asked else "")
                    text += f", {match['unit']}" if "unit" in match.groupdict() else ""
                    yield Fact(text, sentence.evidence(match.span("address")))
                    break


def place_in(sentence: Sentence, text: str) -> str | None:
    """Return the address in a part of a sentence of either party."""
    matches = (pattern.search(text) for pattern in sentence.pack.patterns("contact", "address"))
    return next((in_figures(match["address"].strip(" ,.?!"), sentence) for match in matches if match), None)


def _number_before(turn: SpokenTurn, street: Sentence) -> str:
    """Return a house number that is dictated as sentences of its own: "One four. Elm Street"."""
    number = in_figures(re.sub(r"[.,]", "", turn.text[: street.first]).strip(), street)
    return f"{number} " if number.isdigit() else ""


def _place(turns: Turns, at: int, street: Sentence, last: int) -> str:
    """Return town and post code that follow, also in further turns: "Reno, Nevada." - "Two five three zero six."."""
    later = takewhile(lambda turn: turn.by_customer, turns[at + 1 :])
    text = " ".join((turns[at].text[street.first + last :], *(turn.text for turn in later)))
    fillers, common = (street.pack.words(*key) for key in (("numbers", "fillers"), ("text", "stopwords")))
    words = [word for word in re.findall(r"[\w'-]+", in_figures(text, street)) if word.lower() not in fillers]
    code = next((n for n, word in enumerate(words[:MAX_PLACE]) if re.fullmatch(r"\d{4,6}", word)), None)
    if code is None or any(word.lower() in common for word in words[:code]):
        return ""
    town = takewhile(str.istitle, words[1:3]) if code == 0 else ()
    return ", " + " ".join((*words[: code + 1], *town))


def _rest(turn: SpokenTurn, street: Sentence, last: int) -> str:
    """Return post code, flat, floor and door behind the street ("Carrera setenta ... Local dos.")."""
    text, rest = turn.text[street.first + last :], ""
    while text:
        text = text.lstrip(" ,.")
        patterns = (_POST_CODE, *turn.pack.patterns("contact", "address_unit"))
        match = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
        if match is None:
            break
        rest, text = f"{rest}, {in_figures(match['unit'], street)}", text[match.end() :]
    return rest


def in_figures(address: str, sentence: Sentence) -> str:
    """Convert "twenty four Maple Street" to "24 Maple Street"; consecutive figures are joined."""
    tokens = list(TOKEN.finditer(address))
    text, end, at, figures = "", 0, 0, False
    while at < len(tokens):
        spoken, length = number_at(tokens, at, sentence.pack)
        floor = sentence.pack.get("contact", "floors", {}).get(tokens[at].group().lower())
        if floor and spoken is None:  # "segundo ce"
            letter, size = letter_at(tokens, at + 1, sentence.pack) if at + 1 < len(tokens) else ("", 0)
            text += address[end : tokens[at].start()] + floor + (f" {letter.upper()}" if letter else "")
            at, figures = at + 1 + size, False
            end = tokens[at - 1].end()
            continue
        between = address[end : tokens[at].start()]
        last = tokens[at + length - 1].end()
        if spoken is None:
            text, figures = text + between + address[tokens[at].start() : last], False
        else:
            text += (between.strip(" -") if figures else between) + spoken
            figures = True
        end, at = last, at + length
    text = re.sub(r"\s+", " ", text + address[end:]).strip()
    return re.sub(r"^(\d+) (?=[A-Za-z] [A-ZÄÖÜ])|(?<=\d) (?=[a-z]$)", r"\1", text)  # 14 A Mill Row, Zur Mühle 4 a
