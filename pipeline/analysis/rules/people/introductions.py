import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.analysis.rules.people.gender import listed
from pipeline.analysis.talk import Sentence, SpokenTurn
from pipeline.domain.insight import Evidence
from pipeline.language.pack import NAME, PARTICLES, PROPER, WHOLE_NAME, Pack, of_all, straighten, titles
from pipeline.language.spoken.numbers import number
from pipeline.language.spoken.phonetics import folded

MAX_PATTERNS = 64  # cached, one per language and list of names
_CALLING: dict[tuple[str | None, tuple[str, ...]], re.Pattern[str]] = {}
MAX_WORDS_BEFORE = 3  # in a sentence, before the name that it speaks to
_PAUSES = ("", *",.!?:¿¡")
_FIRST = r"[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ']+(?:-[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ']+)*"  # Jean-Philippe, not R-O-U-deux


@dataclass(frozen=True, slots=True)
class SpokenName:
    """A spoken name. `full`: with its title if there is one ("Ms. Walcott")."""

    name: str
    full: str
    evidence: Evidence
    turn: int
    language: str | None = None

    @property
    def titled(self) -> bool:
        return self.full != self.name


def introductions(turn: SpokenTurn) -> Iterator[SpokenName]:
    """Yield names by which the speaker of this turn introduces themselves; "É a dona Célia?" asks for one."""
    for spoken in _names_by(turn, "self"):
        if f"{spoken.name}?" not in turn.text:
            yield spoken


def addresses(turn: SpokenTurn) -> Iterator[SpokenName]:
    yield from _names_by(turn, "addressed")


def asked_for(turn: SpokenTurn) -> Iterator[SpokenName]:
    """Yield persons to whom the speaker wishes to speak: "I'm after Mr Pryce, if he's about"."""
    yield from _names_by(turn, "asked_for")


def reached(turn: SpokenTurn) -> Iterator[SpokenName]:
    """Yield the owner's name in a voicemail greeting; both of a couple ("Walt and Phyllis")."""
    for spoken in _names_by(turn, "voicemail_name"):
        yield spoken
        joint = turn.pack.get("tasks", "and") or "(?!)"
        for sentence in turn.sentences:
            also = re.search(rf"{re.escape(spoken.name)} {joint} ({_FIRST})\b", sentence.text)
            if also:
                yield SpokenName(also[1], also[1], sentence.evidence(also.span(1)), turn.turn.index, turn.pack.language)


def spoken_for(turn: SpokenTurn) -> Iterator[SpokenName]:
    """Yield persons on whose behalf the speaker calls: "I'm calling for my mother, Edna Wills"."""
    yield from _names_by(turn, "of_another")


def predecessors(turn: SpokenTurn) -> Iterator[SpokenName]:
    """Yield persons whose work the speaker has taken over: "I'm replacing Ann Hill"."""
    yield from _names_by(turn, "predecessor")


def handed_to(turn: SpokenTurn) -> Iterator[SpokenName]:
    """Yield persons to whom the speaker transfers the call."""
    yield from _names_by(turn, "transfer_to")


def _names_by(turn: SpokenTurn, key: str) -> Iterator[SpokenName]:
    for sentence in turn.sentences:
        for pattern in turn.pack.patterns("people", key):
            for match in pattern.finditer(sentence.text):
                spoken = _clean(match, sentence)
                if spoken:
                    yield spoken


def _clean(match: re.Match[str], sentence: Sentence) -> SpokenName | None:
    titled = bool(match.groupdict().get("title"))
    name = trimmed(match["name"], sentence.pack, titled, sentence.pack.matches("people", "name_cues", match.group()))
    name = name and _behind_firm(name, sentence.pack)
    if not name or (not titled and not plausible(name, match["name"], sentence.pack)):
        return None
    if name not in match["name"]:  # "Moore's Yard": no person's name
        return None
    if _is_possessive(match, name, sentence):
        return None
    first = match.start("name") + match["name"].index(name)
    name += _second_surname(name, sentence.text[first + len(name) :])
    last, full = first + len(name), name
    if titled and first == match.start("name") and len(words_of(name)) == 1:
        first = match.start("title")
        full = sentence.text[first:last]
    return SpokenName(name, full, sentence.evidence((first, last)), sentence.turn.index, sentence.pack.language)


