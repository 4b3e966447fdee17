import json
import math
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from pipeline import checkpoints
from pipeline.asr import decoding, edges, words
from pipeline.asr.encoder import BFloat16Encoder, suits_this_cpu
from pipeline.asr.engine import AsrOptions, Samples
from pipeline.checkpoints import WHOLE, CheckpointKind
from pipeline.domain.speech import SAMPLE_RATE, Chunk
from pipeline.engines.device import CTRANSLATE2_CUDA, choose, cores, load_cublas
from pipeline.errors import EngineError

CPU_BATCH, MAX_GPU_BATCH = 4, 64
AT_ONCE = 2  # batches on the device, or more on a CPU, each with its share of the threads; one is in preparation
THREADS_EACH = 4  # CTranslate2's default: more per forward pass gain little, so more cores take more batches
PADDED_ON_CPU = (15.0, 20.0, 25.0)  # seconds to which shorter windows are padded; others to the whole 30 s
TRAILING_SILENCE = 5.0  # seconds of padding in such a window: with less, Whisper writes its text twice
ENCODER_FRAMES = 1500  # for 30 s
HEAD_WIDTH = 64
ACTIVATIONS = 12  # rows of the model's width in an encoder layer: query, key, value, 4 + 4 inside, one
MEMORY_SHARE = 0.5  # of the free memory: another engine may share the device
UNSEEN = 1.25  # the deepest alignment head of OpenAI's checkpoints is in the last fifth of the layers
FIRST_MERGE = ["Ġ", "t"]


class FasterWhisperOptions(AsrOptions):
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
    cpu_threads: int = Field(0, ge=0, description="Threads on a CPU, of all batches at once; 0: one for each core.")
    encoder: Literal["auto", "ctranslate2", "bfloat16"] = Field(
        "auto",
        description="Encoder on a CPU. auto: bfloat16 in PyTorch if the CPU has AMX and compute_type is auto, "
        "else CTranslate2.",
    )
    vocabulary: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Pass names and terms to the model as a prompt. auto: if the checkpoint's manifest says that "
        "it helps.",
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


class LoadedWhisper:
    """A Whisper on a device, shared by the threads that recognize and align with it."""

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
        self.options, self.checkpoint = options, checkpoints.resolve(options.model, kind, device, store)
        folder, threads = self.checkpoint.folder, options.cpu_threads or cores()
        self.batches_at_once = at_once
        if device != "cuda":
            self.batches_at_once = min(max(at_once, math.ceil(threads / THREADS_EACH)), threads)
        threads = max(1, threads // self.batches_at_once)
        with checkpoints.loading(folder):
            self._model = WhisperModel(
                str(folder),
                device=device,
                compute_type=compute_type,
                cpu_threads=threads,
                num_workers=self.batches_at_once,
                local_files_only=True,
            )
            self._bfloat16 = self._load_encoder(options, device, folder, threads)
        self._on_gpu = device == "cuda"
        self._device = threading.BoundedSemaphore(self.batches_at_once)
        self.batch_size = options.batch_size or self._batch_size(device, folder, compute_type)
        self._tokenizers: dict[str, Any] = {}
        encoder = " (encoder bfloat16)" if self._bfloat16 else ""
        self.name = f"faster-whisper {self.checkpoint.name} {compute_type}{encoder}"
        self.packing = self.checkpoint.packing
        self.max_chunk_seconds = self.checkpoint.max_chunk_seconds or 30.0

    @staticmethod
    def _load_encoder(options: FasterWhisperOptions, device: str, folder: Path, threads: int) -> BFloat16Encoder | None:
        use_bfloat16 = options.encoder == "bfloat16"
        if options.encoder == "auto" and options.compute_type == "auto":
            use_bfloat16 = suits_this_cpu()
        return BFloat16Encoder(folder, threads) if use_bfloat16 and device == "cpu" else None

    @staticmethod
    def device_of(options: AsrOptions) -> str:
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

    @cached_property
    def _encoder(self) -> Any:
        return with_first_merge(self._model.hf_tokenizer)

    def _tokens(self, text: str, language: str) -> list[int]:
        tokens = list(self._encoder.encode(f" {text.strip()}", add_special_tokens=False).ids)
        if len(tokens) + len(self._tokenizer(language).sot_sequence) >= self._model.max_length:
            raise EngineError(f"A text of {len(tokens)} tokens is too long for one chunk.")
        return tokens

    def _features(self, samples: Samples, chunk: Chunk) -> npt.NDArray[np.float32]:
        from faster_whisper.audio import pad_or_trim

        edges.check_sound(samples, chunk, self.max_chunk_seconds)
        mel = self._model.feature_extractor(samples)[..., :-1]
        return np.asarray(pad_or_trim(mel, self._frames(len(samples))), dtype=np.float32)

    def _frames(self, samples: int) -> int:
        """Return the padded length in mel frames: the encoder's cost grows faster than the length."""
        needed = samples / SAMPLE_RATE + TRAILING_SILENCE
        # Measured on a CPU only; on a GPU each further length would take another pass of the decoder.
        fitting = (seconds for seconds in PADDED_ON_CPU if needed <= seconds and not self._on_gpu)
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

    def _tokenizer(self, language: str) -> Any:
        from faster_whisper.tokenizer import _LANGUAGE_CODES, Tokenizer

        if language not in self._tokenizers:
            if language not in _LANGUAGE_CODES:
                raise EngineError(f"Whisper does not support the language {language!r}.")
            self._tokenizers[language] = Tokenizer(
                self._model.hf_tokenizer, self._model.model.is_multilingual, task="transcribe", language=language
            )
        return self._tokenizers[language]


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
