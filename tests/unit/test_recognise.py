"""The order of recognition: what a later pass hears never makes words of an earlier one vanish unsaid."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.asr.safety import SafetyOptions
from pipeline.audio import hear
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.decode import DecodeOptions
from pipeline.domain.speech import ChunkText, Recording
from pipeline.recognise import recognise
from pipeline.speakers.language import LanguageOptions
from pipeline.workers import Held, LocalWorkers

CALL = Path(__file__).parents[2] / "serve_app" / "demo" / "samples" / "03_repair_mono" / "call.flac"


class DeafIn:
    """The real engine, which takes the sound for `language` and, told to decode in it, hears nothing."""

    name, batch_size, batches_at_once, max_chunk_seconds, packing = "deaf", 4, 1, 8.0, False

    def __init__(self, engine: Any, language: str) -> None:
        self._engine, self._language = engine, language
        self.asked: list[tuple[str | None, bool]] = []

    def detect_languages(self, samples: Any, chunks: Any) -> list[dict[str, float]]:
        return [{"en": 1.0} for _ in chunks]

    def transcribe(self, samples: Any, chunks: Any, vocabularies: Any, careful: bool) -> list[ChunkText]:
        self.asked += [(chunk.language, careful) for chunk in chunks]
        texts = self._engine.transcribe(samples, chunks, vocabularies, careful)
        return [self._heard(text) for text in texts]

    def _heard(self, text: ChunkText) -> ChunkText:
        sounding = replace(text, languages={self._language: 0.99, "en": 0.01})
        return replace(sounding, words=()) if text.language == self._language else sounding


async def test_decoding_in_the_language_of_the_sound_costs_no_words(transcriber: Any) -> None:
    loaded = hear.load([Recording(0, CALL.as_uri(), "00" * 32, 1)], DecodeOptions())
    heard = hear.examine(loaded, SpeechOptions(), transcriber.max_chunk_seconds)
    engine = DeafIn(transcriber, "es")
    workers = LocalWorkers(engine, None)
    found = await recognise(workers, Held(loaded), heard, engine.name, (), LanguageOptions(), SafetyOptions())
    assert ("es", False) in engine.asked  # it was decoded again
    words = [word.text for text in found.texts for word in text.words]
    doubts = [doubt.text for doubt in found.doubts]
    assert len(words) > 50, (words, doubts)