def _second_surname(name: str, after: str) -> str:
    """Return the fourth word of a name with two first names: "Luis Fernando Pérez Gil"."""
    parts = name.split()
    follows = re.match(rf" {PROPER}(?![\w'-])", after)
    return follows[0] if follows and len(parts) == 3 and listed(parts[0]) and listed(parts[1]) else ""


def _behind_firm(name: str, words: Pack) -> str:
    """Return the words after a company without a pause: Toure in "Lakeland Credit Toure"."""
    parts, kinds = name.split(), words.words("people", "business")
    of_firm = [at for at, part in enumerate(parts) if at and part.lower() in kinds]
    behind = parts[of_firm[-1] + 1 :] if of_firm else []
    return " ".join(behind) or name


def _is_possessive(match: re.Match[str], name: str, sentence: Sentence) -> bool:
    """Return whether it names the owner of something: "this is Mark's wife"."""
    last = match.start("name") + match["name"].index(name) + len(name)
    after = match.string[last:] if match.end() <= last + len("'s") else ""  # "Mark's the name"
    here = straighten("|".join(sentence.pack.get("people", "after_name", ()))) or "(?!)"
    return bool(re.match(rf"'s (?!(?:{here})\b)[^\W\d_]", after))


def words_of(name: str) -> list[str]:
    """Return the words of a name without particles: "von der Leyen" is one."""
    return [word for word in name.split() if word.lower() not in PARTICLES] or name.split()


def spoken_of(spoken: SpokenName, sentence: Sentence) -> bool:
    """Return whether the sentence is about the person, who is then neither its speaker nor addressed: "Dr. Brook is
    away", "an appointment with Dr. Brook".
    """
    before, name, after = sentence.text.partition(spoken.full)
    after = re.sub(r"^ [A-ZÀ-ÖØ-Þ][\w-]+", "", after)  # the rest of the name
    is_third = sentence.pack.matches("people", "third_person", after)
    return bool(name) and (is_third or sentence.pack.matches("people", "spoken_of", before))


def plausible(name: str, source: str, words: Pack) -> bool:
    """Return whether `name`, from the capitalized words `source`, may be a person's: not "Die Lieferung"."""
    before = source[: source.index(name)].lower().split() if name in source else []
    after = {word for part in words_of(name.lower()) for word in (part, part.replace("-", " "))}
    kinds = words.words("people", "business") | words.words("people", "places")
    if _holds_figure(name, words) or after & (kinds | words.numbers.keys()):
        return False
    if len(after) > 1 and name.split(maxsplit=1)[0].lower() in words.words("people", "wishing"):
        return False  # "Happy Halloween"
    if any(word.lower() in words.words("text", "stopwords") for word in words_of(name)[1:-1]):
        return False  # "Trick Or Treat"
    if not words.words("people", "determiners").isdisjoint((*before, name.split(maxsplit=1)[0].lower())):
        return False
    if any(words.matches("contact", key, f"{name}?") for key in ("mail", "phone", "address_asked")):
        return False
    endings = tuple(words.get("people", "common_endings", ()))
    is_listed = listed(name) or name.lower() in words.weekdays
    return len(after) > 1 or not endings or not name.lower().endswith(endings) or is_listed


def _holds_figure(name: str, words: Pack) -> bool:
    return any(number(part, words) is not None or (len(part) > 2 and part.isupper()) for part in words_of(name))


def trimmed(name: str, words: Pack, titled: bool = False, with_cue: bool = False) -> str | None:
    """Return the name without capitalized words that are none, or None; after a title, "Le Goff" is kept.

    A month or weekday is part of a name after a title ("Herr Freitag"), after a first name ("Anna Freitag"), as a first
    name before another word ("June Carter"), and alone `with_cue` ("my name is June").
    """
    unlikely = words.words("people", "not_names") | words.words("people", "titles") | words.numbers.keys()
    parts = [re.sub(r"'s$", "", part) for part in name.split()]
    unlikely |= {part.lower() for part in parts if re.search(r"'(?:m|ve|ll|re|d|t)$", part)}
    unlikely -= {part.lower() for at, part in enumerate(parts) if _is_dated_name(parts, at, words, titled or with_cue)}
    while len(parts) > 1 and parts[0].lower() in words.words("people", "greetings"):
        parts.pop(0)
    while parts and parts[0].lower() in unlikely and not (titled and len(parts) > 1 and parts[0].lower() in PARTICLES):
        parts.pop(0)
    if parts and parts[0].islower() and not titled:
        return None
    return " ".join(_up_to(unlikely, parts, titled, words)) or None


