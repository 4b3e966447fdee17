"""What a checkpoint's folder says about itself (`switchboard.json`), and whether its files are whole (`SHA256SUMS`)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import CheckpointDamaged

MANIFEST, CHECKSUMS = "switchboard.json", "SHA256SUMS"
WEIGHTS = {".bin", ".ckpt", ".npz", ".pt", ".safetensors"}  # most of these are pickles: loading them runs code
NOT_OF_THE_MODEL = {"LICENSE", "README.md", CHECKSUMS}  # files of a folder that decide nothing


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model on this machine. `name` is stored beside every result that it made."""

    name: str
    folder: Path
    synthetic: bool = False  # trained on synthetic speech: for tests, no use on real voices
    max_chunk_seconds: float | None = None  # the longest chunk a recognizer has learnt; None: what its kind allows
    languages: tuple[str, ...] = ()  # ISO 639-1; empty: whatever its kind speaks
    vocabulary: bool = False  # names and terms given as a prompt were measured to help this recognizer
    packing: bool = True  # False: pauses left out of a window were measured to harm this recognizer
    time_tokens: bool = False  # this recognizer learned no text without Whisper's time tokens
    word_delay: float = 0.0  # seconds by which this recognizer's alignment is early, as measured; added to word times
    note: str = ""
    parts: Mapping[str, Path] = field(default_factory=dict)  # folders of a checkpoint that is put together from several
    preferred: str = ""  # the model that "auto" prefers, where it is not available
    advice: str = ""  # how to get the preferred model

    def digest(self) -> str:
        """Return a hex digest of all files by content: what a result that this checkpoint made can be known by."""
        found = hashlib.sha256()
        for part, folder in sorted(self.parts.items()) or [("", self.folder)]:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name not in NOT_OF_THE_MODEL and not path.name.startswith("."):
                    found.update(f"{part}/{path.relative_to(folder).as_posix()}\0{sha256(path)}\n".encode())
        return found.hexdigest()


def read(name: str, folder: Path) -> Checkpoint:
    """Check the folder's checksums, if it has any, and read its manifest, if it has one.

    Folders from the hub have neither: the hub's client compares its own checksums while it downloads.
    Raises `CheckpointDamaged`.
    """
    verify(folder)
    path = folder / MANIFEST
    if not path.is_file():
        return Checkpoint(name, folder)
    try:
        manifest = json.loads(path.read_text())
        return Checkpoint(
            name=name,
            folder=folder,
            synthetic=bool(manifest.get("synthetic", False)),
            max_chunk_seconds=manifest.get("max_chunk_seconds"),
            languages=tuple(manifest.get("languages", ())),
            vocabulary=bool(manifest.get("vocabulary", False)),
            packing=bool(manifest.get("packing", True)),
            time_tokens=bool(manifest.get("time_tokens", False)),
            word_delay=float(manifest.get("word_delay", 0.0)),
            note=str(manifest.get("note", "")),
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointDamaged(f"{path} is not a manifest: {error}") from error


def verify(folder: Path) -> None:
    """Compare every file with SHA256SUMS; raises `CheckpointDamaged` on the first that differs or is not listed.

    A folder without SHA256SUMS passes.
    """
    sums = folder / CHECKSUMS
    if not sums.is_file():
        return
    lines = (line.split(maxsplit=1) for line in sums.read_text().splitlines() if line.strip())
    listed = {name.strip(): checksum for checksum, name in lines}
    for name, expected in listed.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointDamaged(f"{path} is listed in {CHECKSUMS} and is not there.")
        if sha256(path) != expected:
            raise CheckpointDamaged(f"{path} is not the file that {CHECKSUMS} lists; it is not loaded.")
    for path in folder.rglob("*"):
        if path.suffix in WEIGHTS and path.relative_to(folder).as_posix() not in listed:
            raise CheckpointDamaged(f"{path} is not listed in {CHECKSUMS}; nothing of this folder is loaded.")


def sha256(path: Path) -> str:
    """Return the hex digest of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
