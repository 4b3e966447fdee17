from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.asr import fallback
from pipeline.asr.safety import Suspect
from pipeline.audio import analyze
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.speech import AudioInMemory, Chunk, ChunkText, Recording, Word
from pipeline.runtime.workers import LocalWorkers, RemoteRef
from pipeline.steps.recognize import RETRY_BUDGET_MIN, RETRY_BUDGET_SHARE, _again, recognize
from tests.support.safety_by_hand import heard_as, said, sounding
from tests.synthetic_calls import FOLDER

CALL = FOLDER / "03_repair_mono" / "call.flac"


class DeafIn:
    """The real engine, which identifies the sound as `language` and transcribes nothing in it."""

    name, batch_size, batches_at_once, max_chunk_seconds, packing = "deaf", 4, 1, 8.0, False

    def __init__(self, engine: Any, language: str) -> None:
        self._engine, self._language = engine, language
        self.asked: list[tuple[str | None, bool]] = []

    def transcribe(self, samples: Any, chunks: Any, vocabularies: Any, with_fallback: bool) -> list[ChunkText]:
        self.asked += [(chunk.language, with_fallback) for chunk in chunks]
        texts = self._engine.transcribe(samples, chunks, vocabularies, with_fallback)
        return [self._heard(text) for text in texts]

    def _heard(self, text: ChunkText) -> ChunkText:
        sounding = replace(text, languages={self._language: 0.99, "en": 0.01})
        return replace(sounding, words=()) if text.language == self._language else sounding


async def test_decoding_in_the_language_of_the_sound_costs_no_words(transcriber: Any) -> None:
    loaded = analyze.load([Recording(0, CALL.as_uri(), "00" * 32, 1)], DecodeOptions())
    audio = analyze.analyze_audio(loaded, SpeechOptions(), transcriber.max_chunk_seconds)
    engine = DeafIn(transcriber, "es")
    workers = LocalWorkers(engine, None)
    recognized = await recognize(workers, RemoteRef(loaded), audio, engine.name, ())
    assert ("es", False) in engine.asked  # it was decoded again
    words = [word.text for text in recognized.texts for word in text.words]
    doubts = [doubt.text for doubt in recognized.doubts]
    assert len(words) > 50, (words, doubts)


class Listening:
    """Workers whose engine writes two words for each chunk, whatever it holds; what was asked for is kept."""

    def __init__(self, loaded: Any) -> None:
        self.loaded, self.asked = loaded, list[tuple[float, bool]]()

    async def compute(self, fn: Any, sound: RemoteRef, *args: Any) -> Any:
        return fn(self.loaded, *args)

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        self.asked += [(chunk.start, with_fallback) for chunk in chunks]
        return [said("good morning", chunk.start, chunk.start + 0.9, chunk=chunk) for chunk in chunks]


@pytest.mark.parametrize(("softer_db", "again"), [(0, True), (20, False)])
async def test_softer_speech_without_words_is_marked_and_not_decoded_again(softer_db: int, again: bool) -> None:
    voice, babble = sounding((0, 0.0, 1.0)).samples, sounding((0, 1.0, 4.0), seed=2).samples
    audio = AudioInMemory((voice + babble * 10 ** (-softer_db / 20)).astype(np.int16))
    analysis_ = replace(heard_as([[(0.0, 4.0)]]), chunks=(Chunk(0, 0.0, 4.0, "en"),))
    workers = Listening(SimpleNamespace(audio=audio))
    recognized = await recognize(workers, RemoteRef(None), analysis_, "by hand", ())  # type: ignore[arg-type]
    assert workers.asked == [(0.0, False), (0.0, True)][: 1 + again]
    assert [doubt.reasons for doubt in recognized.doubts] == [("missing_speech",)]
    assert recognized.undone == 0, "nothing was left for want of budget"


class Costly:
    """Decodes any window in vain, for so many passes; what it was asked for is kept."""

    def __init__(self, passes: int) -> None:
        self.passes, self.asked = passes, list[list[float]]()

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        assert with_fallback
        self.asked.append([chunk.start for chunk in chunks])
        return [replace(bad(chunk.start, -1.0), with_fallback=True, decodings=self.passes) for chunk in chunks]


def bad(start: float, probability: float) -> ChunkText:
    word = Word(start, start + 1, "word", 0.1)
    return ChunkText(Chunk(0, start, start + 8, "en"), "en", 1.0, (word,), probability, 0.0)


@pytest.mark.parametrize(("passes", "done", "rounds"), [(1, 8, 4), (3, 4, 2), (14, 2, 1)])
async def test_decoding_again_keeps_to_its_budget_and_takes_the_worst_windows_first(
    passes: int, done: int, rounds: int
) -> None:
    """20 windows: 5 passes and 2 more; a round may go over it by its last windows."""
    texts = [bad(10.0 * i, -0.7 - 0.01 * i) for i in range(20)]
    workers = Costly(passes)
    suspects = [Suspect(i, ("improbable",)) for i in range(20)]
    again = await _again(workers, RemoteRef(None), texts, suspects, ())  # type: ignore[arg-type]
    assert sorted(again) == list(range(20 - len(again), 20))
    spent = sum(text.decodings for text in again.values())
    assert (
        spent - passes * len(workers.asked[-1]) < RETRY_BUDGET_SHARE * 20 + RETRY_BUDGET_MIN <= spent
        or len(again) == 20
    )
    assert (len(again), len(workers.asked)) == (done, rounds)


async def test_what_has_more_against_it_is_decoded_again_first() -> None:
    texts = [bad(10.0 * i, -0.7) for i in range(20)]
    suspects = [Suspect(i, ("improbable", "loop") if i == 7 else ("improbable",)) for i in range(20)]
    again = await _again(Costly(50), RemoteRef(None), texts, suspects, ())  # type: ignore[arg-type]
    assert next(iter(again)) == 7


@pytest.mark.parametrize(
    ("gain", "ways"),
    [(0.0, ["half", "half", "alone", "no repeat", 0.2]), (0.01, ["half", "half", "alone", "no repeat", 0.2, 0.4, 0.6])],
)
def test_a_window_is_left_as_it_is_where_variations_bring_nothing_better(gain: float, ways: list[object]) -> None:
    asked: list[object] = []

    def decode(samples: Any, chunk: Chunk, way: fallback.DecodingStrategy) -> ChunkText:
        half = len(samples) < len(sound)
        asked.append(way.temperature or ("half" if half else "no repeat" if way.no_repeat else "alone"))
        return bad(0.0, -1.5 + gain * len(asked))

    sound = np.ones(8 * 16_000, np.float32)
    text = fallback.decode_with_fallback(sound, Chunk(0, 0.0, 8.0, "en"), decode, (0.2, 0.4, 0.6), False)
    assert asked == ways
    assert text.decodings == len(ways)
