from typing import Any

import pytest

from pipeline.asr.openai import OpenAIOptions
from pipeline.errors import EngineUnavailable
from pipeline.runtime.actors import secrets_of
from serve_app.experiments.configuration import (
    Changes,
    SettingRefused,
    check,
    options_of,
    parse,
    resolved,
    without_secrets,
)
from serve_app.settings import Settings


@pytest.fixture
def settings() -> Settings:
    return Settings(
        api={"run_models": ["whisper-tiny.en"]},
        analysis={"engine": "llm", "base_url": "https://models.example/v1", "model": "m", "api_key": "s3cr3t"},
    )


def test_settings_are_read_as_json_or_as_they_are() -> None:
    assert parse(["asr.model=whisper-tiny.en", "asr.beam_size=1", "safety.second_pass=false"]) == {
        "asr": {"model": "whisper-tiny.en", "beam_size": 1},
        "safety": {"second_pass": False},
    }
    for wrong in ("asr.model", "model=base", "asr=base"):
        with pytest.raises(SettingRefused, match=r"GROUP\.NAME=VALUE"):
            parse([wrong])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"asr": {"mdel": "base"}}, r"asr\.mdel is not a setting\. Did you mean asr\.model\?"),
        ({"ars": {"model": "base"}}, r"'ars' is not a group of settings that a run may set\. Did you mean asr\?"),
        ({"http": {"port": 1}}, r"'http' is not a group of settings that a run may set"),
        ({"asr": {"beam_size": "many"}}, r"asr\.beam_size: "),
        ({"asr": {"engine": "ear"}}, "'ear' is no recognition engine"),
        ({"analysis": {"api_key": "x"}}, "is a secret"),
        ({"diarization": {"min_speakers": 3, "max_speakers": 2}}, "max_speakers is below min_speakers"),
    ],
)
def test_what_cannot_be_set_is_told_with_what_was_meant(settings: Settings, changes: Changes, message: str) -> None:
    with pytest.raises(SettingRefused, match=message):
        check(changes, settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"asr": {"model": "/etc"}},
        {"asr": {"model": "owner/name"}},
        {"asr": {"model": "~/models"}},
        {"analysis": {"base_url": "http://10.0.0.1/v1"}},
        {"roles": {"calibration": "x.toml"}},
        {"diarization": {"trust_checkpoint": True}},
    ],
)
def test_over_http_no_path_no_hub_and_no_address_is_named(settings: Settings, changes: Changes) -> None:
    check(changes, settings)
    with pytest.raises(SettingRefused):
        check(changes, settings, over_http=True)
    assert check({"asr": {"model": "whisper-tiny.en"}}, settings, over_http=True)


def test_no_secret_is_stored_and_the_service_lends_its_own(settings: Settings) -> None:
    stored = resolved({"asr": {"model": "whisper-tiny.en"}}, settings)
    assert "s3cr3t" not in str(stored) and stored["asr"]["model"] == "whisper-tiny.en"
    lent = options_of(stored, settings).process.analysis.api_key
    assert lent is not None and lent.get_secret_value() == "s3cr3t"
    elsewhere = resolved({"analysis": {"base_url": "https://other.example/v1"}}, settings)
    assert options_of(elsewhere, settings).process.analysis.api_key is None, "another server is not given the key"


SERVER = {"engine": "openai", "base_url": "https://models.example/v1", "model": "large", "api_key": "s3cr3t"}


def test_a_run_with_the_services_own_server_is_the_services_own_engine_and_stores_no_key() -> None:
    from serve_app.experiments.engines import ClusterEngines

    settings = Settings(asr=SERVER)
    stored = resolved({"safety": {"second_pass": False}}, settings)
    assert "s3cr3t" not in str(stored) and "api_key" not in stored["asr"]
    handles: Any = ("the Transcriber", "the Diarizer")
    engines = ClusterEngines(settings, *handles, {})
    assert engines._transcriber(options_of(stored, settings)) == "the Transcriber"
    assert engines._diarizer(options_of(stored, settings)) == "the Diarizer"


def test_the_services_key_goes_to_its_own_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.settings.Settings", lambda: Settings(asr=SERVER))
    where = "serve_app.settings:asr_secrets"
    assert secrets_of(where) == secrets_of(f"{where}:{SERVER['base_url']}") == {"api_key": "s3cr3t"}
    assert secrets_of(f"{where}:https://other.example/v1") == {}


def test_a_run_names_the_variable_that_holds_the_key_of_its_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    changes = {
        "asr": {"engine": "openai", "base_url": "https://other.example/v1", "model": "m", "api_key_env": "OTHER"}
    }
    stored = resolved(check(changes, settings), settings)
    options = OpenAIOptions.model_validate(options_of(stored, settings).asr)
    with pytest.raises(EngineUnavailable, match="OTHER, which is not set on this node"):
        _ = options.key
    monkeypatch.setenv("OTHER", " k3y ")
    assert options.key is not None and options.key.get_secret_value() == "k3y"
    assert "k3y" not in str(stored) + repr(options)
    with pytest.raises(SettingRefused, match=r"is set by operators"):
        check(changes, settings, over_http=True)


def test_a_run_sets_the_aligner_too(settings: Settings) -> None:
    stored = resolved(check(parse(["alignment.model=whisper-tiny.en"]), settings), settings)
    assert options_of(stored, settings).alignment["model"] == "whisper-tiny.en"
    assert resolved({"alignment": {"engine": "off"}}, settings)["alignment"]["engine"] == "off"
    begun_before = {group: values for group, values in stored.items() if group != "alignment"}
    assert options_of(begun_before, settings).alignment == without_secrets(settings.alignment)


def test_a_configuration_read_back_is_the_same(settings: Settings) -> None:
    stored = resolved({"safety": {}, "asr": {"beam_size": 2}}, settings)
    options = options_of(stored, settings)
    assert options.asr["beam_size"] == 2
    assert options.process.safety == settings.safety
    assert options.process.deadlines.seconds > settings.process_options().deadlines.seconds
