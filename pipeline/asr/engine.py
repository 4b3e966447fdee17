"""What a recognition engine must do, how it is chosen, and what it can be told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline.asr import alignment
from pipeline.asr.alignment.engine import Aligner, AlignmentOptions
from pipeline.checkpoints import CheckpointKind
from pipeline.domain.speech import Chunk, ChunkText
from pipeline.engines import registry
from pipeline.engines.registry import EngineOptions, Registry, load_engine

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz


@runtime_checkable
class Engine(Protocol):
    """Recognizes chunks. Those of one request may belong to several calls and languages.

    The class is made with its own options and the folder of the checkpoint store (None: the user's); what it names
    (`Options`, `CHECKPOINTS`, `device_of`) is asked without loading anything. Re-entrant: one thread's request may be
    prepared while another's has the device.
    """

    Options: ClassVar[type[EngineOptions]]  # `AsrOptions` and what else this engine can be told
    # How its model is found by name, and what to tell people who lack it. None: a server has it (`RemoteEngine`).
    CHECKPOINTS: ClassVar[CheckpointKind | None]
    name: str  # what made the words, e.g. "faster-whisper large-v3-turbo float16"
    max_chunk_seconds: float  # the most sound in a chunk that it takes
    packing: bool  # whether pauses may be left out of a chunk
    batch_size: int  # chunks that it takes in one forward pass
    batches_at_once: int  # of different threads that its device works on together; further ones wait for it

    @staticmethod
    def device_of(options: Any) -> str:
        """Return where an engine with these options computes: "cpu" or "cuda". Raises `DeviceUnavailable`."""

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        """Recognize chunks, in the order given; a chunk whose language is None has it detected.

        A model that knows one language only takes every chunk for that: `languages` is empty and `language_probability`
        0, since nothing was detected.

        `vocabularies[i]` holds names and terms to listen for in `chunks[i]`; an engine that cannot use them passes
        them over. `with_fallback`: each chunk alone, with every fallback the engine has, and the same result each time.
        `samples[i]` is the chunk's sound, pauses between its pieces left out. Word times count from the start of the
        recording, never decrease, and lie inside one piece of their chunk. A chunk without speech has no words.
        Raises `EngineError`.
        """


@runtime_checkable
class NeedsAligner(Protocol):
    """An engine whose model may write words without times: `load` gives it an aligner, which knows them."""

    aligner: Aligner | None
    needs_aligner: bool  # as far as is known when it is loaded


@runtime_checkable
class RemoteEngine(Protocol):
    """An engine whose model a server has: `CHECKPOINTS` is None."""

    @staticmethod
    def probe(options: Any) -> str:
        """Return where its model is, having asked the server.

        Raises `EngineUnavailable`, which says what is wrong and what to do.
        """


ENGINES = Registry(
    {
        "faster-whisper": "pipeline.asr.faster_whisper:FasterWhisper",
        "openai": "pipeline.asr.openai:OpenAI",
        "onnx": "pipeline.asr.onnx:Onnx",
    },
    stage="recognition",
    group="switchboard.asr",
)


class AsrOptions(EngineOptions):
    """How to recognize speech. Further options are the engine's own, beside its code."""

    STAGE: ClassVar[str] = ENGINES.stage
    ENGINES: ClassVar[Registry] = ENGINES

    engine: str = Field("faster-whisper", description="Which engine of `ENGINES`.")
    model: str = Field(
        "auto",
        description="A model that the engine knows by name (a Whisper size; openai: the server's name for it), "
        "a repository of the Hugging Face hub (owner/name@commit pins it), a folder (/..., ./..., ~/...), or "
        "auto: the best available model for the device (faster-whisper prefers large-v3-turbo on a GPU and small on a "
        "CPU; where that one is not available, it uses the best stored multilingual model and logs a warning).",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where to compute; auto: the GPU if there is one, and an error if it cannot be used."
    )


def engine_class(options: AsrOptions) -> type[Engine]:
    """Return the class of the engine that the options name."""
    return cast(type[Engine], registry.engine_class(ENGINES, options.engine))


def load(options: AsrOptions, store: Path | None = None, aligning: AlignmentOptions | None = None) -> Engine:
    """Load the engine that the options name; `store`: the folder of the checkpoint store, None: the user's.

    `aligning`: the aligner of an engine that needs one; None: the default one. Others load none.
    Raises `CheckpointMissing`, `CheckpointDamaged` or `DeviceUnavailable`.
    """
    engine = cast(Engine, load_engine(options, store))
    aligning = aligning or AlignmentOptions()
    if isinstance(engine, NeedsAligner) and engine.needs_aligner and aligning.on:
        engine.aligner = alignment.load(aligning, store)
    return engine
