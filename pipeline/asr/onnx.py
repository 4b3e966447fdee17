"""ONNX models through onnx-asr: NeMo's Parakeet, FastConformer and Canary, GigaAM, T-one, Kaldi's Zipformer, Whisper.

A folder or a hub repository holds the network (`*.onnx`), its vocabulary and a config.json with the model type. Most
models give every token a time; words of the others (Whisper, Canary) are aligned.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field

from pipeline import checkpoints
from pipeline.asr import edges, words
from pipeline.asr.alignment.engine import Aligner
from pipeline.asr.engine import AsrOptions, Samples
from pipeline.asr.plausible import compression
from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText, Word
from pipeline.engines.device import choose, cores
from pipeline.errors import CheckpointMissing, EngineError

MAX_CHUNK_SECONDS = 20.0  # of a chunk: what these models are trained for
LAST_TOKEN = 0.08  # min. seconds from the start of a word's last token to its end: a frame of most encoders
GPU_BATCH = 8
PATTERNS = ("config.json", "vocab.txt", "vocab.json", "added_tokens.json", "*.onnx", "*.onnx.data", "*.onnx_data")


class OnnxOptions(AsrOptions):
    model_config = ConfigDict(extra="forbid")

    language: str = Field(
        "en",
        pattern=r"^[a-z]{2,3}$",
        description="Language of calls without a known one (ISO 639-1): these models do not detect it.",
    )
    quantization: str | None = Field(
        None, pattern=r"^\w+$", description="Variant of the model: int8 takes *.int8.onnx; unset: the plain one."
    )
    cpu_threads: int = Field(0, ge=0, description="Threads on a CPU, of all chunks at once; 0: one for each core.")


def repositories() -> Mapping[str, str]:
    from onnx_asr.resolver import model_repos

    return {name: repository for name, repository in model_repos.items() if name != "silero"}


CHECKPOINTS = CheckpointKind(
    title="ONNX speech recognition model",
    setting="SWITCHBOARD_ASR__MODEL",
    auto=lambda _: ("nemo-parakeet-tdt-0.6b-v3",),
    stored={},
    required=("config.json",),
    patterns=PATTERNS,
    sizes=repositories,
)


class Onnx:
    """Recognition engine; see `pipeline.asr.Engine`.

    On a CPU each chunk is a separate pass, so that it has no padding. Re-entrant: onnxruntime runs passes of several
    threads in parallel.
    """

    Options = OnnxOptions
    CHECKPOINTS: CheckpointKind | None = CHECKPOINTS

    needs_aligner = True  # of some models; set when the model is loaded

    packing = True
    batches_at_once = 2

    def __init__(self, options: OnnxOptions, store: Path | None = None) -> None:
        device = self.device_of(options)
        checkpoint = checkpoints.resolve(options.model, CHECKPOINTS, device, store)
        self.options, self.checkpoint = options, checkpoint  # identify its results
        model = load_model(checkpoint, device, options.quantization, options.cpu_threads)
        self._model, self._language = model.with_timestamps(), options.language
        self._takes_language = hasattr(model.asr, "_transcribe_input")  # Whisper and Canary take it
        self.batch_size = GPU_BATCH if device == "cuda" else 1
        self.max_chunk_seconds = checkpoint.max_chunk_seconds or MAX_CHUNK_SECONDS
        self.needs_aligner = not hasattr(model.asr, "_blank_idx")  # no token has a time
        self.aligner: Aligner | None = None
        variant = f" {options.quantization}" if options.quantization else ""
        self.name = f"onnx {checkpoint.name}{variant}"

    @staticmethod
    def device_of(options: Any) -> str:
        return device_of(options.device)

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        """See `pipeline.asr.Engine`. These models have one decoding strategy and take no vocabulary."""
        for sound, chunk in zip(samples, chunks, strict=True):
            edges.check_sound(sound, chunk, self.max_chunk_seconds)
        texts: list[ChunkText] = []
        size = 1 if with_fallback else self.batch_size
        for first in range(0, len(chunks), size):
            batch = slice(first, first + size)
            texts += self._batch(samples[batch], chunks[batch])
        return [replace(text, with_fallback=with_fallback) for text in texts]

    def _batch(self, samples: Sequence[Samples], chunks: Sequence[Chunk]) -> list[ChunkText]:
        options = {"language": chunks[0].language or self._language} if self._takes_language else {}
        try:
            results = self._model.recognize(
                [np.ascontiguousarray(x) for x in samples], sample_rate=SAMPLE_RATE, **options
            )
        except Exception as error:  # onnxruntime's own classes share no other base
            raise EngineError(f"Recognition failed ({type(error).__name__}).") from error
        return [self._text(*row) for row in zip(results, samples, chunks, strict=True)]

    def _text(self, result: Any, samples: Samples, chunk: Chunk) -> ChunkText:
        chunk_in_language = replace(chunk, language=chunk.language or self._language)
        if result.timestamps is None and result.text.strip():
            if self.aligner is None:
                raise EngineError("This model returns no word times. Set SWITCHBOARD_ALIGNMENT__ENGINE to an aligner.")
            (aligned,) = self.aligner.align([samples], [chunk_in_language], [result.text])
        else:
            timed = timed_words(result.tokens or (), result.timestamps or (), result.logprobs or ())
            aligned = edges.placed(timed, samples, chunk)
        return ChunkText(
            chunk=chunk,
            language=chunk_in_language.language or self._language,
            language_probability=0.0,
            words=aligned,
            mean_log_probability=float(np.mean(result.logprobs)) if result.logprobs else 0.0,
            no_speech_probability=float(not aligned),
            compression=compression(aligned, chunk),
        )


def load_model(checkpoint: checkpoints.Checkpoint, device: str, quantization: str | None, threads: int = 0) -> Any:
    """Load onnx-asr's model of a checkpoint. Raises `CheckpointMissing`, `CheckpointDamaged`."""
    import onnx_asr
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or cores()
    providers = ["CUDAExecutionProvider"] if device == "cuda" else ["CPUExecutionProvider"]
    with checkpoints.loading(checkpoint.folder):
        try:
            return onnx_asr.load_model(
                None,  # config.json has the type
                checkpoint.folder,
                quantization=quantization,
                providers=providers,
                sess_options=options,
            )
        except (ValueError, OSError, KeyError, TypeError) as error:
            raise CheckpointMissing(
                f"{checkpoint.name!r} is no model that onnx-asr loads ({type(error).__name__}): a folder holds *.onnx, "
                "vocab.txt and a config.json with model_type."
            ) from error


def device_of(device: str, setting: str = "SWITCHBOARD_ASR__DEVICE") -> str:
    """Return the device of onnxruntime: a GPU only with its GPU package. Raises `DeviceUnavailable`."""
    if device != "auto":
        return device
    import onnxruntime

    providers = onnxruntime.get_available_providers()
    return choose(lambda: "CUDAExecutionProvider" in providers, "onnxruntime", None, setting)


def timed_words(tokens: Sequence[str], starts: Sequence[float], log_probabilities: Sequence[float]) -> tuple[Word, ...]:
    """Return words from timed tokens; each ends where the next begins, or soon after its last token."""
    timed = []
    for token in words.in_words(tokens):
        last = starts[token.last - 1]
        after = starts[token.last] if token.last < len(starts) else math.inf
        log_probability = min(
            (log_probabilities[i] for i in range(token.first, token.last) if log_probabilities), default=0.0
        )
        end = max(last, min(after, last + LAST_TOKEN))
        timed.append(
            Word(
                starts[token.first], end, token.text, round(min(1.0, math.exp(log_probability)), 4), joined=token.joined
            )
        )
    return tuple(timed)
