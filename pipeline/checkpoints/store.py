"""The checkpoint store: one folder per user, in it one folder for each checkpoint of the lock.

`<store>/whisper-base/model.bin` and so on. A file counts when its SHA-256 is the lock's; nothing else is trusted.
"""

from pathlib import Path

from pipeline.checkpoints.lock import LockedCheckpoint
from pipeline.checkpoints.manifest import WEIGHTS, sha256
from pipeline.errors import CheckpointDamaged


def default_folder() -> Path:
    """Return the store's folder where no setting names one: in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("switchboard") / "checkpoints"


def is_here(checkpoint: LockedCheckpoint, store: Path) -> bool:
    """Whether the store has a folder of that name; its files are not looked at."""
    return (store / checkpoint.name).is_dir()


def verify(checkpoint: LockedCheckpoint, store: Path) -> None:
    """Hash every file of a checkpoint. Licenses may be missing: they do not decide what is loaded.

    Raises `CheckpointDamaged` on the first file that is missing, differs, or holds weights that the lock does not name.
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
    named = {file.name for file in checkpoint.files}
    for path in folder.rglob("*"):
        if path.suffix in WEIGHTS and path.relative_to(folder).as_posix() not in named:
            raise CheckpointDamaged(f"{path} does not belong to {checkpoint.name}; nothing of this folder is loaded.")
