"""What the processes of a service listen on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil

LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


@dataclass(frozen=True, slots=True)
class Door:
    """A TCP port that a process listens on; `who` is the process as Ray titles it, or its name."""

    address: str
    port: int
    who: str

    @property
    def is_loopback(self) -> bool:
        return self.address in LOOPBACK


def doors(pid: int) -> list[Door]:
    """Return every TCP port on which the process or a descendant listens."""
    top = psutil.Process(pid)
    return doors_of({top, *top.children(recursive=True)})


def doors_of(processes: Iterable[psutil.Process]) -> list[Door]:
    return [door for process in processes for door in _doors(process)]


def _doors(process: psutil.Process) -> Iterator[Door]:
    try:
        listening = [
            connection for connection in process.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
        ]
        who = _title(process) if listening else ""
    except psutil.Error:
        return
    for connection in listening:
        yield Door(connection.laddr.ip, connection.laddr.port, who)


def _title(process: psutil.Process) -> str:
    """`raylet`, `gcs_server`, `ray::DashboardAgent`, ...; for Python's own, the script that it runs."""
    arguments = process.cmdline()
    if arguments and arguments[0].startswith("ray::"):
        return arguments[0].split(" ")[0]
    scripts = [argument.rpartition("/")[2] for argument in arguments if argument.endswith(".py")]
    return scripts[0] if scripts else process.name()
