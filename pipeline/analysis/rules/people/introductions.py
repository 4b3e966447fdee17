"""Names in the talk: how people introduce themselves, address each other and answer who they are."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.analysis.rules.numbers import number
from pipeline.analysis.rules.people.phonetics import folded
from pipeline.analysis.talk import Said, Sentence
from pipeline.domain.insight import Evidence
from pipeline.language.pack import Pack, straighten, titles

_ARTICLES = frozenset({"Le", "La", "De", "Du", "El", "Von", "Van"})  # with a capital, the beginning of a last name
_PROPER = r"[A-ZÀ-ÖØ-Þ][\w'-]+"
KEPT = 64  # patterns of lists of names, one for a workspace and language
_CALLING: dict[tuple[str | None, tuple[str, ...]], re.Pattern[str]] = {}
_FIRST = r"[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ']+(?:-[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ']+)*"  # Jean-Philippe, not R-O-U-deux


@dataclass(frozen=True, slots=True)
class SpokenName:
    """A name as said. `full`: with its title where it has one ("Ms. Walcott")."""

    name: str
    full: str
    evidence: Evidence
    turn: int
    language: str | None = None

    @property
    def titled(self) -> bool:
        return self.full != self.name


def introductions(said: Said) -> Iterator[SpokenName]:
    """Names by which the speaker of this turn introduces themselves."""
    yield from _named(said, "self")


def addresses(said: Said) -> Iterator[SpokenName]:
    """Names by which the speaker addresses the other party."""
    yield from _named(said, "addressed")


def reached(said: Said) -> Iterator[SpokenName]:
    """Whose voicemail it is; of a couple's ("Walt and Phyllis"), both."""
    for named in _named(said, "voicemail_name"):
        yield named
        joint = said.pack.get("tasks", "and") or "(?!)"
        for sentence in said.sentences:
            also = re.search(rf"{re.escape(named.name)} {joint} ({_FIRST})\b", sentence.text)
            if also:
                yield SpokenName(also[1], also[1], sentence.evidence(also.span(1)), said.turn.index, said.pack.language)


def spoken_for(said: Said) -> Iterator[SpokenName]:
    """Those on whose behalf the speaker calls: "I'm calling for my mother, Edna Wills"."""
    yield from _named(said, "of_another")


def handed_to(said: Said) -> Iterator[SpokenName]:
    """To whom the speaker puts the other party through."""
    yield from _named(said, "transfer_to")


def _named(said: Said, key: str) -> Iterator[SpokenName]:
    for sentence in said.sentences:
        for pattern in said.pack.patterns("people", key):
            for match in pattern.finditer(sentence.text):
                named = _clean(match, sentence)
                if named:
                    yield named


def _clean(match: re.Match[str], sentence: Sentence) -> SpokenName | None:
    titled = bool(match.groupdict().get("title"))
    name = trimmed(match["name"], sentence.pack, titled)
    name = name and _behind_firm(name, sentence.pack)
    if not name or (not titled and not plausible(name, match["name"], sentence.pack)):
        return None
    if name not in match["name"]:  # "Moore's Yard": the name of no person
        return None
    first = match.start("name") + match["name"].index(name)
    last, full = first + len(name), name
    if titled and first == match.start("name") and len(name.split()) == 1 + (name.split()[0] in _ARTICLES):
        first = match.start("title")
        full = sentence.text[first:last]
    return SpokenName(name, full, sentence.evidence((first, last)), sentence.turn.index, sentence.pack.language)


def _behind_firm(name: str, words: Pack) -> str:
    """What stands behind a firm that was said without a pause: "Lakeland Credit Toure" is Toure of Lakeland Credit."""
    parts, kinds = name.split(), words.words("people", "business")
    of_firm = [at for at, part in enumerate(parts) if at and part.lower() in kinds]
    behind = parts[of_firm[-1] + 1 :] if of_firm else []
    return " ".join(behind) or name


def spoken_of(named: SpokenName, sentence: Sentence) -> bool:
    """Whether the sentence tells something of the person, who is then neither its speaker nor spoken to: "Dr. Brook is
    away", "an appointment with Dr. Brook"."""
    at = sentence.text.find(named.full)
    before, after = sentence.text[: max(at, 0)], sentence.text[at + len(named.full) :]
    return at >= 0 and (
        sentence.pack.matches("people", "third_person", after) or sentence.pack.matches("people", "spoken_of", before)
    )


