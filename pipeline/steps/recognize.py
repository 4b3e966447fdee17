"""Recognition of a call: guess its languages, transcribe all chunks, correct languages, decode suspect windows again.

Decoding again has a budget in decoder passes, not in seconds, so that results are reproducible.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipeline.asr import safety
from pipeline.asr.doubt import DoubtCalibration, calibration_of
from pipeline.asr.safety import Suspect
from pipeline.domain.call import Call
from pipeline.domain.insight import Member, Roster
from pipeline.domain.speech import AudioAnalysis, Chunk, ChunkText, Recognized
from pipeline.language.identification import at, decoded_in_other_language, guess, of_chunk, spread, stretches
from pipeline.runtime.workers import RemoteRef, Workers
from pipeline.steps.audio import analyze_recordings, with_sound
from pipeline.steps.call_run import CallRun


def vocabulary(call: Call, roster: Roster) -> tuple[str, ...]:
    """Return names and terms by relevance, without repetitions (case does not matter).

    The order: the member who handles the call, the contact with the other number and their company, the workspace's
    terms, then the other members and their aliases. An engine takes as many from the front as fit. Contacts with other
    numbers are left out: a name in the vocabulary is also recognized when another one was said.
    """
    handling = str(call.user_id) if call.user_id else None
    first = [member for member in roster.members if member.user_id == handling]
    others = [member for member in roster.members if member.user_id != handling]
    words: dict[str, str] = {}
    for word in (*_members(first), *_contacts(call, roster), *roster.terms, *_members(others)):
        tidy = " ".join(word.split())
        if tidy:
            words.setdefault(tidy.casefold(), tidy)
    return tuple(words.values())


def _members(members: Iterable[Member]) -> Iterable[str]:
    return (name for member in members for name in (member.name, *member.aliases))


def _contacts(call: Call, roster: Roster) -> Iterable[str]:
    numbers = {_digits(number, roster.default_country) for number in _other_numbers(call)} - {None}
    contacts = (contact for contact in roster.contacts if _digits(contact.phone, roster.default_country) in numbers)
    return (word for contact in contacts for word in (contact.name, contact.company) if word)


def _other_numbers(call: Call) -> tuple[str, ...]:
    """Return the other party's number; both if the direction is unknown."""
    if call.outgoing is None:
        return call.from_number, call.to_number
    return (call.to_number,) if call.outgoing else (call.from_number,)


def _digits(number: str | None, region: str | None) -> str | None:
    """Return the number in E.164; None if it cannot be parsed."""
    import phonenumbers

    try:
        parsed = phonenumbers.parse(number or "", region)
    except phonenumbers.NumberParseException:
        return None
    return str(phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164))


# With 1.0 and 8 the development half of `bench/real` (tiny.en) has one of 6,484 words more right, and decoding again
# costs 1.4 times as much: there most calls have one suspect window. Less bounds what a hopeless call costs.
RETRY_BUDGET_SHARE = 0.25  # passes for decoding again, as a share of those of the first decoding,
RETRY_BUDGET_MIN = 2  # plus so many: a short call has few windows
# Passes that one suspect window takes on average: 3 where its second text is good, 21 where nothing helps.
RETRY_BUDGET_PER_WINDOW = 8
MIN_AT_ONCE = 2  # windows


async def recognize_call(run: CallRun, audio: AudioAnalysis) -> Recognized:
    """Return the words of a call, with the call's names and terms as vocabulary."""
    recognition = await run.workers.recognition()
    if not audio.chunks:
        return Recognized((), recognition.engine)
    too_long = max(chunk.seconds for chunk in audio.chunks) > recognition.max_chunk_seconds + 0.1
    if too_long or (not recognition.packing and any(chunk.pieces for chunk in audio.chunks)):
        audio = await analyze_recordings(run)  # an earlier attempt cut the chunks for another model
    words, second_pass = vocabulary(run.call, run.roster), run.options.safety.second_pass
    return await recognize(run.workers, await run.sound.get(), audio, recognition.engine, words, second_pass)


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
    suspects = [suspect for suspect in reviewed if safety.should_retry(suspect, texts[suspect.index])]
    again = await _again(workers, sound, texts, suspects, vocabulary) if second_pass else {}
    settled, doubts = await workers.compute(
        with_sound, sound, safety.settle, audio, texts, again, calibration or calibration_of(engine)
    )
    undone = len(suspects) - len(again) if second_pass else 0
    return Recognized(settled, engine, doubts, stretches(settled), undone=undone)


async def _first_pass(
    workers: Workers, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str]
) -> list[ChunkText]:
    """Transcribe each chunk once: a few of each channel in the language that the engine detects, the rest accordingly.

    So each window is encoded once: its language comes from the same encoding.
    """
    samples = spread(chunks)
    texts = dict(zip(samples, await workers.transcribe(audio, samples, vocabulary), strict=True))
    guessed = guess(chunks, samples, [of_chunk(texts[chunk]) for chunk in samples])
    rest = [chunk for chunk, before in zip(guessed, chunks, strict=True) if before not in texts]
    others = iter(await workers.transcribe(audio, rest, vocabulary) if rest else ())
    return [
        replace(texts[chunk], chunk=with_language) if chunk in texts else next(others)
        for chunk, with_language in zip(chunks, guessed, strict=True)
    ]


async def _in_the_right_language(
    workers: Workers, audio: RemoteRef, texts: Sequence[ChunkText], vocabulary: Sequence[str]
) -> list[ChunkText]:
    wrong = decoded_in_other_language(texts, stretches(texts))
    corrected = [replace(texts[index].chunk, language=code) for index, code in wrong.items()]
    best = list(texts)
    if corrected:
        for index, text in zip(wrong, await workers.transcribe(audio, corrected, vocabulary), strict=True):
            if text.words or not best[index].words:  # keep words rather than none, in any language
                best[index] = text
    return best


async def _again(
    workers: Workers,
    audio: RemoteRef,
    texts: Sequence[ChunkText],
    suspects: Sequence[Suspect],
    vocabulary: Sequence[str],
) -> dict[int, ChunkText]:
    """Return second texts of the suspect windows by index, the worst first, until the budget is spent."""
    languages = stretches(texts)
    budget = RETRY_BUDGET_SHARE * sum(text.decodings for text in texts) + RETRY_BUDGET_MIN
    waiting = sorted(suspects, key=lambda s: (-len(s.reasons), texts[s.index].mean_log_probability, s.index))
    second_texts: dict[int, ChunkText] = {}
    while waiting and budget > 0:
        count = max(MIN_AT_ONCE, int(budget / RETRY_BUDGET_PER_WINDOW))
        batch, waiting = [suspect.index for suspect in waiting[:count]], waiting[count:]
        chunks = [texts[index].chunk for index in batch]
        chunks = [replace(chunk, language=at(languages, chunk) or chunk.language) for chunk in chunks]
        second = await workers.transcribe(audio, chunks, vocabulary, with_fallback=True)
        second_texts.update(zip(batch, second, strict=True))
        budget -= sum(text.decodings for text in second)
    return second_texts
