"""Settings: documented one by one, read from the environment, and never misspelt in silence."""

import logging
import os
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from serve_app import settings
from serve_app.cli.ui.errors import explain
from serve_app.settings import Settings, documented, unknown_variables


def test_every_setting_has_a_description() -> None:
    assert [setting.variable for setting in documented() if not setting.description] == []


def test_a_variable_is_one_row_though_several_engines_read_it() -> None:
    rows = [one.variable for one in documented()]
    assert len(rows) == len(set(rows)) <= 103
    [told] = [one.description for one in documented() if one.variable == "SWITCHBOARD_ASR__VOCABULARY"]
    assert "faster-whisper: " in told and "openai: " in told
    assert "(default: auto)" in told and "(default: off)" in told


def test_a_variable_sets_a_nested_setting_and_leaves_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_LIMITS__BACKLOG", "7")
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://localhost/calls")
    read = Settings()
    assert (read.limits.backlog, read.limits.per_minute) == (7, 600)
    assert read.require_database_url() == "postgresql://localhost/calls"


def test_calls_are_sealed_only_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_SEAL_CALLS", "true")
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://localhost/calls")
    with pytest.raises(ValidationError, match="SWITCHBOARD_SEAL_CALLS needs SWITCHBOARD_SECRETS_KEYS"):
        Settings()
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", f"{'A' * 43}=")
    keys = Settings().call_keys()
    assert keys.seals and keys.sealer.seals


def test_a_misspelt_variable_is_warned_of_once_with_the_closest_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settings, "_warned", set())
    monkeypatch.setenv("SWITCHBOARD_DATABSE_URL", "postgresql://hush")
    with caplog.at_level(logging.WARNING, logger="switchboard.settings"):
        Settings()
        Settings()
    [said] = [record.getMessage() for record in caplog.records]
    assert said == "SWITCHBOARD_DATABSE_URL is not a setting and has no effect; did you mean SWITCHBOARD_DATABASE_URL?"


