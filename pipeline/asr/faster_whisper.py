"""Whisper through faster-whisper and CTranslate2, with batches across calls and languages.

faster-whisper's own batched pipeline takes one file in one language at a time. Here one `encode` and one `generate`
process chunks of any calls: every prompt has its own language.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pipeline.asr import decoding, doubt, edges, fallback, words
from pipeline.asr.decoding import Decoding
from pipeline.asr.engine import Samples
from pipeline.asr.fallback import DecodingStrategy
from pipeline.asr.plausible import MAX_NO_SPEECH, compression
from pipeline.asr.whisper_model import LoadedWhisper
from pipeline.domain.speech import Chunk, ChunkText, Word
from pipeline.errors import EngineError

TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)  # to sample a single chunk with, in turn (Whisper's)
MAX_LANGUAGES = 5
ONLY_LANGUAGE = "en"  # of a Whisper that is not multilingual

Vocabulary = tuple[int, ...]  # the tokens of the terms


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk and its language; `languages` holds the probabilities detected from the sound."""

    chunk: Chunk
    language: str
    language_probability: float
    languages: dict[str, float]


class FasterWhisper(LoadedWhisper):
    """Recognition engine; see `pipeline.asr.Engine`.

    Re-entrant: the calling thread computes features and places words while the device works for `batches_at_once` other
    threads. CTranslate2 gives each of them a worker, on a GPU with its own stream; they share the weights.
    """

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        """See `pipeline.asr.Engine`. Chunks of similar length share a batch: a batch decodes as long as its longest.

        Chunks are padded to the length that each would get alone, so that no text depends on the batch.
        """
        lists = [tuple(terms) for terms in vocabularies]
        tokens_of = {terms: self._vocabulary(terms) for terms in set(lists)}  # chunks of a call share one list
        vocabulary = [tokens_of[terms] for terms in lists] or [()] * len(chunks)
        if with_fallback:
            return [self._with_fallback(x, chunk, v) for x, chunk, v in zip(samples, chunks, vocabulary, strict=True)]
        texts_by_index: dict[int, ChunkText] = {}
        alike: dict[tuple[int, int], list[int]] = defaultdict(list)  # prompts of a batch have one length, too
        for i in sorted(range(len(chunks)), key=lambda i: chunks[i].seconds):
            alike[len(vocabulary[i]), self._frames(len(samples[i]))].append(i)
        for order in alike.values():
            for batch in _batches(order, self.batch_size):
                texts = self._transcribe_batch(
                    [samples[i] for i in batch],
                    [chunks[i] for i in batch],
                    [vocabulary[i] for i in batch],
                    DecodingStrategy(),
                )
                texts_by_index.update(zip(batch, texts, strict=True))
        return [texts_by_index[i] for i in range(len(chunks))]

    def align(
        self, samples: Sequence[Samples], chunks: Sequence[Chunk], texts: Sequence[str]
    ) -> list[tuple[Word, ...]]:
        """Return the timed words of another recognizer's texts; see `pipeline.asr.alignment.Aligner`."""
        aligned: list[tuple[Word, ...]] = [()] * len(chunks)
        alike: dict[int, list[int]] = defaultdict(list)
        for i, text in enumerate(texts):
            if text.strip():
                alike[self._frames(len(samples[i]))].append(i)
        for order in alike.values():
            for batch in _batches(order, self.batch_size):
                features = [self._features(samples[i], chunks[i]) for i in batch]
                windows = [PreparedChunk(chunks[i], self._language(chunks[i]), 1.0, {}) for i in batch]
                tokens = [self._tokens(texts[i], window.language) for i, window in zip(batch, windows, strict=True)]
                decodings = [Decoding(text_tokens, 0.0, 0.0, 0.0) for text_tokens in tokens]
                with self._device:
                    timed = self._align(self._encode(features), windows, decodings, range(len(batch)))
                for at, i in enumerate(batch):
                    aligned[i] = self._placed(timed[at], samples[i], chunks[i])
        return aligned

    def _language(self, chunk: Chunk) -> str:
        return (chunk.language or ONLY_LANGUAGE) if self._model.model.is_multilingual else ONLY_LANGUAGE

    def _vocabulary(self, terms: Sequence[str]) -> Vocabulary:
        """Return the tokens of terms; empty if the checkpoint takes no vocabulary."""
        setting = self.options.vocabulary
        if not terms or not (setting == "on" or (setting == "auto" and self.checkpoint.vocabulary)):
            return ()
        return tuple(decoding.vocabulary_tokens(terms, self._tokenizer("en").encode))

    def _with_fallback(self, samples: Samples, chunk: Chunk, terms: Vocabulary) -> ChunkText:
        """Decode one chunk with every strategy, encoding it once; see `fallback.decode_with_fallback`."""

        @cache
        def whole() -> Any:
            with self._device:
                return self._encode([self._features(samples, chunk)])

        def decode(x: Samples, part: Chunk, strategy: DecodingStrategy) -> ChunkText:
            encoded = whole() if x is samples else None
            return self._transcribe_batch([x], [part], [terms if strategy.vocabulary else ()], strategy, encoded)[0]

        return fallback.decode_with_fallback(samples, chunk, decode, TEMPERATURES, bool(terms))

    def _transcribe_batch(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        terms: Sequence[Vocabulary],
        strategy: DecodingStrategy,
        encoded: Any = None,
    ) -> list[ChunkText]:
        """Transcribe one batch; `encoded`: the encoder's output, if already computed."""
        features = (
            [] if encoded is not None else [self._features(x, chunk) for x, chunk in zip(samples, chunks, strict=True)]
        )
        with self._device:
            encoded = self._encode(features) if encoded is None else encoded
            windows = self._windows(chunks, encoded)
            decodings = self._decode(encoded, windows, samples, terms, strategy)
            spoken = [i for i, result in enumerate(decodings) if not self._silent(result)]
            timed = self._align(encoded, windows, decodings, spoken)
            del encoded  # frees device memory
        placed = [
            self._placed(timed.get(i, ()), x, chunk) for i, (x, chunk) in enumerate(zip(samples, chunks, strict=True))
        ]
        return [
            ChunkText(
                chunk=window.chunk,
                language=window.language,
                language_probability=window.language_probability,
                words=chunk_words,
                mean_log_probability=result.mean_log_probability,
                no_speech_probability=result.no_speech_probability,
                languages=_likeliest(window.languages),
                compression=compression(chunk_words, window.chunk) if window.chunk.pieces else result.compression,
                temperature=strategy.temperature,
                decodings=result.passes,
                supports=doubt.supports([word.text for word in chunk_words], result.hypotheses),
            )
            for window, result, chunk_words in zip(windows, decodings, placed, strict=True)
        ]

    def _windows(self, chunks: Sequence[Chunk], encoded: Any) -> list[PreparedChunk]:
        windows = []
        for chunk, languages in zip(chunks, self._languages_of(encoded), strict=True):
            if not self._model.model.is_multilingual:
                language, probability = ONLY_LANGUAGE, 0.0
            elif chunk.language is not None:
                language, probability = chunk.language, 1.0
            else:
                language, probability = max(languages.items(), key=lambda item: item[1])
            windows.append(PreparedChunk(chunk, language, probability, languages))
        return windows

    def _languages_of(self, encoded: Any) -> list[dict[str, float]]:
        if not self._model.model.is_multilingual:
            return [{} for _ in range(encoded.shape[0])]
        languages = []
        for ranked in self._model.model.detect_language(encoded):
            probabilities = {token[2:-2]: float(p) for token, p in ranked}
            if self.checkpoint.languages:
                probabilities = {code: probabilities[code] for code in self.checkpoint.languages}
                total = sum(probabilities.values()) or 1.0
                probabilities = {code: p / total for code, p in probabilities.items()}
            languages.append(probabilities)
        return languages

    def _decode(
        self,
        encoded: Any,
        windows: Sequence[PreparedChunk],
        samples: Sequence[Samples],
        terms: Sequence[Vocabulary],
        strategy: DecodingStrategy,
    ) -> list[Decoding]:
        """Return one hypothesis per window; a sampled window is alone, and its sound is the seed."""
        tokenizers = [self._tokenizer(window.language) for window in windows]
        try:
            if strategy.temperature > 0:
                seed = zlib.crc32(samples[0].tobytes())
                return [decoding.sample(self._model, tokenizers[0], encoded, strategy.temperature, seed)]
            size, time_tokens = self.options.beam_size, self.checkpoint.time_tokens
            return decoding.beam(self._model, tokenizers, encoded, terms, size, strategy.no_repeat, time_tokens)
        except RuntimeError as error:
            raise EngineError(f"Recognition failed ({type(error).__name__}).") from error

    def _silent(self, decoding: Decoding) -> bool:
        return decoding.no_speech_probability > MAX_NO_SPEECH and decoding.mean_log_probability < fallback.IMPROBABLE

    def _align(
        self, encoded: Any, windows: Sequence[PreparedChunk], decodings: Sequence[Decoding], spoken: Sequence[int]
    ) -> dict[int, tuple[Word, ...]]:
        """Align the windows in `spoken`; one pass per language, since `align` takes one start sequence."""
        by_language: dict[str, list[int]] = defaultdict(list)
        for i in spoken:
            if decodings[i].tokens:
                by_language[windows[i].language].append(i)
        timed: dict[int, tuple[Word, ...]] = {}
        for language, rows in by_language.items():
            tokenizer = self._tokenizer(language)
            try:
                alignments = self._model.model.align(
                    decoding.rows_of(encoded, rows),
                    tokenizer.sot_sequence,
                    [decodings[i].tokens for i in rows],
                    [words.frames(self._model, windows[i].chunk.seconds) for i in rows],
                    median_filter_width=7,
                )
            except RuntimeError as error:
                raise EngineError(f"Recognition failed ({type(error).__name__}).") from error
            for i, alignment in zip(rows, alignments, strict=True):
                timed[i] = words.timed(tokenizer, decodings[i].tokens, alignment, self._model.tokens_per_second)
        return timed

    def _placed(self, timed: tuple[Word, ...], samples: Samples, chunk: Chunk) -> tuple[Word, ...]:
        """Correct the checkpoint's alignment delay and move edges to the sound."""
        delay = self.checkpoint.word_delay
        later = [replace(w, start=w.start + delay, end=w.end + delay) for w in timed]
        return edges.placed(later, samples, chunk)


def _likeliest(languages: dict[str, float]) -> dict[str, float]:
    ranked = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    return {code: round(probability, 4) for code, probability in ranked[:MAX_LANGUAGES]}


def _batches(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
