"""What is left of a planted secret in the recognized words, in the redacted sound, and in what is recognized there."""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from bench.lib.planted_secrets import PlantedCall
from bench.lib.planted_sound import HeardCall, Place, Say, engine, recording_of, rows_of, said_digits, speak
from pipeline.audio.analyze import load
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.redaction import EntityKind, Redaction, RedactionPolicy
from pipeline.domain.speech import SAMPLE_RATE, Chunk, Layout, LayoutKind, text_of
from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import digit_runs
from pipeline.redaction.detect import find_entities
from pipeline.redaction.mask import mask_words
from pipeline.redaction.sound import redact_sound

OF_WORDS = (EntityKind.PASSWORD, EntityKind.SPELLED_NAME, EntityKind.ADDRESS)
ALIKE = 0.8  # of a secret's word and a recognized one, by difflib's ratio
AROUND = 0.5  # seconds around the secret: after other words, a small model ignores digits
MIN_BACK = 2  # digits in a row: a single one is a word like "one", or chance
MAX_AUDIBLE = 0.1  # seconds of a word of the secret, which are too short to be understood
Rows = npt.NDArray[np.int16]  # shape (2, n)
_EMAIL = re.compile(r"@|gmail|outlook|fastmail|posteo|\.(?:com|net|org)\b", re.IGNORECASE)
_LETTERS = re.compile(r"\b\w(?:[ .,-]+\w\b)+")  # as they are spelled


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a secret. `recognized`: enough of its digits are in the recognized words to hide them.

    `sound`: no word of it is audible in the redacted sound; None if the voice has no times. `back`: digits or words of
    it that another recognition of the redacted sound has, `plain` of the original one; None if there was none.
    """

    is_hidden: bool
    recognized: bool
    text: str  # the recognized turns that carry it
    remains: str  # the same, redacted
    sound: bool | None = None
    back: tuple[str, ...] | None = None
    plain: tuple[str, ...] | None = None


def outcome(call: PlantedCall, policy: RedactionPolicy, transcript: HeardCall, say: Say, again: str | None) -> Outcome:
    """Return whether nothing of the secret's form is left; `again`: the model that recognizes the redacted sound."""
    redaction = find_entities(transcript.recognized, policy)
    masked = mask_words(transcript.recognized, redaction, policy)
    texts = [text_of(transcript.recognized.texts[at].words) for at in transcript.secret]
    remains = [text_of(masked.texts[at].words) for at in transcript.secret]
    is_hidden = not any(_is_left(text, call) for text in remains)
    sound, back, plain = None, None, None
    if transcript.planted:
        rows = rows_of(transcript.places, speak(call, say))
        redacted = _redacted(rows, redaction, policy)
        sound = _is_silent(rows, redacted, transcript.planted)
        if again:
            back, plain = (_back(call, transcript, each, again) for each in (redacted, rows))
    is_recognized = _is_recognized(call, " ".join(texts))
    return Outcome(is_hidden, is_recognized, " / ".join(texts), " / ".join(remains), sound, back, plain)


def _is_silent(rows: Rows, redacted: Rows, planted: Sequence[Place]) -> bool:
    """Return whether no word of the secret is audible in the redacted sound."""
    for channel, start, end in planted:
        word = slice(round(start * SAMPLE_RATE), round(end * SAMPLE_RATE))
        audible = np.count_nonzero(redacted[channel, word] == rows[channel, word])
        if audible > min(MAX_AUDIBLE * SAMPLE_RATE, (word.stop - word.start) // 2):
            return False
    return True


def _redacted(rows: Rows, redaction: Redaction, policy: RedactionPolicy) -> Rows:
    layout = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "as planted")
    with recording_of(rows) as recording, tempfile.TemporaryDirectory() as folder:
        loaded = load((recording,), DecodeOptions(), scratch=Path(folder).as_uri())
        sound = redact_sound(loaded, layout, redaction.entities, policy)
        samples, _ = soundfile.read(sound.files[0].uri.removeprefix("file://"), dtype="int16", always_2d=True)
        return np.ascontiguousarray(samples.T)


def _back(call: PlantedCall, transcript: HeardCall, rows: Rows, model: str) -> tuple[str, ...]:
    """Return the digits in a row, or words, of the secret that a model recognizes in the sound."""
    carry = []
    for (channel, start, end), turn in zip(transcript.places, call.turns[2:-2], strict=True):
        words = [word for word in transcript.planted if word[0] == channel and start <= word[1] < end]
        if turn.secret and words:
            carry.append((channel, max(start, words[0][1] - AROUND), min(end, words[-1][2] + AROUND)))
    chunks = [Chunk(*place, language=call.language) for place in carry]
    sound = rows.astype(np.float32) / np.float32(32768)
    samples = [sound[channel, round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)] for channel, start, end in carry]
    text = " ".join(text_of(each.words) for each in engine(model).transcribe(samples, chunks))
    if call.kind in OF_WORDS:
        return tuple(sorted(words_left(text, secret_words(call))))
    if call.kind is EntityKind.EMAIL:
        return tuple(_EMAIL.findall(text))
    return tuple(_in_common(call, text, MIN_BACK))


def _is_recognized(call: PlantedCall, text: str) -> bool:
    """Return whether half of the secret is in the recognized text: digits in pairs or longer, otherwise words."""
    if call.kind is EntityKind.EMAIL:
        return bool(_EMAIL.search(text))
    if call.kind in OF_WORDS:
        words = secret_words(call)
        return len(words_left(text, words)) >= max(1, len(words) // 2)
    spoken = "".join(said_digits(turn, call.language) for turn in call.turns if turn.secret)
    return sum(map(len, _in_common(call, text, 2))) >= max(2, len(spoken) // 2)


def _in_common(call: PlantedCall, text: str, least: int) -> list[str]:
    """Return the rows of digits, from `least` on, that the secret and a text have in the same order."""
    spoken = "".join(said_digits(turn, call.language) for turn in call.turns if turn.secret)
    digits = "".join(run.text for run in digit_runs(text, pack(call.language), min_digits=1))
    blocks = SequenceMatcher(None, spoken, digits, autojunk=False).get_matching_blocks()
    return [spoken[block.a : block.a + block.size] for block in blocks if block.size >= least]


def _is_left(text: str, call: PlantedCall) -> bool:
    if call.kind is EntityKind.EMAIL:
        return bool(_EMAIL.search(text))
    if call.kind in OF_WORDS and words_left(text, secret_words(call)):
        return True
    return any(len(run.text) >= 2 for run in digit_runs(text, pack(call.language), min_digits=2))


def secret_words(call: PlantedCall) -> frozenset[str]:
    """Return the words of a secret in lower case, without stopwords and numbers; the letters of a name as one word."""
    language = pack(call.language)
    words = [turn.words[at].lower().strip(".,?!") for turn in call.turns for at in sorted(turn.secret)]
    if call.kind is EntityKind.SPELLED_NAME:
        return frozenset(["".join(words).replace("-", "")])
    common = language.words("text", "stopwords") | frozenset(language.numbers)
    return frozenset(word for word in words if len(word) > 1 and word not in common and not word.isdigit())


def words_left(text: str, words: frozenset[str]) -> frozenset[str]:
    """Return those of a secret's words that are in a text, spelled or as a word that is `ALIKE`."""
    spelled = [re.sub(r"\W", "", letters) for letters in _LETTERS.findall(text.lower())]
    written = [*re.findall(r"\w+", text.lower()), *spelled]
    return frozenset(
        word for word in words if any(SequenceMatcher(None, word, other).ratio() >= ALIKE for other in written)
    )