def _is_dated_name(parts: list[str], at: int, words: Pack, is_certain: bool) -> bool:
    """Return whether the part is a month or weekday and a name."""
    part, before, after = parts[at].lower(), parts[at - 1 : at] if at else [], parts[at + 1 : at + 2]
    if part not in words.months and part not in words.weekdays:
        return False
    unlikely = words.words("people", "not_names")
    if after:
        return listed(part) and not before and after[0].lower() not in unlikely - words.months.keys()
    return listed(before[0]) if before else is_certain


def _up_to(unlikely: frozenset[str] | set[str], parts: list[str], titled: bool, words: Pack) -> list[str]:
    """Return the parts before the first that is no name; a particle counts after a title or before a last name."""
    at = 0
    while at < len(parts):
        first = at
        while at < len(parts) and parts[at].lower() in PARTICLES and (titled or at):
            at += 1
        if at > first and (at == len(parts) or not _is_last_name(parts, first, at, words)):
            return parts[:first]
        if at and parts[at].startswith("d'"):  # Giscard d'Estaing
            apart = [*parts[:at], "d'", parts[at][2:], *parts[at + 1 :]]
            if not _is_last_name(apart, at, at + 1, words):
                return parts[:at]
        if parts[at].lower() in unlikely or parts[at].lower().replace("-", " ") in unlikely:
            return parts[:first]
        at += 1
    return parts


def _is_last_name(parts: list[str], first: int, last: int, words: Pack) -> bool:
    """Return whether particles and what follows are a last name: "von der Leyen", not "von der Firma", "de Madrid".

    A particle that is also a word of the language needs a name of the list, or only first names before it and one word
    after it.
    """
    particle, after = " ".join(parts[first:last]), [folded(part) for part in parts[last:]]
    own_words = words.words("people", "particles")
    if particle not in own_words:  # of another language, or capitalized
        return True
    kinds = {folded(kind) for kind in words.words("people", "business") | words.words("people", "places")}
    endings = tuple(words.get("people", "common_endings", ()))
    if after[0] in of_all("surnames"):
        return True
    if (
        not kinds.isdisjoint(after)
        or after[0] in of_all("towns_and_brands")
        or (endings and after[0].endswith(endings))
    ):
        return False
    before = parts[:first]
    if particle in ("y", "e", "et"):
        return len(words_of(" ".join(before))) > 1 and not listed(after[0])
    return (len(after) == 1 or listed(after[0])) and all(listed(part) for part in before)


def bare(name: str) -> str:
    """Return the name without its title: "Ms. Walcott" -> "Walcott"."""
    parts = name.split()
    while len(parts) > 1 and parts[0].lower().strip(".") in titles():
        parts = parts[1:]
    return " ".join(parts)


def bare_name(sentence: Sentence, min_words: int = 2, asked: bool = False) -> SpokenName | None:
    """Return a name of `min_words` to three words that is a whole sentence: "Inez Walcott.", "Uriarte, Begoña.".

    It is reversed only after a question or with a first name at the end: "Nordlack, Meinhardt." is a company and a
    name.
    """
    text = sentence.text.strip().rstrip(".,!?" if min_words == 1 else ".,!")
    turned = re.fullmatch(rf"({PROPER}), ({PROPER})", text)
    if turned and not (asked or listed(turned[2])):
        return None
    if not turned and not re.fullmatch(NAME if min_words == 1 else WHOLE_NAME, text):
        return None
    name = f"{turned[2]} {turned[1]}" if turned else text
    if trimmed(name, sentence.pack) != name or not plausible(name, text, sentence.pack):
        return None
    return SpokenName(name, name, sentence.evidence((0, len(text))), sentence.turn.index)


