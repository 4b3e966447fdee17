"""A user at an 80-column terminal in an empty folder, who types the commands of the documentation."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rich.cells import cell_len

from tests import fixture_checkpoints
from tests.acceptance.conftest import free_port

ROOT = Path(__file__).parents[2]
SECONDS = 600.0  # for one command: a machine that does other things as well is slow to start Ray
FOREIGN = re.compile(r"\b(?:INFO|DEBUG)\b|\[alembic|httpx|huggingface_hub|DeprecationWarning|FutureWarning")


class Person:
    """Commands run in `folder`, with a data folder of their own and small models."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._up: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))}
        self._environment = clean | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "80",
            "XDG_DATA_HOME": str(folder / "share"),
            "SWITCHBOARD_HTTP__PORT": str(self.port),
            "SWITCHBOARD_ASR__MODEL": str(fixture_checkpoints.RECOGNITION),
            "SWITCHBOARD_DIARIZATION__PIPELINE": str(fixture_checkpoints.DIARIZATION),
            **settings,
        }

    def types(self, command: str, exits: int = 0, **variables: str) -> str:
        """Run a command and return its stdout; print it with its duration. Libraries must not write to the terminal."""
        started = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")],
            cwd=self.folder,
            env=self._environment | variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        shown = f"$ {command}  # {time.monotonic() - started:.1f} s\n{done.stdout}{done.stderr}"
        print(shown)
        assert done.returncode == exits, shown
        assert not FOREIGN.search(done.stdout + done.stderr), shown
        return done.stdout

    def starts(self, command: str) -> None:
        """Leave a command running, as in a separate terminal, once it reports that it is ready."""
        path = self.folder / "up.log"
        self._log = path.open("wb")
        self._up = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self._environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        started = time.monotonic()
        while "Engines ready" not in path.read_text():
            assert self._up.poll() is None and time.monotonic() - started < SECONDS, path.read_text()
            time.sleep(0.5)
        print(f"$ {command}  # ready after {time.monotonic() - started:.1f} s\n{path.read_text()}")

    @contextlib.contextmanager
    def beside(self, command: str) -> Iterator["subprocess.Popen[str]"]:
        """Run another command in the meantime; it is ended if it has not ended by itself."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command.replace('127.0.0.1:8000', f'127.0.0.1:{self.port}')}"],
            cwd=self.folder,
            env=self._environment | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def has_ended(self) -> str:
        """Return the last output of the running command, which must exit by itself with 0."""
        assert self._up is not None and self._log is not None
        code = self._up.wait(SECONDS)
        self._log.close()
        output = (self.folder / "up.log").read_text()
        assert code == 0, output
        printed = "\n".join(line for line in output.splitlines() if not line.startswith("{"))  # not the service's log
        assert not FOREIGN.search(printed), printed
        self._up = None
        return output

    def leaves(self) -> None:
        """Ctrl-C, whatever a test came to."""
        if self._up is not None:
            self._up.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._up.wait(120)


def lines_wider_than(width: int, text: str) -> list[str]:
    return [line for line in text.splitlines() if cell_len(line.rstrip()) > width]
