"""`switchboard queue`: what waits, in seconds of audio, and when it will be done."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli import state
from serve_app.cli.console import Json, duration, moment, out, print_json, table

if TYPE_CHECKING:
    from db.database import Database
    from db.queue import Backlog, Lane
    from serve_app.scaling.estimates import Estimate
    from serve_app.settings import Settings

CHANNELS = {1: "mixed", 2: "separated", None: "not heard yet"}


@dataclass(frozen=True, slots=True)
class StageLine:
    """What waits for one deployment. Seconds of audio by channels: mixed, separated, not heard yet."""

    deployment: str
    calls: int
    audio_seconds: dict[str, float]
    replica_seconds: float  # that one replica would work on it
    replicas: int | None  # None: nobody has told yet
    replicas_seen_at: str | None
    clear_seconds: float
    replica_seconds_per_audio_hour: float
    measured_calls: float  # that the pace rests on, older ones counting less; 0: it is the configured guess
    cost_per_audio_hour: float | None  # None: no price is set


@dataclass(frozen=True, slots=True)
class TeamLine:
    """What one team has in the queue."""

    workspace: str
    team: str
    live: bool
    share: float
    waiting_calls: int
    waiting_audio_seconds: float
    running_calls: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """The whole queue."""

    waiting_calls: int
    running_calls: int
    later_calls: int
    audio_seconds: float
    clear_seconds: float  # until all of it is done, by the slowest deployment
    gpu_seconds_per_audio_hour: float
    cpu_seconds_per_audio_hour: float  # of engines that have no GPU
    cost_per_audio_hour: float | None
    stages: tuple[StageLine, ...]
    teams: tuple[TeamLine, ...]


def queue(
    team: Annotated[
        str | None, typer.Option("--team", help="Only this team's lines, by name.", show_default=False)
    ] = None,
    json_: Json = False,
) -> None:
    """Show what waits: calls and seconds of audio by stage and by team, when it will be done, and what an hour costs.

    Paces are measured on finished work; until there is any, they are the settings' guesses. A price needs
    SWITCHBOARD_SCALING__TRANSCRIBER__PRICE_PER_HOUR (and DIARIZER, CONDUCTOR).

    Examples:

      switchboard queue

      switchboard queue --json
    """
    from serve_app.settings import Settings

    settings = Settings()

    async def work(database: "Database") -> "tuple[Backlog, tuple[Lane, ...]]":
        from db import queue as waiting

        return await waiting.lanes(database)

    view = view_of(*state.run(work), settings, team)
    if json_:
        print_json(view)
    else:
        render(view)


def view_of(backlog: "Backlog", lanes: "tuple[Lane, ...]", settings: "Settings", team: str | None = None) -> QueueView:
    """The figures, from what the database holds and what the settings say."""
    from serve_app.scaling.estimates import STAGES, Estimate

    estimate = Estimate(backlog, settings.scaling.guesses)
    stages = tuple(_stage(name, estimate, backlog, settings) for name in STAGES)
    engines = [stage for stage in stages if stage.deployment != "Conductor"]
    costs = [stage.cost_per_audio_hour for stage in stages if stage.cost_per_audio_hour is not None]
    on_gpu = {stage.deployment for stage in engines if _gpus(stage.deployment, settings)}
    return QueueView(
        waiting_calls=sum(group.calls for group in backlog.groups if not group.running),
        running_calls=sum(group.calls for group in backlog.groups if group.running),
        later_calls=backlog.later,
        audio_seconds=sum(backlog.seconds(group) for group in backlog.groups),
        clear_seconds=max(stage.clear_seconds for stage in stages),
        gpu_seconds_per_audio_hour=sum(
            stage.replica_seconds_per_audio_hour * _gpus(stage.deployment, settings)
            for stage in engines
            if stage.deployment in on_gpu
        ),
        cpu_seconds_per_audio_hour=sum(
            stage.replica_seconds_per_audio_hour for stage in engines if stage.deployment not in on_gpu
        ),
        cost_per_audio_hour=sum(costs) if costs else None,
        stages=stages,
        teams=tuple(_team(lane, backlog) for lane in lanes if team in (None, lane.team)),
    )


def _gpus(name: str, settings: "Settings") -> float:
    """The share of a GPU that is set for a replica; left out: none is known of here."""
    return getattr(settings.scaling.replicas_of(name), "num_gpus", None) or 0.0


def _stage(name: str, estimate: "Estimate", backlog: "Backlog", settings: "Settings") -> StageLine:
    from serve_app.scaling.estimates import STAGES

    work = estimate.work(name)
    there = next((one for one in backlog.engines if one.name == name), None)
    hour = estimate.per_audio_hour(name)
    price = settings.scaling.replicas_of(name).price_per_hour
    return StageLine(
        deployment=name,
        calls=work.calls,
        audio_seconds={CHANNELS[channels]: seconds for channels, seconds in work.audio_seconds.items()},
        replica_seconds=work.replica_seconds,
        replicas=there.replicas if there else None,
        replicas_seen_at=moment(there.seen_at) if there else None,
        clear_seconds=work.replica_seconds / max(1, there.replicas if there else 1),
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


def render(view: QueueView) -> None:
    """For people."""
    out().print(
        f"{view.waiting_calls} calls wait, {view.running_calls} are at work, {view.later_calls} are tried later: "
        f"{duration(view.audio_seconds)} of audio, done in about {duration(view.clear_seconds)}."
    )
    lines = table("!stage", "!calls", "audio that waits", "!replicas", "!done in", "!replica time for an hour", "!cost")
    for stage in view.stages:
        lines.add_row(
            stage.deployment,
            str(stage.calls),
            ", ".join(f"{duration(seconds)} {kind}" for kind, seconds in stage.audio_seconds.items() if seconds),
            "?" if stage.replicas is None else str(stage.replicas),
            duration(stage.clear_seconds),
            duration(stage.replica_seconds_per_audio_hour) + ("" if stage.measured_calls else " (a guess)"),
            "" if stage.cost_per_audio_hour is None else f"{stage.cost_per_audio_hour:.4f}",
        )
    out().print(lines)
    if view.teams:
        teams = table("workspace", "team", "!calls are", "!share", "!waiting", "!audio", "!at work")
        for one in view.teams:
            kind = "live" if one.live else "backfill"
            waits = duration(one.waiting_audio_seconds)
            figures = (str(one.waiting_calls), waits, str(one.running_calls))
            teams.add_row(one.workspace, one.team, kind, f"{one.share:g}", *figures)
        out().print(teams)
