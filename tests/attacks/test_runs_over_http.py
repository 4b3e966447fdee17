"""A tenant's admin reaches neither a model hub, nor another server or file, nor the cluster's room for engines."""

import re
from typing import Any

import pytest

from db.experiments import runs
from db.workspace import keys
from pipeline.asr.engine import AsrOptions
from serve_app.api.options import ApiOptions
from serve_app.api.runs import RUN_COST
from serve_app.experiments.configuration import GROUPS, OPERATOR_SETTINGS, SettingRefused, _settings_of, check
from serve_app.settings import Settings
from tests.finished import finished
from tests.postgres import World
from tests.reading_api import asking

LLM = {"engine": "llm", "base_url": "https://models.example/v1", "model": "small"}
PLACES = re.compile(r"url|uri|host|server|endpoint|proxy|path|file|folder|trust|calibration|_env$")


@pytest.mark.parametrize(
    "changes",
    [
        {"asr": {"model": "large-v3"}},
        {"asr": {"model": "whisper-tiny.en"}},
        {"asr": {"beam_size": 9}},
        {"asr": {"device": "cpu"}},
        {"asr": {"engine": "onnx"}},
        {"alignment": {"model": "large-v3"}},
        {"alignment": {"engine": "off"}},
        {"alignment": {"engine": "ctc"}},
        {"diarization": {"pipeline": "campplus", "engine": "clustering"}},
        {"diarization": {"max_speakers": 2}},
        {"analysis": {"model": "the-dearest"}},
    ],
    ids=str,
)
def test_no_engine_is_started_that_operators_did_not_allow(changes: dict[str, Any]) -> None:
    settings = Settings(analysis=LLM)
    assert check(changes, settings), "operators may"
    with pytest.raises(SettingRefused, match="SWITCHBOARD_API__RUN_MODELS"):
        check(changes, settings, over_http=True)


def test_an_allowed_model_allows_no_other_one_with_it() -> None:
    settings = Settings(api={"run_models": ["whisper-tiny.en"]})
    assert check({"asr": {"model": "whisper-tiny.en", "beam_size": 1}}, settings, over_http=True)
    onnx = {"asr": {"model": "whisper-tiny.en", "engine": "onnx"}}
    with pytest.raises(SettingRefused, match=r"alignment\.model=auto"):  # `auto` may come from the hub
        check(onnx, settings, over_http=True)
    with pytest.raises(SettingRefused, match=r"diarization\.pipeline=auto"):
        check({"asr": {"model": "whisper-tiny.en"}, "diarization": {"threads": 64}}, settings, over_http=True)
    assert check(onnx | {"alignment": {"engine": "off"}}, settings, over_http=True)


def test_what_starts_no_engine_needs_no_permission() -> None:
    settings = Settings(analysis=LLM)
    for changes in (
        {"safety": {"second_pass": False}},
        {"asr": {"model": "auto"}},
        {"analysis": {"engine": "rules"}},
        {"analysis": {"language": "de"}},
        {},
    ):
        assert check(changes, settings, over_http=True) == changes


def test_every_setting_that_names_a_server_or_file_is_the_operators() -> None:
    for group in GROUPS:
        for name, is_secret in _settings_of(getattr(Settings(), group), of_all_engines=True).items():
            assert is_secret or name in OPERATOR_SETTINGS or not PLACES.search(name), f"{group}.{name}"


class Elsewhere(AsrOptions):
    """The options of an engine of another package."""

    machine: str = "asr.internal"


def test_settings_of_engines_of_other_packages_are_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsrOptions, "of_engines", classmethod(lambda _: iter([("elsewhere", Elsewhere)])))
    with pytest.raises(SettingRefused, match="is set by operators"):
        check({"asr": {"machine": "evil.example"}}, Settings(), over_http=True)


@pytest.mark.parametrize("value", [["http://evil.example/v1"], {"to": "../../etc"}, "~/models", "owner/name"])
def test_no_form_of_a_value_names_a_place(value: Any) -> None:
    with pytest.raises(SettingRefused, match="not a path"):
        check({"asr": {"model": value}}, Settings(), over_http=True)


async def test_a_tenants_admin_creates_no_such_run(world: World, postgres_url: str) -> None:
    await finished(world)
    _, secret = await keys.create(world.database, world.workspace_id, None, ["read", "admin"], "tenant")
    async with asking(postgres_url) as ask:
        refused = await ask("POST", "/runs", secret, name="large", settings={"asr": {"model": "large-v3"}})
        assert refused.status_code == 400 and refused.json()["errors"][0]["pointer"] == "/settings"
        assert await runs.list_runs(world.database, world.workspace_id) == []
        accepted = await ask("POST", "/runs", secret, name="plain", settings={"safety": {"second_pass": False}})
        assert accepted.status_code == 201, accepted.text


async def test_new_runs_use_up_a_keys_requests_sooner_than_reads(world: World, postgres_url: str) -> None:
    await finished(world)
    _, secret = await keys.create(world.database, world.workspace_id, None, ["read", "admin"], "tenant")
    options, created = ApiOptions(), 0
    allowed = options.burst // RUN_COST
    async with asking(postgres_url, options) as ask:
        while (answer := await ask("POST", "/runs", secret, name=f"run-{created}")).status_code == 201:
            created += 1
            assert created < 4 * allowed, "a new run is as cheap as a read"
        assert answer.status_code == 429 and 1 <= int(answer.headers["Retry-After"]) <= 3
        assert created >= allowed and len(await runs.list_runs(world.database, world.workspace_id)) == created
        assert (await ask("GET", "/runs", secret)).status_code == 200
