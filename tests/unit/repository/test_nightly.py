import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import ROOT

MAKEFILE = """
passes:
\tpython3 report.py 5 0 0 2
fails:
\tpython3 report.py 5 1 1 0; false
script:
\ttrue
breaks:
\texit 3
hangs:
\tsleep 600
"""
REPORT = """
import os, re, sys
counts = dict(zip(("tests", "failures", "errors", "skipped"), sys.argv[1:]))
attributes = " ".join(f'{name}="{count}"' for name, count in counts.items())
with open(re.search(r"junitxml=(.+)", os.environ["PYTEST_ADDOPTS"])[1], "w") as file:
    file.write(f"<testsuites><testsuite {attributes}/></testsuites>")
"""


@pytest.fixture(scope="module")
def nightly() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nightly", ROOT / ".ci" / "nightly.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("suite", "minutes", "counts", "ok"),
    [
        ("passes", 1, (3, 0, 2), True),
        ("fails", 1, (3, 2, 0), False),
        ("script", 1, (1, 0, 0), True),
        ("breaks", 1, (0, 1, 0), False),
        ("hangs", 0.01, (0, 1, 0), False),
    ],
)
def test_a_suite_is_counted_however_it_ends(
    nightly: ModuleType,
    suite: str,
    minutes: float,
    counts: tuple[int, int, int],
    ok: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "report.py").write_text(REPORT)
    monkeypatch.chdir(tmp_path)
    result = nightly.run(suite, minutes, tmp_path)
    assert (result.passed, result.failed, result.skipped) == counts
    assert result.ok is ok
    assert result.timed_out is (suite == "hangs")


def test_every_suite_is_a_target_and_every_folder_of_tests_is_in_a_suite(nightly: ModuleType) -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert set(nightly.SUITES) <= targets
    words = set(text.split())
    for folder in {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}:
        parents = {path.as_posix() for path in (folder, *folder.parents)} - {".", "tests"}
        assert words & parents, f"no target runs {folder}"
