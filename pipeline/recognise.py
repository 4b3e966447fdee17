"""Recognition of a call: a first guess at its languages, all words, the languages as heard, what is doubtful again.

What is decoded again has a budget in passes of the decoder, not in seconds, so that results repeat.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pipeline.asr import safety
from pipeline.asr.doubt import calibration_of
from pipeline.asr.safety import SafetyOptions, Suspect
from pipeline.audio.hear import Loaded
from pipeline.domain.speech import Chunk, ChunkText, Heard, Recognized
from pipeline.language.identification import LanguageOptions, at, guess, misheard, of_chunk, spread, stretches
from pipeline.workers import Held, Workers

AGAIN_SHARE = 1.0  # passes that decoding again may take, as a share of those of the first decoding,
AGAIN_FLOOR = 8  # and so many more: a short call has few windows
AGAIN_EACH = 8  # passes that a suspect window takes about: 3 where its second text is good, 21 where nothing helps
FEWEST_AT_ONCE = 2  # windows


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
    then what is suspect, each chunk alone, the worst first and as many as the budget allows. What stays doubtful is
    marked. Raises `EngineError`, and `StorageError` where decoded sound cannot be read.
    """
    texts = await _first_pass(workers, audio, heard.chunks, vocabulary, language)
    texts = await _in_the_right_language(workers, audio, texts, vocabulary, language)
    suspects = await workers.compute(with_sound, audio, safety.review, heard, texts, safety_options)
    again = await _again(workers, audio, texts, suspects, vocabulary, language)
    settled, doubts = await workers.compute(
        with_sound, audio, safety.settle, heard, texts, again, safety_options, calibration_of(engine)
    )
    return Recognized(settled, engine, doubts, stretches(settled, language), undone=len(suspects) - len(again))


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


async def _again(
    workers: Workers,
    audio: Held,
    texts: Sequence[ChunkText],
    suspects: Sequence[Suspect],
    vocabulary: Sequence[str],
    language: LanguageOptions,
) -> dict[int, ChunkText]:
    """The second texts of the suspect windows, by index, the worst first, until the budget is spent."""
    known = stretches(texts, language)
    budget = AGAIN_SHARE * sum(text.decodings for text in texts) + AGAIN_FLOOR
    waiting = sorted(suspects, key=lambda s: (-len(s.reasons), texts[s.index].mean_log_probability, s.index))
    found: dict[int, ChunkText] = {}
    while waiting and budget > 0:
        count = max(FEWEST_AT_ONCE, int(budget / AGAIN_EACH))
        asked, waiting = [suspect.index for suspect in waiting[:count]], waiting[count:]
        chunks = [texts[index].chunk for index in asked]
        chunks = [replace(chunk, language=at(known, chunk) or chunk.language) for chunk in chunks]
        second = await workers.transcribe(audio, chunks, vocabulary, careful=True)
        found.update(zip(asked, second, strict=True))
        budget -= sum(text.decodings for text in second)
    return found


def with_sound(loaded: Loaded, fn: Callable[..., Any], *args: Any) -> Any:
    """Run `fn` on the sound of what was loaded: stages know sound, and only `Workers` knows where it is."""
    return fn(loaded.audio, *args)
