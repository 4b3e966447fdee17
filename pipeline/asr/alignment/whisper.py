"""Whisper's cross-attention as an aligner: the frames that the decoder attends to while it reads a given text.

The method is that of Whisper's own word times (faster-whisper, CTranslate2's `align`). Any Whisper works: base aligns
the text of a far larger model.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ConfigDict

from pipeline.asr.alignment.engine import AlignmentOptions, Samples
from pipeline.asr.faster_whisper import FasterWhisper
from pipeline.asr.whisper_model import CHECKPOINTS as RECOGNIZERS
from pipeline.asr.whisper_model import FasterWhisperOptions
from pipeline.domain.speech import Chunk, Word

BATCH = 4  # chunks in one pass


class WhisperAlignerOptions(AlignmentOptions):
    """Options of this aligner: none besides the common ones."""

    model_config = ConfigDict(extra="forbid")


CHECKPOINTS = replace(
    RECOGNIZERS,
    title="Whisper model for alignment",
    setting="SWITCHBOARD_ALIGNMENT__MODEL",
    auto=lambda _: ("base", "small", "medium", "large-v3-turbo", "large-v3", "tiny"),
    advice=lambda _: ("Without the hub: `switchboard checkpoints fetch whisper-base`.",),
)


class WhisperAligner:
    """Aligner; see `pipeline.asr.alignment.Aligner`."""

    Options = WhisperAlignerOptions
    CHECKPOINTS = CHECKPOINTS

    def __init__(self, options: WhisperAlignerOptions, store: Path | None = None) -> None:
        whisper_options = FasterWhisperOptions(model=options.model, device=options.device, batch_size=BATCH)
        self._whisper = FasterWhisper(whisper_options, store, CHECKPOINTS, at_once=1)
        self.options, self.checkpoint = options, self._whisper.checkpoint  # identify its times
        self.name = f"whisper {self._whisper.name.partition(' ')[2]}"
        self.max_chunk_seconds = self._whisper.max_chunk_seconds

    @staticmethod
    def device_of(options: AlignmentOptions) -> str:
        return FasterWhisper.device_of(FasterWhisperOptions(device=options.device))

    def align(
        self, samples: Sequence[Samples], chunks: Sequence[Chunk], texts: Sequence[str]
    ) -> list[tuple[Word, ...]]:
        """See `pipeline.asr.alignment.Aligner`. An English-only model treats every text as English."""
        return self._whisper.align(samples, chunks, texts)
