"""Whisper through faster-whisper and CTranslate2, with batches across calls and languages.

faster-whisper's own batched pipeline takes one file in one language at a time. Here one `encode` and one `generate`
process chunks of any calls: every prompt has its own language.
"""

import json
import math
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from pipeline import checkpoints
from pipeline.asr import decoding, doubt, edges, fallback, vocabulary, words
from pipeline.asr.decoding import Decoding
from pipeline.asr.encoder import BFloat16Encoder, suits_this_cpu
from pipeline.asr.engine import AsrOptions, Samples
from pipeline.asr.fallback import DecodingStrategy
from pipeline.asr.plausible import MAX_NO_SPEECH, compression
from pipeline.checkpoints import WHOLE, CheckpointKind
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText, Word
from pipeline.engines.device import CTRANSLATE2_CUDA, choose, cores, load_cublas
from pipeline.errors import EngineError

CPU_BATCH, MAX_GPU_BATCH = 4, 64
AT_ONCE = 2  # batches on the device, or more on a CPU, each with its share of the threads; one is in preparation
THREADS_EACH = 4  # CTranslate2's default: more per forward pass gain little, so more cores take more batches
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)  # to sample a single chunk with, in turn (Whisper's)
MAX_LANGUAGES = 5
PADDED_ON_CPU = (15.0, 20.0, 25.0)  # seconds to which shorter windows are padded; others to the whole 30 s
TRAILING_SILENCE = 5.0  # seconds of padding in such a window: with less, Whisper writes its text twice
ONLY_LANGUAGE = "en"  # of a Whisper that is not multilingual
ENCODER_FRAMES = 1500  # for 30 s
HEAD_WIDTH = 64
ACTIVATIONS = 12  # rows of the model's width in an encoder layer: query, key, value, 4 + 4 inside, one
MEMORY_SHARE = 0.5  # of the free memory: another engine may share the device
UNSEEN = 1.25  # the deepest alignment head of OpenAI's checkpoints is in the last fifth of the layers
FIRST_MERGE = ["Ġ", "t"]

Vocabulary = tuple[int, ...]  # the tokens of the terms


class FasterWhisperOptions(AsrOptions):
    """Options of this engine."""

    model_config = ConfigDict(extra="forbid")

    compute_type: str = Field(
        "auto", description="CTranslate2's number format; auto is int8 on a CPU and float16 on a GPU."
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        le=256,
        description="Chunks in one forward pass; unset: 4 on a CPU, on a GPU as many as half of its free memory holds.",
    )
    beam_size: int = Field(5, ge=1, le=10, description="Hypotheses per decoding step; 1 is greedy and faster.")
    cpu_threads: int = Field(
        0, ge=0, description="Threads on a CPU, of all batches at once; 0: one for each core. A batch has up to 4."
    )
    encoder: Literal["auto", "ctranslate2", "bfloat16"] = Field(
        "auto",
        description="Encoder on a CPU. bfloat16: PyTorch, in that format; auto: the same, if the CPU multiplies "
        "it in tiles (AMX) and compute_type is auto, else CTranslate2. A GPU always uses CTranslate2's.",
    )
    vocabulary: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether names and terms are passed to the model as a prompt. auto: if the checkpoint's manifest "
        "says that this was measured to help.",
    )


RANKED = {  # multilingual models, best first; on a CPU, accuracy is weighed against speed
    "cuda": ("large-v3-turbo", "large-v3", "medium", "small", "base", "tiny"),
    "cpu": ("small", "base", "large-v3-turbo", "medium", "large-v3", "tiny"),
}


def _sizes() -> dict[str, str]:
    from faster_whisper.utils import _MODELS  # no public name

    return {str(name): str(repository) for name, repository in _MODELS.items()}


