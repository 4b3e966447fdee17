"""Brings the head's code to every other node of the cluster, over Ray: deploy.sh runs it before `serve deploy`.

    python spread.py

`ray up --no-restart` brings new code to the head alone, and Ray's autoscaler gives it to nodes that start later:
existing nodes would start their new replicas with the former code. A node that has the head's release is not changed.
Exits with 1 if a node could not be set up: its former code is restored, its packages may be newer.
"""

import fcntl
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
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
LEFT = ".switchboard-spread-"
SETUP_SECONDS = 1800.0  # PyTorch alone is 2 GB
TASK_SECONDS = SETUP_SECONDS + 120.0  # for a node's task to start and end


def archive(root: Path) -> bytes:
    """Return the code of a release as a compressed tar."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
        for path in [*sorted(release.files(root)), *(root / name for name in PACKAGE_FILES)]:
            tar.add(path, path.relative_to(root).as_posix(), recursive=False)
    return content.getvalue()


def take_over(code: bytes, target: str, home: Path | None = None) -> str:
    """Replace ~/switchboard on a node with a release and set it up; return what was done.

    Runs in a process of the former code, and imports nothing of it. Waits for another run on the node, and repeats what
    a killed one left undone. Raises RuntimeError with the end of setup.sh's output, after restoring the former code.
    """
    home = home or Path.home()
    with (home / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _replace(code, target, home)


def _replace(code: bytes, target: str, home: Path) -> str:
    place, unfinished = home / "switchboard", home / UNFINISHED
    interrupted = unfinished.exists()
    if place.is_dir() and release.digest(place) == target and not interrupted:
        return "has this release already"
    started = time.monotonic()
    for remains in home.glob(f"{LEFT}*"):
        shutil.rmtree(remains)
    with tempfile.TemporaryDirectory(dir=home, prefix=LEFT) as folder:
        new, former = Path(folder) / "new", Path(folder) / "former"
        with tarfile.open(fileobj=io.BytesIO(code)) as tar:
            tar.extractall(new, filter="data")
        unfinished.touch()
        if place.exists():
            place.rename(former)
        new.rename(place)
        line = ["timeout", str(SETUP_SECONDS), "bash", str(place / SETUP)]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            shutil.rmtree(place)
            if former.exists():
                former.rename(place)
            if not interrupted:
                unfinished.unlink()
            raise RuntimeError(f"setup.sh ended with {done.returncode}: {done.stdout[-2000:].strip()}")
        unfinished.unlink()
    return f"has this release now, set up in {time.monotonic() - started:.0f} s"


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
    code, target = ray.put(archive(root)), release.digest(root)
    task = ray.remote(num_cpus=0, max_retries=0)(take_over)
    running = {}
    for address, node in nodes.items():
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        running[task.options(scheduling_strategy=there).remote(code, target)] = address
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
