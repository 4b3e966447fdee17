"""The second look with real voices of one sex that are more alike than the pieces of one voice need to be (0.45).

Each voice reads its LibriSpeech utterance in slices of the turns' lengths: the words are the dialogue's, the voices are
real. Needs `LIBRISPEECH`, see `bench/real/sources.py`.
"""

import numpy as np
import pytest
import soxr

from bench.real.sources import RATE, Half, SourceMissing, Sources
from pipeline.diarization import DiarizationOptions, load
from pipeline.domain.speech import Diarization, SpeakerSpan
from pipeline.speakers.reclustering import with_margin
from pipeline.speakers.second_look import spoken_pieces, two_voices
from tests.unit.pipeline.speakers.test_machines import said

pytestmark = pytest.mark.slow
MIN_COSINE = 0.45
PAIRS: tuple[tuple[Half, str, str], ...] = (
    ("development", "1098", "1578"), ("development", "1578", "198"), ("development", "2136", "2384"),
    ("development", "1502", "1898"), ("report", "125", "1737"), ("report", "229", "233"),
)  # fmt: skip
TALK = (
    "Thank you for calling Harper Valley Bank, how can I help you today?",
    "Hi, I was charged twice and I would like to get my money back.",
    "I can help you with that. May I have your account number?",
    "My account number is five five five, one two three.",
    "One moment please, let me check. Which month is it?",
    "I was charged in March, it does not work online.",
    "I can see your payments. What is the amount?",
    "The amount is ninety seven dollars, I would like to have it back.",
    "We will refund it. Can I have your phone number?",
    "My phone number is five five five, zero one four three.",
    "Thank you for waiting. Is there anything else I can help you with?",
    "Yes, could you please send me a letter?",
    "I will send you one. What is your address?",
    "I live at twelve Elm Street in Springfield.",
    "You will get it soon. Is there anything else I can do for you?",
    "No, thank you for your help.",
    "Thank you for calling, have a great day.",
    "You too, bye.",
)


def voices(half: Half, agent: str, customer: str) -> str:
    """Return the voice of each turn of a mixed call that the diarizer takes for one voice."""
    try:
        clips = {clip.speaker: clip.load() for clip in Sources().voices(half)}
    except SourceMissing as missing:
        pytest.skip(str(missing))
    rng = np.random.default_rng(1)
    places = [RATE // 4, RATE // 4 if agent != customer else len(clips[agent]) // 2]
    texts, parts, at = [], [np.zeros(RATE // 2, np.float32)], 0.5
    for number, text in enumerate(TALK):
        sound, party = clips[(agent, customer)[number % 2]], number % 2
        size = int(max(0.6, 0.24 * len(text.split())) * RATE)
        places[party] = places[party] if places[party] + size <= len(sound) else RATE // 4
        spoken = sound[places[party] : places[party] + size] / np.sqrt((sound**2).mean()) * 0.06
        places[party] += size
        texts.append(said(text, at, at + size / RATE))
        parts += [spoken, np.zeros(int(rng.uniform(0.8, 1.6) * RATE), np.float32)]
        at += (size + len(parts[-1])) / RATE
    line = np.concatenate(parts)
    line = soxr.resample(line + rng.normal(0, 0.0006, len(line)), RATE, 8000)
    telephone = soxr.resample(line, 8000, RATE).astype(np.float32)
    engine = load(DiarizationOptions(device="cpu", threads=1))
    before = Diarization((SpeakerSpan(0, at, "A"),), {}, engine.name)
    pieces = spoken_pieces(texts, before.spans)
    wide = with_margin([piece.span for piece in pieces])
    prints = engine.voices([telephone[int(span.start * RATE) : int(span.end * RATE)] for span in wide])
    spans = two_voices(before, pieces, prints, MIN_COSINE).spans
    return "".join(next(s.speaker for s in spans if s.end > text.words[0].start) for text in texts)


@pytest.mark.parametrize(("half", "agent", "customer"), PAIRS)
def test_two_similar_real_voices_of_one_sex_are_separated(half: Half, agent: str, customer: str) -> None:
    found = voices(half, agent, customer)
    assert sum(voice == right for voice, right in zip(found, "AB" * 9, strict=True)) >= 17, found


@pytest.mark.parametrize(("half", "voice"), [("development", "1098"), ("development", "198"), ("report", "1737")])
def test_a_real_voice_that_reads_both_parties_stays_one(half: Half, voice: str) -> None:
    assert voices(half, voice, voice) == "A" * 18
