"""`switchboard plan`: what hardware a number of calls takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import Json, out, print_json
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from serve_app.operations.capacity import Load, Plan, Ratios


def plan(
    calls_per_day: Annotated[int, typer.Option(min=0, help="Calls that are recorded in a day.")],
    minutes: Annotated[float, typer.Option(min=0.0, help="How long a call is, on average.")],
    mono_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of calls with both parties in one channel.")
    ] = 0.0,
    busy_hour: Annotated[
        float, typer.Option(min=1 / 24, max=1.0, help="Share of the day's calls in its busiest hour.")
    ] = 0.15,
    utilization: Annotated[float, typer.Option(min=0.05, max=1.0, help="That cores are kept below.")] = 0.7,
    months: Annotated[int, typer.Option(min=1, help="How long calls are kept.")] = 12,
    gpu_rtfx: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="N",
            help="Seconds of calls that one GPU works off in a second, by your measurement.",
            show_default="no GPU",
        ),
    ] = None,
    price_core: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="Of a core for an hour.", show_default="an example")
    ] = None,
    price_gpu: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="Of a GPU for an hour.", show_default="an example")
    ] = None,
    price_database: Annotated[
        float | None,
        typer.Option(min=0, metavar="PRICE", help="Of a GB of database for a month.", show_default="an example"),
    ] = None,
    price_storage: Annotated[
        float | None,
        typer.Option(min=0, metavar="PRICE", help="Of a GB of recordings for a month.", show_default="an example"),
    ] = None,
    ratios: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A file as serve_app/operations/ratios.toml.", show_default="as measured"
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Estimate cores or GPUs, replicas, growth and cost for a number of calls, from measured ratios.

    The ratios are of Whisper base on two CPU cores; other models and GPUs differ: measure yours with
    bench/throughput.py and bench/gpu.py. Needs no service.

    Examples:

      switchboard plan --calls-per-day 20000 --minutes 4 --mono-share 0.3

      switchboard plan --calls-per-day 500000 --minutes 3 --gpu-rtfx 60 --price-gpu 1.2 --json
    """
    from serve_app.operations.capacity import Load, Ratios, RatiosUnfit
    from serve_app.operations.capacity import plan as compute

    try:
        measured = Ratios.read(ratios)
    except RatiosUnfit as error:
        raise CommandError(str(error), "Begin with a copy of serve_app/operations/ratios.toml.", USAGE) from error
    given = {
        "core_hour": price_core,
        "gpu_hour": price_gpu,
        "database_gb_month": price_database,
        "storage_gb_month": price_storage,
    }
    prices = measured.prices.model_copy(update={name: value for name, value in given.items() if value is not None})
    measured = measured.model_copy(update={"prices": prices})
    load = Load(calls_per_day, minutes, mono_share, busy_hour, utilization, gpu_rtfx, months)
    found = compute(load, measured)
    if json_:
        print_json({"load": load, "plan": found, "ratios": measured.model_dump()})
    else:
        _tell(load, found, measured)


def _tell(load: "Load", found: "Plan", ratios: "Ratios") -> None:
    lines = table("for", "#it takes", "because")
    engines = f"{found.transcribers:,} Transcribers, {found.diarizers:,} Diarizers, a core each"
    rows = [
        ("audio a day", f"{found.audio_hours_per_day:,.0f} h", f"{load.calls_per_day:,} calls of {load.minutes:g} min"),
        (
            "busiest hour",
            f"{found.busy_audio_hours:,.0f} h",
            f"{load.busy_hour:.0%} of the day: {found.busy_calls_per_second:.2f} calls a second",
        ),
        ("cores", f"{found.cores:,}", f"{found.engine_cores:,} of them for engines; busy {load.utilization:.0%}"),
    ]
    if load.gpu_rtfx is not None:
        rows.append(("GPUs", f"{found.gpus:,}", f"{load.gpu_rtfx:g} s of calls a second each"))
    rows += [
        ("replicas", f"{found.transcribers + found.diarizers:,}", engines),
        ("PostgreSQL", f"{found.databases:,}", f"takes {ratios.submission.most_per_second:,.0f} submissions a second"),
        ("database", f"{found.database_gb_per_month:,.1f} GB", "more each month"),
        ("recordings", f"{found.storage_gb_per_month:,.1f} GB", "more each month"),
    ]
    names = {"cores": "cores", "gpus": "GPUs", "database": "database", "storage": "recordings"}
    costs = {name: cost for name, cost in found.cost.items() if name != "all" and cost}
    parts = ", ".join(f"{names[name]} {cost:,.0f}" for name, cost in costs.items())
    rows.append(("cost a month", f"{found.cost['all']:,.0f}", f"{parts}; calls of {load.months} months are kept"))
    rows.append(("cost an hour", f"{found.cost_per_audio_hour:.3f}", "of audio"))
    for row in rows:
        lines.add_row(*row)
    out().print(lines)
    out().print(
        "\nMeasured with Whisper base on CPU; prices are examples until you name yours. `--json` has the ratios, and "
        "where each was measured."
    )
