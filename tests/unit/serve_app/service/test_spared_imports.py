import os
import subprocess
import sys

from serve_app.service.spared_imports import AT_START

HEAVY = ("pandas", "torch", "ray.data", "sqlalchemy", "fsspec")


def modules_after(statement: str, path: str = "") -> set[str]:
    """Return the heavy modules that a new Python process has after a statement."""
    code = f"import sys; {statement}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_ray_serve_gets_no_pandas_and_no_replica_without_an_engine_torch() -> None:
    assert "pandas" in modules_after("from ray import serve"), "Ray Serve imports it no longer: remove the refusal"
    service = "import serve_app.app, serve_app.service.standby_app, serve_app.api.app, serve_app.console.app"
    assert modules_after(service, str(AT_START)) == {"sqlalchemy", "fsspec"}


def test_the_standby_does_not_import_what_opens_storages() -> None:
    assert modules_after("import serve_app.service.standby_app", str(AT_START)) == {"sqlalchemy"}


def test_everything_else_imports_pandas() -> None:
    assert modules_after("import pandas", str(AT_START)) == {"pandas"}
