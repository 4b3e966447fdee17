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

from pipeline.domain.questions import (
    MAX_GAPS,
    Defined,
    Question,
    Scorecard,
    ScorecardItem,
    fault_of,
    faults_of,
    has_lone_star,
)
from serve_app.http.json_body import Body

MAX_PHRASES = 100  # of a question, including choices and `unless`
LISTS = {"questions": None, "trackers": "tracker", "scorecards": "scorecard"}  # name of a list: type of its items
_TOP = re.compile(r"^[ \t]*\[\[[^.\]]*\]\]", re.MULTILINE)  # start of a definition
_CAMEL = re.compile(r"(?<=[a-z])[A-Z]")


def _phrase(text: str) -> str:
    tidy = " ".join(text.split())
    if fault := fault_of(tidy):
        raise ValueError(fault)
    if has_lone_star(tidy):
        raise ValueError("must have each * at the end of a word, such as cancel*; write ... for words in between")
    if tidy.count("...") + tidy.count("…") > MAX_GAPS:
        raise ValueError(f"must contain ... max. {MAX_GAPS} times")
    return tidy


Phrase = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_phrase)]
Phrases = Annotated[list[Phrase], Field(max_length=MAX_PHRASES)]
Minutes = Annotated[float, Field(gt=0, le=600, strict=False)]
ChoiceName = Annotated[str, Field(min_length=1, max_length=100)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
KEY = "Lower-case letters, digits, dots, dashes and _; cannot be changed."
Languages = Annotated[list[Annotated[str, Field(pattern="^[a-z]{2}$")]], Field(max_length=50)]
Teams = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)]
Weight = Annotated[float, Field(ge=0, le=100, strict=False)]
NOT_CHOICES = ("n/a", "not said")  # reserved in corrections and scores


class Definition(Body):
    """A question or tracker."""

    key: Key = Field(description=KEY)
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] = "yes/no"
    question: str = Field("", max_length=500, description="The question for the language model.")
    party: Literal["rep", "customer", "anyone"] = Field("anyone", description="Party whose words count.")
    first: Minutes | None = Field(None, description="Only the first minutes, from the first human word.")
    last: Minutes | None = Field(None, description="Only the last minutes, up to the last human word.")
    outgoing: bool | None = Field(None, description="true: outbound calls only; false: inbound calls only.")
    languages: Languages = Field(default=[], description="Only calls in these languages (ISO 639-1).")
    teams: Teams = Field(default=[], description="Only calls of these teams: ids or names.")
    phrases: Phrases = Field(
        default=[],
        description="Phrases that answer it, in any inflection; word* matches any ending, ... up to five words.",
    )
    unless: Phrases = Field(default=[], description="Ignore a phrase in a sentence with one of these.")
    choices: dict[ChoiceName, Phrases] = Field(
        default={}, max_length=50, description="Type choice only: each answer with its phrases."
    )
    finding: Literal["recording_notice"] | None = Field(
        None, description="Trackers only, instead of phrases: the call is said to be recorded, by a machine or a party."
    )
    required: bool = Field(False, description="Trackers only: raised if it is not said.")
    weight: Weight = 1.0

    @model_validator(mode="after")
    def _together(self) -> Self:
        for wrong in self._faults():
            raise ValueError(wrong)
        return self

    def _faults(self) -> Iterator[str]:
        """Yield faults; each starts with the name of its field."""
        yield from self._tracker_faults()
        if self.type != "tracker" and not self.question.strip():
            yield 'question: required, such as "Did the agent offer an appointment?"'
        if self.type == "choice":
            if len(self.choices) < 2:
                yield "choices: the type choice requires two or more, each with its phrases or [] for the model."
            for name in NOT_CHOICES:
                if name in self.choices:
                    yield f"choices: {name!r} is reserved for calls without an answer."
            if self.phrases:
                yield "phrases: with the type choice, phrases belong to the choices."
        elif self.choices:
            yield "choices: allowed for the type choice only."
        if sum(map(len, (self.phrases, self.unless, *self.choices.values()))) > MAX_PHRASES:
            yield f"phrases: max. {MAX_PHRASES} per question; split it."

    def _tracker_faults(self) -> Iterator[str]:
        if self.type != "tracker":
            yield from (
                f"{name}: allowed for trackers only." for name in ("required", "finding") if getattr(self, name)
            )
        elif not self.phrases and not self.finding:
            yield "phrases: required for a tracker."
        elif self.finding and (self.phrases or self.unless or self.party != "anyone" or self.first or self.last):
            yield "finding: without phrases, unless, party, first and last, which it does not use."

    def domain(self, teams: Mapping[str, UUID]) -> Question:
        """Return the question. `teams`: ids by lower-case name and id. Raises `DefinitionRefused` for unknown teams."""
        values = self.model_dump() | {"teams": _ids(self.teams, teams)}
        lists = {name: tuple(values[name]) for name in ("languages", "phrases", "unless")}
        choices = {name: tuple(phrases) for name, phrases in self.choices.items()}
        return Question(**values | lists | {"choices": choices})