CHECKPOINTS = CheckpointKind(
    title="speech recognition model",
    setting="SWITCHBOARD_ASR__MODEL",
    auto=RANKED.__getitem__,
    stored={"base": {WHOLE: "whisper-base"}, "tiny.en": {WHOLE: "whisper-tiny.en"}},
    required=("config.json", "model.bin"),
    patterns=("config.json", "preprocessor_config.json", "model.bin", "tokenizer.json", "vocabulary.*"),
    sizes=_sizes,
    advice=lambda _: (
        "Without the hub: `switchboard checkpoints fetch whisper-base`, then SWITCHBOARD_ASR__MODEL=base.",
    ),
)


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk and its language; `languages` holds the probabilities detected from the sound."""

    chunk: Chunk
    language: str
    language_probability: float
    languages: dict[str, float]


class FasterWhisper:
    """Recognition engine; see `pipeline.asr.Engine`.

    Re-entrant: the calling thread computes features and places words while the device works for `batches_at_once` other
    threads. CTranslate2 gives each of them a worker, on a GPU with its own stream; they share the weights.
    """

    Options = FasterWhisperOptions
    CHECKPOINTS = CHECKPOINTS

    def __init__(
        self,
        options: FasterWhisperOptions,
        store: Path | None = None,
        kind: CheckpointKind = CHECKPOINTS,
        at_once: int = AT_ONCE,
    ) -> None:
        """Load the model. `kind` and `at_once` differ for a model that aligns instead of recognizing."""
        from faster_whisper import WhisperModel

        device = self.device_of(options)
        if device == "cuda":
            load_cublas()
        compute_type = options.compute_type
        if compute_type == "auto":
            compute_type = "float16" if device == "cuda" else "int8"
        checkpoint = checkpoints.resolve(options.model, kind, device, store)
        threads = options.cpu_threads or cores()
        self.batches_at_once = at_once
        if device != "cuda":
            self.batches_at_once = min(max(at_once, math.ceil(threads / THREADS_EACH)), threads)
        with checkpoints.loading(checkpoint.folder):
            self._model = WhisperModel(
                str(checkpoint.folder),
                device=device,
                compute_type=compute_type,
                cpu_threads=max(1, threads // self.batches_at_once),
                num_workers=self.batches_at_once,
                local_files_only=True,
            )
            self._bfloat16 = self._load_encoder(
                options, device, checkpoint.folder, max(1, threads // self.batches_at_once)
            )
        # Measured on a CPU only; on a GPU each further length would take another pass of the decoder.
        self._on_gpu = device == "cuda"
        self._padded = () if self._on_gpu else PADDED_ON_CPU
        self._device = threading.BoundedSemaphore(self.batches_at_once)
        self.options = options
        self.checkpoint = checkpoint
        self.batch_size = options.batch_size or self._batch_size(device, checkpoint.folder, compute_type)
        self._languages = checkpoint.languages
        self._word_delay = checkpoint.word_delay
        self._time_tokens = checkpoint.time_tokens
        self._takes_vocabulary = options.vocabulary == "on" or (options.vocabulary == "auto" and checkpoint.vocabulary)
        self._tokenizers: dict[str, Any] = {}
        self.name = f"faster-whisper {checkpoint.name} {compute_type}{' (encoder bfloat16)' if self._bfloat16 else ''}"
        self.packing = checkpoint.packing
        self.max_chunk_seconds = checkpoint.max_chunk_seconds or 30.0

    @staticmethod
    def _load_encoder(options: FasterWhisperOptions, device: str, folder: Path, threads: int) -> BFloat16Encoder | None:
        use_bfloat16 = options.encoder == "bfloat16"
        if options.encoder == "auto" and options.compute_type == "auto":
            use_bfloat16 = suits_this_cpu()
        return BFloat16Encoder(folder, threads) if use_bfloat16 and device == "cpu" else None

    @staticmethod
    def device_of(options: AsrOptions) -> str:
        """See `pipeline.asr.Engine`."""
        import ctranslate2

        if options.device != "auto":
            return options.device
        return choose(
            lambda: ctranslate2.get_cuda_device_count() > 0, "CTranslate2", CTRANSLATE2_CUDA, "SWITCHBOARD_ASR__DEVICE"
        )

    def _batch_size(self, device: str, folder: Path, compute_type: str) -> int:
        if device != "cuda":
            return CPU_BATCH
        import torch

        free, _ = torch.cuda.mem_get_info()  # after the weights are loaded
        bytes_per_chunk = self._chunk_bytes(folder, 4 if compute_type == "float32" else 2)
        return batch_size(free, bytes_per_chunk, self.batches_at_once, MAX_GPU_BATCH)

    def _chunk_bytes(self, folder: Path, bytes_each: int) -> int:
        silence = np.zeros((self._model.model.n_mels, self._model.feature_extractor.nb_max_frames), np.float32)
        width = self._encode([silence]).shape[2]
        layers = decoder_layers(json.loads((folder / "config.json").read_text()))
        return chunk_bytes(width, layers, self.options.beam_size, self._model.max_length, bytes_each)

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        """See `pipeline.asr.Engine`. Chunks of similar length share a batch: a batch decodes as long as its longest.

        All chunks of a batch are padded to one length, the one each would get alone, so that no text depends on the
        batch.
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

    @cached_property
    def _encoder(self) -> Any:
        return with_first_merge(self._model.hf_tokenizer)

    def _tokens(self, text: str, language: str) -> list[int]:
        tokens = list(self._encoder.encode(f" {text.strip()}", add_special_tokens=False).ids)
        if len(tokens) + len(self._tokenizer(language).sot_sequence) >= self._model.max_length:
            raise EngineError(f"A text of {len(tokens)} tokens is too long for one chunk.")
        return tokens

    def _vocabulary(self, terms: Sequence[str]) -> Vocabulary:
        """Return the tokens of terms; empty if the checkpoint takes no vocabulary."""
        if not self._takes_vocabulary or not terms:
            return ()
        return tuple(vocabulary.tokens(terms, self._tokenizer("en").encode))

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

    def _features(self, samples: Samples, chunk: Chunk) -> npt.NDArray[np.float32]:
        from faster_whisper.audio import pad_or_trim

        edges.check_sound(samples, chunk, self.max_chunk_seconds)
        mel = self._model.feature_extractor(samples)[..., :-1]
        return np.asarray(pad_or_trim(mel, self._frames(len(samples))), dtype=np.float32)

    def _frames(self, samples: int) -> int:
        """Return the padded length in mel frames: the encoder's cost grows faster than the length."""
        needed = samples / SAMPLE_RATE + TRAILING_SILENCE
        fitting = (seconds for seconds in self._padded if needed <= seconds)
        whole = int(self._model.feature_extractor.nb_max_frames)
        return min((words.frames(self._model, seconds) for seconds in fitting), default=whole)

    def _encode(self, features: Sequence[npt.NDArray[np.float32]]) -> Any:
        """Encode all windows in one pass on a GPU, and one by one on a CPU, with the same result.

        On a CPU the attention of several windows of 30 s takes hundreds of MB: no cache holds it, and its pages are
        allocated one by one.
        """
        passes = [np.stack(features)] if self._on_gpu else [window[None] for window in features]
        try:
            if self._bfloat16 is not None:
                return decoding.stacked([self._bfloat16(window) for window in features])
            encoded = [self._model.encode(windows) for windows in passes]
        except RuntimeError as error:
            raise EngineError(f"Recognition failed ({type(error).__name__}).") from error
        return encoded[0] if len(encoded) == 1 else decoding.stacked(encoded)

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
            if self._languages:
                probabilities = {code: probabilities[code] for code in self._languages}
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
            return decoding.beam(
                self._model, tokenizers, encoded, terms, self.options.beam_size, strategy.no_repeat, self._time_tokens
            )
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
        later = [replace(w, start=w.start + self._word_delay, end=w.end + self._word_delay) for w in timed]
        return edges.placed(later, samples, chunk)

    def _tokenizer(self, language: str) -> Any:
        from faster_whisper.tokenizer import _LANGUAGE_CODES, Tokenizer

        if language not in self._tokenizers:
            if language not in _LANGUAGE_CODES:
                raise EngineError(f"Whisper does not support the language {language!r}.")
            self._tokenizers[language] = Tokenizer(
                self._model.hf_tokenizer, self._model.model.is_multilingual, task="transcribe", language=language
            )
        return self._tokenizers[language]


