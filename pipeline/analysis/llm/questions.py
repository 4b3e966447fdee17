import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from pipeline.analysis.llm.answer import Quote, json_start, one_line
from pipeline.analysis.llm.client import NoAnswer
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.prompt import Message, PromptPart, enclosed, instructions_of
from pipeline.analysis.llm.reading import CONFIDENCE
from pipeline.analysis.questions.phrases import mean_confidence, numbers, tokens
from pipeline.analysis.questions.scope import AskedTurns, asked_turns
from pipeline.analysis.questions.step import NO_MODEL, plain, spoken_answer
from pipeline.analysis.rules import dates
from pipeline.analysis.talk import SpokenTurn, read
from pipeline.domain.answers import QuestionAnswer
from pipeline.domain.insight import Evidence, Material
from pipeline.domain.questions import Question
from pipeline.language.pack import straighten

MAX_ANSWER = 300  # characters
MAX_PER_QUOTE = 4  # questions: a greeting contains a name, a company and an offer of help
CUT_OFF = "the model's answer ended before this question"
NOT_BORNE_OUT = "the transcript does not support the model's answer"


class _StatedAnswer(BaseModel):
    model_config = ConfigDict(frozen=True)

    answer: str | float
    quote: Quote


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question under its short name, with the turns that may answer it."""

    name: str
    question: Question
    turns: AskedTurns


def asked(material: Material) -> list[AskedQuestion]:
    asked_questions: list[AskedQuestion] = []
    for question in material.roster.questions:
        turns = asked_turns(question, material) if question.type != "tracker" else None
        if isinstance(turns, AskedTurns):
            asked_questions.append(AskedQuestion(f"q{len(asked_questions) + 1}", question, turns))
    return asked_questions


def schema(questions: Sequence[AskedQuestion]) -> dict[str, Any]:
    quote = _object({"turn": {"type": "integer"}, "text": {"type": "string"}})

    def answer_schema(question: Question) -> dict[str, Any]:
        kinds: dict[str, dict[str, Any]] = {
            "yes/no": {"enum": ["yes", "no"], "type": "string"},
            "choice": {"enum": list(question.choices), "type": "string"},
            "number": {"type": "number"},
        }
        answer = kinds.get(question.type, {"type": "string"})
        return {"anyOf": [_object({"answer": answer, "quote": quote}), {"type": "null"}]}

    properties = {asked_question.name: answer_schema(asked_question.question) for asked_question in questions}
    return {"title": "Answers", **_object(properties)}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def messages(questions: Sequence[AskedQuestion], part: PromptPart) -> list[Message]:
    """Return the instructions with the questions, and the transcript in a block that no speaker can close."""
    system = instructions_of("questions").format(questions="\n".join(map(_line, questions)))
    return [
        {"role": "system", "content": f"{system}\nThe JSON schema of the object:\n{json.dumps(schema(questions))}"},
        {"role": "user", "content": enclosed(part.lines)},
    ]


def _line(asked_question: AskedQuestion) -> str:
    question = asked_question.question
    of = "" if question.party == "anyone" else f"; in words of the {question.party}"
    choices = f": {', '.join(question.choices)}" if question.choices else ""
    return f"{asked_question.name} ({question.type}{choices}{of}): {question.question}"


def answered(
    texts: Sequence[str], material: Material, asked_questions: Sequence[AskedQuestion], built: Sequence[QuestionAnswer]
) -> list[QuestionAnswer]:
    """Return the model's answers that the transcript supports, else those of the phrases (`built`).

    Raises `NoAnswer`.
    """
    answers: dict[str, QuestionAnswer] = {}
    missed: dict[str, str] = {}
    grounding = Grounding(material)
    for text in texts:
        stated_answers = stated(text)
        for asked_question in asked_questions:
            key, data = asked_question.question.key, stated_answers.get(asked_question.name)
            if key not in answers and (answer := _answer(asked_question, data, grounding, material)):
                answers[key] = answer
            elif asked_question.name not in stated_answers:
                missed[key] = CUT_OFF
            elif data is not None:
                missed.setdefault(key, NOT_BORNE_OUT)
    for key in _with_overused_quotes(answers):
        del answers[key]
        missed[key] = NOT_BORNE_OUT
    return [answers.get(by_phrases.key) or _by_phrases(by_phrases, missed.get(by_phrases.key)) for by_phrases in built]


def _with_overused_quotes(answers: Mapping[str, QuestionAnswer]) -> list[str]:
    """Return the questions whose quote answers too many others: a small model that fills in a form puts the words it
    has read last under every question.
    """
    uses = Counter(answer.evidence for answer in answers.values())
    return [key for key, answer in answers.items() if uses[answer.evidence] > MAX_PER_QUOTE]


def _by_phrases(answer: QuestionAnswer, missed: str | None) -> QuestionAnswer:
    """Return the phrases' answer. Without phrases the state is `not_said` if the whole model answer was read."""
    if answer.reason != NO_MODEL:
        return answer
    return replace(answer, state="not_asked" if missed == CUT_OFF else "not_said", reason=missed)


