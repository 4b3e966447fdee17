import io
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

import psutil
import pytest

from serve_app.deploy import release, spread
from tests.paths import ROOT

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
    for name in (*release.PROJECT_FILES, *spread.PACKAGE_FILES):
        (root / name).write_text(name)
    return root


def word_of(home: Path) -> str:
    return (home / "switchboard/serve_app/app.py").read_text()


def test_a_node_with_other_code_has_the_heads_afterwards_and_is_set_up(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head", word="second")
    project(home / "switchboard")
    (home / "switchboard/serve_app/removed.py").write_text("")
    message = spread.take_over(spread.archive(head), release.digest(head))
    assert message.startswith("has this release now")
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
    before = {*home.iterdir(), home / spread.LOCK}
    with pytest.raises(RuntimeError, match="ended with 3: no space left"):
        spread.take_over(spread.archive(head), release.digest(head))
    assert word_of(home) == "# first\n"
    assert {*home.iterdir()} == before


def test_a_setup_that_hangs_is_ended(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "SETUP_SECONDS", 0.5)
    head = project(tmp_path / "head", setup="sleep 600\n", word="second")
    with pytest.raises(RuntimeError, match="ended with 124"):
        spread.take_over(spread.archive(head), release.digest(head))
    assert not (home / "switchboard").exists()


IN_A_PROCESS = """
import sys
from pathlib import Path
from serve_app.deploy import release, spread
head = Path(sys.argv[1])
print(spread.take_over(spread.archive(head), release.digest(head)))
"""


def taking_over(head: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS, str(head)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_one_that_is_killed_while_it_is_set_up_is_set_up_by_the_next(home: Path, tmp_path: Path) -> None:
    first = 'touch ~/has_begun; [ -e ~/go_on ] || sleep 600; echo "$HOME" > ~/was_set_up\n'
    head = project(tmp_path / "head", setup=first, word="second")
    project(home / "switchboard")
    with taking_over(head) as killed:
        while not (home / "has_begun").exists():
            assert killed.poll() is None
            time.sleep(0.05)
        for child in [*psutil.Process(killed.pid).children(recursive=True), psutil.Process(killed.pid)]:
            child.kill()
    assert word_of(home) == "# second\n"
    (home / "go_on").touch()
    assert spread.take_over(spread.archive(head), release.digest(head)).startswith("has this release now")
    assert (home / "was_set_up").exists()
    assert spread.take_over(b"not even read", release.digest(head)) == "has this release already"
    assert not [path for path in home.iterdir() if path.name.startswith(spread.LEFT)]


@pytest.mark.slow
def test_of_two_at_once_one_waits_and_finds_it_done(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head", setup="sleep 0.5; echo once >> ~/was_set_up\n", word="second")
    project(home / "switchboard")
    with taking_over(head) as first, taking_over(head) as other:
        messages = sorted(process.communicate(timeout=60)[0] for process in (first, other))
    assert messages[0] == "has this release already\n" and messages[1].startswith("has this release now")
    assert (home / "was_set_up").read_text() == "once\n"


def test_what_is_sent_of_this_project_can_be_installed() -> None:
    with tarfile.open(fileobj=io.BytesIO(spread.archive(ROOT))) as tar:
        sent = set(tar.getnames())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    about, packages = project["project"], project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {f"{name}*" for name in release.CODE} == set(packages)
    assert sent >= {about["readme"], *about["license-files"], spread.SETUP}
    assert sent >= {path.relative_to(ROOT).as_posix() for path in release.files(ROOT)}
