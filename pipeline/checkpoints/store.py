"""The checkpoint store: a folder with a subfolder per checkpoint of the lock, such as `whisper-base/model.bin`.

Only files with the SHA-256 of the lock are trusted.
"""

from pathlib import Path

from pipeline.checkpoints.lock import LockedCheckpoint
from pipeline.checkpoints.manifest import WEIGHTS, sha256
from pipeline.errors import CheckpointDamaged


def default_folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("switchboard") / "checkpoints"


def is_here(checkpoint: LockedCheckpoint, store: Path) -> bool:
    """Return whether the store has a folder for the checkpoint. Does not verify its files."""
    return (store / checkpoint.name).is_dir()


def verify(checkpoint: LockedCheckpoint, store: Path) -> None:
    """Verify every file of a checkpoint. Its license may be missing.

    Raises `CheckpointDamaged` for the first file that is missing or differs, or for unlisted weights.
    """
    folder = store / checkpoint.name
    advice = f"Run `switchboard checkpoints fetch {checkpoint.name}` to replace it."
    for file in checkpoint.files:
        path = folder / file.name
        if not path.is_file():
            if file.name == "LICENSE":
                continue
            raise CheckpointDamaged(f"{path} is missing. {advice}")
        if path.stat().st_size != file.size or sha256(path) != file.sha256:
            raise CheckpointDamaged(f"{path} is not the official file: its SHA-256 is not the lock's. {advice}")
    listed = {file.name for file in checkpoint.files}
    for path in folder.rglob("*"):
        if path.suffix in WEIGHTS and path.relative_to(folder).as_posix() not in listed:
            raise CheckpointDamaged(f"{path} does not belong to {checkpoint.name}; nothing of this folder is loaded.")
