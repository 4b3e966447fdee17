"""Generated files are what their generators return."""

import runpy

from tests.paths import ROOT


def test_make_generate_changes_nothing() -> None:
    generate = runpy.run_path(str(ROOT / ".ci/generate.py"))
    assert generate["main"](["--check"]) == 0, "These files differ from what the code says: run `make generate`."
