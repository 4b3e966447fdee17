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
from pipeline.engines.registry import EngineOptions, Registry, load_engine

Samples = npt.NDArray[np.float32]  # shape (n,), -1..1, mono at 16 kHz


@runtime_checkable
class Engine(Protocol):
    """Speech recognition engine. One request may hold chunks of several calls and languages.

    The constructor takes the engine's options and the folder of the checkpoint store (None: the user's). `Options`,
    `CHECKPOINTS` and `device_of` are available without loading anything. Re-entrant: one thread's request may be
    prepared while another's is on the device.
    """

    Options: ClassVar[type[EngineOptions]]  # `AsrOptions` plus the options of this engine
    # How to find its model by name, and advice if it is missing. None: the model is on a server (`RemoteEngine`).
    CHECKPOINTS: ClassVar[CheckpointKind | None]
    name: str  # shown as the source of the words, e.g. "faster-whisper large-v3-turbo float16"
    max_chunk_seconds: float  # longest chunk it accepts
    packing: bool  # whether pauses may be left out of a chunk
    batch_size: int  # chunks in one forward pass
    batches_at_once: int  # batches of different threads that run on the device in parallel; others wait

    @staticmethod
    def device_of(options: Any) -> str:
        """Return the device of an engine with these options: "cpu" or "cuda". Raises `DeviceUnavailable`."""

    def transcribe(
        self,
        samples: Sequence[Samples],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        """Recognize chunks in the given order; detect the language of a chunk whose language is None.

        A model for a single language treats every chunk as that language: `languages` is empty and
        `language_probability` 0, since nothing was detected.

        `samples[i]` is the chunk's sound without the pauses between its pieces. `vocabularies[i]` holds names and terms
        of `chunks[i]`; an engine without vocabulary support ignores them. `with_fallback`: decode each chunk alone with
        every fallback of the engine, with the same result each time. Word times count from the start of the recording,
        never decrease, and stay inside one piece of their chunk. A chunk without speech has no words.
        Raises `EngineError`.
        """


@runtime_checkable
class NeedsAligner(Protocol):
    """Engine whose model may return words without times; `load` sets its aligner, which adds them."""

    aligner: Aligner | None
    needs_aligner: bool  # as known after loading


@runtime_checkable
class RemoteEngine(Protocol):
    """Engine whose model runs on a server: `CHECKPOINTS` is None."""

    @staticmethod
    def probe(options: Any) -> str:
        """Query the server and return where its model is.

        Raises `EngineUnavailable`, whose message says what is wrong and what to do.
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
    """Options of speech recognition; each engine adds its own next to its code."""

    ENGINES: ClassVar[Registry] = ENGINES

    engine: str = Field("faster-whisper", description="Which engine of `ENGINES`.")
    model: str = Field(
        "auto",
        description="A model of the engine, a repository of the Hugging Face hub (owner/name@commit pins it), a "
        "folder (/..., ./..., ~/...), or auto: large-v3-turbo on a GPU, small on a CPU, else the best"
        " stored multilingual model, with a warning.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: the GPU if there is one, and an error if it cannot be used."
    )

    @property
    def may_align(self) -> bool:
        """Whether the engine may need an aligner; some engines know only after loading their model."""
        return hasattr(self.engine_class, "aligner")


def load(options: AsrOptions, store: Path | None = None, aligning: AlignmentOptions | None = None) -> Engine:
    """Load the engine in the options; `store`: the folder of the checkpoint store, None: the user's.

    `aligning`: options of the aligner, loaded only if the engine needs one; None: the defaults. Raises
    `CheckpointMissing`, `CheckpointDamaged` or `DeviceUnavailable`.
    """
    engine = cast(Engine, load_engine(options, store))
    aligning = aligning or AlignmentOptions()
    if isinstance(engine, NeedsAligner) and engine.needs_aligner and aligning.on:
        engine.aligner = alignment.load(aligning, store)
    return engine
