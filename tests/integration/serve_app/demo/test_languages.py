from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from pipeline.domain.call import Call
from pipeline.domain.insight import Roster
from pipeline.domain.speech import SAMPLE_RATE, LabelKind, Transcript
from pipeline.domain.stage import Stage
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, process
from pipeline.runtime.workers import LocalWorkers
from serve_app.demo.compare import compare, word_errors
from serve_app.demo.samples import Sample
from tests.recordings import stored
from tests.synthetic_calls import synthetic_calls

Processed = Callable[[np.ndarray], Awaitable[Outcome]]
SAMPLES = {sample.name[:2]: sample for sample in synthetic_calls()}
RINGING = 40.0  # seconds


def sound(sample: Sample) -> np.ndarray:
    """Shape (channels, n), float32 at 16 kHz."""
    legs = []
    for path in sample.recordings:
        audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
        legs += list(resample_poly(audio.T, SAMPLE_RATE // rate, 1, axis=1).astype(np.float32))
    return np.stack(legs)


def ringback(seconds: float) -> np.ndarray:
    """425 Hz, one second on and four off, at -20 dBFS: much of Europe."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return (0.14 * np.sin(2 * np.pi * 425 * time) * (time % 5 < 1)).astype(np.float32)


def sentences(sample: Sample, first: int, last: int) -> np.ndarray:
    """Some of the sentences of a sample call, one after another, in one channel."""
    mixed = sound(sample).sum(axis=0)
    segments = sample.expected["segments"][first:last]
    cuts = [mixed[round((s["start"] - 0.1) * SAMPLE_RATE) : round((s["end"] + 0.3) * SAMPLE_RATE)] for s in segments]
    return np.concatenate(cuts)


def joined(*pieces: np.ndarray) -> np.ndarray:
    """Pieces of shape (channels, n) or (n,), the latter in the last channel only, with a second between them."""
    channels = max(piece.shape[0] if piece.ndim == 2 else 1 for piece in pieces)
    parts = []
    for piece in pieces:
        part = np.zeros((channels, piece.shape[-1] + SAMPLE_RATE), np.float32)
        part[-1 if piece.ndim == 1 else slice(None), : piece.shape[-1]] = piece
        parts.append(part)
    return np.concatenate(parts, axis=1)


@pytest.fixture
def processed(transcriber: Any, diarizer: Any, tmp_path: Path) -> Processed:
    async def run(samples: np.ndarray) -> Outcome:
        file = tmp_path / "call.wav"
        soundfile.write(file, samples.T, SAMPLE_RATE, subtype="PCM_16")
        journal = MemoryJournal({Stage.FETCH: (stored(file),)})
        call = Call(uuid4(), "+4930901820", "+14155550123", datetime.now(UTC), file.as_uri())
        options = ProcessOptions(storage=tmp_path.as_uri())
        return await process(call, LocalWorkers(transcriber, diarizer), Roster(), journal, options)

    return run


def said_in(transcript: Transcript, role: str, start: float, end: float) -> str:
    return " ".join(
        word.text
        for turn in transcript.turns
        for word in turn.words
        if turn.speaker == role and start <= word.start < end
    )


@pytest.mark.parametrize(("foreign", "code"), [("05", "es"), ("06", "de")])
async def test_ringing_and_an_announcement_in_another_language_do_not_decide_the_language(
    foreign: str, code: str, processed: Processed
) -> None:
    dialogue = SAMPLES["01"]
    opening = joined(sound(dialogue), ringback(RINGING), sentences(SAMPLES[foreign], 0, 3))[
        :, sound(dialogue).shape[1] :
    ]
    call = np.concatenate([opening, sound(dialogue)], axis=1)
    transcript = (await processed(call)).transcript
    begin = opening.shape[1] / SAMPLE_RATE

    assert transcript.language == "en"
    assert [s.language for s in transcript.languages] == ["en", code, "en"]
    assert [s.channel for s in transcript.languages] == [0, 1, 1]
    assert transcript.languages[0].start > begin - 0.5 and transcript.languages[1].end < begin + 0.5
    assert not any(turn.start < RINGING for turn in transcript.turns)
    ringing = sum(label.end - label.start for label in transcript.labels[1] if label.kind is LabelKind.RINGBACK)
    assert ringing >= 8  # the tone alone sounds for 8 s
    announced = " ".join(s["text"] for s in SAMPLES[foreign].expected["segments"][:3])
    assert word_errors(announced, said_in(transcript, "customer", 0, begin)).rate < 0.5  # sentences cut together
    turns = [(role, said_in(transcript, role, begin, 999)) for role in ("rep", "customer")]
    assert compare(dialogue.expected, turns, separated=True).rate < 0.1


async def test_a_call_that_changes_language_half_way_is_decoded_in_both(processed: Processed) -> None:
    first, second = SAMPLES["01"], SAMPLES["05"]
    change = sound(first).shape[1] / SAMPLE_RATE + 1
    transcript = (await processed(joined(sound(first), sound(second)))).transcript
    assert [(s.channel, s.language) for s in transcript.languages] == [(0, "en"), (0, "es"), (1, "en"), (1, "es")]
    assert all(s.probability > 0.9 for s in transcript.languages)
    assert all((s.language == "en") == (s.end < change) for s in transcript.languages)
    assert "2 languages are spoken: " in (transcript.language_note or "")
    assert {turn.language for turn in transcript.turns if turn.start < change} == {"en"}
    assert {turn.language for turn in transcript.turns if turn.start > change} == {"es"}
    for sample, start, end in ((first, 0.0, change), (second, change, 999.0)):
        turns = [(role, said_in(transcript, role, start, end)) for role in ("rep", "customer")]
        assert compare(sample.expected, turns, separated=True).rate < 0.2


async def test_next_to_no_speech_says_that_the_language_is_not_sure(processed: Processed) -> None:
    segment = SAMPLES["07"].expected["segments"][7]
    assert segment["text"] == "Okay, great."
    cut = sound(SAMPLES["07"])[
        1, round(segment["start"] * SAMPLE_RATE) - 1600 : round(segment["end"] * SAMPLE_RATE) + 1600
    ]
    transcript = (await processed(joined(np.zeros((1, SAMPLE_RATE * 3), np.float32), cut[None]))).transcript
    assert transcript.turns
    assert transcript.language == "en"
    assert "only 1." in (transcript.language_note or "")


async def test_names_of_the_roster_reach_the_engine_and_the_results_are_whole(
    transcriber: Any, diarizer: Any, tmp_path: Path
) -> None:
    results: list[Any] = []

    class Listening(LocalWorkers):
        async def transcribe(self, audio: Any, chunks: Any, vocabulary: Any = (), with_fallback: bool = False) -> Any:
            results.append((tuple(vocabulary), with_fallback))
            return await super().transcribe(audio, chunks, vocabulary, with_fallback)

    sample = SAMPLES["08"]
    recordings = tuple(stored(path, channel) for channel, path in enumerate(sample.recordings))
    journal = MemoryJournal({Stage.FETCH: recordings})
    call = Call(uuid4(), "anonymous", "anonymous", datetime.now(UTC))
    options = ProcessOptions(storage=tmp_path.as_uri())
    roster = replace(Roster(), terms=("Harbor Travel", "Madrid"))
    outcome = await process(call, Listening(transcriber, diarizer), roster, journal, options)
    assert results[0] == (("Harbor Travel", "Madrid"), False)
    assert all(words == ("Harbor Travel", "Madrid") for words, _ in results)
    assert len(outcome.recognized_call.recognized.texts) == len(outcome.recognized_call.audio.chunks)
