from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, out, print_json
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from serve_app.operations.capacity import Load, Plan, Ratios


def _price(of: str) -> Any:
    return typer.Option(min=0, metavar="PRICE", help=f"Price of {of}.", show_default="an example")


CallsPerDay = Annotated[int, typer.Option(min=0, help="Recorded calls per day.")]
Minutes = Annotated[float, typer.Option(min=0.0, help="Average length of a call.")]
MonoShare = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of calls with both parties in one channel.")]
BusyHour = Annotated[float, typer.Option(min=1 / 24, max=1.0, help="Share of the day's calls in its busiest hour.")]
Utilization = Annotated[float, typer.Option(min=0.05, max=1.0, help="Maximum utilization of the cores.")]
Months = Annotated[int, typer.Option(min=1, help="Retention of calls in months.")]
GpuRtfx = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        metavar="N",
        help="Seconds of audio that one GPU processes per second, as you measured.",
        show_default="no GPU",
    ),
]
RatiosFile = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="A copy of serve_app/operations/ratios.toml.", show_default="as measured"
    ),
]


def plan(
    calls_per_day: CallsPerDay,
    minutes: Minutes,
    mono_share: MonoShare = 0.0,
    busy_hour: BusyHour = 0.15,
    utilization: Utilization = 0.7,
    months: Months = 12,
    gpu_rtfx: GpuRtfx = None,
    price_core: Annotated[float | None, _price("a core per hour")] = None,
    price_gpu: Annotated[float | None, _price("a GPU per hour")] = None,
    price_database: Annotated[float | None, _price("a GB of database per month")] = None,
    price_storage: Annotated[float | None, _price("a GB of recordings per month")] = None,
    ratios: RatiosFile = None,
    json_: Json = False,
) -> None:
    """Estimate cores or GPUs, replicas, growth and cost for a number of calls, from measured ratios.

    The ratios are those of Whisper base on two CPU cores. For other models and GPUs, measure with bench/throughput.py
    and bench/gpu.py. GPUs are priced by the hours of their work: where they run all the time, multiply their number by
    730 hours and your price. Needs no service.

    Examples:

      switchboard plan --calls-per-day 20000 --minutes 4 --mono-share 0.3

      switchboard plan --calls-per-day 500000 --minutes 3 --gpu-rtfx 60 --price-gpu 1.2 --json
    """
    from serve_app.operations.capacity import Load
    from serve_app.operations.capacity import plan as compute

    prices = {"core_hour": price_core, "gpu_hour": price_gpu, "database_gb_month": price_database}
    measured = _ratios(ratios, prices | {"storage_gb_month": price_storage})
    load = Load(calls_per_day, minutes, mono_share, busy_hour, utilization, gpu_rtfx, months)
    result = compute(load, measured)
    if json_:
        print_json({"load": load, "plan": result, "ratios": measured.model_dump()})
    else:
        _print_plan(load, result, measured)


def _ratios(file: Path | None, prices: dict[str, float | None]) -> "Ratios":
    """Return the ratios of a file, by default those measured, with the prices that are set."""
    from serve_app.operations.capacity import Ratios, RatiosUnfit

    try:
        ratios = Ratios.read(file)
    except RatiosUnfit as error:
        raise CommandError(str(error), "Start from a copy of serve_app/operations/ratios.toml.", USAGE) from error
    changes = {name: value for name, value in prices.items() if value is not None}
    return ratios.model_copy(update={"prices": ratios.prices.model_copy(update=changes)})


def _print_plan(load: "Load", plan: "Plan", ratios: "Ratios") -> None:
    lines = table("for", "#needed", "because")
    engines = f"{plan.transcribers:,} Transcribers, {plan.diarizers:,} Diarizers, 1 core each"
    rows = [
        ("audio/day", f"{plan.audio_hours_per_day:,.0f} h", f"{load.calls_per_day:,} calls of {load.minutes:g} min"),
        (
            "busiest hour",
            f"{plan.busy_audio_hours:,.0f} h",
            f"{load.busy_hour:.0%} of the day: {plan.busy_calls_per_second:.2f} calls per second",
        ),
        ("cores", f"{plan.cores:,}", f"{plan.engine_cores:,} of them for engines; busy {load.utilization:.0%}"),
    ]
    if load.gpu_rtfx is not None:
        scaled = f"{plan.gpu_hours:,.0f} GPU hours a month, as they scale with the load"
        rows.append(("GPUs", f"{plan.gpus:,}", f"{load.gpu_rtfx:g} s of audio per second each; {scaled}"))
    rows += [
        ("replicas", f"{plan.transcribers + plan.diarizers:,}", engines),
        ("PostgreSQL", f"{plan.databases:,}", f"takes {ratios.submission.most_per_second:,.0f} submissions per second"),
        ("database", f"{plan.database_gb_per_month:,.1f} GB", "more each month"),
        ("recordings", f"{plan.storage_gb_per_month:,.1f} GB", "more each month"),
    ]
    names = {"cores": "cores", "gpus": "GPUs", "database": "database", "storage": "recordings"}
    costs = {name: cost for name, cost in plan.cost.items() if name != "all" and cost}
    parts = ", ".join(f"{names[name]} {cost:,.0f}" for name, cost in costs.items())
    rows.append(("cost/month", f"{plan.cost['all']:,.0f}", f"{parts}; calls are kept for {load.months} months"))
    rows.append(("cost/hour", f"{plan.cost_per_audio_hour:.3f}", "of audio"))
    for row in rows:
        lines.add_row(*row)
    out().print(lines)
    out().print(
        "\nMeasured with Whisper base on CPU; prices are examples until you set yours. `--json` includes the ratios "
        "and their sources. Not measured: `small`, the default on CPUs with the model hub, memory, and GPUs other than "
        "an H200."
    )
