from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui import database as databases
from serve_app.cli.ui.output import Json, counted, duration, moment, out, print_json
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from db.queue.backlog import Backlog, Lane
    from serve_app.operations.estimates import Estimate
    from serve_app.settings import Settings

CHANNELS = {1: "mixed", 2: "separated", None: "unknown"}


@dataclass(frozen=True, slots=True)
class StageLine:
    """The backlog of one deployment. `audio_seconds`: by channels (mixed, separated, unknown)."""

    deployment: str
    calls: int
    audio_seconds: dict[str, float]
    replica_seconds: float  # processing time of one replica
    replicas: int | None  # None: not reported yet
    replicas_seen_at: str | None
    drain_seconds: float
    replica_seconds_per_audio_hour: float
    measured_calls: float  # calls behind the factor, weighted by age; 0: configured factor
    cost_per_audio_hour: float | None  # None: no price is set


@dataclass(frozen=True, slots=True)
class TeamLine:
    workspace: str
    team: str
    live: bool
    share: float
    waiting_calls: int
    waiting_audio_seconds: float
    running_calls: int


@dataclass(frozen=True, slots=True)
class QueueView:
    waiting_calls: int
    fetching_calls: int  # of the waiting ones: their recordings are not stored yet
    running_calls: int
    later_calls: int
    audio_seconds: float
    drain_seconds: float  # until the slowest deployment is done
    gpu_seconds_per_audio_hour: float
    cpu_seconds_per_audio_hour: float  # engines without a GPU
    cost_per_audio_hour: float | None
    stages: tuple[StageLine, ...]
    teams: tuple[TeamLine, ...]

    @property
    def has_estimate(self) -> bool:
        """Whether the times are known: before a recording is fetched, no engine has work."""
        return self.fetching_calls != self.waiting_calls or bool(self.running_calls) or not self.waiting_calls


def queue(
    team: Annotated[str | None, typer.Option("--team", help="Only this team, by name.")] = None, json_: Json = False
) -> None:
    """Show the backlog: calls and audio by stage and team, the time to drain it, and the cost of an hour of audio.

    Real-time factors are measured on finished calls; until then, those of the settings are assumed. Costs need
    SWITCHBOARD_SCALING__TRANSCRIBER__PRICE_PER_HOUR (and DIARIZER, CONDUCTOR).
    """
    from serve_app.settings import Settings

    view = load(Settings(), team)
    if json_:
        print_json(view)
    else:
        render(view)


def queue_view(
    backlog: "Backlog", lanes: "tuple[Lane, ...]", settings: "Settings", team: str | None = None
) -> QueueView:
    from serve_app.operations.estimates import STAGES, Estimate

    estimate = Estimate(backlog, settings.scaling.assumed_rtfx)
    stages = tuple(_stage(name, estimate, backlog, settings) for name in STAGES)
    on_gpu, on_cpu = _engine_seconds(stages, settings)
    costs = [stage.cost_per_audio_hour for stage in stages if stage.cost_per_audio_hour is not None]
    running = [group for group in backlog.groups if group.running]
    fetching = [group for group in backlog.groups if group.fetching]
    return QueueView(
        waiting_calls=sum(group.calls for group in backlog.groups) - sum(group.calls for group in running),
        fetching_calls=sum(group.calls for group in fetching),
        running_calls=sum(group.calls for group in running),
        later_calls=backlog.later,
        audio_seconds=sum(backlog.seconds(group) for group in backlog.groups),
        drain_seconds=estimate.drain_time(),
        gpu_seconds_per_audio_hour=on_gpu,
        cpu_seconds_per_audio_hour=on_cpu,
        cost_per_audio_hour=sum(costs) if costs else None,
        stages=stages,
        teams=tuple(_team(lane, backlog) for lane in lanes if team in (None, lane.team)),
    )


