"""Real-time factors of the stages, measured by the Conductor on finished work, and the drain time that follows.

Calls share an engine, so the time that a call spends in a stage says little. Each moment is divided equally among the
calls in the stage (processor sharing): the work of a call is the sum of its parts, and the work of all calls is the
time in which the stage was busy at all.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from db.queue import Backlog, Group, Lane, Pace
from pipeline.domain.stage import Stage

CALL = "call"  # the whole of a call, in its Conductor
STAGES: Mapping[str, tuple[str, ...]] = {
    "Conductor": (CALL,),
    "Transcriber": (Stage.RECOGNITION,),
    "Diarizer": (Stage.DIARIZATION, Stage.VOICEPRINT),
}
"""The stages of a call by which the speed of each deployment is measured."""
RUNS_ON: Mapping[str, str] = {
    **{stage: name for name, stages in STAGES.items() for stage in stages},
    Stage.RECLUSTERING: "Diarizer",  # these two only where a call needs them
    Stage.VOICES: "Diarizer",
}
"""The deployment of each stage that is not a plain CPU task."""

PRIOR_SECONDS = 600.0  # weight of a configured factor, in seconds of finished audio


class StageClock:
    """Shares the time of one stage between the calls that are in it. Times are seconds of `now`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._at = now()
        self._each = 0.0  # work of a call that was in the stage from the start
        self._begun: dict[object, float] = {}

    def begin(self, call: object) -> None:
        """`call` enters the stage; one that is in it already starts over."""
        self._advance()
        self._begun[call] = self._each

    def end(self, call: object) -> float | None:
        """Return the work of `call` in seconds; None if it is not in the stage."""
        self._advance()
        begun = self._begun.pop(call, None)
        return None if begun is None else self._each - begun

    def so_far(self, call: object) -> float:
        """Return the work of `call` in seconds until now; 0 if it is not in the stage."""
        self._advance()
        return self._each - self._begun.get(call, self._each)

    def _advance(self) -> None:
        now = self._now()
        if self._begun:
            self._each += (now - self._at) / len(self._begun)
        self._at = now


class RtfxMeter:
    """Measures the real-time factors of stages, until they are taken to be stored."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._clocks: dict[str, StageClock] = {}
        self._sums: dict[tuple[str, int], Pace] = {}
        self._shares: Mapping[str, float] = {}  # of each deployment, as last told

    def begin(self, stage: str, call: object) -> None:
        """`call` enters `stage`."""
        self._clocks.setdefault(stage, StageClock(self._now)).begin(call)

    def end(self, stage: str, call: object, channels: int = 0, audio_seconds: float = 0.0) -> float:
        """Return the seconds that `call` worked in `stage`, which it leaves; 0 if it is not in the stage.

        `audio_seconds`: audio that was processed; 0: it failed, which says nothing about the factor.
        """
        clock = self._clocks.get(stage)
        worked = clock.end(call) if clock else None
        if worked is None or audio_seconds <= 0:
            return worked or 0.0
        done = self._sums.get((stage, channels), Pace(stage, channels, 0.0, 0.0, 0.0))
        self._sums[stage, channels] = Pace(
            stage, channels, done.calls + 1, done.audio_seconds + audio_seconds, done.worked_seconds + worked
        )
        return worked

    def so_far(self, stage: str, call: object) -> float:
        """Return the seconds that `call` has worked in `stage`; 0 if it is not in the stage."""
        clock = self._clocks.get(stage)
        return clock.so_far(call) if clock else 0.0

    def leave(self, call: object) -> float:
        """`call` leaves every stage. Return the seconds that it worked in `CALL` without finishing it."""
        return {stage: self.end(stage, call) for stage in self._clocks}.get(CALL, 0.0)

    def take(self, shares: Mapping[str, float]) -> list[Pace]:
        """Return what was measured, and forget it.

        `shares`: by deployment, the replicas that worked for this Conductor (0.5 if two share one); default 1.
        """
        taken, self._sums = self._sums, {}
        self._shares = shares
        return [
            replace(one, worked_seconds=self.replica_seconds(one.stage, one.worked_seconds)) for one in taken.values()
        ]

    def replica_seconds(self, stage: str, worked: float) -> float:
        """Return how long replicas were busy while this Conductor's calls worked for `worked` seconds in `stage`."""
        return worked * self._shares.get(RUNS_ON.get(stage, ""), 1.0)


@dataclass(frozen=True, slots=True)
class Work:
    """The backlog of a deployment."""

    calls: int
    audio_seconds: dict[int | None, float]  # by channels: 1 mixed, 2 separated, None unknown
    replica_seconds: float  # time in which one replica would do it