def test_variables_of_others_and_whole_groups_are_no_misspellings() -> None:
    assert unknown_variables(["PATH", "SWITCHBOARD_LIMITS", "switchboard_http__port"]) == {}
    assert unknown_variables(["SWITCHBOARD_XYZZY_QQ"]) == {"SWITCHBOARD_XYZZY_QQ": None}


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("SWITCHBOARD_LIMITS__BACKLOGS", "SWITCHBOARD_LIMITS__BACKLOG"),
        ("SWITCHBOARD_ASR__MODLE", "SWITCHBOARD_ASR__MODEL"),
        ("SWITCHBOARD_SCALING__TRANSCRIBER__MAX_REPLICA", "SWITCHBOARD_SCALING__TRANSCRIBER__MAX_REPLICAS"),
    ],
)
def test_a_misspelt_setting_within_a_group_is_an_error_that_names_the_closest_one(
    monkeypatch: pytest.MonkeyPatch, misspelt: str, meant: str
) -> None:
    monkeypatch.setenv(misspelt, "7")
    with pytest.raises(ValidationError) as raised:
        Settings()
    told = explain(raised.value)
    assert f"{misspelt}: is not a setting; did you mean {meant}?" in told.sentence
    assert told.exit_code == 2
    assert unknown_variables([misspelt]) == {misspelt: meant}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("pbx.internal", ("pbx.internal",)),
        ("pbx.internal, 10.0.0.0/8", ("pbx.internal", "10.0.0.0/8")),
        ("[fd00::1]:8080,pbx", ("[fd00::1]:8080", "pbx")),
        ('["pbx.internal", "10.0.0.0/8"]', ("pbx.internal", "10.0.0.0/8")),
        ("", ()),  # as if it were not set
        ("[]", ()),
    ],
)
def test_a_list_is_written_with_commas_or_as_json(
    monkeypatch: pytest.MonkeyPatch, given: str, read: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SWITCHBOARD_FETCH__ALLOWED_HOSTS", given)
    assert Settings().fetch.allowed_hosts == read


def test_every_list_may_be_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=")
    given = {
        "SIGNING_PARAMETERS": "X-Amz-*,sig",
        "SECRETS_KEYS": ",".join(keys),
        "API__RUN_MODELS": "whisper-tiny.en,campplus",
        "FETCH__ALLOWED_HOSTS": "pbx",
        "FETCH__PORTS": "443,8000-9000",
        "WEBHOOKS__ALLOWED_HOSTS": "a.internal,b.internal",
        "PROCESSING__MODEL_PRICES": "0.15,0.6",
        "WEBHOOKS__RETRY_SECONDS": "1,2.5",
        "HTTP__TRUSTED_PROXIES": "10.0.0.0/8,192.0.2.7",
    }
    lists = {one.variable for one in documented() if one.default.startswith("[")}
    assert {f"SWITCHBOARD_{name}" for name in given} == lists
    for name, value in given.items():
        monkeypatch.setenv(f"SWITCHBOARD_{name}", value)
    found = Settings()
    assert found.signing_parameters == ("X-Amz-*", "sig")
    assert tuple(key.get_secret_value() for key in found.secrets_keys) == keys
    assert (found.fetch.ports, found.webhooks.retry_seconds) == (("443", "8000-9000"), (1.0, 2.5))
    assert found.processing.model_prices == (0.15, 0.6)
    assert [str(network) for network in found.http.trusted_proxies] == ["10.0.0.0/8", "192.0.2.7/32"]


def test_every_list_may_be_written_as_its_default_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Settings()
    for one in documented():
        if one.default.startswith("["):
            monkeypatch.setenv(one.variable, one.default)
    assert Settings() == expected


def test_a_list_or_a_group_that_cannot_be_read_is_told_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", '["hush')
    with pytest.raises(SettingsError) as raised:
        Settings()
    told = explain(raised.value)
    assert "SWITCHBOARD_SECRETS_KEYS: cannot be read" in told.sentence
    assert "hush" not in told.sentence
    assert told.exit_code == 2


def test_settings_without_the_broken_ones_and_what_is_wrong_with_these(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"SWITCHBOARD_ASR__MODLE": "base", "SWITCHBOARD_HTTP__PORT": "eighty", "SWITCHBOARD_SAFETY": "loud"}
    for name, value in broken.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SWITCHBOARD_LIMITS__BACKLOG", "7")
    found, wrong = settings.usable()
    assert (found.limits.backlog, found.http.port) == (7, 8000)
    assert set(wrong) == set(broken)
    assert {name: os.environ[name] for name in broken} == broken


def test_the_data_folder_is_the_users_own_whatever_folder_a_command_is_run_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SWITCHBOARD_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    assert Settings().data_dir == tmp_path / "share" / "switchboard" / "data"
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", "here")
    assert Settings().data_dir == tmp_path / "here"


@pytest.mark.parametrize(("prefix", "base_url"), [("/", "http://127.0.0.1:8000"), ("/v1", "http://127.0.0.1:8000/v1")])
def test_the_version_of_the_contract_can_be_a_route_prefix(prefix: str, base_url: str) -> None:
    assert Settings(route_prefix=prefix).base_url == base_url


@pytest.mark.parametrize("prefix", ["v1", "/v1/", ""])
def test_a_route_prefix_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(ValidationError):
        Settings(route_prefix=prefix)


def test_the_database_is_postgresql_and_its_password_is_not_shown() -> None:
    with pytest.raises(ValidationError):
        Settings(database_url="sqlite:///calls.db")
    assert "hush" not in repr(Settings(database_url="postgresql://me:hush@localhost/calls"))


def test_recordings_are_kept_in_the_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).storage_url == (tmp_path / "recordings").as_uri()
    assert Settings(storage="s3://bucket/calls").storage_url == "s3://bucket/calls"