def between_pauses(turn: SpokenTurn, asked: bool = False) -> Iterator[SpokenName]:
    """Yield two or three capitalized words between pauses ("Morning Priya, Helen Marsh at Marsh & Lowe.").

    In an answer (`asked`) a word may precede them: "con Ana Ruiz".
    """
    here = straighten("|".join(turn.pack.get("people", "after_name", ()))) or "(?!)"
    titles = "|".join(re.escape(title) for title in turn.pack.words("people", "titles")) or "(?!)"
    before = r"(?:[a-zß-ÿ]+ )?" if asked else ""
    pattern = rf"(?:^|[,.!?:] ){before}(?:(?i:{titles})\.? )?(?P<name>{WHOLE_NAME})(?=[,.!]|$| (?:{here})\b)"
    for sentence in turn.sentences:
        for match in re.finditer(pattern, sentence.text):
            name = match["name"]
            spelled = any(len(piece) == 1 for piece in re.split(r"[ -]", name))
            if spelled or not plausible(name, name, turn.pack):
                continue
            if turn.pack.matches("people", "third_person", sentence.text[match.end("name") :]):
                continue  # "So, Aoife Burke, she's finishing up"
            if trimmed(name, turn.pack) == name:
                yield SpokenName(name, name, sentence.evidence(match.span("name")), turn.turn.index)


def given_name(turn: SpokenTurn, asked: bool) -> str | None:
    """Return a first name that completes a last one: "Jessica mit Vornamen", or the answer to a question for it."""
    for sentence in turn.sentences:
        for pattern in turn.pack.patterns("people", "given"):
            match = pattern.search(sentence.text)
            name = trimmed(match["name"], turn.pack) if match else None
            if name and re.fullmatch(_FIRST, name.split()[0]):
                return name.split()[0]
        apart = re.fullmatch(rf"(?:Der|Die|El|La|Le) ({_FIRST})[.!]", sentence.text)
        if asked and apart and trimmed(apart[1], turn.pack) and plausible(apart[1], apart[1], turn.pack):
            return apart[1]
        after = re.search(rf"(?:[A-ZÀ-ÖØ-Þ]-){{2,}}[A-ZÀ-ÖØ-Þ][,.] ({_FIRST})(?=[.,])", sentence.text)
        if after and trimmed(after[1], turn.pack):
            return after[1]
        spoken = answered(sentence) if asked else None
        if spoken and re.fullmatch(_FIRST, spoken.name.split()[0]):
            return spoken.name.split()[0]
    return None


def given_after(turn: SpokenTurn, surname: str) -> str | None:
    """Return the first name in a sentence after the last name ("Bouchard. Ghislaine.")."""
    for before, sentence in zip(turn.sentences, turn.sentences[1:], strict=False):
        if not re.search(rf"\b{re.escape(surname)}[.,]$", before.text):
            continue
        after = bare_name(sentence, min_words=1) or before_spelling(sentence)
        if after and re.fullmatch(_FIRST, after.name):
            return after.name
    return None


def beside_street(turn: SpokenTurn) -> Iterator[SpokenName]:
    """Yield the name before the speaker's street ("Ja, Wimmers, Neusser Straße.")."""
    for sentence, match in turn.searches("contact", "address"):
        if match.groupdict().get("name") and (spoken := _clean(match, sentence)):
            yield spoken


def firm_and_name(turn: SpokenTurn) -> tuple[Evidence, SpokenName] | None:
    """Return company and name in the first words of the call ("Nordlack, Meinhardt.")."""
    sentence = turn.sentences[0] if turn.sentences else None
    if sentence is None:
        return None
    match = re.match(rf"({PROPER}(?: {PROPER}){{0,2}}), ({PROPER}(?: {PROPER})?)(?=[.,]|$)", sentence.text)
    if match is None or any(trimmed(part, turn.pack) != part for part in match.groups()):
        return None
    firm, name = match.groups()
    if listed(firm.split()[0]) or not plausible(name, name, turn.pack) or listed(name.split()[-1]):
        return None
    spoken = SpokenName(name, name, sentence.evidence(match.span(2)), turn.turn.index, turn.pack.language)
    return sentence.evidence(match.span(1)), spoken


