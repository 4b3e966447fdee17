import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from serve_app.cli.ui.errors import FAILED, explain
from serve_app.cli.ui.output import Json, counted, err, out, print_json
from serve_app.cli.ui.table import table


class Level(StrEnum):
    GOOD = "good"
    WARN = "warn"  # not needed by every installation, or not now
    BAD = "bad"  # Switchboard cannot run


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check. `found`: a fact; `advice`: one line that says what to do."""

    name: str
    level: Level
    found: str  # language: ok
    advice: str = ""


def good(name: str, fact: str) -> Check:
    return Check(name, Level.GOOD, fact)


def warn(name: str, fact: str, advice: str) -> Check:
    return Check(name, Level.WARN, fact, advice)


def bad(name: str, fact: str, advice: str) -> Check:
    return Check(name, Level.BAD, fact, advice)


def is_private_host(host: str) -> bool:
    """Return whether a host name or address is this machine or in a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".svc", ".cluster.local"))


Checks = list[tuple[str, Callable[[], Iterable[Check]]]]
MARKS = {Level.GOOD: ("ok", "green"), Level.WARN: ("!", "bold yellow"), Level.BAD: ("X", "bold red")}


def doctor(
    node: Annotated[
        bool, typer.Option("--node", help="Check what a cluster node needs before Ray starts; its GPU must be usable.")
    ] = False,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="GPUs that this machine must have; `ray up` sets it.", metavar="N")
    ] = None,
    json_: Json = False,
) -> None:
    """Check everything that Switchboard needs: packages, GPU, database, storage, Ray, ports, models, settings.

    Nothing is changed, started or downloaded. Exit code 1 if there is a problem (X); a warning (!) does not matter in
    every installation.

    Example:

      switchboard doctor --node --gpus 1
    """
    checks = examine(node_checks(gpus) if node else all_checks(gpus))
    if json_:
        print_json(checks)
    else:
        _show(checks)
    if any(check.level is Level.BAD for check in checks):
        raise typer.Exit(FAILED)


def node_checks(gpus: int | None = None) -> Checks:
    """Return the checks of a node before Ray starts: none of the service, and an unusable GPU is a problem."""
    from serve_app import settings as all_settings
    from serve_app.cli.doctor import machine, service

    settings, faults = all_settings.usable()
    return [
        ("packages", machine.python_and_packages),
        ("torch and the GPU", lambda: machine.libraries_and_gpu(settings, strict=True, promised=gpus)),
        ("HAProxy", machine.haproxy),
        ("decoder", machine.decoder),
        ("variables", lambda: service.variables(faults)),
        ("storage", lambda: service.storage(settings, is_full=Level.WARN)),
    ]


def all_checks(gpus: int | None = None) -> Checks:
    """Return subjects and checks in order. Invalid settings fail their check; others use the defaults instead."""
    from serve_app import settings as all_settings
    from serve_app.cli.doctor import machine, models, service

    settings, faults = all_settings.usable()
    return [
        ("packages", machine.python_and_packages),
        ("torch and the GPU", lambda: machine.libraries_and_gpu(settings, promised=gpus)),
        ("HAProxy", machine.haproxy),
        ("decoder", machine.decoder),
        ("variables", lambda: service.variables(faults)),
        ("data folder", lambda: service.data_folder(settings)),
        ("storage", lambda: service.storage(settings)),
        ("database", lambda: service.database(settings)),
        ("Ray and ports", lambda: service.ray_and_ports(settings)),
        ("models", lambda: models.checkpoints(settings)),
        ("analysis", lambda: service.analysis(settings)),
        ("TLS", lambda: service.proxies(settings)),
        ("secrets", lambda: service.sealing(settings)),
        ("stored secrets", lambda: service.stale_secrets(settings)),
        ("retention", lambda: service.retention(settings)),
        ("backups", lambda: service.backups(settings)),
    ]


def examine(checks: Checks) -> list[Check]:
    """Run each check; an exception becomes a warning, and the other checks still run."""
    results: list[Check] = []
    with err().status("checking ...") as status:
        for subject, check in checks:
            status.update(f"checking {subject} ...")
            try:
                results += check()
            except Exception as error:
                results.append(Check(subject, Level.WARN, f"could not be checked: {explain(error).sentence}"))
    return results


def _show(checks: list[Check]) -> None:
    console = out()
    lines = table("!", "!what", "result and what to do")
    lines.show_header = False
    for check in checks:
        mark, style = MARKS[check.level]
        text = Text(check.found)
        if check.advice:
            text.append(f"\n-> {check.advice}", style="yellow" if check.level is Level.WARN else style)
        lines.add_row(Text(mark, style=style), check.name, text)
    console.print(lines)
    bad = sum(check.level is Level.BAD for check in checks)
    warnings = sum(check.level is Level.WARN for check in checks)
    console.print(f"\n{counted(bad, 'problem')}, {counted(warnings, 'warning')}, {len(checks) - bad - warnings} ok")
