"""What a recognition engine must do, how it is chosen, and what it can be told."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import Chunk, ChunkText

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz


@runtime_checkable
class Engine(Protocol):
    """Recognises chunks. Those of one request may belong to several calls and languages.

    Re-entrant: one thread's request may be prepared while another's has the device.
    """

    name: str  # what made the words, e.g. "faster-whisper large-v3-turbo float16"
    max_chunk_seconds: float  # the most sound in a chunk that it takes
    packing: bool  # whether pauses may be left out of a chunk
    batch_size: int  # chunks that it takes in one forward pass
    batches_at_once: int  # of different threads that its device works on together; further ones wait for it

    def detect_languages(self, samples: Sequence[Samples], chunks: Sequence[Chunk]) -> list[dict[str, float]]:
        """Return, for each chunk, the probability of each language (ISO 639-1); `samples[i]` belongs to `chunks[i]`.

        Empty where the model knows one language only: it cannot tell whether that is spoken.
        """

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        careful: bool = False,
    ) -> list[ChunkText]:
        """Recognise chunks, in the order given; a chunk whose language is None has it detected.

        A model that knows one language only takes every chunk for that: `languages` is empty and `language_probability`
        0, since nothing was detected.

        `vocabularies[i]` holds names and terms to listen for in `chunks[i]`; an engine that cannot use them passes
        them over. `careful`: each chunk alone, with every fallback the engine has, and the same result each time.
        `samples[i]` is the chunk's sound, pauses between its pieces left out. Word times count from the start of the
        recording, never decrease, and lie inside one piece of their chunk. A chunk without speech has no words.
        Raises `EngineError`.
        """


ENGINES: dict[str, str] = {
    "faster-whisper": "pipeline.asr.faster_whisper:FasterWhisper",
}
"""Engines by the name that settings use: "module:Class", imported only where it is loaded."""


class AsrOptions(BaseModel):
    """How to recognise speech."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = Field("faster-whisper", description="Which engine of `ENGINES`.")
    model: str = Field(
        "auto",
        description="A Whisper size, a repository of the Hugging Face hub (owner/name@commit pins it), a folder "
        "(/..., ./..., ~/...), or auto "
        "(large-v3-turbo on a GPU, small on a CPU).",
    )
    checkpoints: Path | None = Field(
        None, description="Folder of the checkpoint store for recognition; none given: SWITCHBOARD_CHECKPOINTS."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where to compute; auto takes a GPU if there is."
    )
    compute_type: str = Field(
        "auto", description="CTranslate2's number format; auto is int8 on a CPU and float16 on a GPU."
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        le=256,
        description="Chunks in one forward pass; none given: 4 on a CPU, on a GPU what half of its free memory holds.",
    )
    batches_at_once: int | None = Field(
        None,
        ge=1,
        le=16,
        description="Batches that the device works on together, on a CPU each with its share of `cpu_threads`; none "
        "given: 2. One more is prepared meanwhile.",
    )
    beam_size: int = Field(5, ge=1, le=10, description="Hypotheses kept while decoding; 1 is greedy and faster.")
    cpu_threads: int = Field(
        0, ge=0, description="Threads on a CPU, of all batches at once; 0: one for each core, at most 4 for a batch."
    )
    max_chunk_seconds: float | None = Field(
        None, gt=0, le=30, description="Longest chunk; none given: what the checkpoint's manifest says, else 30."
    )
    packing: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether a chunk may hold what a party says before and after a pause, without the pause: a window "
        "costs the same however much of it is silent. auto: unless the checkpoint's manifest says that this harms it.",
    )
    no_speech_threshold: float = Field(
        0.6,
        ge=0,
        le=1,
        description="A chunk is silent if its probability of no speech is above this and its text improbable.",
    )
    log_probability_threshold: float = Field(
        -1.0, le=0, description="Text below this mean log probability per token is improbable: suspect."
    )
    compression_threshold: float = Field(
        2.4, gt=1, description="Text that gzip shrinks by more than this repeats itself: suspect."
    )
    temperatures: tuple[float, ...] = Field(
        (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        min_length=1,
        description="Temperatures at which a chunk decoded again is sampled, in turn, until its text is neither "
        "improbable nor repetitive; 0 is not sampled.",
    )
    vocabulary: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether names and terms are given to the model as a prompt. auto: where the checkpoint's manifest "
        "says that this was measured to help, else not; bench/real/vocabulary.py measures it.",
    )


def load(options: AsrOptions) -> Engine:
    """Load the engine that the options name.

    Raises `ValueError` for a name that `ENGINES` lacks, `CheckpointMissing` or `CheckpointDamaged`.
    """
    try:
        module, name = ENGINES[options.engine].split(":")
    except KeyError:
        raise ValueError(f"{options.engine!r} is no recognition engine; known: {', '.join(ENGINES)}") from None
    return cast(Engine, getattr(import_module(module), name)(options))