def unanswered(built: Sequence[QuestionAnswer], why: str) -> list[dict[str, Any]]:
    """Return the phrases' answers; those without phrases state why the model gave none."""
    reason = f"the language model gave no answer: {why}"
    return [plain(replace(answer, reason=reason) if answer.reason == NO_MODEL else answer) for answer in built]


def stated(text: str) -> Mapping[str, Any]:
    """Parse the answers as far as they are complete. Raises `NoAnswer`."""
    first = json_start(text)
    try:
        data = from_json(text[first:], allow_partial=True) if first >= 0 else None
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise NoAnswer("the model's answer to the questions is not JSON")
    return data


def _answer(asked: AskedQuestion, data: Any, grounding: Grounding, material: Material) -> QuestionAnswer | None:
    try:
        stated_answer = _StatedAnswer.model_validate(data)
    except ValidationError:
        return None  # null or truncated
    evidence = grounding.evidence(stated_answer.quote)
    turn = next((turn for turn in asked.turns.turns if evidence and turn.turn.index == evidence.turn), None)
    if evidence is None or turn is None or not asked.turns.holds(evidence):
        return None
    value = _value(asked.question, stated_answer.answer, evidence, turn, material)
    if value is None:
        return None
    confidence = round(CONFIDENCE * mean_confidence(evidence, turn), 2)
    return spoken_answer(asked.question, value, turn, evidence, "model", confidence)


def _value(
    question: Question, answer: str | float, evidence: Evidence, turn: SpokenTurn, material: Material
) -> str | float | None:
    text = one_line(str(answer), MAX_ANSWER)
    if question.type == "yes/no":
        return text.lower() if text.lower() in ("yes", "no") else None
    if question.type == "choice":
        return next((choice for choice in question.choices if choice.casefold() == text.casefold()), None)
    if question.type == "number":
        values = (number.value for number in numbers(straighten(evidence.quote), turn.pack))
        return next((value for value in values if _same(value, answer)), None)
    if question.type == "date":
        now = dates.local(material.call.start_time, material.roster.time_zone)
        due = dates.find(straighten(evidence.quote), turn.pack, now)
        return due.day.isoformat() if due and due.day else None
    spoken = {token.stem for token in tokens(_words(material), turn.turn.language[:2])}
    words = tokens(text, turn.turn.language[:2])
    return text if words and all(token.stem in spoken for token in words) else evidence.quote[:MAX_ANSWER]


def _same(value: str | float, answer: str | float) -> bool:
    try:
        return float(str(answer).replace(",", "")) == value
    except ValueError:
        return False


def _words(material: Material) -> str:
    return " ".join(turn.turn.text for turn in read(material))