def plausible(name: str, said: str, words: Pack) -> bool:
    """Whether `name`, of the capitalized words `said`, may be a person's: "Die Lieferung", "Maple Street" are none."""
    before = said[: said.index(name)].lower().split() if name in said else []
    after = {word for part in name.lower().split() for word in (part, part.replace("-", " "))}
    kinds = words.words("people", "business") | words.words("people", "places")
    if _holds_figure(name, words) or after & (kinds | words.numbers.keys()):
        return False
    if len(after) > 1 and name.split(maxsplit=1)[0].lower() in words.words("people", "wishing"):
        return False  # "Happy Halloween"
    if any(word.lower() in words.words("text", "stopwords") for word in name.split()[1:-1] if word not in _ARTICLES):
        return False  # "Trick Or Treat"
    if not words.words("people", "determiners").isdisjoint((*before, name.split(maxsplit=1)[0].lower())):
        return False
    if any(words.matches("contact", key, f"{name}?") for key in ("mail", "phone", "address_asked")):
        return False
    endings = tuple(words.get("people", "common_endings", ()))
    return len(after) > 1 or not endings or not name.lower().endswith(endings) or _is_first_name(name)


def _holds_figure(name: str, words: Pack) -> bool:
    """A number, or an abbreviation: VAT, IBAN."""
    return any(number(part, words) is not None or (len(part) > 2 and part.isupper()) for part in name.split())


def _is_first_name(name: str) -> bool:
    from pipeline.analysis.rules.people.gender import listed

    return listed(name)


def trimmed(name: str, words: Pack, titled: bool = False) -> str | None:
    """The name without capitalized words that are none; None if nothing is left. After a title, "Le Goff" stands."""
    unlikely = words.words("people", "not_names") | words.words("people", "titles") | words.numbers.keys()
    parts = [re.sub(r"'s$", "", part) for part in name.split()]
    unlikely |= {part.lower() for part in parts if re.search(r"'(?:m|ve|ll|re|d|t)$", part)}
    while parts and parts[0].lower() in unlikely and not (titled and len(parts) > 1 and parts[0] in _ARTICLES):
        parts.pop(0)
    return " ".join(_up_to(unlikely, parts, titled)) or None


def _up_to(unlikely: frozenset[str] | set[str], parts: list[str], titled: bool) -> list[str]:
    """The parts before the first that is no name; an article may be one after a title or before another part."""
    for at, part in enumerate(parts):
        if part in _ARTICLES and (titled if at == 0 else parts[at + 1 :] and parts[at + 1][:1].isupper()):
            continue  # Katell Le Bihan
        if part.lower() in unlikely or part.lower().replace("-", " ") in unlikely:
            return parts[:at]
    return parts


def bare(name: str) -> str:
    """The name without its title: "Ms. Walcott" -> "Walcott"."""
    parts = name.split()
    while len(parts) > 1 and parts[0].lower().strip(".") in titles():
        parts = parts[1:]
    return " ".join(parts)


def bare_name(sentence: Sentence, least: int = 2, asked: bool = False) -> SpokenName | None:
    """A sentence that is nothing but a name of `least` to three words: "Inez Walcott.", "Uriarte, Begoña.". Turned
    round only where it was asked for or a first name stands last: "Nordlack, Meinhardt." is a firm and a name.
    """
    text = sentence.text.strip().rstrip(".,!?" if least == 1 else ".,!")
    turned = re.fullmatch(rf"({_PROPER}), ({_PROPER})", text)
    if turned and not (asked or _is_first_name(turned[2])):
        return None
    if not turned and not re.fullmatch(rf"(?:{_PROPER} ){{{least - 1},2}}{_PROPER}", text):
        return None
    name = f"{turned[2]} {turned[1]}" if turned else text
    if trimmed(name, sentence.pack) != name or not plausible(name, text, sentence.pack):
        return None
    return SpokenName(name, name, sentence.evidence((0, len(text))), sentence.turn.index)


def between_pauses(said: Said) -> Iterator[SpokenName]:
    """Two or three capitalized words between pauses: "Morning Priya, Helen Marsh at Marsh & Lowe." """
    here = straighten("|".join(said.pack.get("people", "after_name", ()))) or "(?!)"
    titles = "|".join(re.escape(title) for title in said.pack.words("people", "titles")) or "(?!)"
    pattern = rf"(?:^|[,.!?:] )(?:(?i:{titles})\.? )?(?P<name>{_PROPER}(?: {_PROPER}){{1,2}})(?=[,.!]|$| (?:{here})\b)"
    for sentence in said.sentences:
        for match in re.finditer(pattern, sentence.text):
            name = match["name"]
            spelled = any(len(piece) == 1 for piece in re.split(r"[ -]", name))
            if spelled or not plausible(name, name, said.pack):
                continue
            if said.pack.matches("people", "third_person", sentence.text[match.end("name") :]):
                continue  # "So, Aoife Burke, she's finishing up"
            if trimmed(name, said.pack) == name:
                yield SpokenName(name, name, sentence.evidence(match.span("name")), said.turn.index)


