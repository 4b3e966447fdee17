"""The sample calls: every word is known.

serve_app/demo/samples/<name>/ holds `submission.json` (the body that a telephony system would send, with `recordings`
in place of addresses) and `expected.json` (language, layout, whose voices, segments with words and times, tasks, what
else is heard). A recording is a file of the folder, or "PACKAGE:FILE" inside an installed package. Where the folder has
a `recipe.json`, the recording is composed when it is needed: see `compose`.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from serve_app.demo import compose

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

    @property
    def recipe(self) -> Path | None:
        """How its recording is composed; None where it lies there whole."""
        path = self.folder / "recipe.json"
        return path if path.is_file() else None

    @property
    def needs_sounds(self) -> bool:
        """True where the recipe uses sounds that have to be fetched."""
        return self.recipe is not None and compose.needs_sounds(self.recipe)

    def composed(self, folder: Path, sounds: Path | None) -> "Sample":
        """The sample with its recording composed in `folder`; itself where it has no recipe.

        `sounds` is what `sounds.fetch` returned.
        """
        if self.recipe is None:
            return self
        target = folder / f"{self.name}.wav"
        compose.write(self.recipe, sounds, target)
        return replace(self, recordings=(target,))

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
    recordings = tuple(_recording(folder, name) for name in body.pop("recordings"))
    two_phases = body.pop("phases", 1) == 2
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return Sample(folder.name, folder, body, recordings, two_phases, expected)


def _recording(folder: Path, name: str) -> Path:
    package, colon, file = name.partition(":")
    if not colon:
        return folder / name
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"The package {package} with the recording {file} is not installed.")
    return Path(found.submodule_search_locations[0]) / file
