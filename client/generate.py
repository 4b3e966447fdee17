"""Write the blocking client, `_sync`, from `_async`. The build of the client and `make setup` run it."""

import tempfile
from pathlib import Path

import unasync

PACKAGE = Path(__file__).parent / "src" / "switchboard"
BLOCKING_CLIENT = "The blocking client. client/generate.py writes this folder from `_async`."
BLOCKING = {
    "_async": "_sync",
    "AsyncClient": "Client",
    "AsyncSession": "Session",
    "AsyncReading": "Reading",
    "AsyncTransfers": "Transfers",
    "AsyncUploading": "Uploading",
    "AsyncFollowing": "Following",
    "AsyncCorrecting": "Correcting",
    "AsyncErasing": "Erasing",
    "AsyncRunning": "Running",
    "AsyncAsking": "Asking",
    "AsyncCalibrating": "Calibrating",
    "AsyncRetaining": "Retaining",
    "aclosing": "closing",
    "aclose": "close",
    "aread": "read",
    "aiter_lines": "iter_lines",
    "aiter_bytes": "iter_bytes",
    "aiter_raw": "iter_raw",
    "async_sleep": "sleep",
}


def blocking() -> dict[str, str]:
    """Return the files of `_sync/` by name."""
    with tempfile.TemporaryDirectory() as folder:
        rule = unasync.Rule(f"{PACKAGE}/_async/", f"{folder}/", additional_replacements=BLOCKING)
        unasync.unasync_files([str(file) for file in (PACKAGE / "_async").glob("*.py")], [rule])
        files = {file.name: file.read_text(encoding="utf-8") for file in Path(folder).glob("*.py")}
    return files | {"__init__.py": f'"""{BLOCKING_CLIENT}"""\n'}


def write() -> None:
    """Write the files that differ, and delete those without a source."""
    folder = PACKAGE / "_sync"
    folder.mkdir(exist_ok=True)
    files = blocking()
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.py"):
        if path.name not in files:
            path.unlink()


if __name__ == "__main__":
    write()
