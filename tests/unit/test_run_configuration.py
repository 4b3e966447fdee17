"""What a run may set, and what it is made with."""

import pytest

from serve_app.runs.configuration import Set, SettingRefused, check, options_of, parse, resolved
from serve_app.settings import Settings


@pytest.fixture
def settings() -> Settings:
    return Settings(
        analysis={"engine": "llm", "base_url": "https://models.example/v1", "model": "m", "api_key": "s3cr3t"}
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
    ("changes", "told"),
    [
        ({"asr": {"mdel": "base"}}, r"asr\.mdel is not a setting\. Did you mean asr\.model\?"),
        ({"ars": {"model": "base"}}, r"'ars' is no group of settings of a run\. Did you mean asr\?"),
        ({"http": {"port": 1}}, r"'http' is no group of settings of a run"),
        ({"asr": {"beam_size": "many"}}, r"asr\.beam_size: "),
        ({"asr": {"engine": "ear"}}, "'ear' is no recognition engine"),
        ({"analysis": {"api_key": "x"}}, "is a secret"),
        ({"diarization": {"min_speakers": 3, "max_speakers": 2}}, "max_speakers is below min_speakers"),
    ],
)
def test_what_cannot_be_set_is_told_with_what_was_meant(settings: Settings, changes: Set, told: str) -> None:
    with pytest.raises(SettingRefused, match=told):
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
def test_over_http_no_path_no_hub_and_no_address_is_named(settings: Settings, changes: Set) -> None:
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


def test_a_configuration_read_back_is_the_same(settings: Settings) -> None:
    stored = resolved({"safety": {}, "asr": {"beam_size": 2}}, settings)
    options = options_of(stored, settings)
    assert options.asr["beam_size"] == 2
    assert options.process.safety == settings.safety
    assert options.process.deadlines.seconds > settings.process_options().deadlines.seconds
