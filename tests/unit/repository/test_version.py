import json
import re
import tomllib
from importlib.metadata import metadata, version

import pytest
import yaml

import switchboard
from tests.paths import ROOT
from tests.release_dump import FOLDER

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
CHART = yaml.safe_load((ROOT / "serve_app/deploy/helm/Chart.yaml").read_text())
RELEASES = re.findall(r"^## (\d\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("installed service", version("switchboard-calls")),
        ("installed client", version("switchboard-calls-client")),
        ("client", switchboard.__version__),
        ("chart", CHART["version"]),
        ("image of the chart", CHART["appVersion"]),
        *(
            (f"OpenAPI of {name}", json.loads((ROOT / f"serve_app/{name}/openapi.json").read_text())["info"]["version"])
            for name in ("intake", "api")
        ),
    ],
)
def test_the_version_is_that_of_pyproject(name: str, stated: str) -> None:
    assert stated == VERSION, f"{name}: run `make setup` and `make generate`"


def test_the_changelog_has_the_version_and_each_release_has_its_dump() -> None:
    assert RELEASES[0] == VERSION
    assert {path.stem for path in FOLDER.glob("*.sql")} == set(RELEASES), "python -m tests.release_dump"


def test_no_package_index_accepts_the_service() -> None:
    assert "Private :: Do Not Upload" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert "Private :: Do Not Upload" not in (metadata("switchboard-calls-client").get_all("Classifier") or [])