def _likeliest(languages: dict[str, float]) -> dict[str, float]:
    ranked = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    return {code: round(probability, 4) for code, probability in ranked[:MAX_LANGUAGES]}


def _batches(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def decoder_layers(config: Mapping[str, Any]) -> int:
    """Estimate the decoder layers of a CTranslate2 checkpoint from its `alignment_heads`; 32 without them."""
    heads = config.get("alignment_heads") or []
    return math.ceil(UNSEEN * (1 + max(layer for layer, _ in heads))) if heads else 32


def chunk_bytes(width: int, layers: int, beams: int, tokens: int, bytes_each: int) -> int:
    """Return the bytes of one window on the device, an upper bound from the shapes of Whisper.

    `width` is the model's, `layers` the decoder's. Shapes: Radford et al., "Robust Speech Recognition via Large-Scale
    Weak Supervision", 2022; heads are 64 wide in all sizes. Counts the encoder's attention scores (before and after the
    softmax) and the activations of its widest layer; the decoder's keys and values of the encoder's frames, once for
    all beams; and its own keys and values for each token of each beam, twice, since they are copied when beams change
    places.
    """
    encoder = 2 * (width // HEAD_WIDTH or 1) * ENCODER_FRAMES**2 + ACTIVATIONS * ENCODER_FRAMES * width
    decoder = 2 * layers * width * (ENCODER_FRAMES + 2 * beams * tokens)
    return bytes_each * (encoder + decoder)


def batch_size(free: int, bytes_per_chunk: int, at_once: int, max_size: int) -> int:
    """Return the chunks per batch, 1 to `max_size`, for `at_once` batches in `free` bytes."""
    return max(1, min(max_size, int(MEMORY_SHARE * free / (bytes_per_chunk * at_once))))


def with_first_merge(tokenizer: Any) -> Any:
    """Return the tokenizer with the merge "Ġ t" that converted Whisper models on the hub lack.

    Decoding does not need that merge. Encoding without it splits " that" into " " and "that", tokens that no Whisper
    writes: the model finds them improbable and aligns them in the wrong place.
    """
    from tokenizers import Tokenizer

    description = json.loads(tokenizer.to_str())
    model = description["model"]
    merges = model.get("merges") or []
    pair = FIRST_MERGE if merges and isinstance(merges[0], list) else " ".join(FIRST_MERGE)
    if not merges or "".join(FIRST_MERGE) not in model["vocab"] or pair in merges:
        return tokenizer
    merges.insert(0, pair)
    return Tokenizer.from_str(json.dumps(description))
