"""The client as it is installed: its wheel in an environment of its own, without the service."""

import json
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

FOREIGN = ("torch", "ray", "numpy", "fastapi", "sqlalchemy", "serve_app", "db", "pipeline")
SECONDS = 1.5  # of processor time for an import in a fresh process; measured: 0.3
INSTALLED_BYTES = 40_000_000  # with httpx, pydantic and what those need

SCRIPT = f"""
import importlib.util, json, sys, time
began = time.process_time()
import switchboard
took = time.process_time() - began
client = switchboard.Client("http://127.0.0.1:9", key="sb_x", timeout=0.2)
try:
    client.read("7f1c6a52-3f0e-4d59-9a43-5b1f0c8de210")
except switchboard.ConnectionFailed as error:
    said = str(error)
print(json.dumps({{
    "seconds": took,
    "version": switchboard.__version__,
    "said": said,
    "foreign": [name for name in {FOREIGN} if importlib.util.find_spec(name)],
    "pandas": "pandas" in sys.modules or "polars" in sys.modules,
}}))
"""


def run(*command: str | Path, folder: Path) -> str:
    words = [str(part) for part in command]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=folder, timeout=300, check=True).stdout


def test_the_wheel_is_installed_and_works_without_the_service(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    run(uv, "build", "--wheel", "--quiet", "--out-dir", tmp_path, ROOT / "client", folder=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "own", folder=tmp_path)
    python = tmp_path / "own" / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--python", python, wheel, folder=tmp_path)
    found = json.loads(run(python, "-I", "-c", SCRIPT, folder=tmp_path))
    size = sum(path.stat().st_size for path in (tmp_path / "own" / "lib").rglob("*") if path.is_file())
    print(f"\nimport: {found['seconds']:.2f} s, wheel: {wheel.stat().st_size} bytes, installed: {size} bytes")
    assert found["foreign"] == [] and not found["pandas"]
    assert found["version"] == wheel.name.split("-")[1]
    assert "Check the URL" in found["said"]
    assert found["seconds"] < SECONDS
    assert size < INSTALLED_BYTES
