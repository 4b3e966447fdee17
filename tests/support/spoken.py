"""Workers whose transcriber returns given words in place of what it recognizes: for tests that plant what is said."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline.domain.speech import Chunk, ChunkText, Word
from pipeline.runtime.workers import LocalWorkers


class SpokenWorkers(LocalWorkers):
    """Says `sentences` in turn, one in each chunk of speech; the real decoder, detector and diarizer run.

    `sentences`: language and text of each.
    """

    def __init__(self, transcriber: Any, diarizer: Any, sentences: Sequence[tuple[str, str]]) -> None:
        super().__init__(transcriber, diarizer)
        self.sentences = list(sentences)
        self.transcribed = 0  # chunks
        self.stalls = self.stalled = False  # when it is asked

    async def transcribe(
        self, audio: Any, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        if self.stalls:
            self.stalled = True
            await asyncio.sleep(600)
        first, self.transcribed = self.transcribed, self.transcribed + len(chunks)
        return [self._text(chunk, *self.sentences[at % len(self.sentences)]) for at, chunk in enumerate(chunks, first)]

    def _text(self, chunk: Chunk, language: str, sentence: str) -> ChunkText:
        spoken = sentence.split()
        step = chunk.seconds / len(spoken)
        times = [(chunk.moment(at * step), chunk.moment((at + 0.9) * step)) for at in range(len(spoken))]
        words = tuple(Word(start, end, text, 0.95) for (start, end), text in zip(times, spoken, strict=True))
        return ChunkText(replace(chunk, language=language), language, 1.0, words, -0.1, 0.0)
