"""Sample calls with a reference transcript.

Each folder in serve_app/demo/samples/ has a `submission.json` (the body that a telephony system sends, with the names
of the `recordings` instead of their URLs) and an `expected.json` (language, layout, kind of voices, segments with words
and times, tasks, labels). A recording is a file of the folder, or "PACKAGE:FILE" in an installed package.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

FOLDER = Path(__file__).with_name("samples")


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample call. `expected` is the content of `expected.json`."""

    name: str
    folder: Path
    body: dict[str, Any]
    recordings: tuple[Path, ...]
    two_phases: bool
    expected: dict[str, Any]

    def submissions(self, url_of: Callable[[Path], str], call_id: UUID | None = None) -> list[dict[str, Any]]:
        """Return the bodies to POST, in order. A call of two phases starts without recording and duration."""
        urls = dict(zip(("recordingUrl", "recordingUrl2"), map(url_of, self.recordings), strict=False))
        finishing = {**self.body, "callId": str(call_id or uuid4()), **urls}
        if not self.two_phases:
            return [finishing]
        starting = {key: value for key, value in finishing.items() if key not in (*urls, "duration")}
        return [starting, finishing]


def load_samples(folder: Path = FOLDER) -> list[Sample]:
    return [_load(path.parent) for path in sorted(folder.glob("*/submission.json"))]


def _load(folder: Path) -> Sample:
    body = json.loads((folder / "submission.json").read_text(encoding="utf-8"))
    recordings = tuple(_recording(folder, name) for name in body.pop("recordings"))
    two_phases = body.pop("phases", 1) == 2
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return Sample(folder.name, folder, body, recordings, two_phases, expected)


def _recording(folder: Path, name: str) -> Path:
    package, colon, file = name.partition(":")
    if not colon:
        return folder / name
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"The package {package} with the recording {file} is not installed.")
    return Path(spec.submodule_search_locations[0]) / file
