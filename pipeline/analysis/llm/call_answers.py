"""A question about several calls: which turns a model reads, and which sentences of its answer they support."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.analysis.engine import AnalysisOptions
from pipeline.analysis.llm.answer import Quote, Text, one_line
from pipeline.analysis.llm.asking import key_of
from pipeline.analysis.llm.grounding import spoken_words
from pipeline.analysis.llm.prompt import Message, enclosed, instructions_of, lines_of, tokens
from pipeline.analysis.llm.questions import stated
from pipeline.analysis.llm.wording import figures, stems
from pipeline.domain.insight import Evidence, ModelRequest
from pipeline.domain.speech import Transcript, Turn
from pipeline.language.pack import pack

MAX_SENTENCES = 8  # of an answer
MAX_QUOTES = 4  # of a sentence
MIN_QUOTED_WORDS = 2  # fewer support a sentence only if they are the whole turn: "the" is in every call
SHARE = 4  # max. one in so many tokens of the excerpts is one line
SMOOTHING = 60  # of reciprocal rank fusion, https://doi.org/10.1145/1571941.1572114


@dataclass(frozen=True, slots=True)
class SimilarTurns:
    """Consecutive turns that are similar to the question, and their similarity."""

    first: int
    last: int
    similarity: float


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that may answer the question."""

    call_id: UUID
    start_time: datetime
    transcript: Transcript
    similar: tuple[SimilarTurns, ...] = ()


@dataclass(frozen=True, slots=True)
class NumberedTurn:
    """A turn under its number in the prompt, and its lines there."""

    number: int
    call: int  # its place among the calls
    turn: Turn
    lines: tuple[str, ...]

    @property
    def size(self) -> int:
        """Tokens of its lines."""
        return sum(map(tokens, self.lines))


@dataclass(frozen=True, slots=True)
class Excerpts:
    """What a model reads of the calls. `complete`: all of their words."""

    calls: tuple[tuple[UUID, datetime], ...]  # id and start, by place
    turns: tuple[NumberedTurn, ...]
    complete: bool

    @property
    def call_ids(self) -> tuple[UUID, ...]:
        """Ids of the calls of the turns."""
        return tuple(self.calls[call][0] for call in dict.fromkeys(turn.call for turn in self.turns))


@dataclass(frozen=True, slots=True)
class SupportedSentence:
    """A sentence of the answer, and the words that support it, each with its call and speaker."""

    text: str
    quotes: tuple[tuple[UUID, str, Evidence], ...]


class _StatedSentence(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_extra={"additionalProperties": False})

    text: Text
    quotes: list[Quote] = Field(description="The words that bear the sentence out.")


class _StatedAnswer(BaseModel):
    model_config = ConfigDict(frozen=True, title="Answer", json_schema_extra={"additionalProperties": False})

    sentences: list[_StatedSentence]


def choose(question: str, calls: Sequence[AskedCall], max_tokens: int) -> Excerpts:
    """Return all turns of the calls, or those most relevant to the question that fit into `max_tokens`."""
    turns = _numbered(calls, max_tokens)
    room = max_tokens - sum(tokens(_head(place, call.start_time)) for place, call in enumerate(calls))
    chosen = {turn.number for turn in turns}
    complete = sum(turn.size for turn in turns) <= room
    if not complete:
        chosen = set()
        for number in _with_neighbors(_by_relevance(question, turns, calls), turns):
            size = turns[number].size
            if number not in chosen and size <= room:
                chosen.add(number)
                room -= size
    ids = tuple((call.call_id, call.start_time) for call in calls)
    return Excerpts(ids, tuple(turn for turn in turns if turn.number in chosen), complete)


