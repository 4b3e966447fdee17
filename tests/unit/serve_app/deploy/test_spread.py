import io
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serve_app.deploy import release, spread
from tests.paths import ROOT

SETTINGS = b"SWITCHBOARD_STORAGE=s3://calls\n"
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
    message = spread.take_over(spread.archive(head), SETTINGS, release.digest(head))
    assert message.startswith("has this release now")
    assert word_of(home) == "# second\n"
    assert release.digest(home / "switchboard") == release.digest(head)
    assert (home / "was_set_up").read_text().strip() == str(home)


@pytest.fixture
def mount(home: Path) -> Iterator[Path]:
    """~/switchboard as Docker mounts it."""
    place = home / "switchboard"
    for folder in (place, home / "mounted"):
        folder.mkdir()
    done = subprocess.run(["mount", "--bind", str(home / "mounted"), str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a folder cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_releases_are_replaced_and_restored_inside_a_mount_and_two_are_kept(mount: Path, tmp_path: Path) -> None:
    for number, word in enumerate(("first", "second", "third", "second")):
        head = project(tmp_path / f"head-{number}", word=word)
        assert spread.take_over(spread.archive(head), SETTINGS, release.digest(head)).startswith("has this release now")
        assert word_of(mount.parent) == f"# {word}\n" and release.digest(mount) == release.digest(head)
    assert len(list((mount / spread.RELEASES).iterdir())) == 2
    (mount / spread.RELEASES / release.digest(mount) / "serve_app/app.py").unlink()  # by a run that was killed
    assert spread.take_over(spread.archive(head), SETTINGS, release.digest(head)).startswith("has this release now")
    assert word_of(mount.parent) == "# second\n"
    broken = project(tmp_path / "broken", setup="exit 3\n", word="broken")
    with pytest.raises(RuntimeError, match="ended with 3"):
        spread.take_over(spread.archive(broken), b"", release.digest(broken))
    assert word_of(mount.parent) == "# second\n" and (mount / "deploy.env").read_bytes() == SETTINGS


def test_other_settings_alone_reach_a_node_for_its_user_only(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head")
    for settings in (SETTINGS, b"SWITCHBOARD_SECRETS_KEYS=other\n"):
        assert spread.take_over(spread.archive(head), settings, release.digest(head)).startswith("has this release now")
        path = home / "switchboard/deploy.env"
        assert path.read_bytes() == settings and path.stat().st_mode & 0o777 == 0o600


def test_a_node_without_code_gets_it(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head")
    spread.take_over(spread.archive(head), SETTINGS, release.digest(head))
    assert word_of(home) == "# first\n"


def test_a_node_that_has_the_release_is_left_as_it_is(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head")
    (project(home / "switchboard") / "deploy.env").write_bytes(SETTINGS)
    assert spread.take_over(b"not even read", SETTINGS, release.digest(head)) == "has this release already"
    assert not (home / "was_set_up").exists()


def test_where_setup_fails_the_former_code_is_back_and_its_words_are_told(home: Path, tmp_path: Path) -> None:
    head = project(tmp_path / "head", setup="echo no space left; exit 3\n", word="second")
    project(home / "switchboard")
    before = {*home.iterdir(), home / spread.LOCK}
    with pytest.raises(RuntimeError, match="ended with 3: no space left"):
        spread.take_over(spread.archive(head), SETTINGS, release.digest(head))
    assert word_of(home) == "# first\n"
    assert {*home.iterdir()} == before


def test_a_setup_that_hangs_is_ended(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "SETUP_SECONDS", 0.5)
    head = project(tmp_path / "head", setup="sleep 600\n", word="second")
    with pytest.raises(RuntimeError, match="ended with 124"):
        spread.take_over(spread.archive(head), SETTINGS, release.digest(head))
    assert not (home / "switchboard/serve_app").exists()


IN_A_PROCESS = """
import sys
from pathlib import Path
from serve_app.deploy import release, spread
head = Path(sys.argv[1])
print(spread.take_over(spread.archive(head), b"SWITCHBOARD_STORAGE=s3://calls\\n", release.digest(head)))
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
    assert spread.take_over(spread.archive(head), SETTINGS, release.digest(head)).startswith("has this release now")
    assert (home / "was_set_up").exists()
    assert spread.take_over(b"not even read", SETTINGS, release.digest(head)) == "has this release already"
    assert not list((home / "switchboard").rglob(f"*{spread.PART}"))


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
