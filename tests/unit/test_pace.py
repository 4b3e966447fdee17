"""How the time of a stage is shared between the calls that are in it."""

import pytest

from serve_app.scaling.estimates import CALL, RtfxMeter, StageClock


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_moment_belongs_in_equal_parts_to_the_calls_that_are_in_the_stage() -> None:
    time = Time()
    clock = StageClock(time)
    clock.begin("a")
    time.now += 4  # a alone
    clock.begin("b")
    time.now += 6  # half each
    assert clock.end("a") == pytest.approx(7)
    time.now += 2
    assert clock.end("b") == pytest.approx(5)
    time.now += 50  # nobody
    clock.begin("c")
    time.now += 1
    assert clock.end("c") == pytest.approx(1)
    assert clock.end("c") is None


def test_what_all_calls_worked_is_the_time_in_which_there_was_work() -> None:
    time = Time()
    paces = RtfxMeter(time)
    for call in range(5):
        paces.begin("asr", call)
        time.now += 1
    for call in range(5):
        paces.end("asr", call, 1, 30.0)
        time.now += 1
    (pace,) = paces.take({})
    assert (pace.stage, pace.channels, pace.calls, pace.audio_seconds) == ("asr", 1, 5, 150.0)
    assert pace.worked_seconds == pytest.approx(9)
    assert paces.take({}) == []


def test_replicas_that_share_the_work_each_count() -> None:
    time = Time()
    paces = RtfxMeter(time)
    for stage in ("asr", "diarization", CALL):
        paces.begin(stage, 1)
    time.now += 10
    for stage in ("asr", "diarization", CALL):
        paces.end(stage, 1, 1, 60.0)
    worked = {pace.stage: pace.worked_seconds for pace in paces.take({"Transcriber": 3.0, "Diarizer": 0.5})}
    assert worked == pytest.approx({"asr": 30.0, "diarization": 5.0, CALL: 10.0})
    assert [paces.replica_seconds(stage, 10.0) for stage in ("asr", "reclustering", "audio")] == [30.0, 5.0, 10.0]


def test_a_call_that_fails_says_nothing_of_the_pace_and_is_in_nobodys_way() -> None:
    time = Time()
    paces = RtfxMeter(time)
    paces.begin("asr", "lost")
    paces.begin("asr", "good")
    time.now += 2
    paces.leave("lost")
    time.now += 2
    paces.end("asr", "good", 2, 10.0)
    (pace,) = paces.take({})
    assert pace.worked_seconds == pytest.approx(3)
