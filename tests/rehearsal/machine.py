"""A fresh Debian 12 with systemd, in namespaces of this machine: what runs in it changes nothing outside.

Its root is debootstrap's minimal system below an overlay in memory. The programs of the service and its data are on
disk. It has its own processes, network (only the loopback interface), IPC and cgroups, and ends with `halt`.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

SUITE = "bookworm"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
BASE = CACHE / "switchboard-development" / f"debian-{SUITE}"
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
ADMINISTRATOR = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
PACKAGE_INDEX = ("PIP_", "UV_", "SSL_CERT", "REQUESTS_CA", "CURL_CA", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
BOOT_SECONDS = 60.0
BOOT = r"""
set -eu
here=$1 base=$2
mount -t tmpfs -o size=3G tmpfs "$here/memory"
mkdir "$here/memory/changes" "$here/memory/work" "$here/memory/root"
mount -t overlay -o "lowerdir=$base,upperdir=$here/memory/changes,workdir=$here/memory/work" overlay "$here/memory/root"
cd "$here/memory/root"
mkdir -p host etc/ssl/certs
cp /etc/resolv.conf etc/
echo '127.0.0.1 localhost' > etc/hosts
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
mount --bind "$here/home" home
mount --bind "$here/tmp" tmp
mount --rbind /dev dev
mount -t tmpfs tmpfs dev/shm
mount -t proc proc proc
mount -t sysfs sysfs sys 2>/dev/null || mount --rbind /sys sys
mount -t tmpfs tmpfs sys/fs/cgroup
if grep -q '^0::/' /proc/self/cgroup && ! grep -q name=systemd /proc/self/cgroup; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
else
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
mount -t tmpfs -o mode=755 tmpfs run
printf '[Unit]\nWants=systemd-journald.service\n' > etc/systemd/system/rehearsal.target
ip link set lo up
pivot_root . host
container=rehearsal exec /lib/systemd/systemd --system --unit=rehearsal.target --show-status=no
"""


class CommandFailed(AssertionError):
    """A command that should have succeeded."""


def install_base() -> None:
    """Download Debian's minimal system, once for all checkouts: 260 MB, 90 s."""
    if BASE.is_dir():
        return
    draft = BASE.with_suffix(f".{os.getpid()}")
    packages = "--include=systemd,iproute2,ca-certificates,curl"
    try:
        print("Downloading Debian's minimal system ...", flush=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, SUITE, str(draft)], check=True, capture_output=True
        )
        draft.rename(BASE)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class Machine:
    """One machine. `folder`: on the file system of uv's cache, so that packages are linked; the caller deletes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unshare: subprocess.Popen[bytes] | None = None
        self._init = 0  # systemd's process id, as seen from outside
        for name, mode in (("memory", 0o755), ("home", 0o755), ("code", 0o755), ("tmp", 0o1777)):
            (folder / name).mkdir(parents=True)
            (folder / name).chmod(mode)

    def boot(self) -> None:
        namespaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net", "--fork", "--kill-child"]
        with (self.folder / "console.log").open("wb") as log:
            command = ["unshare", *namespaces, "bash", "-c", BOOT, "boot", str(self.folder), str(BASE)]
            self._unshare = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + BOOT_SECONDS
        while True:
            with contextlib.suppress(CommandFailed, IndexError, psutil.Error):
                self._init = psutil.Process(self._unshare.pid).children()[0].pid
                if psutil.Process(self._init).name() == "systemd":
                    self.run("systemctl is-active rehearsal.target")
                    return
            if self._unshare.poll() is not None or time.monotonic() > deadline:
                raise CommandFailed((self.folder / "console.log").read_text() or "systemd did not start")
            time.sleep(0.2)

    def unpack(self, files: Path) -> None:
        """Put a version's folder below /opt. It stays on the disk of uv's cache: packages are linked from there."""
        self.run(f"ln -s /host{files} /opt/{files.name}")

    def run(self, command: str, folder: str = "/root", typed: str = "", outside_network: bool = False) -> str:
        """Run a command as root, with `typed` on its standard input; return its output. Raises `CommandFailed`."""
        namespaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", *([] if outside_network else ["--net"])]
        index = {name: value for name, value in os.environ.items() if name.upper().startswith(PACKAGE_INDEX)}
        variables = index | ADMINISTRATOR | {"LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        variables["UV_CACHE_DIR"] = f"/host{os.environ.get('UV_CACHE_DIR', CACHE / 'uv')}"
        done = subprocess.run(
            ["nsenter", f"--target={self._init}", "--root", *namespaces, "bash", "-c", f'cd "$0" && {command}', folder],
            env=variables,
            input=typed,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode:
            raise CommandFailed(f"# {command}\n{typed}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done.stdout

    def write(self, path: str, text: str) -> None:
        self.run(f"cat > {path}", typed=text)

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Open the sockets of this thread in the machine's network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/proc/thread-self/ns/net").open() as before, Path(f"/proc/{self._init}/ns/net").open() as inside:
            if libc.setns(inside.fileno(), NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "the machine's network cannot be entered")
            try:
                yield
            finally:
                libc.setns(before.fileno(), NEW_NETWORK)

    def halt(self) -> None:
        """Cut the power: the kernel ends every process of the machine with its first one."""
        if self._unshare is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init or self._unshare.pid, signal.SIGKILL)
            self._unshare.wait(60)
            self._unshare = None
