"""Questions, trackers and scorecards as people define them: in a file (TOML or JSON), or as a body; every fault with
its line."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, Field, ValidationError, model_validator

from pipeline.domain.questions import Defined, Question, Scorecard, ScorecardItem, faults_of
from serve_app.http.json_body import Body

MOST_PHRASES = 100  # of one question, choices and `unless` among them
MOST_GAPS = 3  # of one phrase
LISTS = {"questions": None, "trackers": "tracker", "scorecards": "scorecard"}  # with the type that each means
_WORD = re.compile(r"[^\W_]")
_TOP = re.compile(r"^[ \t]*\[\[[^.\]]*\]\]", re.MULTILINE)  # where a definition begins, not a part of one
_CAMEL = re.compile(r"(?<=[a-z])[A-Z]")


def _phrase(text: str) -> str:
    tidy = " ".join(text.split())
    if not _WORD.search(tidy):
        raise ValueError("has no word in it")
    if tidy.count("...") + tidy.count("…") > MOST_GAPS:
        raise ValueError(f"has ... more than {MOST_GAPS} times")
    return tidy


Phrase = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_phrase)]
Phrases = Annotated[list[Phrase], Field(max_length=MOST_PHRASES)]
Minutes = Annotated[float, Field(gt=0, le=600, strict=False)]
ChoiceName = Annotated[str, Field(min_length=1, max_length=100)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
KEY = "Lower case letters, digits, dots, dashes, _; it stays."
Languages = Annotated[list[Annotated[str, Field(pattern="^[a-z]{2}$")]], Field(max_length=50)]
Teams = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)]
Weight = Annotated[float, Field(ge=0, le=100, strict=False)]
NOT_CHOICES = ("n/a", "not said")  # they mean something else where an answer is corrected or scored


class Definition(Body):
    """A question in plain words, or a tracker."""

    key: Key = Field(description=KEY)
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] = "yes/no"
    question: str = Field("", max_length=500, description="In plain words; a model is asked this.")
    party: Literal["rep", "customer", "anyone"] = Field("anyone", description="Whose words count.")
    first: Minutes | None = Field(None, description="Only the first minutes, from the first word of a person.")
    last: Minutes | None = Field(None, description="Only the last minutes, before the last word of a person.")
    outgoing: bool | None = Field(None, description="true: outbound calls only; false: inbound calls only.")
    languages: Languages = Field(default=[], description="Of calls in these languages only (ISO 639-1).")
    teams: Teams = Field(default=[], description="Of calls of these teams only: ids, or names.")
    phrases: Phrases = Field(
        default=[], description="Words that answer it, in any form; word* ends anyhow, ... is up to five words."
    )
    unless: Phrases = Field(default=[], description="A phrase does not count in a sentence with one of these.")
    choices: dict[ChoiceName, Phrases] = Field(
        default={}, max_length=50, description="Of the type choice: each answer with its phrases."
    )
    required: bool = Field(False, description="Of trackers: raised where it is not said.")
    weight: Weight = 1.0

    @model_validator(mode="after")
    def _together(self) -> Self:
        for wrong in self._faults():
            raise ValueError(wrong)
        return self

    def _faults(self) -> Iterator[str]:
        """In the order of the fields that they name first."""
        if self.type == "tracker":
            if not self.phrases:
                yield "phrases: a tracker needs some to listen for."
        elif not self.question.strip():
            yield 'question: say it in plain words, such as "Did the agent offer an appointment?"'
        if self.type == "choice":
            if len(self.choices) < 2:
                yield "choices: the type choice needs two or more, each with its phrases or [] for a model."
            for name in NOT_CHOICES:
                if name in self.choices:
                    yield f"choices: {name!r} cannot be a choice; it says that there is no answer."
            if self.phrases:
                yield "phrases: with the type choice, phrases belong to the choices."
        elif self.choices:
            yield "choices: they are of the type choice only."
        if self.required and self.type != "tracker":
            yield "required: it is of trackers only."
        if sum(map(len, (self.phrases, self.unless, *self.choices.values()))) > MOST_PHRASES:
            yield f"phrases: a question has at most {MOST_PHRASES} in all; split it."

    def domain(self, teams: Mapping[str, UUID]) -> Question:
        """The question; `teams`: ids by name and id, in lower case. Raises `DefinitionRefused` for others."""
        values = self.model_dump() | {"teams": _ids(self.teams, teams)}
        lists = {name: tuple(values[name]) for name in ("languages", "phrases", "unless")}
        choices = {name: tuple(phrases) for name, phrases in self.choices.items()}
        return Question(**values | lists | {"choices": choices})


class ScorecardItemDefinition(Body):
    """A question or tracker on a scorecard."""

    question: Key = Field(description="Its key.")
    section: str = Field("", max_length=100)
    weight: Weight | None = Field(None, description="Unset: that of the question.")
    points: dict[ChoiceName, Annotated[float, Field(ge=0, le=1, strict=False)]] = Field(
        default={},
        max_length=60,
        description="What share of the weight an outcome earns: yes, no, a choice, said, not said; others earn "
        "nothing. Unset: yes and whatever is said; of a tracker what does not raise it.",
    )
    auto_fail: bool = Field(False, description="The call scores 0 where this earns nothing.")


class ScorecardDefinition(Body):
    """Questions and trackers that calls are scored by."""

    key: Key = Field(description=KEY)
    type: Literal["scorecard"] = "scorecard"
    title: str = Field(min_length=1, max_length=200)
    pass_mark: Annotated[float, Field(ge=0, le=100, strict=False)] | None = Field(
        None, description="The score that passes, 0 to 100."
    )
    outgoing: bool | None = Field(None, description="true: outbound calls only; false: inbound calls only.")
    languages: Languages = Field(default=[], description="For calls in these languages only (ISO 639-1).")
    teams: Teams = Field(default=[], description="For calls of these teams only: ids, or names.")
    items: list[ScorecardItemDefinition] = Field(min_length=1, max_length=100)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        keys = [one.question for one in self.items]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ValueError(f"items: {twice[0]!r} is there twice.")
        return self

    def domain(self, teams: Mapping[str, UUID]) -> Scorecard:
        """The scorecard; `teams`: ids by name and id, in lower case. Raises `DefinitionRefused` for others."""
        items = tuple(ScorecardItem(**one.model_dump()) for one in self.items)
        own = {"teams": _ids(self.teams, teams), "languages": tuple(self.languages), "items": items}
        return Scorecard(**self.model_dump() | own)


def _ids(named: Iterable[str], teams: Mapping[str, UUID]) -> tuple[str, ...]:
    """Raises `DefinitionRefused`."""
    if unknown := [one for one in named if one.casefold() not in teams]:
        raise DefinitionRefused([f"teams: the workspace has no team {unknown[0]!r}."])
    return tuple(str(teams[one.casefold()]) for one in named)


class DefinitionRefused(ValueError):
    """Definitions that cannot be used; `faults` has a sentence for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(" ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class _Entry:
    """One definition of a file: what it says, and where it begins."""

    told: Any
    first: int  # character of the text
    last: int
    model: type[Definition] | type[ScorecardDefinition]


def read_file(path: Path, teams: Mapping[str, UUID], known: Iterable[Question] = ()) -> list[Defined]:
    """What a file defines. `known`: what its scorecards may name besides.

    Raises `DefinitionRefused` with every fault and its line, `OSError`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DefinitionRefused([f"{path.name} is no text in UTF-8. Save it so."]) from None
    entries = list(_json_entries(path, text) if path.suffix == ".json" else _toml_entries(path, text))
    faults: list[str] = []
    found: list[tuple[_Entry, Defined]] = []
    lines: dict[str, int] = {}
    for entry in entries:
        for line, fault in _faults(entry, text, path.suffix == ".json"):
            faults.append(f"{path.name}, line {line}: {fault}")
        if faults:
            continue
        line = _line(text, entry.first)
        try:
            made = entry.model.model_validate(entry.told).domain(teams)
        except DefinitionRefused as error:
            faults += [f"{path.name}, line {line}: {one}" for one in error.faults]
            continue
        if made.key in lines:
            faults.append(f"{path.name}, line {line}: the key {made.key!r} is that of line {lines[made.key]}.")
        lines[made.key] = line
        found.append((entry, made))
    if not entries:
        faults.append(f"{path.name} defines nothing. Begin a question with the line [[questions]].")
    faults = faults or [f"{path.name}, line {line}: {told}" for line, told in _card_faults(found, text, known)]
    if faults:
        raise DefinitionRefused(faults)
    return [made for _, made in found]


def _card_faults(
    found: Iterable[tuple[_Entry, Defined]], text: str, known: Iterable[Question]
) -> Iterator[tuple[int, str]]:
    """What scorecards say of questions that neither the file nor the workspace has so."""
    defined: dict[str, Defined] = {one.key: one for one in known}
    defined |= {one.key: one for _, one in found}
    asked = {key: one for key, one in defined.items() if isinstance(one, Question)}
    for entry, card in found:
        if isinstance(card, Scorecard):
            for at, told in faults_of(card, asked):
                yield _line(text, _item_at(entry, text, at)), told


def _typed(told: Any, kind: str) -> Any:
    """With the type that its list says; a version, as `show` prints it, is the database's."""
    if not isinstance(told, dict):
        return told
    of_list = {"type": meant} if (meant := LISTS[kind]) else {}
    return {name: value for name, value in told.items() if name != "version"} | of_list


def _lists(path: Path, root: Any) -> Iterator[tuple[str, list[Any]]]:
    """`questions`, `trackers` and `scorecards`; a bare list is of questions."""
    root = {"questions": root} if isinstance(root, list) else root
    if not isinstance(root, dict) or not set(root) <= set(LISTS) or not all(isinstance(v, list) for v in root.values()):
        raise DefinitionRefused([f"{path.name} holds something else than the lists {_LISTED}."])
    yield from root.items()


_LISTED = " and ".join([", ".join([*LISTS][:-1]), [*LISTS][-1]])


def _model(kind: str) -> type[Definition] | type[ScorecardDefinition]:
    return ScorecardDefinition if kind == "scorecards" else Definition


def _toml_entries(path: Path, text: str) -> Iterator[_Entry]:
    try:
        root = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionRefused([f"{path.name} is no TOML: {error}."]) from None
    for kind, told in _lists(path, root):
        heads = [match.start() for match in re.finditer(rf"^[ \t]*\[\[\s*{kind}\s*\]\]", text, re.MULTILINE)]
        heads += [text.find(kind)] * (len(told) - len(heads))
        for one, first in zip(told, heads, strict=False):
            following = _TOP.search(text, text.find("\n", first) + 1 or len(text))
            yield _Entry(_typed(one, kind), first, following.start() if following else len(text), _model(kind))


def _json_entries(path: Path, text: str) -> Iterator[_Entry]:
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DefinitionRefused([f"{path.name} is no JSON: {error}."]) from None
    decoder = json.JSONDecoder()
    for kind, told in _lists(path, root):
        at = text.find("[", text.find(f'"{kind}"') if isinstance(root, dict) else 0) + 1
        for one in told:
            at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
            _, end = decoder.raw_decode(text, at)
            yield _Entry(_typed(one, kind), at, end, _model(kind))
            at = end


def _faults(entry: _Entry, text: str, is_json: bool) -> Iterator[tuple[int, str]]:
    """Each with the line of the field that it is about."""
    try:
        entry.model.model_validate(entry.told)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            field, told = told_fault(one, entry.model)
            if field == "items" and len(one["loc"]) > 1:
                yield _line(text, _item_at(entry, text, int(one["loc"][1]))), told
                continue
            pattern = (
                rf'"{re.escape(field)}"\s*:' if is_json else rf"^[ \t]*\[?[\w.]*\b{re.escape(field)}\b[^=\n]*[=\]]"
            )
            match = re.compile(pattern, re.MULTILINE).search(text, entry.first, entry.last) if field else None
            at = match.start() + len(match[0]) - len(match[0].lstrip()) if match else entry.first
            yield _line(text, at), told


_ITEM = re.compile(r'\bquestion"?\s*[=:]')


def _item_at(entry: _Entry, text: str, item: int) -> int:
    """The character at which an item of a scorecard is, or the scorecard begins where the items cannot be told."""
    heads = [one.start() for one in _ITEM.finditer(text, entry.first, entry.last)]
    return heads[item] if len(heads) == len(entry.told["items"]) else entry.first


def told_fault(
    fault: Mapping[str, Any], model: type[Definition] | type[ScorecardDefinition] = Definition
) -> tuple[str, str]:
    """The field that a fault of pydantic is about, and the sentence for people."""
    loc = [_CAMEL.sub(r"_\g<0>", part).lower() if isinstance(part, str) else part for part in fault["loc"]]
    field = str(loc[0]) if loc else ""
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not loc:
        named = re.match(r"(\w+): ", message)
        return named[1] if named else "", message
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc[1:])
    if fault["type"] == "extra_forbidden":
        fields = list((ScorecardItemDefinition if place else model).model_fields)
        near = get_close_matches(str(loc[-1]), fields, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(fields)}."
        return field, f"{field}{place} is not a field. {hint}"
    if fault["type"] == "missing":
        return field, f"{field}{place} is missing."
    value = fault.get("input")
    shown = f" (it is {value!r})" if isinstance(value, str | int | float) and len(str(value)) <= 60 else ""
    return field, f"{field}{place}: {message[:1].lower()}{message[1:]}{shown}."


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, max(at, 0)) + 1


