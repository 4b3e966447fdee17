"""Words as they are compared: the same rules for references and for every system.

In this order: compatibility forms, lower case, text in brackets dropped, one kind of apostrophe; figures spelled out
("$1,250" -> "one thousand two hundred fifty dollars", "5:30" -> "five thirty", "3rd" -> "third"); abbreviations and
titles ("p.m." -> "pm", "mr" -> "mister"); negations and auxiliaries of contractions apart ("don't" -> "do not");
hyphens and slashes separate; other punctuation and diacritics dropped; hesitations dropped ("uh", "hmm"); British
spelling to American. In Spanish, French, Italian and Russian figures up to 15 are spelled out, higher ones left alone.
"""

import re
import unicodedata
from collections.abc import Iterator


def _listed(names: str) -> list[str]:
    return names.split()


ONES = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = _listed("_ ten twenty thirty forty fifty sixty seventy eighty ninety")
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
ORDINALS |= {"twelve": "twelfth"}
SCALES = ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
FOREIGN = {
    "es": _listed("cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince"),
    "fr": _listed("zero un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze"),
    "it": _listed(
        "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici"
    ),
    "ru": _listed(
        "ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать тринадцать "
        "четырнадцать пятнадцать"
    ),
}
SYMBOLS = {"%": " percent ", "&": " and ", "@": " at ", "+": " plus ", "#": " pound "}
MONEY = {"$": "dollars", "£": "pounds", "€": "euros"}
TITLES = {"mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint", "ok": "okay", "cannot": "can not"}
TITLES |= {
    "xray": "x ray",
    "gonna": "going to",
    "wanna": "want to",
    "gotta": "got to",
    "till": "until",
    "alright": "all right",
}
CONTRACTIONS = (
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b", "can not"),
    (r"\bshan't\b", "shall not"),
    (r"\blet's\b", "let us"),
    (r"\by'all\b", "you all"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'ll\b", " will"),
    (r"'ve\b", " have"),
    (r"'m\b", " am"),
    (r"'d\b", " would"),
    (r"'s\b", " is"),
)
HESITATIONS = {"uh", "um", "uhm", "hmm", "hm", "mm", "mhm", "mmm", "er", "erm", "ah"}
OUR = _listed("col hon fav flav neighb lab behav harb hum od rum sav vap arm clam glam splend vig ard endeav parl")
SPELLINGS = {
    "centre": "center",  # language: ok
    "theatre": "theater",
    "metre": "meter",
    "litre": "liter",
    "grey": "gray",  # language: ok
    "cheque": "check",
    "programme": "program",
    "defence": "defense",  # language: ok
    "offence": "offense",
    "licence": "license",  # language: ok
    "practise": "practice",
    "catalogue": "catalog",  # language: ok
    "dialogue": "dialog",
    "dialled": "dialed",
    "dialling": "dialing",
    "cancelled": "canceled",  # language: ok
    "cancelling": "canceling",  # language: ok
    "travelled": "traveled",
    "travelling": "traveling",
    "traveller": "traveler",
    "enrol": "enroll",
    "fulfil": "fulfill",
    "judgement": "judgment",
    "plough": "plow",
    "tyre": "tire",
    "whilst": "while",  # language: ok
    "amongst": "among",  # language: ok
    "towards": "toward",  # language: ok
    "afterwards": "afterward",
    "fourtieth": "fortieth",
}


def words(text: str, language: str = "en") -> list[str]:
    """Return the normalized words of a text; `language` is ISO 639-1."""
    plain = unicodedata.normalize("NFKC", text).lower()
    plain = re.sub(r"\[[^\]]*\]|\([^)]*\)|<[^>]*>", " ", plain)
    plain = re.sub("[\u2018\u2019\u02bc`\u00b4]", "'", plain)
    plain = _english(plain) if language == "en" else _figures_of(plain, FOREIGN.get(language, []))
    plain = re.sub(r"[-\u2010-\u2015/_]", " ", plain)
    plain = "".join(char for char in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(char))
    plain = re.sub(r"[^\w\s]", "" if language == "en" else " ", plain)
    return [spelled for word in plain.split() if word not in HESITATIONS for spelled in _spelling(word, language)]


def _english(text: str) -> str:
    text = re.sub(r"([$£€])\s?(\d[\d,]*(?:\.\d+)?)", lambda match: f"{match[2]} {MONEY[match[1]]}", text)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = re.sub(r"\b(\d{1,2}):00\b", lambda match: f"{match[1]} o'clock ", text)
    text = re.sub(r"(?<=\d):(?=\d)", " ", text)
    text = re.sub(r"\b(\d+)(st|nd|rd|th)\b", lambda match: f" {ordinal(int(match[1]))} ", text)
    text = re.sub(r"(?<=\d)\.(?=\d)", " point ", text)
    text = re.sub(r"\d+", lambda match: f" {' '.join(cardinal(match[0]))} ", text)
    text = re.sub(r"\b(?:[a-z]\.){2,}", lambda match: match[0].replace(".", ""), text)
    for symbol, name in SYMBOLS.items():
        text = text.replace(symbol, name)
    for pattern, full in CONTRACTIONS:
        text = re.sub(pattern, full, text)
    return text


def cardinal(figures: str) -> list[str]:
    """Return the words of a whole number; with a leading zero or more than nine digits, digit by digit."""
    if len(figures) > 9 or (len(figures) > 1 and figures.startswith("0")):
        return [ONES[int(figure)] for figure in figures]
    return list(_cardinal(int(figures)))


def _cardinal(number: int) -> Iterator[str]:
    for size, name in SCALES:
        if number >= size:
            yield from _cardinal(number // size)
            yield name
            number %= size
            if number == 0:
                return
    if number < 20:
        yield ONES[number]
        return
    yield TENS[number // 10]
    if number % 10:
        yield ONES[number % 10]


def ordinal(number: int) -> str:
    """ "twenty third" of 23."""
    *before, last = _cardinal(number)
    ordinal_word = ORDINALS.get(last) or (f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")
    return " ".join((*before, ordinal_word))


def _figures_of(text: str, names: list[str]) -> str:
    def spelled(match: re.Match[str]) -> str:
        number = int(match[0])
        return f" {names[number]} " if number < len(names) else match[0]

    return re.sub(r"\d{1,4}", spelled, text)


def _spelling(word: str, language: str) -> list[str]:
    if language != "en":
        return [word]
    if word in TITLES:
        return TITLES[word].split()
    if word in SPELLINGS:
        return [SPELLINGS[word]]
    for stem in OUR:
        if word.startswith(stem + "our"):
            return [stem + "or" + word[len(stem) + 3 :]]
    return [re.sub(r"(?<=[a-z]{4})is(e|ed|es|ing|ation)$", r"iz\1", word) if _verb_in_ise(word) else word]


def _verb_in_ise(word: str) -> bool:
    """Return whether "-ise" is the British form of "-ize": verbs made of a noun or adjective, not "advise" or
    "promise".
    """
    stems = "real recogn organ apolog emphas special general final author critic minim maxim util civil summar"
    return word.startswith(tuple(stem + "is" for stem in stems.split()))
