import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import CallError, CheckpointDamaged

MANIFEST, CHECKSUMS = "switchboard.json", "SHA256SUMS"
WEIGHTS = {".bin", ".ckpt", ".npz", ".pt", ".safetensors"}  # most are pickles: loading them runs code
NOT_OF_THE_MODEL = {"LICENSE", "README.md", CHECKSUMS}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model on this machine. `name` is stored with each of its results."""

    name: str
    folder: Path
    synthetic: bool = False  # trained on synthetic speech: for tests, no use on real voices
    max_chunk_seconds: float | None = None  # longest chunk in training; None: the engine's limit
    languages: tuple[str, ...] = ()  # ISO 639-1; empty: those of the engine
    vocabulary: bool = False  # measured: names and terms in the prompt help this recognizer
    packing: bool = True  # False: measured that removed pauses harm this recognizer
    time_tokens: bool = False  # this recognizer was trained only with Whisper's time tokens
    word_delay: float = 0.0  # measured seconds by which the alignment is early; added to word times
    note: str = ""
    parts: Mapping[str, Path] = field(default_factory=dict)  # folders of a model that consists of several checkpoints
    preferred: str = ""  # the model that "auto" prefers, if unavailable
    advice: str = ""  # how to get the preferred model

    def digest(self) -> str:
        """Return a hex digest of all files, which identifies the checkpoint of a result."""
        digest = hashlib.sha256()
        for part, folder in sorted(self.parts.items()) or [("", self.folder)]:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name not in NOT_OF_THE_MODEL and not path.name.startswith("."):
                    digest.update(f"{part}/{path.relative_to(folder).as_posix()}\0{sha256(path)}\n".encode())
        return digest.hexdigest()


def read(name: str, folder: Path) -> Checkpoint:
    """Verify the checksums of a folder, if any, and return the checkpoint with its manifest, if any.

    Folders of the hub have neither: its client verifies downloads. Raises `CheckpointDamaged`.
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
    """Compare every file with SHA256SUMS. A folder without it passes.

    Raises `CheckpointDamaged` for the first file that differs or is not listed.
    """
    sums = folder / CHECKSUMS
    if not sums.is_file():
        return
    lines = (line.split(maxsplit=1) for line in sums.read_text().splitlines() if line.strip())
    listed = {name.strip(): checksum for checksum, name in lines}
    for name, expected in listed.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointDamaged(f"{path} is listed in {CHECKSUMS} and missing.")
        if sha256(path) != expected:
            raise CheckpointDamaged(f"{path} is not the file that {CHECKSUMS} lists; it is not loaded.")
    for path in folder.rglob("*"):
        if path.suffix in WEIGHTS and path.relative_to(folder).as_posix() not in listed:
            raise CheckpointDamaged(f"{path} is not listed in {CHECKSUMS}; nothing of this folder is loaded.")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_DEVICE_ERROR = re.compile(r"\b(?:cuda|cublas|cudnn|out of memory|allocate)", re.IGNORECASE)


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Raise `CheckpointDamaged` if the files of `folder` cannot be loaded, for example after an interrupted copy.

    Checksums were verified before. Errors of the device are raised unchanged.
    """
    try:
        for path in folder.glob("*.json"):
            json.loads(path.read_bytes())  # some libraries ignore an unreadable file and guess
        yield
    except CallError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError | ImportError) or _DEVICE_ERROR.search(str(error)):
            raise
        raise CheckpointDamaged(
            f"The files in {folder} are not a complete model ({str(error).rstrip('.') or type(error).__name__}). "
            "Wait if they are still being copied; otherwise copy them again."
        ) from error