def before_spelling(sentence: Sentence) -> SpokenName | None:
    """Return the name at the start of a sentence that spells it next: "Madame Roussel, R-O-U-deux S-E-L"."""
    titles = "|".join(re.escape(title) for title in sentence.pack.words("people", "titles")) or "(?!)"
    letter = r"[A-ZÀ-ÖØ-Þ](?:[-,.]| [A-ZÀ-ÖØ-Þ]\b)"
    name = rf"(?P<name>{NAME})"
    match = re.search(rf"^(?:(?P<title>(?i:{titles}))\.? )?{name}, (?={letter})", sentence.text)
    return _clean(match, sentence) if match else None


def answered(sentence: Sentence) -> SpokenName | None:
    """Return the name at the start of an answer to "what is your name?"; a single word suffices."""
    for pattern in sentence.pack.patterns("people", "answer"):
        match = pattern.search(sentence.text)
        if match and (spoken := _clean(match, sentence)):
            after = sentence.text.partition(spoken.full)[2]
            return None if sentence.pack.matches("people", "third_person", after) else spoken
    return None


def _calling(pack: Pack, names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a language and a list of names, cached: it searches every turn of a call."""
    at = (pack.language, names)
    if at not in _CALLING:
        if len(_CALLING) >= MAX_PATTERNS:
            _CALLING.clear()
        _CALLING[at] = _compiled(pack, names)
    return _CALLING[at]


def _compiled(pack: Pack, names: tuple[str, ...]) -> re.Pattern[str]:
    titles = "|".join(re.escape(title) for title in pack.words("people", "titles")) or "(?!)"
    words = pack.words("text", "stopwords") | pack.words("people", "business") | pack.words("people", "determiners")
    stop = "|".join(map(re.escape, sorted(words - set(pack.get("people", "greetings", ())))))
    greetings = "|".join(pack.get("people", "greetings", ())) or "(?!)"
    return re.compile(
        rf"(?:^|[,.!?¡¿:] *|\b(?:{greetings}),? |(?:^|[,.!?¡¿] )(?!(?:{stop})\b)[^\W\d]+ )(?:(?P<title>{titles})\.? )?"
        rf"(?P<name>(?-i:{'|'.join(map(re.escape, names))}))(?= ?[,.!?]| ?$)",
        re.IGNORECASE,
    )


def called(turn: SpokenTurn, known_names: Iterable[str]) -> Iterator[SpokenName]:
    """Yield known names (in full, or one part) between pauses, as a form of address: "Thanks, Nuria."."""
    names = tuple(sorted({name for name in known_names if name}, key=lambda name: (-len(name), name)))
    if not names:
        return
    pattern = _calling(turn.pack, names)
    for sentence in turn.sentences:
        for match in pattern.finditer(sentence.text):
            first = match.start("title") if match["title"] else match.start("name")
            evidence = sentence.evidence((first, match.end("name")))
            full = sentence.text[first : match.end("name")]
            yield SpokenName(match["name"], full, evidence, turn.turn.index, turn.pack.language)


def spoken_to(turn: SpokenTurn, known_names: Iterable[str], is_edge: bool) -> Iterator[SpokenName]:
    """Yield known names without pauses around them: after a title ("très bref madame Morel"), and at the call's edges
    (`is_edge`) among a sentence's first words or as its last ("griaß di Sepp").
    """
    for sentence in turn.sentences:
        for match in () if sentence.text.endswith("?") else _known_in(sentence, known_names):
            is_near = (
                match.string.count(" ", 0, match.start()) < MAX_WORDS_BEFORE or not match.string[match.end() + 1 :]
            )
            is_apart = match.string[match.end() :][:1] in _PAUSES or "," not in match.string[: match.start()]
            if match["title"] or (is_edge and is_near and is_apart):
                evidence = sentence.evidence(match.span())
                yield SpokenName(match["name"], match.group(), evidence, turn.turn.index, turn.pack.language)


def known_by(turn: SpokenTurn, known_names: Iterable[str]) -> Iterator[SpokenName]:
    """Yield known names: whole ones ("olhe fala Albertina Quintela do segundo"), and words at a pause ("Kern noch
    mal,"), but not after a greeting: "Hi Maria, ...".
    """
    kinds, greetings = turn.pack.words("people", "business"), set(turn.pack.get("people", "greetings", ()))
    for sentence in turn.sentences:
        for match in _known_in(sentence, known_names):
            before, after = match.string[: match.start()].rstrip(), match.string[match.end() :].lstrip()
            first, is_apart = before.rpartition(" ")[2], before[-1:] in _PAUSES or after[:1] in _PAUSES
            is_name = match["title"] or (is_apart and trimmed(match["name"], turn.pack) == match["name"])
            is_whole = " " in match["name"] and (is_apart or "," not in sentence.text)
            if not (is_whole or is_name) or first.lower() in (kinds if " " in match["name"] else kinds | greetings):
                continue
            is_first = listed(first) and first[:1].isupper()  # "Siobhan Kearney", of whom only "Kearney" is known
            name = f"{first} {match['name']}" if is_first else match["name"]
            span = match.end() - len(name), match.end()
            full = name if is_first else match.group()
            yield SpokenName(name, full, sentence.evidence(span), turn.turn.index, turn.pack.language)


def _known_in(sentence: Sentence, known_names: Iterable[str]) -> Iterator[re.Match[str]]:
    """Match known names with their titles, except what is spoken about: "tell Sepp", "the Ms. Hill", "Ana's car"."""
    text, words = sentence.text, sentence.pack
    names = sorted((name for name in known_names if name in text), key=lambda name: (-len(name), name))
    titles = "|".join(re.escape(title) for title in words.words("people", "titles")) or "(?!)"
    pattern = rf"(?<![\w'-])(?:(?P<title>(?i:{titles}))\.? )?(?P<name>{'|'.join(map(re.escape, names))})(?![\w'-])"
    articles = "|".join(words.words("people", "articles")) or "(?!)"
    about = words.words("people", "determiners") | words.words("people", "titles") | {words.get("tasks", "and")}
    for match in re.finditer(pattern, text) if names else ():
        before = re.findall(r"([\w']+) $", text[: match.start()].lower())
        spoken = SpokenName(match["name"], match.group(), sentence.evidence(match.span()), sentence.turn.index)
        is_apart = (
            re.search(rf"(?:^|[,.!?] )(?i:{articles}) $", text[: match.start()]) and text[match.end() :][:1] in _PAUSES
        )
        if (about.isdisjoint(before) or is_apart) and not spoken_of(spoken, sentence):
            yield match  # apart: "Kern am Apparat, der Xaver."


def after_cue(turn: SpokenTurn, known_names: Iterable[str]) -> Iterator[SpokenName]:
    """Yield whole known names right after "it's", with or without a pause: "it's Ana Ruiz I had bloods done"."""
    whole = sorted((name for name in known_names if " " in name and name in turn.text), key=len, reverse=True)
    pattern = rf"(?<![\w'-])(?:{'|'.join(map(re.escape, whole))})(?![\w'-])"
    for sentence in turn.sentences if whole else ():
        for match in re.finditer(pattern, sentence.text):
            before, after = sentence.text[: match.start()], sentence.text[match.end() :]
            is_own = turn.pack.matches("people", "before_own_name", before)
            if is_own and not turn.pack.matches("people", "third_person", after):
                yield SpokenName(match.group(), match.group(), sentence.evidence(match.span()), turn.turn.index)


def alone(turn: SpokenTurn, names: Iterable[str]) -> Iterator[SpokenName]:
    """Yield these names if they are alone between two pauses: "Druckerei Aschau, Kessler, guten Tag"."""
    pattern = rf"(?:^|[,.] )(?P<name>{'|'.join(map(re.escape, sorted(names))) or '(?!)'})(?=[,.]|$)"
    for sentence in turn.sentences:
        for match in re.finditer(pattern, sentence.text):
            name = match["name"]
            yield SpokenName(name, name, sentence.evidence(match.span("name")), turn.turn.index, turn.pack.language)


def mentioned(turn: SpokenTurn, known_names: Iterable[str]) -> Iterator[SpokenName]:
    names = sorted({name for name in known_names if name and name in turn.text}, key=len, reverse=True)
    pattern = rf"\b(?:{'|'.join(map(re.escape, names))})\b"
    for sentence in turn.sentences if names else ():
        for match in re.finditer(pattern, sentence.text):
            yield SpokenName(match.group(), match.group(), sentence.evidence(match.span()), turn.turn.index)


def parts(name: str | None) -> tuple[str, ...]:
    """Return the words of a name, without accents, in lower case."""
    return tuple(folded(name).split()) if name else ()
