from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from pipeline.domain.insight import Roster
from pipeline.domain.speech import SAMPLE_RATE, Diarization
from pipeline.journal import MemoryJournal
from pipeline.process import Outcome, process
from pipeline.runtime.workers import LocalWorkers
from tests.paths import FIXTURES
from tests.recordings import stored
from tests.support.calls_by_hand import call

NOTICE = FIXTURES / "media" / "notice.flac"
NOTHING = {
    "voices": (),
    "voiceprint": None,
    "diarization": Diarization((), {}, "none"),
}  # the other engine is not asked


def pause(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)


def ring() -> np.ndarray:
    """Return two seconds of the ringing tone of North America, 440 and 480 Hz."""
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    return (0.1 * np.sin(2 * np.pi * 440 * time) + 0.1 * np.sin(2 * np.pi * 480 * time)).astype(np.float32)


@pytest.fixture(scope="module")
def notice() -> np.ndarray:
    sound, rate = soundfile.read(NOTICE, dtype="float32")
    return resample_poly(sound / np.abs(sound).max() * 0.4, SAMPLE_RATE // rate, 1).astype(np.float32)


class Diarizer:
    """Records the requests for voiceprints and returns none."""

    name = "none"

    def __init__(self) -> None:
        self.seconds = 0.0

    def voiceprint(self, pieces: Any) -> None:
        self.seconds = sum(len(piece) for piece in pieces) / SAMPLE_RATE

    def voices(self, pieces: Any) -> list[None]:
        return [None for _ in pieces]


async def processed(
    folder: Path, transcriber: Any, *channels: list[np.ndarray], diarizer: Diarizer | None = None
) -> Outcome:
    joined = [np.concatenate(parts) for parts in channels]
    sound = np.zeros((max(map(len, joined)), len(joined)), np.float32)
    for number, sounds in enumerate(joined):
        sound[: len(sounds), number] = sounds
    soundfile.write(folder / "call.wav", sound, SAMPLE_RATE, subtype="PCM_16")
    results = {"fetch": (stored(folder / "call.wav"),)} | ({} if diarizer else NOTHING)
    return await process(call().call, LocalWorkers(transcriber, diarizer), Roster(), MemoryJournal(results))


async def test_an_announcement_before_the_rep_answers_is_a_machines(
    notice: np.ndarray, sample_call: Any, tiny: Any, tmp_path: Path
) -> None:
    before = [pause(0.5), notice, pause(1), ring(), pause(3)]
    sample = sample_call("01")
    rep = [*before, sample.cut(0, 0.0, 13.0)]
    customer = [pause(sum(map(len, before)) / SAMPLE_RATE), sample.cut(1, 0.0, 13.0)]
    outcome = await processed(tmp_path, tiny, rep, customer)
    first, *others = outcome.transcript.turns
    assert first.machine and "This call may be recorded" in first.text
    assert others and not any(turn.machine for turn in others)
    statistics = next(finding.value for finding in outcome.findings if finding.step == "statistics")
    rep_talks = statistics["parties"]["rep"]["talk_seconds"]
    assert 3.0 < rep_talks < 8.0  # the notice alone takes 6 s more


async def test_a_rep_who_goes_on_to_read_the_notice_is_no_machine_though_the_customer_takes_five_seconds(
    notice: np.ndarray, sample_call: Any, tiny: Any, tmp_path: Path
) -> None:
    sample = sample_call("01")
    sounds = [sample.cut(0, 0.0, 4.7), notice]  # without a pause: after one, words alone say that a machine begins
    customer = [pause(sum(map(len, sounds)) / SAMPLE_RATE + 5), sample.cut(1, 5.4, 10.3)]
    outcome = await processed(tmp_path, tiny, sounds, customer)
    assert "This call may be recorded" in " ".join(turn.text for turn in outcome.transcript.turns)
    assert not any(turn.machine for turn in outcome.transcript.turns)


async def test_in_a_mono_recording_the_same_notice_stays_a_persons(
    notice: np.ndarray, sample_call: Any, tiny: Any, tmp_path: Path
) -> None:
    """A ring before it is no evidence: a rep may answer with the same notice."""
    outcome = await processed(tmp_path, tiny, [ring(), pause(2), notice, sample_call("03").cut(0, 0.0, 9.0)])
    assert "may be recorded" in " ".join(turn.text for turn in outcome.transcript.turns)
    assert not any(turn.machine for turn in outcome.transcript.turns)


async def test_no_voiceprint_is_made_of_an_announcement_on_the_reps_line(
    notice: np.ndarray, sample_call: Any, tiny: Any, tmp_path: Path
) -> None:
    sample = sample_call("01")
    before = [pause(0.5), notice, pause(1), ring(), pause(3)]
    rep = [*before, sample.cut(0, 0.0, 13.0)]
    customer = [pause(sum(map(len, before)) / SAMPLE_RATE), sample.cut(1, 0.0, 13.0)]
    asked = Diarizer()
    outcome = await processed(tmp_path, tiny, rep, customer, diarizer=asked)
    machine = next(turn for turn in outcome.transcript.turns if turn.machine)
    talk = sum(span.duration for span in outcome.recognized_call.audio.speech[0])
    assert machine.end - machine.start > 2
    assert 0 < asked.seconds <= talk - (machine.end - machine.start) + 0.5  # edges
