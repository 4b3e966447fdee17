"""Schema and parser of the model's answer.

Strict structured output requires every field and allows no other; an optional value is null.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from pipeline.domain.vocabulary import CallOutcome

MAX_FAULTS = 8  # reported to the model
MAX_STATEMENTS = 100  # of one kind in an answer; each further one would cost time to check
MAX_TITLE = 200  # characters of a title or a topic
_SENTENCE = 600
_ITEMS = {"tasks": 20, "quotes": 6, "summary": 6, "topics": 5, "tones": 4}
_CHARACTERS = {"title": MAX_TITLE, "value": MAX_TITLE, "text": _SENTENCE, "speaker": 60}

Party = Literal["rep", "customer", "other", "unknown"]
Mood = Literal["negative", "neutral", "positive"]
OUTCOMES: Mapping[CallOutcome, str] = {
    CallOutcome.VOICEMAIL: "a machine answered and nobody else",  # language: ok
    CallOutcome.WRONG_NUMBER: "",
    CallOutcome.FOLLOW_UP: "something is left to do",
    CallOutcome.REFUSED: "the customer declines what the call is about",
    CallOutcome.RESOLVED: "settled, nothing left",
}
"""What a model may state, explained where the name does not do it. A new entry is a new version of the findings."""
if TYPE_CHECKING:
    OutcomeName = str
else:
    OutcomeName = Literal[tuple(outcome.value for outcome in OUTCOMES)]


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_extra={"additionalProperties": False})


def _line(max_length: int) -> BeforeValidator:
    return BeforeValidator(lambda value: one_line(value, max_length) if isinstance(value, str) else value)


def one_line(text: str, max_length: int) -> str:
    """Return the printable characters of a model's text on one line."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:max_length]


_FIRST = AfterValidator(lambda statements: statements[:MAX_STATEMENTS])
Title = Annotated[str, _line(MAX_TITLE)]
Text = Annotated[str, _line(_SENTENCE)]


class Quote(_Stated):
    turn: int = Field(description="Number of the turn, as in the brackets.")
    text: str = Field(description="Words of that turn, copied exactly and without gaps.")


class StatedTask(_Stated):
    title: Title = Field(description="What is to be done, as short as a line on a list.")
    owner: Party = Field(description="Who does it.")
    beneficiary: Party | None = Field(description="For whom, or null.")
    kind: Literal["commitment", "request", "follow-up", "appointment"]
    due: Quote | None = Field(description="The words that say until when, wherever they are said, or null.")
    quote: Quote


class StatedFact(_Stated):
    value: Title = Field(description="As it would be written down.")
    quotes: list[Quote] = Field(description="Where it is said: one quote, more where it is said in several turns.")


class StatedContact(_Stated):
    name: StatedFact | None
    company: StatedFact | None
    email: StatedFact | None
    phone: StatedFact | None
    address: StatedFact | None


class StatedSentence(_Stated):
    text: Text
    quote: Quote = Field(description="The words that bear the sentence out.")


class StatedTopic(_Stated):
    text: Title = Field(description="One to three words.")
    quote: Quote


class StatedTone(_Stated):
    speaker: str = Field(description="The speaker's label, as in the transcript.")
    label: Mood
    quote: Quote = Field(description="The words that show it best.")


class StatedOutcome(_Stated):
    name: OutcomeName
    quote: Quote


class ModelAnswer(_Stated, title="Answer"):
    """What the model states about one part of a transcript."""

    tasks: Annotated[list[StatedTask], _FIRST]
    contact: StatedContact
    summary: Annotated[list[StatedSentence], _FIRST]
    topics: Annotated[list[StatedTopic], _FIRST]
    tones: Annotated[list[StatedTone], _FIRST]
    outcome: StatedOutcome | None


_LISTED: dict[str, type[_Stated]] = {
    "tasks": StatedTask,
    "summary": StatedSentence,
    "topics": StatedTopic,
    "tones": StatedTone,
}


@cache
def schema(limited: bool = True) -> dict[str, Any]:
    """Return the JSON schema of `ModelAnswer`; `limited` adds maximum lengths, so that no model generates without end.

    The parser accepts longer answers: a server without support for limits gets the schema without them.
    """
    model_schema = ModelAnswer.model_json_schema()
    objects = [model_schema, *model_schema["$defs"].values()] if limited else []
    for name, described in (item for definition in objects for item in definition.get("properties", {}).items()):
        if described.get("type") == "array":
            described["maxItems"] = _ITEMS[name]
        elif name in _CHARACTERS and described.get("type") == "string":
            described["maxLength"] = _CHARACTERS[name]
    return model_schema


class UnreadableAnswer(Exception):
    """The text is not a `ModelAnswer`. The message is sent to the model."""


def json_start(text: str) -> int:
    """Return the index of the first brace after a model's thoughts; -1 without one."""
    is_answer = text.lstrip()[:1] in ("{", "`")
    return text.find("{", 0 if is_answer else text.rfind("</think>") + 1)


def complete_items(text: str) -> tuple[ModelAnswer, int]:
    """Return the complete items of a truncated answer, and the number of its statements; the rest is empty."""
    first = json_start(text)
    try:
        data = from_json(text[first:], allow_partial=True) if first >= 0 else {}
    except ValueError:
        data = {}
    data = data if isinstance(data, dict) else {}
    complete: dict[str, Any] = {"outcome": None}
    for name, model in _LISTED.items():
        listed = data.get(name)
        complete[name] = [item for item in listed if _whole(model, item)] if isinstance(listed, list) else []
    contact = data.get("contact")
    contact = contact if isinstance(contact, dict) else {}
    complete["contact"] = {
        name: contact[name] if _whole(StatedFact, contact.get(name)) else None for name in StatedContact.model_fields
    }
    complete["outcome"] = data.get("outcome") if _whole(StatedOutcome, data.get("outcome")) else None
    items = sum(map(len, (complete["tasks"], complete["summary"], complete["topics"], complete["tones"])))
    items += sum(map(bool, complete["contact"].values())) + bool(complete["outcome"])
    return ModelAnswer.model_validate(complete), items


def _whole(model: type[_Stated], value: Any) -> bool:
    try:
        model.model_validate(value)
    except ValidationError:
        return False
    return True


def parsed(text: str) -> ModelAnswer:
    """Parse an answer: JSON, possibly after reasoning or in a code fence. Raises `UnreadableAnswer`."""
    first = json_start(text)
    if first < 0:
        raise UnreadableAnswer("There is no JSON object in it.")
    try:
        data, _ = json.JSONDecoder().raw_decode(text, first)
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"It is not JSON: {error}") from None
    try:
        return ModelAnswer.model_validate(data)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)[:MAX_FAULTS]
        details = "; ".join(f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in faults)
        raise UnreadableAnswer(f"It does not fit the schema: {details}") from None
