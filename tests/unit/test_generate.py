"""Generated files are what their generators return."""

import runpy
from pathlib import Path


def test_make_generate_changes_nothing() -> None:
    generate = runpy.run_path(str(Path(__file__).parents[2] / ".ci/generate.py"))
    assert generate["main"](["--check"]) == 0, "These files differ from what the code says: run `make generate`."