def given_name(said: Said, asked: bool) -> str | None:
    """A first name that completes a last one: "Jessica mit Vornamen", or the answer to what it is."""
    for sentence in said.sentences:
        for pattern in said.pack.patterns("people", "given"):
            match = pattern.search(sentence.text)
            name = trimmed(match["name"], said.pack) if match else None
            if name and re.fullmatch(_FIRST, name.split()[0]):
                return name.split()[0]
        apart = re.fullmatch(rf"(?:Der|Die|El|La|Le) ({_FIRST})[.!]", sentence.text)
        if apart and trimmed(apart[1], said.pack) and plausible(apart[1], apart[1], said.pack):
            return apart[1]
        after = re.search(rf"(?:[A-ZÀ-ÖØ-Þ]-){{2,}}[A-ZÀ-ÖØ-Þ][,.] ({_FIRST})(?=[.,])", sentence.text)
        if after and trimmed(after[1], said.pack):
            return after[1]
        named = answered(sentence) if asked else None
        if named and re.fullmatch(_FIRST, named.name.split()[0]):
            return named.name.split()[0]
    return None


def given_after(said: Said, surname: str) -> str | None:
    """The first name that is a sentence of its own after the last one: "Bouchard. Ghislaine." """
    for before, sentence in zip(said.sentences, said.sentences[1:], strict=False):
        if not re.search(rf"\b{re.escape(surname)}[.,]$", before.text):
            continue
        after = bare_name(sentence, least=1) or before_spelling(sentence)
        if after and re.fullmatch(_FIRST, after.name):
            return after.name
    return None


def beside_street(said: Said) -> Iterator[SpokenName]:
    """The name before the speaker's street: "Ja, Wimmers, Neusser Straße." """
    for sentence in said.sentences:
        for pattern in said.pack.patterns("contact", "address"):
            match = pattern.search(sentence.text)
            if match and match.groupdict().get("name") and (named := _clean(match, sentence)):
                yield named


def firm_and_name(said: Said) -> tuple[Evidence, SpokenName] | None:
    """How a firm answers the telephone, in the first words of the call: "Nordlack, Meinhardt." """
    sentence = said.sentences[0] if said.sentences else None
    if sentence is None:
        return None
    match = re.match(rf"({_PROPER}(?: {_PROPER}){{0,2}}), ({_PROPER}(?: {_PROPER})?)(?=[.,]|$)", sentence.text)
    if match is None or any(trimmed(part, said.pack) != part for part in match.groups()):
        return None
    firm, name = match.groups()
    if _is_first_name(firm.split()[0]) or not plausible(name, name, said.pack) or _is_first_name(name.split()[-1]):
        return None
    named = SpokenName(name, name, sentence.evidence(match.span(2)), said.turn.index, said.pack.language)
    return sentence.evidence(match.span(1)), named


def before_spelling(sentence: Sentence) -> SpokenName | None:
    """The name at the start of a sentence that goes on to spell it: "Madame Roussel, R-O-U-deux S-E-L"."""
    titles = "|".join(re.escape(title) for title in sentence.pack.words("people", "titles")) or "(?!)"
    letter = r"[A-ZÀ-ÖØ-Þ](?:[-,.]| [A-ZÀ-ÖØ-Þ]\b)"
    name = rf"(?P<name>{_PROPER}(?: {_PROPER}){{0,2}})"
    match = re.search(rf"^(?:(?P<title>(?i:{titles}))\.? )?{name}, (?={letter})", sentence.text)
    return _clean(match, sentence) if match else None


def answered(sentence: Sentence) -> SpokenName | None:
    """The name at the start of an answer to "what is your name?"; a single one will do."""
    for pattern in sentence.pack.patterns("people", "answer"):
        match = pattern.search(sentence.text)
        if match and (named := _clean(match, sentence)):
            return named
    return None


