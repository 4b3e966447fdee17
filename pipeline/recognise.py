"""Recognition of a call: a first guess at its languages, all words, the languages as heard, what is doubtful again."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.domain.speech import Chunk, ChunkText, Heard, Recognized
from pipeline.speakers.language import LanguageOptions, guess, misheard, spread, stretches
from pipeline.workers import Held, Workers


async def recognise(
    workers: Workers,
    audio: Held,
    heard: Heard,
    engine: str,
    vocabulary: Sequence[str],
    language: LanguageOptions,
) -> Recognized:
    """The words of all chunks of `heard`, which has some.

    Everything is encoded once. Chunks whose language turns out to be another one than was guessed are decoded again,
    in batches as well. Raises `EngineError`.
    """
    chunks = await _with_language(workers, audio, heard.chunks, language)
    texts = await workers.transcribe(audio, chunks, vocabulary)
    texts = await _in_the_right_language(workers, audio, texts, vocabulary, language)
    return Recognized(tuple(texts), engine, languages=stretches(texts, language))


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
            done[index] = text
    return done
