"""Real-time factors of the stages, measured on finished work, and the drain time that follows.

Calls share an engine, so the time that a call spends in a stage says little. Each moment is divided equally among those
that share it (processor sharing): the work of a call is the sum of its parts, and the work of all calls is the time in
which there was any. Replicas of engines do so with their requests, however many they and their callers are; a Conductor
does it with its calls, for them as a whole and for the stages that run on CPUs.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from db.queue.backlog import Backlog, Group, Lane, MeasuredRtfx, ReplicaState
from db.queue.stage_results import StageDone
from pipeline.domain.stage import Stage
from pipeline.observability.work_clock import SharedClock
from serve_app.operations.options import ScalingOptions

ENGINES = ("Transcriber", "Diarizer")
CALL = "call"  # the whole of a call, in its Conductor
STAGES: Mapping[str, tuple[str, ...]] = {
    "Conductor": (CALL,),
    "Transcriber": (Stage.RECOGNITION,),
    "Diarizer": (Stage.DIARIZATION, Stage.VOICEPRINT),
}
"""The stages of a call by which the speed of each deployment is measured."""
RUNS_ON: Mapping[str, str] = {
    **{stage: name for name, stages in STAGES.items() for stage in stages},
    Stage.RECLUSTERING: "Diarizer",  # these two only if a call needs them
    Stage.VOICES: "Diarizer",
}
"""The deployment of each stage that is not a plain CPU task."""
OF_VOICES = {1: Stage.DIARIZATION, 2: Stage.VOICEPRINT}
"""By channels, the stage by which the speed of the Diarizer is measured: all that it does for a call counts there."""

PRIOR_SECONDS = 600.0  # weight of a configured factor, in seconds of finished audio
RUNNING_PART = 0.5  # of a running call that is still to be done, on average


class RtfxMeter:
    """Measures the real-time factors of stages, until they are taken to be stored."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._clocks: dict[str, SharedClock] = {}
        self._sums: dict[tuple[str, int], MeasuredRtfx] = {}

    def begin(self, stage: str, call: object) -> None:
        """Start to measure `call` in `stage`."""
        self._clocks.setdefault(stage, SharedClock(self._now)).begin(call)

    def end(self, stage: str, call: object, channels: int = 0, audio_seconds: float = 0.0) -> float:
        """Return the seconds that `call` worked in `stage`, which it leaves; 0 if it is not in the stage.

        `audio_seconds`: audio that was processed; 0: it failed, which says nothing about the factor.
        """
        clock = self._clocks.get(stage)
        worked = clock.end(call) if clock else None
        if worked is not None:
            self.add(stage, channels, audio_seconds, worked)
        return worked or 0.0

    def waiting(self, call: object) -> AbstractContextManager[None]:
        """Exclude the block from the work of `call`, and `call` from the others' share, while engines start."""
        clock = self._clocks.get(CALL)
        return clock.apart(call) if clock else nullcontext()

    def add(self, stage: str, channels: int, audio_seconds: float, worked_seconds: float) -> None:
        """Count a call that is done with `stage`; `audio_seconds` as in `end`."""
        if audio_seconds <= 0:
            return
        counts = stage not in RUNS_ON or stage in STAGES[RUNS_ON[stage]]
        if not counts:  # further work of the Diarizer, for a call that is counted by another stage
            stage, audio_seconds = OF_VOICES[channels], 0.0
        done = self._sums.get((stage, channels), MeasuredRtfx(stage, channels, 0.0, 0.0, 0.0))
        self._sums[stage, channels] = MeasuredRtfx(
            stage,
            channels,
            done.calls + counts,
            done.audio_seconds + audio_seconds,
            done.worked_seconds + worked_seconds,
        )

    def so_far(self, stage: str, call: object) -> float:
        """Return the seconds that `call` has worked in `stage`; 0 if it is not in the stage."""
        clock = self._clocks.get(stage)
        return clock.so_far(call) if clock else 0.0

    def leave(self, call: object) -> float:
        """End every stage of `call`; return the seconds that it worked in `CALL` without finishing it."""
        return {stage: self.end(stage, call) for stage in self._clocks}.get(CALL, 0.0)

    def take(self) -> list[MeasuredRtfx]:
        """Return what was measured since the last call."""
        taken, self._sums = self._sums, {}
        return [*taken.values()]


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
        self._states = {state.name: state for state in backlog.engines}

    def rtfx(self, stage: str, channels: int, assumed: float) -> float:
        """Return the real-time factor of one replica, for calls with this number of channels.

        `assumed` weighs as much as `PRIOR_SECONDS` of finished work of the stage, and the factor of all work of the
        stage as much as that compared with such calls: a rare number of channels follows the others.
        """
        done = [pace for pace in self._backlog.paces if pace.stage == stage]
        return _rtfx([pace for pace in done if pace.channels == channels], _rtfx(done, assumed))

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
            whole = name != "Conductor" or not group.running  # groups exclude finished work of engines
            needed += self.replica_seconds(name, group.channels, seconds) * (1.0 if whole else RUNNING_PART)
        return Work(calls, audio, needed)

    def replica_seconds(self, name: str, channels: int | None, seconds: float) -> float:
        """Return the seconds that one replica of `name` needs for audio; `channels` None: the usual mix."""
        if channels is None:
            mixed = self._backlog.mixed_share
            return self.replica_seconds(name, 1, seconds * mixed) + self.replica_seconds(name, 2, seconds * (1 - mixed))
        assumed = self._assumed_rtfx[name]
        if name == "Diarizer":  # separates mixed voices, or takes the voiceprint of one party, which is faster
            return seconds / self.rtfx(OF_VOICES[channels], channels, assumed if channels == 1 else assumed * 10)
        return seconds / self.rtfx(STAGES[name][0], channels, assumed)

    def wanted(self, name: str, target_drain_seconds: float) -> int:
        """Return the replicas that drain the backlog in `target_drain_seconds`; 0 only without a backlog."""
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
        """Return the share of a group that the deployment processes: only mixed calls are diarized."""
        if name != "Diarizer":
            return 1.0
        return self._backlog.mixed_share if group.channels is None else float(group.channels == 1)

    def state(self, name: str) -> ReplicaState | None:
        """Return the stored replicas of a deployment; None if none are stored."""
        return self._states.get(name)

    def drain_seconds(self, name: str, audio_seconds: float | None = None) -> float:
        """Return the seconds until a deployment has done its backlog, or `audio_seconds` of the usual mix.

        All of its replicas share the work. Without a running one, those count that are starting, min. one.
        """
        needed = (
            self.work(name).replica_seconds
            if audio_seconds is None
            else self.replica_seconds(name, None, audio_seconds)
        )
        state = self.state(name)
        return needed / max(1, (state.replicas or state.wanted) if state else 1)

    def drain_time(self, audio_seconds: float | None = None) -> float:
        """Return the seconds until the slowest deployment is done; see `drain_seconds`.

        Deployments work in parallel, on different calls. The factor of Conductors includes waiting for a place: it is
        that of calls as a whole.
        """
        return max(self.drain_seconds(name, audio_seconds) for name in STAGES)

    def per_audio_hour(self, name: str) -> float:
        """Return the seconds that one replica of a deployment needs for an hour of audio of the usual mix."""
        return self.replica_seconds(name, None, 3600.0)