class ScorecardItemDefinition(Body):
    """A question or tracker on a scorecard."""

    question: Key = Field(description="Key of the question.")
    section: str = Field("", max_length=100)
    weight: Weight | None = Field(None, description="Unset: the weight of the question.")
    points: dict[ChoiceName, Annotated[float, Field(ge=0, le=1, strict=False)]] = Field(
        default={},
        max_length=60,
        description="Share of the weight that an outcome earns: yes, no, a choice, said, not said; others earn "
        "nothing. Unset: yes and said; for a tracker the outcome that does not raise it.",
    )
    auto_fail: bool = Field(False, description="The call scores 0 if this earns nothing.")


class ScorecardDefinition(Body):
    """A scorecard of questions and trackers."""

    key: Key = Field(description=KEY)
    type: Literal["scorecard"] = "scorecard"
    title: str = Field(min_length=1, max_length=200)
    pass_mark: Annotated[float, Field(ge=0, le=100, strict=False)] | None = Field(
        None, description="Min. score to pass, 0 to 100."
    )
    outgoing: bool | None = Field(None, description="true: outbound calls only; false: inbound calls only.")
    languages: Languages = Field(default=[], description="Only calls in these languages (ISO 639-1).")
    teams: Teams = Field(default=[], description="Only calls of these teams: ids or names.")
    items: list[ScorecardItemDefinition] = Field(min_length=1, max_length=100)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        keys = [item.question for item in self.items]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ValueError(f"items: {twice[0]!r} is repeated.")
        return self

    def domain(self, teams: Mapping[str, UUID]) -> Scorecard:
        """Return the scorecard. `teams`: ids by lower-case name and id. Raises `DefinitionRefused`."""
        items = tuple(ScorecardItem(**item.model_dump()) for item in self.items)
        values = {"teams": _ids(self.teams, teams), "languages": tuple(self.languages), "items": items}
        return Scorecard(**self.model_dump() | values)


def _ids(names: Iterable[str], teams: Mapping[str, UUID]) -> tuple[str, ...]:
    if unknown := [name for name in names if name.casefold() not in teams]:
        raise DefinitionRefused([f"teams: the workspace has no team {unknown[0]!r}."])
    return tuple(str(teams[name.casefold()]) for name in names)


