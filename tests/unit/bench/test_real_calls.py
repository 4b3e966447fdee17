"""The lines of `bench.real` keep times and the level of what goes through; truth is read back as it was written."""

import numpy as np
import pytest

from bench.real.calls import Builder, Truth
from bench.real.lines import LINES, edges, level, noise
from bench.real.sources import RATE, clean, half_of, own_text


def _burst() -> np.ndarray:
    """3 s of which second 1 to 2 is loud and shaped like speech: modulated noise."""
    rng = np.random.default_rng(0)
    sound = np.zeros(3 * RATE, np.float32)
    envelope = 0.6 + 0.4 * np.sin(2 * np.pi * 5 * np.arange(RATE) / RATE)
    sound[RATE : 2 * RATE] = level((noise(RATE, 1, rng) * envelope).astype(np.float32))
    return sound


@pytest.mark.parametrize("name", LINES)
def test_a_line_keeps_length_and_times(name: str) -> None:
    sound = _burst()
    received = LINES[name](sound)
    assert received.shape == sound.shape
    assert received.dtype == np.float32
    onset, offset = edges(received)
    assert onset == pytest.approx(1.0, abs=0.03)
    assert offset == pytest.approx(2.0, abs=0.05)
    loud = np.sqrt((received[RATE : 2 * RATE] ** 2).mean())
    assert 0.01 < loud < 0.2  # pink noise has most of its power below the telephone band


def test_a_line_takes_silence() -> None:
    for name, line in LINES.items():
        assert np.abs(line(np.zeros(RATE, np.float32))).max() < 0.01, name


def test_truth_is_read_back_as_written(tmp_path) -> None:
    built = Builder(1)
    end = built.put(0, 0.5, _burst(), "speech", "a", speaker="1", text="one two")
    built.put(1, end, _burst(), "music", "b")
    call = built.call("x", "development", "mulaw")
    path = call.write(tmp_path)
    truth = Truth.read(path.with_suffix(".json"))
    assert truth == Truth.of(call.truth())
    assert [event.kind for event in truth.events] == ["speech", "music"]
    assert truth.events[0].onset == pytest.approx(1.5, abs=0.03)
    assert truth.duration == pytest.approx(6.5, abs=0.01)
    assert not truth.mixed


def test_prompts_are_split_by_the_checksum_of_their_name() -> None:
    assert half_of("queue-youarenext") == "development"
    assert half_of("queue-periodic-announce") == "report"


def test_stage_directions_are_not_words() -> None:
    assert clean("at [@]") == "at"
    assert clean("(10 seconds of silence)") == ""


def test_a_prompt_has_not_the_words_of_those_that_follow_on_its_line() -> None:
    line = "attivi. confbridge-mute-in: Per disattivare... confbridge-mute-out: ...per disattivare"
    assert own_text("confbridge-mute-extended", line) == "attivi."
    assert own_text("confbridge-invalid", "Options, e-mail: none") == "Options, e-mail: none"
