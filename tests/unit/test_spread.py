"""A node takes over the head's code: whole or not at all. Over a cluster: `tests/acceptance/test_cluster.py`."""

import io
import tarfile
import tomllib
from pathlib import Path

import pytest

from serve_app.deploy import release, spread

ROOT = Path(__file__).parents[2]
OK = 'echo "$HOME" > ~/was_set_up\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def project(root: Path, setup: str = OK, word: str = "first") -> Path:
    for package in release.CODE:
        (root / package).mkdir(parents=True)
    (root / spread.SETUP).parent.mkdir()
    (root / spread.SETUP).write_text(setup)
    (root / "serve_app/app.py").write_text(f"# {word}\n")
    for name in (*release.BESIDE, *spread.BESIDE):
        (root / name).write_text(name)
    return root


def word_of(home: Path) -> str:
    return (home / "switchboard/serve_app/app.py").read_text()


def test_a_node_with_other_code_has_the_heads_afterwards_and_is_set_up(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head", word="second")
    project(home / "switchboard")
    (home / "switchboard/serve_app/removed.py").write_text("")
    told = spread.take_over(spread.archive(head), release.digest(head))
    assert told.startswith("has this release now")
    assert word_of(home) == "# second\n"
    assert release.digest(home / "switchboard") == release.digest(head)
    assert (home / "was_set_up").read_text().strip() == str(home)


def test_a_node_without_code_gets_it(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head")
    spread.take_over(spread.archive(head), release.digest(head))
    assert word_of(home) == "# first\n"


def test_a_node_that_has_the_release_is_left_as_it_is(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head")
    project(home / "switchboard")
    assert spread.take_over(b"not even read", release.digest(head)) == "has this release already"
    assert not (home / "was_set_up").exists()


def test_where_setup_fails_the_former_code_is_back_and_its_words_are_told(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head", setup="echo no space left; exit 3\n", word="second")
    project(home / "switchboard")
    before = sorted(home.iterdir())
    with pytest.raises(RuntimeError, match="ended with 3: no space left"):
        spread.take_over(spread.archive(head), release.digest(head))
    assert word_of(home) == "# first\n"
    assert sorted(home.iterdir()) == before


def test_a_setup_that_hangs_is_ended(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "SETUP_SECONDS", 0.5)
    head = project(tmp_path / "head", setup="sleep 600\n", word="second")
    with pytest.raises(RuntimeError, match="ended with 124"):
        spread.take_over(spread.archive(head), release.digest(head))
    assert not (home / "switchboard").exists()


def test_what_is_sent_of_this_project_can_be_installed() -> None:
    """All that the release is made of, and the files that pyproject.toml names."""
    with tarfile.open(fileobj=io.BytesIO(spread.archive(ROOT))) as tar:
        sent = set(tar.getnames())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    about, packages = project["project"], project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {f"{name}*" for name in release.CODE} == set(packages)
    assert sent >= {about["readme"], *about["license-files"], spread.SETUP}
    assert sent >= {path.relative_to(ROOT).as_posix() for path in release.files(ROOT)}