def as_toml(defined: Iterable[Defined], teams: Mapping[str, str]) -> str:
    """A file that defines these; `teams`: names by id."""
    made = (_card_toml(one, teams) if isinstance(one, Scorecard) else _toml(one, teams) for one in defined)
    return "\n".join("\n".join(one) + "\n" for one in made)


def _card_toml(card: Scorecard, teams: Mapping[str, str]) -> Iterator[str]:
    yield "[[scorecards]]"
    plain = Scorecard("")
    for name in ("key", "title", "pass_mark", "outgoing", "languages", "teams"):
        value = getattr(card, name)
        if value != getattr(plain, name):
            yield f"{name} = {_toml_value(tuple(teams.get(one, one) for one in value) if name == 'teams' else value)}"
    yield "items = ["
    for item in card.items:
        said = {name: getattr(item, name) for name in ScorecardItem.__dataclass_fields__}
        blank = ScorecardItem("")
        told = {name: value for name, value in said.items() if value != getattr(blank, name)}
        yield f"  {_toml_value(told)},"
    yield "]"


def _toml(question: Question, teams: Mapping[str, str]) -> Iterator[str]:
    plain = Question(question.key)
    yield "[[trackers]]" if question.type == "tracker" else "[[questions]]"
    for name in Definition.model_fields:
        value = getattr(question, name)
        if name == "choices" or value == getattr(plain, name) != question.key or (name, value) == ("type", "tracker"):
            continue
        if name == "teams":
            value = tuple(teams.get(one, one) for one in value)
        yield f"{name} = {_toml_value(value)}"
    if question.choices:
        yield "[questions.choices]"
        for name, phrases in question.choices.items():
            yield f"{json.dumps(name, ensure_ascii=False)} = {_toml_value(phrases)}"


def _toml_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_name(name)} = {_toml_value(held)}" for name, held in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