class Estimate:
    """A backlog in time. `assumed_rtfx`: real-time factors by deployment, until they are measured."""

    def __init__(self, backlog: Backlog, assumed_rtfx: Mapping[str, float]) -> None:
        self._backlog = backlog
        self._assumed_rtfx = assumed_rtfx
        self._paces = {(pace.stage, pace.channels): pace for pace in backlog.paces}

    def rtfx(self, stage: str, channels: int, assumed: float) -> float:
        """Real-time factor of one replica; `assumed` weighs as much as `PRIOR_SECONDS` of finished work."""
        done = self._paces.get((stage, channels))
        if done is None:
            return assumed
        return (done.audio_seconds + PRIOR_SECONDS) / (done.worked_seconds + PRIOR_SECONDS / assumed)

    def work(self, name: str, groups: tuple[Group, ...] | None = None) -> Work:
        """Return the backlog of the deployment `name`, of all groups or of `groups`."""
        audio: dict[int | None, float] = {}
        calls, needed = 0, 0.0
        for group in self._backlog.groups if groups is None else groups:
            if not self._waits(name, group):
                continue
            seconds = self._backlog.seconds(group)
            part = self._part(name, group)
            calls += round(group.calls * part)
            audio[group.channels] = audio.get(group.channels, 0.0) + seconds * part
            needed += self.replica_seconds(name, group.channels, seconds)
        return Work(calls, audio, needed)

    def replica_seconds(self, name: str, channels: int | None, seconds: float) -> float:
        """Return the seconds that one replica of `name` needs for audio; `channels` None: the usual mix."""
        if channels is None:
            mixed = self._backlog.mixed_share
            return self.replica_seconds(name, 1, seconds * mixed) + self.replica_seconds(name, 2, seconds * (1 - mixed))
        assumed = self._assumed_rtfx[name]
        if name == "Diarizer":  # separates mixed voices, or takes the voiceprint of one party, which is faster
            stage, assumed = (Stage.DIARIZATION, assumed) if channels == 1 else (Stage.VOICEPRINT, assumed * 10)
            return seconds / self.rtfx(stage, channels, assumed)
        return seconds / self.rtfx(STAGES[name][0], channels, assumed)

    def wanted(self, name: str, target_drain_seconds: float) -> int:
        """Return the replicas that work off the backlog in `target_drain_seconds`; 0 only if there is none."""
        work = self.work(name)
        if not work.audio_seconds:
            return 0
        return max(1, math.ceil(work.replica_seconds / target_drain_seconds - 1e-9))

    @staticmethod
    def _waits(name: str, group: Group) -> bool:
        if name == "Conductor":
            return True
        if group.kind != "process" or group.fetching:
            return False
        return not (group.recognized if name == "Transcriber" else group.voice_done)

    def _part(self, name: str, group: Group) -> float:
        """Only mixed calls are diarized, as far as the layout is known."""
        if name != "Diarizer":
            return 1.0
        return self._backlog.mixed_share if group.channels is None else float(group.channels == 1)

    def drain_time(self, replicas: Mapping[str, int], audio_seconds: float | None = None) -> float:
        """Return the seconds until the slowest deployment has done the backlog, or `audio_seconds` of the usual mix.

        `replicas`: by deployment; where there is none, one is assumed, because it would be started.
        """
        needed = {
            name: self.work(name).replica_seconds
            if audio_seconds is None
            else self.replica_seconds(name, None, audio_seconds)
            for name in STAGES
        }
        return max(seconds / max(1, replicas.get(name, 1)) for name, seconds in needed.items())

    def per_audio_hour(self, name: str) -> float:
        """Return the seconds that one replica of a deployment needs for an hour of audio of the usual mix."""
        return self.replica_seconds(name, None, 3600.0)


def ahead(mine: Lane, before: float, lanes: Sequence[Lane], backlog: Backlog, backfill: float) -> float:
    """Return the seconds of audio that are processed before a call's turn. `before`: those ahead of it in its own lane.

    By the turns of `claim_jobs`: of each other lane of its kind as much as that lane's share allows meanwhile, of the
    other kind the share `backfill` of the audio, or all that is live before a call that is not. An estimate: what is
    submitted meanwhile changes it.
    """
    running = sum(backlog.seconds(group) for group in backlog.groups if group.running)
    waiting = {
        lane: sum(backlog.seconds(group) for group in lane.groups if not group.running)
        for lane in lanes
        if lane != mine
    }
    same = before + sum(
        min(seconds, before * lane.share / mine.share) for lane, seconds in waiting.items() if lane.live == mine.live
    )
    others = sum(seconds for lane, seconds in waiting.items() if lane.live != mine.live)
    return running + same + (min(others, same * backfill / (1 - backfill)) if mine.live else others)
