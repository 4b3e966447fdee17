import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from serve_app.cli import app
from serve_app.cli.doctor import command as doctor
from serve_app.cli.doctor import machine as checks_machine
from serve_app.cli.doctor import service as checks_service
from serve_app.cli.doctor.command import Check, Level, bad, good, warn
from tests.paths import ROOT

runner = CliRunner()


def only(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    monkeypatch.setattr(doctor, "all_checks", lambda gpus: [("subject", lambda: iter(checks))])


def test_a_problem_ends_with_1_and_a_warning_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, good("a", "fine"), warn("b", "hm", "do that"))
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "-> do that" in result.output
    only(monkeypatch, good("a", "fine"), bad("b", "missing", "get it"))
    assert runner.invoke(app, ["doctor"]).exit_code == 1


def test_json_has_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, bad("b", "missing", "get it"))
    result = runner.invoke(app, ["doctor", "--json"])
    assert json.loads(result.stdout) == [{"name": "b", "level": "bad", "found": "missing", "advice": "get it"}]


def test_an_exception_in_a_check_is_a_warning_and_the_other_checks_run() -> None:
    def broken() -> list[Check]:
        raise RuntimeError("odd machine")

    done = doctor.examine([("first", broken), ("second", lambda: [good("second", "fine")])])
    assert [check.level for check in done] == [Level.WARN, Level.GOOD]
    assert "odd machine" in done[0].found


def test_this_environment_holds_the_locked_packages() -> None:
    assert [check.level for check in checks_machine.python_and_packages()] == [Level.GOOD, Level.GOOD]


def test_a_package_that_differs_from_the_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        "# comment\ntyper==0.0.1 \\\n    --hash=sha256:00\nnot-installed-here==1.0\nrich==1 ; python_version < '3'\n"
    )
    monkeypatch.setattr(checks_machine, "LOCK", lock)
    _, packages = checks_machine.python_and_packages()
    assert packages.level is Level.WARN
    assert packages.found.startswith("1 differ from the lock: typer ")


def test_a_misspelt_variable_is_named_with_what_it_may_have_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SWITCHBOARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SWITCHBOARD_API_KEY", "sb_x")  # the command line's own
    assert [check.level for check in checks_service.variables({})] == [Level.GOOD]
    monkeypatch.setenv("SWITCHBOARD_DATABASE_ULR", "x")
    (check,) = checks_service.variables({})
    assert check.level is Level.WARN
    assert check.advice == "Did you mean SWITCHBOARD_DATABASE_URL?"


def test_settings_that_cannot_be_used_are_in_the_way_and_the_other_checks_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SWITCHBOARD_ASR__MODLE", "base")
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path))
    checks = dict(doctor.all_checks())
    (broken,) = checks["variables"]()
    assert broken.level is Level.BAD
    assert "SWITCHBOARD_ASR__MODLE: is not a setting; did you mean SWITCHBOARD_ASR__MODEL?" in broken.found
    (folder,) = checks["data folder"]()
    assert str(tmp_path) in folder.found


def test_a_database_that_does_not_answer_is_in_the_way() -> None:
    url = "postgresql://nobody@127.0.0.1:1/nothing"
    (check,) = checks_service.database(SimpleNamespace(database_url=url, require_database_url=lambda: url))
    assert check.level is Level.BAD
    assert "refused" in check.found


def test_a_storage_nobody_can_reach_is_in_the_way() -> None:
    settings = SimpleNamespace(storage_url="nonsense://bucket/x", scratch=None)
    (check,) = checks_service.storage(settings)
    assert check.level is Level.BAD


def test_a_data_folder_that_does_not_exist_yet_is_in_order(tmp_path: Path) -> None:
    (check,) = checks_service.data_folder(SimpleNamespace(data_dir=tmp_path / "new" / "folder"))
    assert "created at first use" in check.found
    assert not (tmp_path / "new").exists()


def test_a_scratch_folder_of_its_own_is_looked_at_too(tmp_path: Path) -> None:
    settings = SimpleNamespace(storage_url=tmp_path.as_uri(), scratch="nonsense://bucket/x")
    storage, scratch = checks_service.storage(settings)
    assert (storage.name, scratch.name) == ("storage", "scratch")
    assert (storage.level, scratch.level) == (Level.GOOD, Level.BAD)


def test_an_embedder_without_a_calibration_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from serve_app.cli.doctor.models import _voices
    from serve_app.settings import Settings

    unknown, stored = "pyannote/speaker-diarization-community-1", "segmentation-3.0+campplus"
    assert "no calibration" in str(_voices(Settings(), unknown))
    assert "matched from" in str(_voices(Settings(), stored))
    broken = tmp_path / "broken.toml"
    broken.write_text("threshold = 2\n")
    monkeypatch.setenv("SWITCHBOARD_ROLES__CALIBRATION", str(broken))
    assert "is not a valid calibration" in str(_voices(Settings(), stored))


@pytest.mark.parametrize(
    ("home", "fits"), [("/home/switchboard", True), ("/" + "x" * 19, True), ("/" + "x" * 20, False)]
)
def test_a_home_whose_path_is_too_long_for_haproxys_sockets_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, home: str, fits: bool
) -> None:
    node = (ROOT / "serve_app/deploy/node.env").read_text()
    for name in checks_machine.SOCKETS:
        (value,) = [line.split("=", 1)[1] for line in node.splitlines() if line.startswith(f"{name}=")]
        monkeypatch.setenv(name, value.replace("$HOME", home))
    (check,) = checks_machine.haproxy()
    assert check.level == (Level.GOOD if fits else Level.BAD)
    assert fits or ("too long by 1" in check.found and "shorter path" in check.advice)
