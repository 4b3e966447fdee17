"""Asterisk of Debian's packages, and processes of it that use ports and folders of their own.

    python -m tests.asterisk    installs it

Stable releases of Debian may lack the package, so without an `asterisk` on the path those of unstable are unpacked with
the libraries they need, into the cache of this user. Nothing of the machine is changed, and root is not needed.
"""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tests.paths import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "switchboard-development" / "asterisk"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian unstable main"
START_SECONDS, STOP_SECONDS = 60.0, 10.0
RECIPES = ROOT / "examples" / "telephony"


def installed() -> tuple[list[str], Path]:
    """Return the command of Asterisk and the folder below which its files are. Raises RuntimeError."""
    system = shutil.which("asterisk")
    if system:
        return [system], Path("/")
    tree = CACHE / "tree"
    if not (CACHE / "unpacked").is_file():
        _unpack(tree)
    libraries = tree / "usr/lib/x86_64-linux-gnu"
    loader = libraries / "ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", str(libraries), str(tree / "usr/sbin/asterisk")], tree


def _unpack(tree: Path) -> None:
    if not shutil.which("apt-get") or not Path(KEYRING).is_file():
        raise RuntimeError("There is no Asterisk on this machine, and no apt-get to get Debian's package: install it.")
    shutil.rmtree(CACHE, ignore_errors=True)
    apt = CACHE / "apt"
    for folder in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/dpkg", "var/lib/apt/lists/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "var/cache/apt/archives/partial").mkdir(parents=True)
    (apt / "etc/apt/sources.list").write_text(f"{SOURCE}\n")
    (apt / "var/lib/dpkg/status").touch()  # nothing is installed there, so all libraries are downloaded
    options = (f"Dir={apt}", f"Dir::State::status={apt}/var/lib/dpkg/status", f"APT::Sandbox::User={os.geteuid()}")
    command = ["apt-get", "-q", *(f"-o{option}" for option in options)]
    subprocess.run([*command, "update"], check=True)
    subprocess.run([*command, "install", "-y", "--download-only", "--no-install-recommends", "asterisk"], check=True)
    for package in (apt / "var/cache/apt/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True)
    shutil.rmtree(apt)
    (CACHE / "unpacked").touch()


@dataclass
class Asterisk:
    """A context manager: a process with this configuration, in folders below `folder`."""

    folder: Path
    configuration: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    _process: "subprocess.Popen[bytes] | None" = None
    _log: IO[bytes] | None = None

    @property
    def monitor(self) -> Path:
        """The folder of its recordings."""
        return self.folder / "spool" / "monitor"

    def __enter__(self) -> Self:
        self._command, tree = installed()
        folders = ("etc", "var", "run", "log", "keys", "spool/monitor", "spool/outgoing", "spool/tmp")
        for name in folders:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        directories = {
            "astetcdir": self.folder / "etc",
            "astmoddir": tree / "usr/lib/x86_64-linux-gnu/asterisk/modules",
            "astdatadir": tree / "usr/share/asterisk",
            "astagidir": self.folder,
            "astspooldir": self.folder / "spool",
            "astrundir": self.folder / "run",
            "astlogdir": self.folder / "log",
            "astkeydir": self.folder / "keys",
            **dict.fromkeys(("astvarlibdir", "astdbdir"), self.folder / "var"),
        }
        lines = [f"{name} => {path}" for name, path in directories.items()]
        files = {
            "asterisk.conf": "\n".join(["[directories]", *lines, "[options]", "nocolor = yes"]),
            "modules.conf": "[modules]\nautoload = yes\nnoload = chan_iax2.so\nnoload = chan_unistim.so",
            "logger.conf": "[logfiles]\nconsole => notice,warning,error,verbose",
            **self.configuration,
        }
        for name, text in files.items():
            (self.folder / "etc" / name).write_text(f"{text}\n")
        self._start()
        return self

    def _start(self) -> None:
        self._log = (self.folder / "console.log").open("wb")
        self._process = subprocess.Popen(
            [*self._command, "-C", str(self.folder / "etc" / "asterisk.conf"), "-f", "-vvv"],
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + START_SECONDS
        while "Asterisk Ready." not in self.output():
            assert self._process.poll() is None and time.monotonic() < deadline, self.output()[-4000:]
            time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        assert self._process is not None and self._log is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def output(self) -> str:
        return (self.folder / "console.log").read_text(encoding="utf-8", errors="replace")

    def types(self, command: str) -> str:
        """Run a command of its console and return the output."""
        arguments = ["-C", str(self.folder / "etc" / "asterisk.conf"), "-rx", command]
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, timeout=30, check=False)
        return done.stdout

    def wait_for_channels(self, *, idle: bool, seconds: float) -> None:
        """Wait until a channel is up, or none."""
        deadline = time.monotonic() + seconds
        while ("0 active channels" in (shown := self.types("core show channels count"))) is not idle:
            assert time.monotonic() < deadline, f"{shown}\n{self.output()[-4000:]}"
            time.sleep(0.3)


if __name__ == "__main__":
    command, _ = installed()
    print(subprocess.run([*command, "-V"], capture_output=True, text=True, check=True).stdout.strip())
