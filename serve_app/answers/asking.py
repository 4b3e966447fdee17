"""Answers a question about stored calls with the language model of the settings, in sentences that turns support.

The model reads what the reader may read: the transcripts as stored, redacted and corrected, of calls in its scope.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from db.core.database import Database, Reader
from db.search import semantic
from db.search.call_list import CallFilter
from db.search.semantic import OtherModel, RelevantCall, RelevantCalls
from pipeline import analysis
from pipeline.analysis import AnalysisOptions
from pipeline.analysis.engine import ReservedRequest
from pipeline.analysis.llm import call_answers
from pipeline.analysis.llm.asking import BUDGET_REACHED
from pipeline.analysis.llm.call_answers import AskedCall, Excerpts, SimilarTurns, SupportedSentence
from pipeline.analysis.llm.client import NoAnswer
from pipeline.domain.insight import ModelRequest, ModelText
from serve_app.http.worker import Worker
from serve_app.operations.model_spending import ModelSpending, WorkspaceSpending
from serve_app.records.query_embedding import QueryEmbedder, SwitchedOff

MAX_CALLS = 20  # whose words are read for one question
MAX_ANSWER_TOKENS = 1024
REPEAT_SECONDS = 300.0  # within which the same question about the same words is not sent to the model again
MAX_REPEATED = 100  # answers that are kept for that
NOTHING = "Nothing in the calls that were read supports an answer."
NO_CALLS = "No call with a transcript matches."

Note = Callable[[Sequence[UUID]], Awaitable[None]]
"""Records that the words of calls are about to be read."""


@dataclass(frozen=True, slots=True)
class AnsweringModel:
    """The language model that answers, and the prices of a million tokens of its prompts and of its answers."""

    options: AnalysisOptions = field(default_factory=AnalysisOptions)
    prices: tuple[float, float] = (0.0, 0.0)


class ModelOff(Exception):
    """No language model is configured."""


class ModelFailed(Exception):
    """The language model gave no usable answer; the message says why."""


class BudgetSpent(Exception):
    """The workspace's budget for the language model is used up; the message says which."""


@dataclass(frozen=True, slots=True)
class AnswerQuote:
    """Words of a turn that support the answer."""

    call_id: UUID
    turn: int
    speaker: str
    start: float
    end: float
    text: str


