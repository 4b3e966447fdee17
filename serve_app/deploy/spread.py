"""Brings the head's code and settings to every other node of the cluster, over Ray: deploy.sh runs it.

    python spread.py

`ray up --no-restart` brings new code to the head alone, and Ray's autoscaler gives it to nodes that start later:
existing nodes would start their new replicas with the former code. A node that has the head's release is not changed.
Exits with 1 if a node could not be set up: its former release is restored, its packages may be newer.

With Docker ~/switchboard is a mount, which cannot be renamed: each release has a folder inside it, to which links lead.
"""

import fcntl
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from serve_app.deploy import release

PACKAGE_FILES = ("README.md", "LICENSE")  # required by pyproject.toml
SETUP = "serve_app/deploy/setup.sh"
UNFINISHED = ".switchboard-unfinished"  # in the home folder while a node is set up
LOCK = ".switchboard-lock"
RELEASES = ".releases"  # in ~/switchboard: a folder for each release, the present one and the former
FORMER = "before-releases"  # the folder of code that `ray up` copied
PART = ".part"
NAMES = (*release.CODE, *release.PROJECT_FILES, *PACKAGE_FILES)
SETUP_SECONDS = 1800.0  # PyTorch alone is 2 GB
TASK_SECONDS = SETUP_SECONDS + 120.0  # for a node's task to start and end


def archive(root: Path) -> bytes:
    """Return the code of a release as a compressed tar."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
        for path in [*sorted(release.files(root)), *(root / name for name in PACKAGE_FILES)]:
            tar.add(path, path.relative_to(root).as_posix(), recursive=False)
    return content.getvalue()


def take_over(code: bytes, settings: bytes | None, target: str, home: Path | None = None) -> str:
    """Give a node a release and its settings, and set it up; return what was done.

    Runs in a process of the former code, and imports nothing of it. Waits for another run on the node, and repeats what
    a killed one left undone. Raises RuntimeError with the end of setup.sh's output, after restoring the former release.
    """
    home = home or Path.home()
    with (home / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _replace(code, settings, target, home)


def _replace(code: bytes, settings: bytes | None, target: str, home: Path) -> str:
    place, unfinished = home / "switchboard", home / UNFINISHED
    interrupted = unfinished.exists()
    former_settings = release.settings(home)
    if not interrupted and _has(place, target) and former_settings == settings:
        return "has this release already"
    started = time.monotonic()
    unpacked = _unpack(code, place / RELEASES / target)
    unfinished.touch()
    former = _adopt(place)
    _point(place, unpacked)
    _write(place / release.SETTINGS, settings)
    line = ["timeout", str(SETUP_SECONDS), "bash", str(place / SETUP)]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        _point(place, former)
        _write(place / release.SETTINGS, former_settings)
        if unpacked != former:
            shutil.rmtree(unpacked)
        if not interrupted:
            unfinished.unlink()
        raise RuntimeError(f"setup.sh ended with {done.returncode}: {done.stdout[-2000:].strip()}")
    unfinished.unlink()
    for folder in (place / RELEASES).iterdir():
        if folder not in (unpacked, former):
            shutil.rmtree(folder)
    return f"has this release now, set up in {time.monotonic() - started:.0f} s"


def _unpack(code: bytes, folder: Path) -> Path:
    """Return the folder of a release, complete, whatever an interrupted run left there."""
    part = folder.with_name(f"{folder.name}{PART}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(code)) as tar:
        tar.extractall(part, filter="data")
    if _has(folder, folder.name):
        shutil.rmtree(part)
    else:  # absent, or what a killed run left of it
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    return folder


def _has(place: Path, target: str) -> bool:
    return all((place / name).is_file() for name in release.PROJECT_FILES) and release.digest(place) == target


def _adopt(place: Path) -> Path | None:
    """Return the folder of the release that the node runs; code that is no release yet becomes one. None: no code."""
    name = release.CODE[0]
    if (place / name).is_symlink():
        return (place / name).resolve().parent
    former = place / RELEASES / FORMER
    for entry in NAMES:
        if (place / entry).exists() and not (place / entry).is_symlink():
            former.mkdir(exist_ok=True)
            (place / entry).rename(former / entry)
    return former if former.exists() else None


def _point(place: Path, folder: Path | None) -> None:
    """Let the names in `place` lead to a release. `place` itself may be a mount, which cannot be renamed."""
    for entry in NAMES:
        link = place / RELEASES / f"{entry}{PART}"
        link.unlink(missing_ok=True)
        if folder and (folder / entry).exists():
            link.symlink_to(Path(RELEASES, folder.name, entry))
            link.replace(place / entry)
        else:
            (place / entry).unlink(missing_ok=True)


def _write(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
        return
    draft = path.with_name(f"{path.name}{PART}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)


def others() -> dict[str, str]:
    """Return the ids of the other living nodes, by address."""
    mine = ray.get_runtime_context().get_node_id()
    return {
        node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != mine
    }


def spread(root: Path) -> list[str]:
    """Bring the code in `root` to all other nodes in parallel; return the addresses of those that failed."""
    for module in (release, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)  # nodes have another version, or none
    nodes = others()
    if not nodes:
        return []
    code, target, settings = ray.put(archive(root)), release.digest(root), release.settings(Path.home())
    task = ray.remote(num_cpus=0, max_retries=0)(take_over)
    running = {}
    for address, node in nodes.items():
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        running[task.options(scheduling_strategy=there).remote(code, settings, target)] = address
    failed, deadline = [], time.monotonic() + TASK_SECONDS
    while running:
        ended, _ = ray.wait(list(running), timeout=max(0.0, deadline - time.monotonic()))
        for result in ended or list(running):
            address = running.pop(result)
            try:
                print(f"{address}: {ray.get(result, timeout=0)}", flush=True)  # noqa: T201
            except Exception as error:
                print(f"{address}: {error}", file=sys.stderr, flush=True)  # noqa: T201
                failed.append(address)
    return failed


def main() -> None:
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    failed = spread(release.ROOT)
    if failed:
        sys.exit(f"Nothing is deployed: the code could not be set up on {', '.join(failed)}. Run deploy.sh again.")


if __name__ == "__main__":
    main()
