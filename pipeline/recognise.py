"""Recognition of a call: a first guess at its languages, all words, the languages as heard, what is doubtful again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pipeline.asr import safety
from pipeline.asr.safety import SafetyOptions
from pipeline.audio.hear import Loaded
from pipeline.domain.speech import Chunk, ChunkText, Doubt, Heard, Recognized
from pipeline.speakers.language import LanguageOptions, at, guess, misheard, spread, stretches
from pipeline.workers import Held, Workers


async def recognise(
    workers: Workers,
    audio: Held,
    heard: Heard,
    engine: str,
    vocabulary: Sequence[str],
    language: LanguageOptions,
    safety_options: SafetyOptions,
) -> Recognized:
    """The words of all chunks of `heard`, which has some.

    Chunks whose language turns out to be another one than was guessed are decoded again, in batches as well; then what
    is suspect, each chunk alone. What stays doubtful is marked. Raises `EngineError`, and `StorageError` where decoded
    sound cannot be read.
    """
    chunks = await _with_language(workers, audio, heard.chunks, language)
    texts = await workers.transcribe(audio, chunks, vocabulary)
    texts = await _in_the_right_language(workers, audio, texts, vocabulary, language)
    settled, doubts = await _settled(workers, audio, heard, texts, vocabulary, language, safety_options)
    return Recognized(settled, engine, doubts, stretches(settled, language))


async def _with_language(
    workers: Workers, audio: Held, chunks: Sequence[Chunk], options: LanguageOptions
) -> list[Chunk]:
    asked = spread(chunks, options.first_chunks)
    return guess(chunks, asked, await workers.detect_languages(audio, asked), options)


async def _in_the_right_language(
    workers: Workers, audio: Held, texts: Sequence[ChunkText], vocabulary: Sequence[str], options: LanguageOptions
) -> list[ChunkText]:
    wrong = misheard(texts, stretches(texts, options))
    corrected = [replace(texts[index].chunk, language=code) for index, code in wrong.items()]
    done = list(texts)
    if corrected:
        for index, text in zip(wrong, await workers.transcribe(audio, corrected, vocabulary), strict=True):
            if text.words or not done[index].words:  # words are not given up for none, in whatever language
                done[index] = text
    return done


async def _settled(
    workers: Workers,
    audio: Held,
    heard: Heard,
    texts: Sequence[ChunkText],
    vocabulary: Sequence[str],
    language: LanguageOptions,
    options: SafetyOptions,
) -> tuple[tuple[ChunkText, ...], tuple[Doubt, ...]]:
    suspects = await workers.compute(with_sound, audio, safety.review, heard, texts, options)
    known = stretches(texts, language)
    chunks = [texts[suspect.index].chunk for suspect in suspects]
    chunks = [replace(chunk, language=at(known, chunk) or chunk.language) for chunk in chunks]
    again = await workers.transcribe(audio, chunks, vocabulary, careful=True) if chunks else []
    found = {suspect.index: text for suspect, text in zip(suspects, again, strict=True)}
    return await workers.compute(with_sound, audio, safety.settle, heard, texts, found, options)  # type: ignore[no-any-return]


def with_sound(loaded: Loaded, fn: Callable[..., Any], *args: Any) -> Any:
    """Run `fn` on the sound of what was loaded: stages know sound, and only `Workers` knows where it is."""
    return fn(loaded.audio, *args)
