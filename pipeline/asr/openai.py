"""Servers with OpenAI's transcription API: vLLM, speaches, Groq, OpenAI and others.

Each chunk is one request, with up to `concurrency` in parallel. If the server returns no word times, an aligner adds
them and the words' confidence.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, model_validator

from pipeline.asr import decoding, edges, fallback, openai_client
from pipeline.asr.alignment.engine import Aligner
from pipeline.asr.answers import Transcription, read
from pipeline.asr.engine import AsrOptions, Samples
from pipeline.asr.fallback import DecodingStrategy
from pipeline.asr.plausible import compression
from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText, Word
from pipeline.errors import EngineError, EngineUnavailable
from pipeline.net.endpoint import Address, ApiKey
from pipeline.net.post import Unreadable, list_models

MAX_CHUNK_SECONDS = 30.0  # seconds of a chunk
PROMPT_CHARACTERS = 600  # of names and terms: about 223 tokens, the limit of Whisper's prompt
PROBE_SECONDS = 5.0


class OpenAIOptions(AsrOptions):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    base_url: Address = Field(
        None,
        description="The server up to its version, such as http://127.0.0.1:8000/v1. It receives the sound of "
        "every call.",
    )
    api_key: ApiKey = Field(None, description="Bearer token for the server; never logged, shown or stored.")
    api_key_env: str | None = Field(
        None,
        pattern=r"^[A-Z][A-Z0-9_]*$",
        description="Name of the node's environment variable with the key instead, for runs.",
    )
    language: str | None = Field(
        None,
        pattern=r"^[a-z]{2,3}$",
        description="The one language of all calls (ISO 639-1); required if the server does not report it.",
    )
    timeout_seconds: float = Field(
        60.0, gt=0, le=600, description="Longest time for one chunk of sound, repeated requests included."
    )
    concurrency: int = Field(8, ge=1, le=256, description="Parallel requests of each Transcriber.")
    vocabulary: Literal["on", "off"] = Field(
        "off", description="Send names and terms as a prompt. Measure first whether it helps the model."
    )

    @model_validator(mode="after")
    def _has_server(self) -> Self:
        if self.base_url is None:
            raise ValueError("the engine openai needs base_url (SWITCHBOARD_ASR__BASE_URL)")
        if self.model == "auto":
            raise ValueError("the engine openai needs model (SWITCHBOARD_ASR__MODEL): the server's name for it")
        return self

    @property
    def key(self) -> SecretStr | None:
        """The API key. Raises `EngineUnavailable` if `api_key_env` is not set on this node."""
        if self.api_key_env is None:
            return self.api_key
        if not (value := os.environ.get(self.api_key_env, "").strip()):
            raise EngineUnavailable(f"asr.api_key_env names {self.api_key_env}, which is not set on this node.")
        return SecretStr(value)


@dataclass(frozen=True, slots=True)
class _Response:
    """A chunk with the server's transcription and its language."""

    samples: Samples
    chunk: Chunk  # as requested
    answer: Transcription
    language: str  # of the text

    @property
    def written(self) -> Chunk:
        return replace(self.chunk, language=self.language)


