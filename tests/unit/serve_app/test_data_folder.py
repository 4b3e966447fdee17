import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from db.secrets.encryption import Sealer
from serve_app import data_folder
from serve_app.cli.doctor import service as checks_service
from serve_app.service.environment import prepare_environment
from serve_app.settings import Settings

SET = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
URL = "https://store.example/a.wav?sig=hush"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))}
    environment["SWITCHBOARD_DATA_DIR"] = str(tmp_path / "state")
    monkeypatch.setattr(os, "environ", environment)
    return environment


def test_a_folder_gets_one_key_that_its_user_alone_may_read(tmp_path: Path) -> None:
    assert data_folder.find_key(tmp_path) is None
    key = data_folder.make_key(tmp_path)
    Sealer([key])
    assert data_folder.make_key(tmp_path) == data_folder.find_key(tmp_path) == key
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_nlink == 1


def test_processes_that_make_it_at_once_agree(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from serve_app import data_folder; sys.stdin.readline(); "
    program += "print(data_folder.make_key(Path(sys.argv[1])))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    keys = {process.communicate(timeout=180)[0] for process in started}
    assert keys == {data_folder.make_key(tmp_path) + "\n"}
    assert [file.name for file in tmp_path.iterdir()] == [data_folder.KEY_FILE]


def test_replicas_seal_with_it_as_commands_do(environment: dict[str, str]) -> None:
    settings = Settings()
    assert settings.url_sealer().seals and settings.sealer().seals
    prepare_environment(settings.with_folder_key(), "postgresql://localhost/calls")
    replica = Settings()
    assert replica.database_url is not None
    assert replica.url_sealer().seal(URL) == settings.url_sealer().seal(URL) != URL
    assert replica.sealer().open(settings.sealer().seal("hush")) == "hush"


def test_keys_that_are_set_come_first_and_it_still_opens(environment: dict[str, str]) -> None:
    before = Settings().url_sealer().seal(URL)
    environment["SWITCHBOARD_SECRETS_KEYS"] = json.dumps([SET])
    now = Settings().url_sealer()
    assert now.open(before) == URL
    assert now.seal(URL) != before


def test_where_keys_are_set_or_the_database_is_a_server_none_is_made(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["SWITCHBOARD_SECRETS_KEYS"] = json.dumps([SET])
    Settings().sealer()
    del environment["SWITCHBOARD_SECRETS_KEYS"]
    environment["SWITCHBOARD_DATABASE_URL"] = "postgresql://localhost/calls"
    assert not Settings().url_sealer().seals
    assert not (tmp_path / "state").exists()


def test_doctor_warns_of_a_public_address_that_no_trusted_proxy_serves(environment: dict[str, str]) -> None:
    assert list(checks_service.proxies(Settings())) == []
    environment["SWITCHBOARD_HTTP__HOST"] = "0.0.0.0"
    (check,) = checks_service.proxies(Settings())
    assert check.level == "warn" and "SWITCHBOARD_HTTP__TRUSTED_PROXIES" in check.advice
    environment["SWITCHBOARD_HTTP__TRUSTED_PROXIES"] = "10.0.0.0/8, fd00::1"
    (check,) = checks_service.proxies(Settings())
    assert check.level == "good" and "10.0.0.0/8, fd00::1/128" in check.found
    environment["SWITCHBOARD_HTTP__TRUSTED_PROXIES"] = "proxy.internal"
    with pytest.raises(ValueError, match="network"):
        Settings()


def test_doctor_says_where_the_key_is_and_that_a_server_has_none(environment: dict[str, str], tmp_path: Path) -> None:
    (check,) = checks_service.sealing(Settings())
    assert check.level == "good" and str(tmp_path / "state" / data_folder.KEY_FILE) in check.found
    environment["SWITCHBOARD_DATABASE_URL"] = "postgresql://localhost/calls"
    (check,) = checks_service.sealing(Settings())
    assert check.level == "warn" and "recording URLs" in check.found
    assert not (tmp_path / "state").exists(), "looking makes nothing"
