"""The notebooks use names that exist: `make notebooks` runs them, but rarely."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

ERRORS = re.compile(r"\[(attr-defined|call-arg|name-defined)\]$")


def test_the_cells_of_notebooks_use_attributes_and_arguments_that_exist(tmp_path: Path) -> None:
    modules = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        modules.append(tmp_path / f"notebook_{path.stem}.py")
        modules[-1].write_text(re.sub(r"^[%!].*$", "pass", code, flags=re.MULTILINE))
    command = (sys.executable, "-m", "mypy", "--no-pretty", "--hide-error-context", *map(str, modules))
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert "checked 6 source files" in done.stdout or "in 6 source files" in done.stdout, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if ERRORS.search(line)] == []