class OpenAI:
    """Recognition engine; see `pipeline.asr.Engine`."""

    Options = OpenAIOptions
    CHECKPOINTS: CheckpointKind | None = None
    needs_aligner = True  # depends on the server's first response

    packing = True
    batches_at_once = 2

    def __init__(self, options: OpenAIOptions, store: Path | None = None) -> None:
        assert options.base_url is not None
        self._options = self.options = options  # identify its results
        self._client = openai_client.Client(options.base_url, options.key, options.model, options.timeout_seconds)
        self._pool = ThreadPoolExecutor(options.concurrency, thread_name_prefix="openai")
        self._aligner: Aligner | None = None
        self.batch_size = max(1, options.concurrency // self.batches_at_once)
        self.max_chunk_seconds = MAX_CHUNK_SECONDS
        self.name = f"openai {options.model}"

    @property
    def aligner(self) -> Aligner | None:
        """The aligner for words without times; set once, before the first request."""
        return self._aligner

    @aligner.setter
    def aligner(self, aligner: Aligner | None) -> None:
        self._aligner = aligner
        if aligner is not None:
            self.max_chunk_seconds = min(MAX_CHUNK_SECONDS, aligner.max_chunk_seconds)

    @staticmethod
    def device_of(options: AsrOptions) -> str:
        """See `pipeline.asr.Engine`. This process needs no GPU, whatever the server uses."""
        return "cpu"

    @staticmethod
    def probe(options: OpenAIOptions) -> str:
        """See `pipeline.asr.engine.RemoteEngine`. Lists the server's models; sends no sound."""
        import httpx

        assert options.base_url is not None
        host, key = urlsplit(options.base_url).hostname, options.key
        try:
            status, names = list_models(options.base_url, key, PROBE_SECONDS)
        except (httpx.HTTPError, TimeoutError, Unreadable) as error:
            raise EngineUnavailable(
                f"{host} does not respond ({type(error).__name__}). Start the server, or fix SWITCHBOARD_ASR__BASE_URL."
            ) from None
        if status in (401, 403):
            sent = "this key" if key else "a request without a key"
            raise EngineUnavailable(f"{host} returns {status} to {sent}. Set SWITCHBOARD_ASR__API_KEY.")
        if status != 200:
            return f"{options.model} at {host}, which does not list its models (it returns {status})"
        if options.model not in names:
            shown = ", ".join(names[:5]) or "none"
            raise EngineUnavailable(
                f"{host} does not list the model {options.model} (listed: {shown}). "
                "Set SWITCHBOARD_ASR__MODEL to one of its names."
            )
        return f"{options.model} at {host}"

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        """See `pipeline.asr.Engine`. Sends one request per chunk; the first failure fails all."""
        prompts = [self._prompt(terms) for terms in vocabularies] or [""] * len(chunks)
        if with_fallback:
            return [self._with_fallback(x, chunk, p) for x, chunk, p in zip(samples, chunks, prompts, strict=True)]
        requests = [
            self._pool.submit(self._ask, x, chunk, prompt)
            for x, chunk, prompt in zip(samples, chunks, prompts, strict=True)
        ]
        try:
            return self._texts([request.result() for request in requests])
        finally:
            for request in requests:
                request.cancel()

    def _prompt(self, terms: Sequence[str]) -> str:
        if self._options.vocabulary == "off":
            return ""
        return decoding.prompt(terms, lambda text: len(text) <= PROMPT_CHARACTERS)

    def _with_fallback(self, samples: Samples, chunk: Chunk, prompt: str) -> ChunkText:
        """Decode one chunk without the prompt, in two parts and piece by piece; servers do not sample repeatably."""
        texts: dict[tuple[Chunk, str], ChunkText] = {}

        def decode(x: Samples, part: Chunk, strategy: DecodingStrategy) -> ChunkText:
            key = (part, prompt if strategy.vocabulary else "")
            if key in texts:  # strategies that differ only locally
                return replace(texts[key], decodings=0)
            texts[key] = self._texts([self._ask(x, part, key[1])])[0]
            return texts[key]

        return fallback.decode_with_fallback(samples, chunk, decode, (), bool(prompt))

    def _ask(self, samples: Samples, chunk: Chunk, prompt: str) -> _Response:
        edges.check_sound(samples, chunk, self.max_chunk_seconds)
        language = self._options.language or chunk.language
        answer = read(self._client.transcribe(samples, language, prompt), len(samples) / SAMPLE_RATE)
        text_language = language or answer.language
        if text_language is None and answer.text:
            raise EngineError("The recognition server does not report the language. Set SWITCHBOARD_ASR__LANGUAGE.")
        return _Response(samples, chunk, answer, text_language or "en")

    def _texts(self, responses: Sequence[_Response]) -> list[ChunkText]:
        timed = [
            edges.placed(response.answer.words, response.samples, response.chunk) if response.answer.words else ()
            for response in responses
        ]
        untimed = [i for i, response in enumerate(responses) if response.answer.words is None and response.answer.text]
        if untimed:
            for i, aligned in zip(untimed, self._align([responses[i] for i in untimed]), strict=True):
                timed[i] = aligned
        return [self._text(response, timed_words) for response, timed_words in zip(responses, timed, strict=True)]

    def _align(self, responses: Sequence[_Response]) -> list[tuple[Word, ...]]:
        if self._aligner is None:
            raise EngineError(
                "The recognition server returns no word times. Set SWITCHBOARD_ALIGNMENT__ENGINE to an aligner."
            )
        return self._aligner.align(
            [response.samples for response in responses],
            [response.written for response in responses],
            [response.answer.text for response in responses],
        )

    def _text(self, response: _Response, timed: tuple[Word, ...]) -> ChunkText:
        """Return the text; `languages` stays empty, since servers report no other probabilities."""
        answer = response.answer
        return ChunkText(
            chunk=response.chunk,
            language=response.language,
            language_probability=0.0 if self._options.language else 1.0,
            words=timed,
            mean_log_probability=answer.mean_log_probability,
            no_speech_probability=answer.no_speech_probability if timed else 1.0,
            compression=compression(timed, response.chunk),
        )
