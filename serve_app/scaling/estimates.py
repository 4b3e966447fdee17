"""How fast stages work, measured on finished work by the Conductor, and what that says of the work that waits.

Calls share an engine, so the time that a call spends in a stage says little. Each moment belongs to the calls that are
in the stage, in equal parts (processor sharing): what a call worked is the sum of its parts, and what all calls worked
is the time in which the stage had work at all.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from db.queue import Backlog, Group, Lane, Pace

CALL = "call"  # the whole of a call, in its Conductor
STAGES: Mapping[str, tuple[str, ...]] = {
    "Conductor": (CALL,),
    "Transcriber": ("asr",),
    "Diarizer": ("diarization", "voiceprint"),
}
"""What each deployment does of a call."""

PRIOR_SECONDS = 600.0  # audio that a configured guess counts for, until there is more of finished work


class Clock:
    """Shares the time of one stage between the calls that are in it. Times are seconds of `now`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._at = now()
        self._each = 0.0  # what a call would have worked that was in the stage from the beginning
        self._begun: dict[object, float] = {}

    def begin(self, call: object) -> None:
        """`call` comes into the stage; one that is in it already begins anew."""
        self._advance()
        self._begun[call] = self._each

    def end(self, call: object) -> float | None:
        """What `call` worked, in seconds; None where it is not in the stage."""
        self._advance()
        begun = self._begun.pop(call, None)
        return None if begun is None else self._each - begun

    def _advance(self) -> None:
        now = self._now()
        if self._begun:
            self._each += (now - self._at) / len(self._begun)
        self._at = now


class Paces:
    """What a Conductor measured and has not handed on yet."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._clocks: dict[str, Clock] = {}
        self._sums: dict[tuple[str, int], Pace] = {}

    def begin(self, stage: str, call: object) -> None:
        """`call` comes into `stage`."""
        self._clocks.setdefault(stage, Clock(self._now)).begin(call)

    def end(self, stage: str, call: object, channels: int = 0, audio_seconds: float = 0.0) -> float:
        """`call` leaves `stage`, with so much audio done; 0: it failed, which says nothing of the pace.

        Returns the seconds that it worked there; 0 where it is not in the stage.
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

    def leave(self, call: object) -> float:
        """`call` is in no stage any longer. Returns the seconds that it worked in `CALL` without an end."""
        return {stage: self.end(stage, call) for stage in self._clocks}.get(CALL, 0.0)

    def take(self, shares: Mapping[str, float]) -> list[Pace]:
        """All that was measured, which is forgotten here. `shares`: by deployment, the replicas that worked for this
        Conductor (half of one, where two Conductors share it); 1 where nothing is said."""
        taken, self._sums = self._sums, {}
        of = {stage: shares.get(name, 1.0) for name, stages in STAGES.items() for stage in stages}
        return [
            Pace(one.stage, one.channels, one.calls, one.audio_seconds, one.worked_seconds * of.get(one.stage, 1.0))
            for one in taken.values()
        ]


@dataclass(frozen=True, slots=True)
class Work:
    """What waits for a deployment."""

    calls: int
    audio_seconds: dict[int | None, float]  # by channels: 1 mixed, 2 separated, None not heard yet
    replica_seconds: float  # how long one replica would work on it


class Estimate:
    """What a backlog means in time. `guesses`: by deployment, seconds of audio a second until they are measured."""

    def __init__(self, backlog: Backlog, guesses: Mapping[str, float]) -> None:
        self._backlog = backlog
        self._guesses = guesses
        self._paces = {(pace.stage, pace.channels): pace for pace in backlog.paces}

    def pace(self, stage: str, channels: int, guess: float) -> float:
        """Seconds of audio that one replica does in a second; the guess counts as `PRIOR_SECONDS` of finished work."""
        done = self._paces.get((stage, channels))
        if done is None:
            return guess
        return (done.audio_seconds + PRIOR_SECONDS) / (done.worked_seconds + PRIOR_SECONDS / guess)

    def work(self, name: str, groups: tuple[Group, ...] | None = None) -> Work:
        """What waits for the deployment `name`, of the whole backlog or of `groups`."""
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
        """How long one replica of `name` works on `seconds` of audio; `channels` None: as they are distributed."""
        if channels is None:
            mixed = self._backlog.mixed_share
            return self.replica_seconds(name, 1, seconds * mixed) + self.replica_seconds(name, 2, seconds * (1 - mixed))
        guess = self._guesses[name]
        if (
            name == "Diarizer"
        ):  # tells voices apart where they are mixed, else takes one party's voiceprint, a small part
            stage, guess = ("diarization", guess) if channels == 1 else ("voiceprint", guess * 10)
            return seconds / self.pace(stage, channels, guess)
        return seconds / self.pace(STAGES[name][0], channels, guess)

    def wanted(self, name: str, clear_seconds: float) -> int:
        """Replicas that do what waits within `clear_seconds`; 0 only where nothing waits."""
        work = self.work(name)
        if not work.audio_seconds:
            return 0
        return max(1, math.ceil(work.replica_seconds / clear_seconds - 1e-9))

    @staticmethod
    def _waits(name: str, group: Group) -> bool:
        if name == "Conductor":
            return True
        if group.kind != "process" or group.fetching:
            return False
        return not (group.recognized if name == "Transcriber" else group.voice_done)

    def _part(self, name: str, group: Group) -> float:
        """Diarization is for mixed calls only, as far as that is known."""
        if name != "Diarizer":
            return 1.0
        return self._backlog.mixed_share if group.channels is None else float(group.channels == 1)

    def clear_in(self, replicas: Mapping[str, int], audio_seconds: float | None = None) -> float:
        """Seconds until the slowest deployment has done what waits, or so many seconds of audio as they are
        distributed, with `replicas` of each (where there is none, one is taken: it would be started)."""
        needed = {
            name: self.work(name).replica_seconds
            if audio_seconds is None
            else self.replica_seconds(name, None, audio_seconds)
            for name in STAGES
        }
        return max(seconds / max(1, replicas.get(name, 1)) for name, seconds in needed.items())

    def per_audio_hour(self, name: str) -> float:
        """Seconds that one replica of a deployment works on an hour of audio, as calls are distributed."""
        return self.replica_seconds(name, None, 3600.0)


def ahead(mine: Lane, before: float, lanes: Sequence[Lane], backlog: Backlog, backfill: float) -> float:
    """Seconds of audio that are worked on before a call's turn. `before`: those ahead of it in its own lane.

    By the turns of `claim_jobs`: of each other lane of its kind as much as that lane's share allows meanwhile, of the
    other kind the share `backfill` of the audio, or all that is live before a call that is not. An estimate: what is
    submitted meanwhile changes it.
    """
    at_work = sum(backlog.seconds(group) for group in backlog.groups if group.running)
    waiting = {
        lane: sum(backlog.seconds(group) for group in lane.groups if not group.running)
        for lane in lanes
        if lane != mine
    }
    same = before + sum(
        min(seconds, before * lane.share / mine.share) for lane, seconds in waiting.items() if lane.live == mine.live
    )
    others = sum(seconds for lane, seconds in waiting.items() if lane.live != mine.live)
    return at_work + same + (min(others, same * backfill / (1 - backfill)) if mine.live else others)
