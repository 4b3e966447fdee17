"""Play docs/production.md line by line on fresh machines with systemd, with calls in the meantime.

    python -m tests.rehearsal [--calls 50]

Commands, settings and the proxies' configurations are those of the page. Exit code 1 if a line fails or was not run,
or a call is lost, stored twice or not completed. Needs root and Debian's `debootstrap`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.rollout import add_migration
from tests.file_server import FileServer
from tests.journeys.pages import ROOT, blocks, commands, inline
from tests.rehearsal.machine import CommandFailed, Machine, install_base
from tests.rehearsal.telephony import HOST, Site, Workspace, calling

PAGE = "docs/production.md"
RECORDINGS_PORT = 28090  # those of Ray are refused
CHECKPOINTS = Path.home() / ".local/share/switchboard/checkpoints"
READY_SECONDS = 600.0
PAUSE = 5.0  # seconds between two calls while something is changed
SHELL = "sudo -Hu switchboard bash -c"
NEEDS_INTERNET = re.compile(r"apt-get|make setup")
NEXT = "0.1.1"
FIRST, SECOND = "/opt/switchboard-1", "/opt/switchboard-2"  # the folders of the page
TEST_CA = "{\n    local_certs\n    skip_install_trust\n}\n"  # the public one does not know calls.example.com
NOT_RUN = {
    "switchboard plan": "tests/unit/serve_app/operations/test_plan.py runs it",
    "SWITCHBOARD_DATABASE_URL": "tests/integration/db/server fails over to another server",
}


@dataclass
class Rehearsal:
    """The table, and the lines of the page that were run."""

    calls: int
    rows: list[str] = field(default_factory=list)
    lost: int = 0
    site: Site | None = None
    done: set[str] = field(default_factory=set)
    alerts: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, and count what was accepted and repeated during it, and which of all calls are missing then."""
        started, site = time.monotonic(), self.site
        before = (len(site.accepted), site.repeated) if site else (0, 0)
        if site:
            site.longest = 0.0
        print(f"== {name}", flush=True)
        yield
        row = f"{name:<40}{time.monotonic() - started:>8.0f}"
        if site:
            self.lost = site.lost()
            new, repeated = len(site.accepted) - before[0], site.repeated - before[1]
            row += f"{new:>10}{repeated:>10}{site.longest:>11.1f}{self.lost:>6}"
        self.rows.append(row)
        print(f"   {row}", flush=True)

    def play(self, machine: Machine, lines: list[str], folder: str, change: Callable[[str], str] = str) -> str:
        """Run lines of the page in order. A shell of the service's user receives those after it, up to `exit`."""
        self.done.update(lines)
        output, rest = "", [change(line) for line in lines]
        while rest:
            command, typed = rest.pop(0), ""
            if command.startswith(SHELL):
                end = rest.index("exit") if "exit" in rest else len(rest)
                typed, rest = "set -e\n" + "\n".join(rest[:end]) + "\n", rest[end + 1 :]
            print(f"$ {command}" + "".join(f"\n> {line}" for line in typed.splitlines()[1:]), flush=True)
            output += machine.run(command, folder, typed, outside_network=bool(NEEDS_INTERNET.search(command)))
        return output

    def missing(self) -> list[str]:
        """Return the commands of the page, and lines of its files, that were not run."""
        page = [line for block in blocks(PAGE) for line in commands(block)] + inline(PAGE)
        return [line for line in page if line not in self.done | NOT_RUN.keys()]

    def table(self) -> str:
        head = f"{'step':<40}{'seconds':>8}{'accepted':>10}{'repeated':>10}{'longest s':>11}{'lost':>6}"
        coverage = [f"{len(self.done)} lines of {PAGE} were run. Not run:"]
        coverage += [f"  {line}: {reason}" for line, reason in NOT_RUN.items()]
        alerts = f"Alerts that fired: {', '.join(self.alerts) or 'none'}"  # some do on a machine with other work
        return "\n".join([head, *self.rows, "", alerts, *coverage])


