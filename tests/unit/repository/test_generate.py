import runpy

from tests.paths import ROOT


def test_make_generate_changes_nothing() -> None:
    generate = runpy.run_path(str(ROOT / ".ci/generate.py"))
    assert generate["main"](["--check"]) == 0, "Generated files differ: run `make generate`."
