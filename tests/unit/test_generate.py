"""Generated files are what their generators return."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_generate_changes_nothing() -> None:
    command = [sys.executable, ROOT / ".ci/generate.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stdout + result.stderr