def unpack(target: Path, following: bool = False) -> Path:
    """Copy this checkout's files; as the next version, with another migration, if `following`."""
    target.mkdir(parents=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    packed = subprocess.run(
        ["tar", "--create", "--null", "--files-from=-"], cwd=ROOT, input=listed, check=True, capture_output=True
    )
    subprocess.run(["tar", "--extract", "--no-same-owner"], cwd=target, input=packed.stdout, check=True)
    if following:
        add_migration(target)
        for file in ("pyproject.toml", "client/src/switchboard/_version.py"):
            path = target / file
            text, changes = re.subn(r'(version\S*(: Final)? = )"[^"]+"', rf'\1"{NEXT}"', path.read_text(), count=1)
            assert changes == 1, file
            path.write_text(text)
    return target


def install(rehearsal: Rehearsal, machine: Machine, settings: str = "") -> str:
    """Play `Install`, with the page's settings and a new key; with `settings`, except the line that starts it."""
    block, file = blocks(PAGE, "## Install")
    lines = commands(block)
    fetch = next(at for at, line in enumerate(lines) if "checkpoints fetch" in line)
    rehearsal.play(machine, lines[:1], FIRST)
    key = machine.run("openssl rand -base64 32").strip()
    machine.write(f"{FIRST}/deploy.env", text := settings or file.replace("SECRETS_KEYS=...", f"SECRETS_KEYS={key}"))
    rehearsal.done.update(commands(file))
    rehearsal.play(machine, lines[1:fetch], FIRST)
    if CHECKPOINTS.is_dir():  # the page's line then verifies them; they are 376 MB
        share = "/home/switchboard/.local/share/switchboard"
        machine.run(f"sudo -u switchboard mkdir -p {share} && cp -r /host{CHECKPOINTS} {share}/")
        machine.run(f"chown -R switchboard {share}")
    rehearsal.play(machine, lines[fetch:-1] if settings else lines[fetch:], FIRST)
    return text


def until_ready(machine: Machine, folder: str = FIRST) -> None:
    """Wait for the service, and check that the unit starts the program of this folder."""
    started = machine.run("systemctl show --property=ExecStart switchboard")
    assert f"{folder}/" in started or f"{folder.removeprefix('/opt')}/" in started, started
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            machine.run("curl --silent --fail http://127.0.0.1:8000/readyz")
            return
        except CommandFailed:
            if time.monotonic() > deadline:
                raise CommandFailed(machine.run("journalctl -u switchboard --no-pager | tail -n 60")) from None
            time.sleep(1)


def put_tls_in_front(rehearsal: Rehearsal, machine: Machine, server: str) -> Path:
    """Play `TLS` with nginx or Caddy; return a file with the certificate that a client has to trust."""
    nginx, caddy = blocks(PAGE, "## TLS")
    get, reload = (line for line in inline(PAGE, "## TLS") if server in line)
    rehearsal.play(machine, [get], FIRST)
    if server == "nginx":
        machine.run(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout /etc/ssl/calls.key -out /etc/ssl/calls.pem "
            f"-subj /CN={HOST} -addext subjectAltName=DNS:{HOST} 2>&1"
        )
        machine.write("/etc/nginx/conf.d/switchboard.conf", nginx)
    else:
        machine.write("/etc/caddy/Caddyfile", TEST_CA + caddy)
    rehearsal.done.update(commands(nginx if server == "nginx" else caddy))
    machine.run(f"systemctl start {server}")  # as after a boot
    rehearsal.play(machine, [reload], FIRST)
    root = (
        "/etc/ssl/calls.pem"
        if server == "nginx"
        else "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt"
    )
    machine.run(f"for second in $(seq 60); do [ -s {root} ] && break; sleep 1; done")
    certificate = machine.folder / "calls.pem"
    certificate.write_text(machine.run(f"cat {root}"))
    return certificate


def first_workspaces(rehearsal: Rehearsal, machine: Machine) -> list[Workspace]:
    """Create the page's workspace and a second one, each with a key for submissions and one for reading."""
    page = commands(blocks(PAGE, "## First workspaces")[0])
    workspaces = []
    for name in ("acme", "globex"):
        output = rehearsal.play(machine, page, FIRST, lambda line, name=name: line.replace("acme", name))
        (submit_key,) = re.findall(r"^\s+(sb_\S+)$", output, re.M)
        (team_id,) = re.findall(r'"teamId": ?"([0-9a-f-]{36})"', output)
        more = [
            f"switchboard keys create --scope read --workspace {name}",
            f"switchboard workspaces hosts 127.0.0.1:{RECORDINGS_PORT} --workspace {name}",
        ]
        output = machine.run(page[0], typed="\n".join(["set -e", page[1], *more, ""]))
        (read_key,) = re.findall(r"^\s+(sb_\S+)$", output, re.M)
        workspaces.append(Workspace(name, submit_key, team_id, read_key))
    return workspaces


def fired_alerts(machine: Machine) -> list[str]:
    """Return the alerts that fired, after a check that Prometheus reads both targets and reaches Alertmanager."""
    ask = "curl --silent --fail --get http://127.0.0.1:9090/api/v1"

    def query(expression: str) -> list[dict[str, Any]]:
        answer = json.loads(machine.run(f"{ask}/query --data-urlencode 'query={expression}'"))
        return list(answer["data"]["result"])

    read = {series["metric"]["job"] for series in query("max_over_time(up[1d]) == 1")}
    assert read >= {"switchboard", "haproxy"}, read
    assert ":9093/" in machine.run(f"{ask}/alertmanagers")
    return sorted(
        {series["metric"]["alertname"] for series in query('last_over_time(ALERTS{alertstate="firing"}[1d])')}
    )


def back_up(rehearsal: Rehearsal, machine: Machine) -> None:
    machine.run("systemctl start switchboard-backup.service")
    timers, *lines = commands(blocks(PAGE, "## Backups")[0])
    assert "switchboard-backup.timer" in rehearsal.play(machine, [timers], FIRST)
    shell = commands(blocks(PAGE, "## First workspaces")[0])[:2]
    rehearsal.play(machine, [*shell, *lines], FIRST, latest_backup(machine))


def latest_backup(machine: Machine) -> Callable[[str], str]:
    """Return what replaces the page's backup by the latest one."""
    latest = machine.run("ls -d /backups/20*").split()[-1]
    return lambda line: re.sub(r"/backups/20\S+", latest, line)


def set_up(rehearsal: Rehearsal, machine: Machine, recordings: FileServer) -> tuple[Site, str]:
    """Play the page up to the first calls; return the site and the settings."""
    with rehearsal.step("install, start, ready"):
        settings = install(rehearsal, machine)
        until_ready(machine)
    with rehearsal.step("TLS by nginx"):
        certificate = put_tls_in_front(rehearsal, machine, "nginx")
    with rehearsal.step("two workspaces, doctor"):
        workspaces = first_workspaces(rehearsal, machine)
    with rehearsal.step("Prometheus, Alertmanager"):
        rehearsal.play(machine, commands(blocks(PAGE, "## Monitoring")[0]), FIRST)
    return Site(machine, certificate, workspaces, recordings), settings


def operate(rehearsal: Rehearsal, site: Site) -> None:
    """Play the rest of the page with calls in the meantime: 50, a restart, an upgrade, a rollback and backups."""
    machine, upgrade = site.machine, commands(blocks(PAGE, "## Upgrade, and back")[0])
    with rehearsal.step(f"{rehearsal.calls} calls completed"):
        site.send_new(threading.Event(), limit=rehearsal.calls)
        site.complete()
    with rehearsal.step("backup, list, verify with a drill"):
        back_up(rehearsal, machine)
    with rehearsal.step("restart with another setting"), calling(site, PAUSE):
        machine.run("echo SWITCHBOARD_LOG_FORMAT=json >> /etc/switchboard/deploy.env")
        rehearsal.play(machine, inline(PAGE, "## Install"), FIRST)
        until_ready(machine)
    with rehearsal.step("upgrade to the next version"), calling(site, PAUSE):
        rehearsal.play(machine, upgrade, SECOND)
        until_ready(machine, SECOND)
    with rehearsal.step("rollback"), calling(site, PAUSE):
        rehearsal.play(machine, upgrade[-2:], FIRST)
        until_ready(machine)
    with rehearsal.step("all calls completed"):
        site.complete()
    with rehearsal.step("another backup"):
        rehearsal.play(machine, upgrade[:1], FIRST)


def move(rehearsal: Rehearsal, site: Site, machine: Machine, settings: str, backups: str, lost: int) -> None:
    """Play `Another machine`: `lost` calls are missing after the restore, and are sent again with all others."""
    rehearsal.site = None
    with rehearsal.step("install another machine, TLS by Caddy"):
        install(rehearsal, machine, settings)
        site.certificate = put_tls_in_front(rehearsal, machine, "caddy")
    machine.run("base64 --decode | tar --extract --directory=/", typed=backups)
    site.machine = machine
    with rehearsal.step("restore, start, ready"):
        rehearsal.play(machine, commands(blocks(PAGE, "## Another machine")[0]), FIRST, latest_backup(machine))
        until_ready(machine)
    missing = site.lost()
    assert missing == lost, f"{missing} calls are missing, {lost} were accepted after the backup"
    rehearsal.site = site
    with rehearsal.step(f"{missing} lost calls, and all others, again"):
        site.send_again()
        site.complete()


def rehearse(rehearsal: Rehearsal, folder: Path, stack: ExitStack) -> None:
    first, second = Machine(folder / "first"), Machine(folder / "second")
    for machine in (first, second):
        stack.callback(machine.halt)
        machine.boot()
        machine.unpack(unpack(machine.folder / "code/switchboard-1"))
    first.unpack(unpack(first.folder / "code/switchboard-2", following=True))
    recordings = FileServer(port=RECORDINGS_PORT)
    with first.network():
        stack.enter_context(recordings)
    site, settings = set_up(rehearsal, first, recordings)
    rehearsal.site = site
    operate(rehearsal, site)
    before = len(site.accepted)
    with rehearsal.step("calls after it, loss of the machine"):
        with calling(site, PAUSE):
            time.sleep(3 * PAUSE)
        rehearsal.alerts = fired_alerts(first)
        backups = first.run("tar --create --directory=/ backups | base64 --wrap=0")
    first.halt()
    with second.network():
        stack.enter_context(recordings)
    move(rehearsal, site, second, settings, backups, len(site.accepted) - before)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.rehearsal", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=50)
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        parser.error("Run it as root, after apt-get install debootstrap.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # halts the machines, as Ctrl-C does
    install_base()
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir="/var/tmp"))
    folder.chmod(0o755)
    rehearsal = Rehearsal(arguments.calls)
    try:
        with ExitStack() as stack:
            rehearse(rehearsal, folder, stack)
    finally:
        print(f"\n{rehearsal.table()}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    if missing := rehearsal.missing():
        print("Lines of the page that were not run:", *missing, sep="\n  ")
    return int(bool(missing or rehearsal.lost))


if __name__ == "__main__":
    sys.exit(main())