class DefinitionRefused(ValueError):
    """Invalid definitions; `faults` has a sentence for each fault."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(" ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class _Entry:
    """A definition in a file, with its position."""

    value: Any
    first: int  # character of the text
    last: int
    model: type[Definition] | type[ScorecardDefinition]


def read_file(path: Path, teams: Mapping[str, UUID], existing: Iterable[Question] = ()) -> list[Defined]:
    """Return the definitions of a file. `existing`: further questions for its scorecards.

    Raises `DefinitionRefused` with every fault and its line, `OSError`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DefinitionRefused([f"{path.name} is not UTF-8 text. Save it as UTF-8."]) from None
    entries = list(_json_entries(path, text) if path.suffix == ".json" else _toml_entries(path, text))
    faults: list[str] = []
    definitions: list[tuple[_Entry, Defined]] = []
    lines: dict[str, int] = {}
    for entry in entries:
        for line, fault in _faults(entry, text, path.suffix == ".json"):
            faults.append(f"{path.name}, line {line}: {fault}")
        if faults:
            continue
        line = _line(text, entry.first)
        try:
            definition = entry.model.model_validate(entry.value).domain(teams)
        except DefinitionRefused as error:
            faults += [f"{path.name}, line {line}: {fault}" for fault in error.faults]
            continue
        if definition.key in lines:
            faults.append(
                f"{path.name}, line {line}: the key {definition.key!r} is already used in line {lines[definition.key]}."
            )
        lines[definition.key] = line
        definitions.append((entry, definition))
    if not entries:
        faults.append(f"{path.name} has no definition. Start a question with the line [[questions]].")
    faults = faults or [
        f"{path.name}, line {line}: {fault}" for line, fault in _card_faults(definitions, text, existing)
    ]
    if faults:
        raise DefinitionRefused(faults)
    return [definition for _, definition in definitions]


def _card_faults(
    definitions: Iterable[tuple[_Entry, Defined]], text: str, existing: Iterable[Question]
) -> Iterator[tuple[int, str]]:
    """Yield faults of scorecards whose questions neither the file nor the workspace has."""
    defined: dict[str, Defined] = {question.key: question for question in existing}
    defined |= {definition.key: definition for _, definition in definitions}
    by_key = {key: definition for key, definition in defined.items() if isinstance(definition, Question)}
    for entry, card in definitions:
        if isinstance(card, Scorecard):
            for at, fault in faults_of(card, by_key):
                yield _line(text, _item_at(entry, text, at)), fault


def _typed(item: Any, kind: str) -> Any:
    """Return the item with the type of its list, and without the version that `show` prints."""
    if not isinstance(item, dict):
        return item
    of_list = {"type": type_} if (type_ := LISTS[kind]) else {}
    return {name: value for name, value in item.items() if name != "version"} | of_list


