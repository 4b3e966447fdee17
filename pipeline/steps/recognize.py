"""Recognition of a call: a first guess at its languages, all words, the languages of the sound, doubtful windows again.

Decoding again has a budget in decoder passes, not in seconds, so that results are reproducible.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pipeline.asr import safety
from pipeline.asr.doubt import DoubtCalibration, calibration_of
from pipeline.asr.safety import Suspect
from pipeline.audio.analyze import Loaded
from pipeline.domain.speech import AudioAnalysis, Chunk, ChunkText, Recognized
from pipeline.language.identification import at, guess, misheard, of_chunk, spread, stretches
from pipeline.runtime.workers import RemoteRef, Workers

# With 1.0 and 8 the development half of `bench/real` (tiny.en) has one of 6,484 words more right, and decoding again
# costs 1.4 times as much: there most calls have one suspect window. Less bounds what a hopeless call costs.
RETRY_BUDGET_SHARE = 0.25  # passes that decoding again may take, as a share of those of the first decoding,
RETRY_BUDGET_MIN = 2  # and so many more: a short call has few windows
RETRY_BUDGET_PER_WINDOW = (
    8  # passes that a suspect window takes about: 3 where its second text is good, 21 where nothing helps
)
MIN_AT_ONCE = 2  # windows


async def recognize(
    workers: Workers,
    sound: RemoteRef,
    audio: AudioAnalysis,
    engine: str,
    vocabulary: Sequence[str],
    second_pass: bool = True,
    calibration: DoubtCalibration | None = None,
) -> Recognized:
    """Return the words of all chunks of `audio`, which has some.

    Chunks whose language turns out to differ from the one they were decoded in are decoded again, also in batches. Then
    suspect windows are decoded alone where that may help, the worst first, as many as the budget allows. What stays
    doubtful is marked. Without `second_pass` no suspect window is decoded again. Raises `EngineError`, and
    `StorageError` if decoded sound cannot be read.
    """
    texts = await _first_pass(workers, sound, audio.chunks, vocabulary)
    texts = await _in_the_right_language(workers, sound, texts, vocabulary)
    reviewed = await workers.compute(with_sound, sound, safety.review, audio, texts)
    suspects = [suspect for suspect in reviewed if safety.worth_again(suspect, texts[suspect.index])]
    again = await _again(workers, sound, texts, suspects, vocabulary) if second_pass else {}
    settled, doubts = await workers.compute(
        with_sound, sound, safety.settle, audio, texts, again, calibration or calibration_of(engine)
    )
    undone = len(suspects) - len(again) if second_pass else 0
    return Recognized(settled, engine, doubts, stretches(settled), undone=undone)


async def _first_pass(
    workers: Workers, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str]
) -> list[ChunkText]:
    """Every chunk once: a few of each channel in the language that the engine detects, the rest in what these suggest.

    So each window is encoded once: its language comes from the same encoding.
    """
    asked = spread(chunks)
    found = dict(zip(asked, await workers.transcribe(audio, asked, vocabulary), strict=True))
    guessed = guess(chunks, asked, [of_chunk(found[chunk]) for chunk in asked])
    rest = [chunk for chunk, before in zip(guessed, chunks, strict=True) if before not in found]
    others = iter(await workers.transcribe(audio, rest, vocabulary) if rest else ())
    return [
        replace(found[chunk], chunk=known) if chunk in found else next(others)
        for chunk, known in zip(chunks, guessed, strict=True)
    ]


async def _in_the_right_language(
    workers: Workers, audio: RemoteRef, texts: Sequence[ChunkText], vocabulary: Sequence[str]
) -> list[ChunkText]:
    wrong = misheard(texts, stretches(texts))
    corrected = [replace(texts[index].chunk, language=code) for index, code in wrong.items()]
    done = list(texts)
    if corrected:
        for index, text in zip(wrong, await workers.transcribe(audio, corrected, vocabulary), strict=True):
            if text.words or not done[index].words:  # keep words rather than none, in any language
                done[index] = text
    return done


async def _again(
    workers: Workers,
    audio: RemoteRef,
    texts: Sequence[ChunkText],
    suspects: Sequence[Suspect],
    vocabulary: Sequence[str],
) -> dict[int, ChunkText]:
    """The second texts of the suspect windows, by index, the worst first, until the budget is spent."""
    known = stretches(texts)
    budget = RETRY_BUDGET_SHARE * sum(text.decodings for text in texts) + RETRY_BUDGET_MIN
    waiting = sorted(suspects, key=lambda s: (-len(s.reasons), texts[s.index].mean_log_probability, s.index))
    found: dict[int, ChunkText] = {}
    while waiting and budget > 0:
        count = max(MIN_AT_ONCE, int(budget / RETRY_BUDGET_PER_WINDOW))
        asked, waiting = [suspect.index for suspect in waiting[:count]], waiting[count:]
        chunks = [texts[index].chunk for index in asked]
        chunks = [replace(chunk, language=at(known, chunk) or chunk.language) for chunk in chunks]
        second = await workers.transcribe(audio, chunks, vocabulary, with_fallback=True)
        found.update(zip(asked, second, strict=True))
        budget -= sum(text.decodings for text in second)
    return found


def with_sound(loaded: Loaded, fn: Callable[..., Any], *args: Any) -> Any:
    """Run `fn` on loaded sound: stages know sound, and only `Workers` knows where it is."""
    return fn(loaded.audio, *args)
