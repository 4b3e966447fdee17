"""The sample calls that travel with the package: synthetic speech, every word known.

serve_app/demo/samples/<name>/ holds `submission.json` (the body that a telephony system would send, with `recordings`
in place of addresses), the recordings, and `expected.json` (language, layout, segments with words and times, tasks).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

FOLDER = Path(__file__).with_name("samples")


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample call. `expected` is `expected.json` as it is."""

    name: str
    folder: Path
    body: dict[str, Any]
    recordings: tuple[Path, ...]
    two_phases: bool
    expected: dict[str, Any]

    def submissions(self, url_of: Callable[[Path], str], call_id: UUID | None = None) -> list[dict[str, Any]]:
        """The bodies to POST, in order; a two-phase call is announced first, without recording and duration."""
        urls = dict(zip(("recordingUrl", "recordingUrl2"), map(url_of, self.recordings), strict=False))
        finishing = {**self.body, "callId": str(call_id or uuid4()), **urls}
        if not self.two_phases:
            return [finishing]
        starting = {key: value for key, value in finishing.items() if key not in (*urls, "duration")}
        return [starting, finishing]


def load_samples(folder: Path = FOLDER) -> list[Sample]:
    """All samples, by name."""
    return [_load(path.parent) for path in sorted(folder.glob("*/submission.json"))]


def _load(folder: Path) -> Sample:
    body = json.loads((folder / "submission.json").read_text(encoding="utf-8"))
    recordings = tuple(folder / name for name in body.pop("recordings"))
    two_phases = body.pop("phases", 1) == 2
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return Sample(folder.name, folder, body, recordings, two_phases, expected)
