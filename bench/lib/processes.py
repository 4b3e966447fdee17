"""Memory of a service by kind of process: PSS, which counts pages shared with others once."""

from collections import Counter
from collections.abc import Iterable

import psutil

from serve_app.service.ports import STANDBY

ENGINES = ("Transcriber", "Diarizer")
REPLICAS = ("Intake", "Api", "Console", "Conductor", *ENGINES)
KINDS = {  # part of a command line -> what it is
    STANDBY: "standby",
    "ServeController": "Serve controller",
    "HAProxyManager": "HAProxy manager",
    "ProxyActor": "Serve proxy",
    "haproxy": "HAProxy",
    "postgres": "PostgreSQL",
    "log_monitor.py": "log monitor",
    "monitor.py": "autoscaler",
    "dashboard.py": "dashboard",
    "DashboardAgent": "metrics agent",
    "RuntimeEnvAgent": "environment agent",
    "gcs_server": "GCS",
    "raylet/raylet": "raylet",
    "ray::": "CPU tasks",
    "switchboard": "switchboard up",
    "serve_app": "switchboard up",
}


def memory_mib(processes: Iterable[psutil.Process]) -> tuple[Counter[str], Counter[str]]:
    """Return MiB, and the number of processes, by kind."""
    memory: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for process in processes:
        try:
            title, pss = " ".join(process.cmdline()) or process.name(), process.memory_full_info().pss
        except psutil.Error:
            continue
        memory[kind(title)] += round(pss / 2**20)
        number[kind(title)] += 1
    return memory, number


def kind(title: str) -> str:
    for name in REPLICAS:
        if "ServeReplica" in title and f":{name}" in title:
            return name
    return next((name for part, name in KINDS.items() if part in title), "other")
