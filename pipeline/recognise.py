"""Recognition of a call: a first guess at its languages, all words, the languages as heard, what is doubtful again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pipeline.asr import safety
from pipeline.asr.safety import SafetyOptions
from pipeline.audio.hear import Loaded
from pipeline.domain.speech import Chunk, ChunkText, Doubt, Heard, Recognized
from pipeline.speakers.language import LanguageOptions, at, guess, misheard, of_chunk, spread, stretches
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

    Chunks whose language turns out to be another one than they were decoded in are decoded again, in batches as well;
    then what is suspect, each chunk alone. What stays doubtful is marked. Raises `EngineError`, and `StorageError`
    where decoded sound cannot be read.
    """
    texts = await _first_pass(workers, audio, heard.chunks, vocabulary, language)
    texts = await _in_the_right_language(workers, audio, texts, vocabulary, language)
    settled, doubts = await _settled(workers, audio, heard, texts, vocabulary, language, safety_options)
    return Recognized(settled, engine, doubts, stretches(settled, language))


async def _first_pass(
    workers: Workers, audio: Held, chunks: Sequence[Chunk], vocabulary: Sequence[str], options: LanguageOptions
) -> list[ChunkText]:
    """Every chunk once: a few of each channel as the engine takes their language, the rest in what these suggest.

    So a window is encoded once, and its language told from what was encoded anyway.
    """
    asked = spread(chunks, options.first_chunks)
    found = dict(zip(asked, await workers.transcribe(audio, asked, vocabulary), strict=True))
    guessed = guess(chunks, asked, [of_chunk(found[chunk]) for chunk in asked], options)
    rest = [chunk for chunk, before in zip(guessed, chunks, strict=True) if before not in found]
    others = iter(await workers.transcribe(audio, rest, vocabulary) if rest else ())
    return [
        replace(found[chunk], chunk=known) if chunk in found else next(others)
        for chunk, known in zip(chunks, guessed, strict=True)
    ]


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
