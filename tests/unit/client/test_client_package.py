"""The client as it is built and installed: its wheel in an environment of its own, without the service."""

import json
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGE = ROOT / "client" / "src" / "switchboard"

TYPED = """
from typing import assert_type

from switchboard import Client
from switchboard.models import CallRecord, TaskLine
from switchboard.testing import FakeService

client: Client = FakeService().client()
for line in client.calls(status="completed"):
    assert_type(client.read(line.call.call_id), CallRecord)
assert_type(list(client.tasks()), list[TaskLine])
client.calls(status="lost")  # type: ignore[arg-type]
"""

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `make package`, sdist and wheel, from a source without the blocking client."""
    folder = tmp_path_factory.mktemp("client")
    ignored = shutil.ignore_patterns("_sync", "*.egg-info", "build", "__pycache__")
    source = shutil.copytree(ROOT / "client", folder / "source", ignore=ignored)
    run("make", "--silent", "package", f"CLIENT={source}", f"DIST={folder}", folder=ROOT)
    return folder


def test_the_build_generates_the_blocking_client(built: Path) -> None:
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"generate.py", "setup.py", "src/switchboard/_async/client.py"} <= names
    script = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); from switchboard import Client; print(Client.__module__); "
    )
    script += "import switchboard._sync.client as module; print(module.__file__)"
    module, file = run(sys.executable, "-c", script, folder=built).split()
    assert module == "switchboard._sync.client"
    assert file == f"{wheel}/switchboard/_sync/client.py"


def test_the_blocking_client_of_this_checkout_is_current() -> None:
    expected = runpy.run_path(str(ROOT / "client" / "generate.py"))["blocking"]()
    generated = {path.name: path.read_text(encoding="utf-8") for path in (PACKAGE / "_sync").glob("*.py")}
    assert generated == expected, "The blocking client differs from `_async`: run `make setup`."


def test_the_wheel_is_installed_and_works_without_the_service(built: Path, tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    (wheel,) = built.glob("*.whl")
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
    (tmp_path / "typed.py").write_text(TYPED)
    checked = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        python,
        "--cache-dir",
        tmp_path / "mypy",
    ]
    assert "Success" in run(*checked, "typed.py", folder=tmp_path)
    assert size < INSTALLED_BYTES