@dataclass(slots=True)
class ModelSpend:
    """Requests and tokens that a question cost; none if the same question was answered a few minutes before.

    `estimated`: the endpoint reported no usage for one of them.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class CallsAnswer:
    """An answer from quoted turns.

    `answer` None: nothing supports one, and `reason` says what was looked at. `matched`: calls that match the filters,
    up to 1,000 of those with words or names. `read`: calls of which the model has read words. `complete`: it has read
    all words of all matching calls with a transcript.
    """

    answer: str | None
    reason: str | None
    quotes: tuple[AnswerQuote, ...]
    matched: int
    read: int
    complete: bool
    chosen_by: Literal["meaning", "words"]
    model: str
    spend: ModelSpend


@dataclass(frozen=True, slots=True)
class _Meter:
    """A `pipeline.analysis.engine.Spending` that also adds up one question."""

    spending: WorkspaceSpending
    spend: ModelSpend

    async def reserve(self, prompt_tokens: int, completion_tokens: int) -> "_MeteredRequest":
        reserved = await self.spending.reserve(prompt_tokens, completion_tokens)
        self.spend.requests += 1
        return _MeteredRequest(self, reserved)


@dataclass(frozen=True, slots=True)
class _MeteredRequest:
    meter: _Meter
    reserved: ReservedRequest

    async def settle(self, prompt_tokens: int, completion_tokens: int, estimated: bool = False) -> None:
        await self.reserved.settle(prompt_tokens, completion_tokens, estimated)
        spend = self.meter.spend
        spend.prompt_tokens += prompt_tokens
        spend.completion_tokens += completion_tokens
        spend.cost += self.meter.spending.of.tokens(prompt_tokens, completion_tokens).cost
        spend.estimated |= estimated


class CallAsker:
    """Answers questions about calls. Belongs to one event loop."""

    def __init__(self, database: Database, model: AnsweringModel, embedder: QueryEmbedder, worker: Worker) -> None:
        self._database, self._options, self._embedder, self._worker = database, model.options, embedder, worker
        self._spending = ModelSpending(database, model.prices, lambda step: step())
        self._texts: dict[str, ModelText] = {}  # by request

    async def ask(self, reader: Reader, question: str, filters: CallFilter, note: Note, seconds: float) -> CallsAnswer:
        """Return the answer within `seconds`; `note` is awaited before the model reads a word.

        Raises `ModelOff`, `ModelFailed`, `BudgetSpent`, `EmbedderNotReady` and `TimeoutError`.
        """
        if not analysis.asks_model(self._options):
            raise ModelOff
        ends = time.monotonic() + seconds
        async with asyncio.timeout(seconds):
            by_meaning, calls = await self._calls(reader, question, filters)
            room = self._options.max_transcript_tokens
            excerpts: Excerpts = await self._worker.run(excerpts_of, question, calls.calls, room)
            spend, sentences = ModelSpend(), list[SupportedSentence]()
            if excerpts.turns:
                await note(excerpts.call_ids)
                spending = _Meter(self._spending.of(reader.workspace_id), spend)
                sentences = await self._sentences(question, excerpts, spending, ends - time.monotonic())
        return CallsAnswer(
            " ".join(sentence.text for sentence in sentences) or None,
            None if sentences else NOTHING if excerpts.turns else NO_CALLS,
            _quotes(sentences),
            calls.matched,
            len(excerpts.call_ids),
            excerpts.complete and not calls.more,
            "meaning" if by_meaning else "words",
            self._options.model or self._options.engine,
            spend,
        )

    async def _calls(self, reader: Reader, question: str, filters: CallFilter) -> tuple[bool, RelevantCalls]:
        """Return the calls, and whether they were chosen by meaning."""
        choosing = (self._database, reader, question, filters, MAX_CALLS)
        if filters.text is None and filters.name is None:
            try:
                vector = await self._embedder.vector(question)
                return True, await semantic.relevant_calls(*choosing, vector)
            except (SwitchedOff, OtherModel):  # not indexed yet: `chosen_by` says so
                pass
        return False, await semantic.relevant_calls(*choosing)

    async def _sentences(
        self, question: str, excerpts: Excerpts, spending: _Meter, seconds: float
    ) -> list[SupportedSentence]:
        limits = {
            "max_tokens": min(self._options.max_tokens, MAX_ANSWER_TOKENS),
            "timeout_seconds": min(self._options.timeout_seconds, seconds),
        }
        options = self._options.model_copy(update=limits)
        request = call_answers.request(question, excerpts, options)
        text = self._texts.get(request.key) or await self._text(request, options, spending)
        try:
            return await asyncio.to_thread(call_answers.supported, text.text, question, excerpts)
        except NoAnswer as error:
            raise ModelFailed(f"The language model gave no answer: {error}.") from None

    async def _text(self, request: ModelRequest, options: AnalysisOptions, spending: _Meter) -> ModelText:
        """Return the model's text. Raises `ModelFailed`, `BudgetSpent`."""

        async def keep(key: str, text: ModelText) -> None:
            self._keep(key, text)
            texts.append(text)

        texts: list[ModelText] = []
        unanswered = await analysis.ask([request], options, keep, spending)
        if texts:
            return texts[0]
        why = unanswered[request.key]
        if why.not_asked == BUDGET_REACHED:
            raise BudgetSpent(f"The language model cannot be asked: {why.reason.removeprefix('it was not asked: ')}.")
        raise ModelFailed(f"The language model gave no answer: {why.reason}.")

    def _keep(self, key: str, text: ModelText) -> None:
        """Keep a text for a while, not longer: it has words of calls, which may be erased."""
        if len(self._texts) < MAX_REPEATED:
            self._texts[key] = text
            asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._texts.pop, key, None)


def excerpts_of(question: str, calls: Sequence[RelevantCall], max_tokens: int) -> Excerpts:
    """Return what the model reads; takes 0.2 s per hour of talk."""
    asked = []
    for call in calls:
        transcript = call.stored.edited().transcript
        if transcript is not None:
            similar = tuple(
                SimilarTurns(passage.first_turn, passage.last_turn, passage.similarity) for passage in call.passages
            )
            asked.append(AskedCall(call.stored.call_id, call.start_time, transcript, similar))
    return call_answers.choose(question, asked, max_tokens)


def _quotes(sentences: Sequence[SupportedSentence]) -> tuple[AnswerQuote, ...]:
    quotes = (
        AnswerQuote(call_id, evidence.turn, speaker, evidence.start, evidence.end, evidence.quote)
        for sentence in sentences
        for call_id, speaker, evidence in sentence.quotes
    )
    return tuple(dict.fromkeys(quotes))
