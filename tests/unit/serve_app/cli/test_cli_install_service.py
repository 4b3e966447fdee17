import getpass
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from serve_app.cli import app


def install(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["install-service", *arguments], env={"COLUMNS": "200"})


def test_the_units_are_accepted_by_systemd_and_run_this_program(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("switchboard")
    done = install("--user", getpass.getuser(), "--folder", str(tmp_path), "--backups", "/backups")
    assert done.exit_code == 0, done.output
    units = sorted(path.name for path in tmp_path.iterdir())
    assert units == ["switchboard-backup.service", "switchboard-backup.timer", "switchboard.service"]
    assert "systemctl enable --now switchboard.service switchboard-backup.timer" in done.output
    unit = (tmp_path / "switchboard.service").read_text()
    assert "TimeoutStopSec=95" in unit and " up\n" in unit
    if shutil.which("systemd-analyze") is None or not program.exists():
        pytest.skip("systemd-analyze comes with Debian's package systemd")
    for name in units:
        verified = subprocess.run(
            ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, check=False
        )
        assert str(tmp_path / name) not in verified.stderr, verified.stderr


def test_without_backups_there_is_one_unit(tmp_path: Path) -> None:
    assert install("--user", getpass.getuser(), "--folder", str(tmp_path)).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["switchboard.service"]


def test_a_user_that_does_not_exist_and_settings_for_everyone_are_refused(tmp_path: Path) -> None:
    done = install("--user", "nobody-here", "--folder", str(tmp_path))
    assert done.exit_code == 2 and "no user 'nobody-here'" in str(done.exception) + done.output
    settings = tmp_path / "deploy.env"
    settings.write_text("SWITCHBOARD_SECRETS_KEYS=x")
    settings.chmod(0o644)
    done = install("--user", getpass.getuser(), "--folder", str(tmp_path), "--settings", str(settings))
    assert done.exit_code == 1 and list(tmp_path.iterdir()) == [settings]
