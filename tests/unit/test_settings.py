"""Settings: documented one by one, read from the environment, and never misspelt in silence."""

import logging
from pathlib import Path

import pytest
from pydantic import ValidationError

from serve_app import settings
from serve_app.settings import Settings, documented, unknown_variables

DOCUMENT = Path(settings.__file__).with_name("SETTINGS.md")


@pytest.mark.parametrize("setting", list(documented()), ids=lambda setting: setting.variable)
def test_a_setting_is_documented(setting: settings.Documented) -> None:
    assert setting.description
    assert f"| `{setting.variable}` |" in DOCUMENT.read_text(encoding="utf-8"), "run: python -m serve_app.settings"


def test_the_page_of_settings_is_what_the_code_writes() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == settings.table(), "run: python -m serve_app.settings"


def test_a_variable_sets_a_nested_setting_and_leaves_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_LIMITS__BURST", "7")
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://localhost/calls")
    read = Settings()
    assert (read.limits.burst, read.limits.per_minute) == (7, 600)
    assert read.require_database_url() == "postgresql://localhost/calls"


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


def test_a_misspelt_setting_within_a_group_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_LIMITS__BURSTS", "7")
    with pytest.raises(ValidationError, match="bursts"):
        Settings()


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