def _calling(pack: Pack, names: tuple[str, ...]) -> re.Pattern[str]:
    """Compiled once for a language and a list of names: every turn of a call is searched for it."""
    at = (pack.language, names)
    if at not in _CALLING:
        if len(_CALLING) >= KEPT:
            _CALLING.clear()
        _CALLING[at] = _compiled(pack, names)
    return _CALLING[at]


def _compiled(pack: Pack, names: tuple[str, ...]) -> re.Pattern[str]:
    titles = "|".join(re.escape(title) for title in pack.words("people", "titles")) or "(?!)"
    known_words = pack.words("text", "stopwords") | pack.words("people", "business")
    stop = "|".join(map(re.escape, sorted(known_words - set(pack.get("people", "greetings", ())))))
    greetings = "|".join(pack.get("people", "greetings", ())) or "(?!)"
    return re.compile(
        rf"(?:^|[,.!?¡¿:] *|\b(?:{greetings}),? |(?:^|[,.!?¡¿] )(?!(?:{stop})\b)[^\W\d]+ )(?:(?P<title>{titles})\.? )?"
        rf"(?P<name>(?-i:{'|'.join(map(re.escape, names))}))(?= ?[,.!?]| ?$)",
        re.IGNORECASE,
    )


def called(said: Said, known: Iterable[str]) -> Iterator[SpokenName]:
    """Known names (in full, or one part) that stand between pauses as one calls somebody: "Thanks, Nuria."."""
    names = tuple(sorted({name for name in known if name}, key=lambda name: (-len(name), name)))
    if not names:
        return
    pattern = _calling(said.pack, names)
    for sentence in said.sentences:
        for match in pattern.finditer(sentence.text):
            first = match.start("title") if match["title"] else match.start("name")
            evidence = sentence.evidence((first, match.end("name")))
            full = sentence.text[first : match.end("name")]
            yield SpokenName(match["name"], full, evidence, said.turn.index, said.pack.language)


def alone(said: Said, names: Iterable[str]) -> Iterator[SpokenName]:
    """These names where nothing else stands between two pauses: "Druckerei Aschau, Kessler, guten Tag"."""
    pattern = rf"(?:^|[,.] )(?P<name>{'|'.join(map(re.escape, sorted(names))) or '(?!)'})(?=[,.]|$)"
    for sentence in said.sentences:
        for match in re.finditer(pattern, sentence.text):
            name = match["name"]
            yield SpokenName(name, name, sentence.evidence(match.span("name")), said.turn.index, said.pack.language)


def fuller(said: Said, named: SpokenName) -> Iterator[SpokenName]:
    """The same name said once more with what stands before it: "Mrs Whitcombe, Joan Whitcombe"."""
    for sentence in said.sentences:
        whole = rf"(?:^|[,.] )((?:{_PROPER} ){{1,2}}{re.escape(named.name)})(?=[,.!?]|$)"
        for match in re.finditer(whole, sentence.text):
            if trimmed(match[1], said.pack) == match[1]:
                yield SpokenName(match[1], match[1], sentence.evidence(match.span(1)), said.turn.index)


def mentioned(said: Said, known: Iterable[str]) -> Iterator[SpokenName]:
    """Known names wherever they stand in this turn."""
    names = sorted({name for name in known if name}, key=len, reverse=True)
    pattern = rf"\b(?:{'|'.join(map(re.escape, names))})\b"
    for sentence in said.sentences if names else ():
        for match in re.finditer(pattern, sentence.text):
            yield SpokenName(match.group(), match.group(), sentence.evidence(match.span()), said.turn.index)


def parts(name: str | None) -> tuple[str, ...]:
    """The words of a name, without accents, in lower case."""
    return tuple(folded(name).split()) if name else ()


def before_company(said: Said) -> Iterator[SpokenName]:
    """The name before a company's, between pauses: "Guten Morgen, Uhlig, Steuerbüro Hagedorn." """
    kinds = said.pack.words("people", "business")
    for sentence in said.sentences:
        found = re.finditer(
            rf"(?:^|[,.!] )(?P<name>{_PROPER}(?: {_PROPER})?), (?P<company>{_PROPER}(?: {_PROPER}){{0,3}})(?=[.,]|$)",
            sentence.text,
        )
        for match in found:
            words = match["company"].lower().split()
            firm = any(word in kinds or any(word.endswith(kind) for kind in kinds if len(kind) > 4) for word in words)
            name = match["name"]
            if firm and trimmed(name, said.pack) == name and plausible(name, name, said.pack):
                yield SpokenName(name, name, sentence.evidence(match.span("name")), said.turn.index, said.pack.language)