def _engine_seconds(stages: Sequence[StageLine], settings: "Settings") -> tuple[float, float]:
    engines = [stage for stage in stages if stage.deployment != "Conductor"]
    hours = {stage.deployment: stage.replica_seconds_per_audio_hour for stage in engines}
    gpus = {name: getattr(settings.scaling.replicas_of(name), "num_gpus", None) or 0.0 for name in hours}
    on_gpu = sum(seconds * gpus[name] for name, seconds in hours.items())
    return on_gpu, sum(seconds for name, seconds in hours.items() if not gpus[name])


def _stage(name: str, estimate: "Estimate", backlog: "Backlog", settings: "Settings") -> StageLine:
    from serve_app.operations.estimates import STAGES

    work = estimate.work(name)
    state = estimate.state(name)
    hour = estimate.per_audio_hour(name)
    price = settings.scaling.replicas_of(name).price_per_hour
    return StageLine(
        deployment=name,
        calls=work.calls,
        audio_seconds={CHANNELS[channels]: seconds for channels, seconds in work.audio_seconds.items()},
        replica_seconds=work.replica_seconds,
        replicas=state.replicas if state else None,
        replicas_seen_at=moment(state.seen_at) if state else None,
        drain_seconds=estimate.drain_seconds(name),
        replica_seconds_per_audio_hour=hour,
        measured_calls=sum(pace.calls for pace in backlog.paces if pace.stage in STAGES[name]),
        cost_per_audio_hour=None if price is None else price * hour / 3600,
    )


def _team(lane: "Lane", backlog: "Backlog") -> TeamLine:
    waiting = [group for group in lane.groups if not group.running]
    return TeamLine(
        workspace=lane.workspace,
        team=lane.team,
        live=lane.live,
        share=lane.share,
        waiting_calls=sum(group.calls for group in waiting),
        waiting_audio_seconds=sum(backlog.seconds(group) for group in waiting),
        running_calls=sum(group.calls for group in lane.groups if group.running),
    )


def load(settings: "Settings", team: str | None = None) -> QueueView:
    from db.queue import backlog as waiting

    return queue_view(*databases.run(waiting.lanes, settings=settings), settings, team)


def headline(view: QueueView) -> str:
    later = f"{counted(view.later_calls, 'call')} to be retried later" if view.later_calls else ""
    if not view.waiting_calls and not view.running_calls:
        return f"Nothing in the queue{'; ' + later if later else ''}."
    waiting = f"{counted(view.waiting_calls, 'call')} waiting"
    if view.fetching_calls:
        waiting += f" ({view.fetching_calls} for the recording)"
    counts = ", ".join(filter(None, (waiting, f"{view.running_calls} running", later)))
    if not view.has_estimate:
        return f"{counts}: {duration(view.audio_seconds)} of audio; no estimate before a recording is fetched."
    return f"{counts}: {duration(view.audio_seconds)} of audio, done in about {duration(view.drain_seconds)}."


def render(view: QueueView) -> None:
    out().print(headline(view))
    lines = table("!stage", "#calls", "#replicas", "#done in", "#per audio hour", "#cost", "queued audio")
    for stage in view.stages:
        lines.add_row(
            stage.deployment,
            stage.calls,
            "?" if stage.replicas is None else stage.replicas,
            duration(stage.drain_seconds) if view.has_estimate else "unknown",
            duration(stage.replica_seconds_per_audio_hour) + ("" if stage.measured_calls else " (assumed)"),
            "" if stage.cost_per_audio_hour is None else f"{stage.cost_per_audio_hour:.4f}",
            ", ".join(f"{duration(seconds)} {kind}" for kind, seconds in stage.audio_seconds.items() if seconds),
        )
    out().print(lines)
    if view.teams:
        teams = table("team", "workspace", "!priority", "#share", "#waiting", "#audio", "#running")
        for line in view.teams:
            kind = "live" if line.live else "backfill"
            waits = duration(line.waiting_audio_seconds)
            figures = (line.waiting_calls, waits, line.running_calls)
            teams.add_row(line.team, line.workspace, kind, f"{line.share:g}", *figures)
        out().print(teams)
