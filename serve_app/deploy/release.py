"""Prints serve.yaml with the release of the code in each application, so that `serve deploy` upgrades.

    python release.py serve.yaml > ~/.switchboard/serve.yaml

Serve compares an application's configuration with the running one. If only the code has changed they are equal, and
every replica would keep the code that it was started with. The release is a digest of the code.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CODE = ("serve_app", "pipeline", "db")
PROJECT_FILES = ("pyproject.toml", "requirements.lock")


def files(root: Path) -> Iterator[Path]:
    """Yield the files that make up the code: packages with their data, and what they need."""
    yield from (root / name for name in PROJECT_FILES)
    for package in CODE:
        for path in (root / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def digest(root: Path) -> str:
    """Return the release: sixteen hexadecimal digits of the SHA-256 over names and contents."""
    state = hashlib.sha256()
    for path in sorted(files(root)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        state.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return state.hexdigest()[:16]


def released(deployed: dict[str, Any], release: str) -> dict[str, Any]:
    """Return the file's contents with the release among each application's arguments."""
    applications = [
        {**application, "args": {**(application.get("args") or {}), "release": release}}
        for application in deployed["applications"]
    ]
    return {**deployed, "applications": applications}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    deployed = yaml.safe_load(args.file.read_text(encoding="utf-8"))
    yaml.safe_dump(released(deployed, digest(ROOT)), sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
