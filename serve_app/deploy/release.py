"""Prints serve.yaml for the running cluster, with the release of the code, so that `serve deploy` upgrades.

    python release.py serve.yaml > ~/.switchboard/serve.yaml

Serve compares an application's configuration with the running one. If only the code has changed they are equal, and
every replica would keep the code that it was started with. The release is a digest of the code and the settings.
"""

import argparse
import copy
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CODE = ("serve_app", "pipeline", "db")
SERVICE_NODE = "service_node"  # the resource of nodes without a GPU; as in serve_app.app, which needs Ray
SETTINGS = "deploy.env"
PYTHON = "bash ~/switchboard/serve_app/deploy/python.sh"
ENGINES = ("transcriber", "diarizer")
PROJECT_FILES = ("pyproject.toml", "requirements.lock")


def files(root: Path) -> Iterator[Path]:
    """Yield the files that make up the code: packages with their data, and what they need."""
    yield from (root / name for name in PROJECT_FILES)
    for package in CODE:
        for path in (root / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def settings(home: Path) -> bytes | None:
    """Return the settings of a node as its shell reads them (node.env); None without any."""
    for path in (home / "switchboard" / SETTINGS, home / SETTINGS):
        if path.is_file():
            return path.read_bytes()
    return None


def digest(root: Path, settings: bytes = b"") -> str:
    """Return the release: sixteen hexadecimal digits of the SHA-256 over names, contents and settings."""
    state = hashlib.sha256(settings)
    for path in sorted(files(root)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        state.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return state.hexdigest()[:16]


def released(deployed: dict[str, Any], release: str) -> dict[str, Any]:
    """Return the file's contents with the release among each application's arguments.

    Replicas start by `PYTHON`, which reads the settings: the raylet's are those with which its node started.
    """
    applications = [
        {
            **application,
            "runtime_env": {"py_executable": PYTHON},
            "args": {**(application.get("args") or {}), "release": release},
        }
        for application in deployed["applications"]
    ]
    return {**deployed, "applications": applications}


def adapted(deployed: dict[str, Any], resources: Mapping[str, float], autoscales: bool) -> dict[str, Any]:
    """Return the file's contents for the cluster that is there; `resources`: those of its nodes, as Ray names them.

    Without autoscaling no GPU will come: engines stay loaded, and compute on the CPU if no node has a GPU.
    """
    deployed = copy.deepcopy(deployed)
    for application in deployed["applications"]:
        args = application.setdefault("args", {})
        args["service_nodes"] = bool(args.get("service_nodes")) and SERVICE_NODE in resources
        for name in ENGINES if not autoscales else ():
            if bounds := args.get("scaling", {}).get(name):
                bounds["min_replicas"] = max(1, bounds.get("min_replicas", 1))
                if not resources.get("GPU"):
                    bounds["num_gpus"] = 0
    return deployed


def autoscales(bootstrap: Path) -> bool:
    """Return whether `ray up` started this cluster with a provider that starts nodes."""
    if not bootstrap.is_file():
        return False
    return bool(yaml.safe_load(bootstrap.read_text(encoding="utf-8"))["provider"]["type"] != "local")


def _cluster_resources() -> dict[str, float]:
    import ray

    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    return dict(ray.cluster_resources())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    deployed = yaml.safe_load(args.file.read_text(encoding="utf-8"))
    resources, starts_nodes = _cluster_resources(), autoscales(Path.home() / "ray_bootstrap_config.yaml")
    if SERVICE_NODE not in resources:
        _note(f"No node has the resource {SERVICE_NODE}: replicas without a GPU may run on GPU nodes, which then stay.")
    if not starts_nodes and not resources.get("GPU"):
        _note("No node has a GPU: engines compute on the CPU. Run deploy.sh again when nodes with GPUs have joined.")
    deployed = adapted(deployed, resources, starts_nodes)
    release = digest(ROOT, settings(Path.home()) or b"")
    yaml.safe_dump(released(deployed, release), sys.stdout, sort_keys=False)


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
