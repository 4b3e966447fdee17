"""Questions and trackers as people define them: in a file (TOML or JSON), or as a body; every fault with its line."""

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

from pipeline.domain.questions import Question
from serve_app.api.bodies import Body

MOST_PHRASES = 100  # of one question, choices and `unless` among them
MOST_GAPS = 3  # of one phrase
LISTS = {"questions": "question", "trackers": "tracker"}
_WORD = re.compile(r"[^\W_]")


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


class Definition(Body):
    """A question in plain words, or a tracker."""

    key: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Lower case letters, digits, dots, dashes, _; it stays."
    )
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] = "yes/no"
    question: str = Field("", max_length=500, description="In plain words; a model is asked this.")
    party: Literal["rep", "customer", "anyone"] = Field("anyone", description="Whose words count.")
    first: Minutes | None = Field(None, description="Only the first minutes, from the first word of a person.")
    last: Minutes | None = Field(None, description="Only the last minutes, before the last word of a person.")
    direction: Literal["incoming", "outgoing"] | None = Field(None, description="Of such calls only.")
    languages: list[Annotated[str, Field(pattern="^[a-z]{2}$")]] = Field(
        default=[], max_length=50, description="Of calls in these languages only (ISO 639-1)."
    )
    teams: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default=[], max_length=100, description="Of calls of these teams only: ids, or names."
    )
    phrases: Phrases = Field(
        default=[], description="Words that answer it, in any form; word* ends anyhow, ... is up to five words."
    )
    unless: Phrases = Field(default=[], description="A phrase does not count in a sentence with one of these.")
    choices: dict[ChoiceName, Phrases] = Field(
        default={}, max_length=50, description="Of the type choice: each answer with its phrases."
    )
    required: bool = Field(False, description="Of trackers: raised where it is not said.")
    weight: Annotated[float, Field(ge=0, le=100, strict=False)] = 1.0

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
        unknown = [one for one in self.teams if one.casefold() not in teams]
        if unknown:
            raise DefinitionRefused([f"teams: the workspace has no team {unknown[0]!r}."])
        values = self.model_dump() | {"teams": tuple(str(teams[one.casefold()]) for one in self.teams)}
        lists = {name: tuple(values[name]) for name in ("languages", "phrases", "unless")}
        choices = {name: tuple(phrases) for name, phrases in self.choices.items()}
        return Question(**values | lists | {"choices": choices})


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


def read_file(path: Path, teams: Mapping[str, UUID]) -> list[Question]:
    """The questions of a file. Raises `DefinitionRefused` with every fault and its line, `OSError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DefinitionRefused([f"{path.name} is no text in UTF-8. Save it so."]) from None
    entries = list(_json_entries(path, text) if path.suffix == ".json" else _toml_entries(path, text))
    faults: list[str] = []
    found: list[Question] = []
    lines: dict[str, int] = {}
    for entry in entries:
        for line, fault in _faults(entry, text, path.suffix == ".json"):
            faults.append(f"{path.name}, line {line}: {fault}")
        if faults:
            continue
        line = _line(text, entry.first)
        try:
            question = Definition.model_validate(entry.told).domain(teams)
        except DefinitionRefused as error:
            faults += [f"{path.name}, line {line}: {one}" for one in error.faults]
            continue
        if question.key in lines:
            faults.append(f"{path.name}, line {line}: the key {question.key!r} is that of line {lines[question.key]}.")
        lines[question.key] = line
        found.append(question)
    if not entries:
        faults.append(f"{path.name} defines nothing. Begin a question with the line [[questions]].")
    if faults:
        raise DefinitionRefused(faults)
    return found


def _typed(told: Any, kind: str) -> Any:
    """With the type that its list says; a version, as `show` prints it, is the database's."""
    if not isinstance(told, dict):
        return told
    of_list = {"type": "tracker"} if kind == "trackers" else {}
    return {name: value for name, value in told.items() if name != "version"} | of_list


def _lists(path: Path, root: Any) -> Iterator[tuple[str, list[Any]]]:
    """`questions` and `trackers`; a bare list is of questions."""
    root = {"questions": root} if isinstance(root, list) else root
    if not isinstance(root, dict) or not set(root) <= set(LISTS) or not all(isinstance(v, list) for v in root.values()):
        raise DefinitionRefused([f"{path.name} holds something else than the lists questions and trackers."])
    yield from root.items()


def _toml_entries(path: Path, text: str) -> Iterator[_Entry]:
    try:
        root = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionRefused([f"{path.name} is no TOML: {error}."]) from None
    for kind, told in _lists(path, root):
        heads = [match.start() for match in re.finditer(rf"^[ \t]*\[\[\s*{kind}\s*\]\]", text, re.MULTILINE)]
        heads += [text.find(kind)] * (len(told) - len(heads))
        for one, first in zip(told, heads, strict=False):
            following = re.compile(r"^[ \t]*\[\[", re.MULTILINE).search(text, text.find("\n", first) + 1 or len(text))
            yield _Entry(_typed(one, kind), first, following.start() if following else len(text))


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
            yield _Entry(_typed(one, kind), at, end)
            at = end


def _faults(entry: _Entry, text: str, is_json: bool) -> Iterator[tuple[int, str]]:
    """Each with the line of the field that it is about."""
    try:
        Definition.model_validate(entry.told)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            field, told = told_fault(one)
            pattern = (
                rf'"{re.escape(field)}"\s*:' if is_json else rf"^[ \t]*\[?[\w.]*\b{re.escape(field)}\b[^=\n]*[=\]]"
            )
            match = re.compile(pattern, re.MULTILINE).search(text, entry.first, entry.last) if field else None
            at = match.start() + len(match[0]) - len(match[0].lstrip()) if match else entry.first
            yield _line(text, at), told


def told_fault(fault: Mapping[str, Any]) -> tuple[str, str]:
    """The field that a fault of pydantic is about, and the sentence for people."""
    field = str(fault["loc"][0]) if fault["loc"] else ""
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"]:
        named = re.match(r"(\w+): ", message)
        return named[1] if named else "", message
    if fault["type"] == "extra_forbidden":
        near = get_close_matches(field, list(Definition.model_fields), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(Definition.model_fields)}."
        return field, f"{field} is not a field. {hint}"
    if fault["type"] == "missing":
        return field, f"{field} is missing."
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"][1:])
    value = fault.get("input")
    shown = f" (it is {value!r})" if isinstance(value, str | int | float) and len(str(value)) <= 60 else ""
    return field, f"{field}{place}: {message[:1].lower()}{message[1:]}{shown}."


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, max(at, 0)) + 1


def as_toml(questions: Iterable[Question], teams: Mapping[str, str]) -> str:
    """A file that defines these; `teams`: names by id."""
    return "\n".join("\n".join(_toml(one, teams)) + "\n" for one in questions)


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


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