def _numbered(calls: Sequence[AskedCall], max_tokens: int) -> list[NumberedTurn]:
    turns: list[NumberedTurn] = []
    for place, call in enumerate(calls):
        for turn in call.transcript.turns:
            number = len(turns)
            lines = tuple(lines_of(replace(turn, index=number), call.transcript, max_tokens // SHARE))
            turns.append(NumberedTurn(number, place, turn, lines))
    return turns


def _by_relevance(question: str, turns: Sequence[NumberedTurn], calls: Sequence[AskedCall]) -> list[int]:
    """Return the numbers of all turns, the most relevant first; those without relevance in their order."""
    scores = dict[int, float]()
    for ranked in (_ranked(_word_scores(question, turns)), _ranked(_similarities(turns, calls))):
        for rank, number in enumerate(ranked):
            scores[number] = scores.get(number, 0.0) + 1 / (SMOOTHING + rank)
    return [*_ranked(scores), *(turn.number for turn in turns if turn.number not in scores)]


def _ranked(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda number: (-scores[number], number))


def _word_scores(question: str, turns: Sequence[NumberedTurn]) -> dict[int, float]:
    """Return the turns with words of the question; a rare word counts more than a frequent one."""
    shared = {}
    for numbered in turns:
        words = pack(numbered.turn.language)
        shared[numbered.number] = stems(question, words) & stems(numbered.turn.text, words)
    frequency = Counter(stem for turn_stems in shared.values() for stem in turn_stems)
    weights = {stem: math.log(1 + len(turns) / count) for stem, count in frequency.items()}
    return {number: sum(map(weights.__getitem__, turn_stems)) for number, turn_stems in shared.items() if turn_stems}


def _similarities(turns: Sequence[NumberedTurn], calls: Sequence[AskedCall]) -> dict[int, float]:
    best: dict[int, float] = {}
    for numbered in turns:
        for similar in calls[numbered.call].similar:
            if similar.first <= numbered.turn.index <= similar.last:
                best[numbered.number] = max(best.get(numbered.number, 0.0), similar.similarity)
    return best


def _with_neighbors(numbers: Iterable[int], turns: Sequence[NumberedTurn]) -> Iterable[int]:
    """Yield each turn, then the turns before and after it in its call: a question and its answer belong together."""
    for number in numbers:
        yield number
        for near in (number - 1, number + 1):
            if 0 <= near < len(turns) and turns[near].call == turns[number].call:
                yield near


def request(question: str, excerpts: Excerpts, options: AnalysisOptions) -> ModelRequest:
    """Return the request for a language model."""
    prompt = messages(question, excerpts)
    words = sum(len(line.split()) for turn in excerpts.turns for line in turn.lines)
    return ModelRequest(key_of(options, prompt), "ask", tuple(prompt), schema(), words)


def schema() -> dict[str, Any]:
    """Return the JSON schema of the answer."""
    return _StatedAnswer.model_json_schema()


def messages(question: str, excerpts: Excerpts) -> list[Message]:
    """Return the instructions with the question, and the excerpts in a block that no speaker can close."""
    lines: list[str] = []
    place = None
    for turn in excerpts.turns:
        if turn.call != place:
            place = turn.call
            lines.append(_head(place, excerpts.calls[place][1]))
        lines += turn.lines
    system = instructions_of("ask").format(question=one_line(question, len(question)))
    return [
        {"role": "system", "content": f"{system}\nThe JSON schema of the object:\n{json.dumps(schema())}"},
        {"role": "user", "content": enclosed(lines)},
    ]


def _head(place: int, start: datetime) -> str:
    return f"Call {place + 1} of {start:%Y-%m-%d %H:%M}:"


def supported(text: str, question: str, excerpts: Excerpts) -> list[SupportedSentence]:
    """Return the sentences of a model's answer with the quotes that are in the turns; the others are dropped.

    Raises `NoAnswer` if the text is not JSON.
    """
    turns = {turn.number: turn for turn in excerpts.turns}
    items = stated(text).get("sentences")
    sentences = (_supported(item, question, excerpts, turns) for item in (items if isinstance(items, list) else ()))
    return [sentence for sentence in sentences if sentence is not None][:MAX_SENTENCES]


def _supported(
    item: Any, question: str, excerpts: Excerpts, turns: Mapping[int, NumberedTurn]
) -> SupportedSentence | None:
    try:
        sentence = _StatedSentence.model_validate(item)
    except ValidationError:
        return None  # truncated, or not of the schema
    quoted: list[NumberedTurn] = []
    quotes: list[tuple[UUID, str, Evidence]] = []
    for stated_quote in sentence.quotes[:MAX_QUOTES]:
        turn = turns.get(stated_quote.turn)
        evidence = None if turn is None else spoken_words(turn.turn, stated_quote.text)
        if turn is not None and evidence is not None and _is_enough(evidence, turn.turn):
            quoted.append(turn)
            quotes.append((excerpts.calls[turn.call][0], turn.turn.speaker, evidence))
    if not sentence.text or not quotes or not _has_figures_of(sentence.text, question, excerpts, quoted):
        return None
    return SupportedSentence(sentence.text, tuple(quotes))


def _is_enough(evidence: Evidence, turn: Turn) -> bool:
    return len(evidence.quote.split()) >= MIN_QUOTED_WORDS or evidence.quote.strip() == turn.text.strip()


def _has_figures_of(sentence: str, question: str, excerpts: Excerpts, quoted: Sequence[NumberedTurn]) -> bool:
    """Return whether every number of a sentence is in the quoted turns, the question or the dates of the calls."""
    allowed: set[str] = set()
    for numbered in quoted:
        words, start = pack(numbered.turn.language), excerpts.calls[numbered.call][1]
        allowed |= figures(numbered.turn.text, words) | figures(question, words)
        allowed |= {str(start.year), str(start.month), str(start.day)}
    return all(figures(sentence, pack(numbered.turn.language)) <= allowed for numbered in quoted)