def _lists(path: Path, root: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists `questions`, `trackers` and `scorecards`; a bare list has questions."""
    root = {"questions": root} if isinstance(root, list) else root
    if not isinstance(root, dict) or not set(root) <= set(LISTS) or not all(isinstance(v, list) for v in root.values()):
        raise DefinitionRefused([f"{path.name} must contain only the lists {_LISTED}."])
    yield from root.items()


_LISTED = " and ".join([", ".join([*LISTS][:-1]), [*LISTS][-1]])


def _model(kind: str) -> type[Definition] | type[ScorecardDefinition]:
    return ScorecardDefinition if kind == "scorecards" else Definition


def _toml_entries(path: Path, text: str) -> Iterator[_Entry]:
    try:
        root = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionRefused([f"{path.name} is not valid TOML: {error}."]) from None
    for kind, items in _lists(path, root):
        heads = [match.start() for match in re.finditer(rf"^[ \t]*\[\[\s*{kind}\s*\]\]", text, re.MULTILINE)]
        heads += [text.find(kind)] * (len(items) - len(heads))
        for item, first in zip(items, heads, strict=False):
            following = _TOP.search(text, text.find("\n", first) + 1 or len(text))
            yield _Entry(_typed(item, kind), first, following.start() if following else len(text), _model(kind))


def _json_entries(path: Path, text: str) -> Iterator[_Entry]:
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DefinitionRefused([f"{path.name} is not valid JSON: {error}."]) from None
    decoder = json.JSONDecoder()
    for kind, items in _lists(path, root):
        at = text.find("[", text.find(f'"{kind}"') if isinstance(root, dict) else 0) + 1
        for item in items:
            at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
            _, end = decoder.raw_decode(text, at)
            yield _Entry(_typed(item, kind), at, end, _model(kind))
            at = end


def _faults(entry: _Entry, text: str, is_json: bool) -> Iterator[tuple[int, str]]:
    """Yield faults with the line of their field."""
    try:
        entry.model.model_validate(entry.value)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            field, message = field_and_message(item, entry.model)
            if field == "items" and len(item["loc"]) > 1:
                yield _line(text, _item_at(entry, text, int(item["loc"][1]))), message
                continue
            pattern = (
                rf'"{re.escape(field)}"\s*:' if is_json else rf"^[ \t]*\[?[\w.]*\b{re.escape(field)}\b[^=\n]*[=\]]"
            )
            match = re.compile(pattern, re.MULTILINE).search(text, entry.first, entry.last) if field else None
            at = match.start() + len(match[0]) - len(match[0].lstrip()) if match else entry.first
            yield _line(text, at), message


_ITEM = re.compile(r'\bquestion"?\s*[=:]')


def _item_at(entry: _Entry, text: str, item: int) -> int:
    """Return the position of an item of a scorecard, or of the scorecard if items cannot be located."""
    heads = [match.start() for match in _ITEM.finditer(text, entry.first, entry.last)]
    return heads[item] if len(heads) == len(entry.value["items"]) else entry.first


def field_and_message(
    fault: Mapping[str, Any], model: type[Definition] | type[ScorecardDefinition] = Definition
) -> tuple[str, str]:
    """Return the field of a pydantic error, and a sentence."""
    loc = [_CAMEL.sub(r"_\g<0>", part).lower() if isinstance(part, str) else part for part in fault["loc"]]
    field = str(loc[0]) if loc else ""
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not loc:
        prefix = re.match(r"(\w+): ", message)
        return prefix[1] if prefix else "", message
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc[1:])
    if fault["type"] == "extra_forbidden":
        fields = list((ScorecardItemDefinition if place else model).model_fields)
        near = get_close_matches(str(loc[-1]), fields, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Fields: {', '.join(fields)}."
        return field, f"{field}{place} is not a field. {hint}"
    if fault["type"] == "missing":
        return field, f"{field}{place} is missing."
    value = fault.get("input")
    shown = f" (it is {value!r})" if isinstance(value, str | int | float) and len(str(value)) <= 60 else ""
    return field, f"{field}{place}: {message[:1].lower()}{message[1:]}{shown}."


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, max(at, 0)) + 1


def as_toml(defined: Iterable[Defined], teams: Mapping[str, str]) -> str:
    """Return a TOML file with the definitions. `teams`: names by id."""
    blocks = (
        _card_toml(definition, teams) if isinstance(definition, Scorecard) else _toml(definition, teams)
        for definition in defined
    )
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _card_toml(card: Scorecard, teams: Mapping[str, str]) -> Iterator[str]:
    yield "[[scorecards]]"
    plain = Scorecard("")
    for name in ("key", "title", "pass_mark", "outgoing", "languages", "teams"):
        value = getattr(card, name)
        if value != getattr(plain, name):
            if name == "teams":
                value = tuple(teams.get(team, team) for team in value)
            yield f"{name} = {_toml_value(value)}"
    yield "items = ["
    for item in card.items:
        values = {name: getattr(item, name) for name in ScorecardItem.__dataclass_fields__}
        blank = ScorecardItem("")
        set_values = {name: value for name, value in values.items() if value != getattr(blank, name)}
        yield f"  {_toml_value(set_values)},"
    yield "]"


def _toml(question: Question, teams: Mapping[str, str]) -> Iterator[str]:
    plain = Question(question.key)
    yield "[[trackers]]" if question.type == "tracker" else "[[questions]]"
    for name in Definition.model_fields:
        value = getattr(question, name)
        if name == "choices" or value == getattr(plain, name) != question.key or (name, value) == ("type", "tracker"):
            continue
        if name == "teams":
            value = tuple(teams.get(team, team) for team in value)
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
        return "{" + ", ".join(f"{_toml_name(name)} = {_toml_value(item)}" for name, item in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
