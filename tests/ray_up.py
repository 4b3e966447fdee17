"""Machines for `ray up`: name spaces with an SSH server, processes, users, /tmp and a home of their own.

Only root makes them, and they need Debian's packages openssh-server and rsync.
Files are shared: the index's packages come from uv's cache, and a database is reached by its socket.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.machines import ROOT, Machine, connected

USER = "switchboard"
HOME = Path("/mnt")  # on each machine: nothing else is there, and sockets below it have short paths
START_SECONDS = 30.0
HOST = """
mount --bind "$1" "$2"
cd "$2"
mount --bind tmp /tmp
mount --bind passwd /etc/passwd
[ ! -d mounted ] || mount --bind mounted switchboard
mkdir -p /run/sshd
/usr/sbin/sshd -D -f "$2/sshd_config" &
wait
"""
SSHD = """
ListenAddress {address}
HostKey {home}/host_key
AuthorizedKeysFile {home}/.ssh/authorized_keys
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
MaxStartups 100
"""


def missing() -> str:
    """Return what this machine lacks for such machines; "" if nothing."""
    if os.geteuid() != 0:
        return "only root makes name spaces"
    if any(folder.is_relative_to("/tmp") for folder in (ROOT, Path(sys.prefix))):
        return "each machine has a separate /tmp, and a checkout or packages below it are not visible"
    absent = [name for name in ("/usr/sbin/sshd", "rsync", "ssh") if shutil.which(name) is None]
    return f"apt-get install openssh-server rsync (not here: {', '.join(absent)})" if absent else ""


@dataclass
class Host(Machine):
    """A machine with separate processes and users. Its HOME is `home` on this machine."""

    holder: int = 0  # the process whose end ends all others of the machine

    def command(self, *command: str, **environment: str) -> tuple[list[str], dict[str, str]]:
        _, here = super().command(*command, **environment)
        spaces = ["--target", str(self.holder), "--net", "--mount", "--pid", f"--wd={HOME}"]
        return ["nsenter", *spaces, "--", *command], {**here, "HOME": str(HOME)}


@dataclass
class Packages:
    """What setup.sh installs, here already: it works without an index."""

    wheels: Path
    cache: str

    @classmethod
    def fetch(cls, folder: Path) -> "Packages":
        """Bring uv's cache up to date from the index that this machine uses."""
        wheels, installer = folder / "wheels", str(ROOT / "serve_app/deploy/installer.lock")
        download = ("pip", "download", "--quiet", "--no-deps", "--require-hashes", "-d", str(wheels), "-r", installer)
        _run(sys.executable, "-m", *download)
        here = Path(sys.executable).parent
        lock = _run(sys.executable, "serve_app/deploy/service_lock.py", "requirements.lock", "pyproject.toml")
        (folder / "service.lock").write_text(lock)
        environment = folder / "environment"
        _run(str(here / "uv"), "venv", "--quiet", "--python", sys.executable, str(environment))
        python = str(environment / "bin/python")
        install = ("pip", "install", "--quiet", "--python", python, "--require-hashes", "--requirement")
        _run(str(here / "uv"), *install, str(folder / "service.lock"))
        shutil.rmtree(environment)
        return cls(wheels, _run(str(here / "uv"), "cache", "dir").strip())

    def variables(self) -> dict[str, str]:
        return {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": self.cache,
            "UV_LINK_MODE": "symlink",  # a home is mounted: no hard link leads there
        }


@contextlib.contextmanager
def hosts(
    folder: Path, addresses: list[str], profiles: Mapping[str, Mapping[str, str]], key: Path, mounted: str = ""
) -> Iterator[dict[str, Host]]:
    """Start machines by address, which reach only each other, and accept logins with `key`.

    `profiles` has the variables of a login on each. Logins are of USER, whose home is otherwise empty. On the machine
    `mounted` ~/switchboard is a mount, as in the containers of `ray up`. Not for a folder below /tmp, which is a
    different one on each machine.
    """
    with contextlib.ExitStack() as stack:
        machines = {}
        for machine in stack.enter_context(connected(folder, addresses)):
            _furnish(machine, profiles.get(machine.address, {}), key)
            for name in ("mounted", "switchboard") if machine.address == mounted else ():
                (machine.home / name).mkdir()
            machines[machine.address] = stack.enter_context(_running(machine))
        yield machines


def _furnish(machine: Machine, profile: Mapping[str, str], key: Path) -> None:
    for name in ("tmp", ".ssh"):
        (machine.home / name).mkdir()
    (machine.home / "tmp").chmod(0o1777)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(machine.home / "host_key"))
    shutil.copy(key.with_suffix(".pub"), machine.home / ".ssh/authorized_keys")
    (machine.home / "sshd_config").write_text(SSHD.format(address=machine.address, home=HOME))
    # The first name of user 0 is the one that programs find for it.
    users = Path("/etc/passwd").read_text()
    (machine.home / "passwd").write_text(f"{USER}:x:0:0::{HOME}:/bin/bash\n{users}")
    path = f"{sys.base_prefix}/bin:$PATH"
    lines = [f'export PATH="{path}"', *(f"export {name}={shlex.quote(value)}" for name, value in profile.items())]
    (machine.home / ".profile").write_text("\n".join(lines) + "\n")


@contextlib.contextmanager
def _running(machine: Machine) -> Iterator[Host]:
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    line = ["ip", "netns", "exec", machine.space, *spaces, "bash", "-ec", HOST, "host", str(machine.home), str(HOME)]
    with (machine.home / "host.log").open("wb") as log, subprocess.Popen(line, stdout=log, stderr=log) as process:
        try:
            holder = _first_process(process, machine)
            yield Host(machine.space, machine.address, machine.home, machine.head, holder)
        finally:
            process.kill()


def _first_process(process: "subprocess.Popen[bytes]", machine: Machine) -> int:
    """Return the machine's process 1, once its SSH server listens. Fails with its output."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for child in psutil.Process(process.pid).children():
            probe = ["nsenter", "--target", str(child.pid), "--net", "bash", "-c", f"< /dev/tcp/{machine.address}/22"]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return child.pid
        time.sleep(0.1)
    raise AssertionError((machine.home / "host.log").read_text())


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
    return done.stdout