def _rtfx(done: Sequence[MeasuredRtfx], assumed: float) -> float:
    audio, worked = sum(pace.audio_seconds for pace in done), sum(pace.worked_seconds for pace in done)
    return (audio + PRIOR_SECONDS) / (worked + PRIOR_SECONDS / assumed)


def left_of_running(backlog: Backlog) -> float:
    """Return the seconds of audio of running calls that are still to be processed."""
    return RUNNING_PART * sum(backlog.seconds(group) for group in backlog.groups if group.running)


def ahead(mine: Lane, before: float, lanes: Sequence[Lane], backlog: Backlog, backfill: float) -> float:
    """Return the seconds of audio that are processed before a call's turn. `before`: those ahead of it in its lane.

    Follows `claim_jobs`: of each other lane of its kind as much as that lane's share allows until then, of the other
    kind the share `backfill` of the audio, or all live audio if the call is not live. Later submissions change the
    estimate.
    """
    waiting = {
        lane: sum(backlog.seconds(group) for group in lane.groups if not group.running)
        for lane in lanes
        if lane != mine
    }
    same = before + sum(
        min(seconds, before * lane.share / mine.share) for lane, seconds in waiting.items() if lane.live == mine.live
    )
    others = sum(seconds for lane, seconds in waiting.items() if lane.live != mine.live)
    return left_of_running(backlog) + same + (min(others, same * backfill / (1 - backfill)) if mine.live else others)


@dataclass(frozen=True, slots=True)
class EngineWork:
    """Seconds of an engine's replicas, divided among calls that shared one. `cost`: None without a price."""

    engine: str
    seconds: float
    cost: float | None


def engine_work(done: Iterable[StageDone], scaling: ScalingOptions) -> tuple[EngineWork, ...]:
    """Return the work of each engine for a call; engines without a measurement are left out."""
    works = []
    measured = [
        (stage_done.stage, stage_done.worked_seconds) for stage_done in done if stage_done.worked_seconds is not None
    ]
    for engine in ENGINES:
        seconds = [worked for stage, worked in measured if RUNS_ON.get(stage) == engine]
        if seconds:
            price = scaling.replicas_of(engine).price_per_hour
            works.append(EngineWork(engine, sum(seconds), None if price is None else price * sum(seconds) / 3600))
    return tuple(works)


def whole_cost(work: Iterable[EngineWork]) -> float | None:
    """Return the cost of all engines that worked; None if one of them has no price."""
    costs = [cost.cost for cost in work]
    return None if not costs or None in costs else sum(cost for cost in costs if cost is not None)
