import json
import os
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from pipeline.analysis import ENGINES, STEPS, AnalysisOptions, Engine, load, load_engine
from pipeline.domain.insight import Roster
from pipeline.options import ProcessOptions
from pipeline.process import conclude
from pipeline.runtime.workers import LocalWorkers
from serve_app.cli.doctor import service as checks_service
from serve_app.cli.doctor.command import Level
from serve_app.cli.render.findings import render_finding
from serve_app.service.environment import prepare_environment
from serve_app.settings import Settings
from tests.llm_server import MODEL, error, running
from tests.support.calls_by_hand import call
from tests.unit.pipeline.test_process import spoken

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def environment(monkeypatch):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHBOARD_")}
    monkeypatch.setattr(os, "environ", variables)
    return variables


def of(base_url, **given):
    return SimpleNamespace(analysis=AnalysisOptions(engine="llm", base_url=base_url, **{"model": MODEL, **given}))


def test_the_environment_sets_the_engine_and_its_replicas_get_the_key(environment):
    environment["SWITCHBOARD_ANALYSIS__ENGINE"] = "llm"
    environment["SWITCHBOARD_ANALYSIS__BASE_URL"] = "http://127.0.0.1:1/v1"
    environment["SWITCHBOARD_ANALYSIS__MODEL"] = MODEL
    environment["SWITCHBOARD_ANALYSIS__API_KEY"] = KEY
    settings = Settings()
    assert settings.process_options().analysis == settings.analysis
    assert KEY not in repr(settings) + settings.model_dump_json() + settings.process_options().model_dump_json()
    prepare_environment(settings, "postgresql://localhost/calls")
    assert "SWITCHBOARD_ANALYSIS__API_KEY" not in environment
    assert json.loads(environment["SWITCHBOARD_ANALYSIS"])["api_key"] == KEY
    assert Settings().analysis == settings.analysis


def test_settings_that_cannot_be_used_are_not_shown(environment):
    environment["SWITCHBOARD_ANALYSIS__APIKEY"] = KEY  # misspelt
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert "apikey" in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_of_the_registry_gives_one_finding_for_each_step(name):
    with running() as endpoint:
        endpoint.answers(lambda body: error(503, "not today", retry_after="0"))
        engine = load_engine(AnalysisOptions(engine=name, base_url=endpoint.base_url, model=MODEL))
        assert isinstance(engine, Engine)
        findings = engine.analyze(call(("rep", "Thank you for calling."), ("customer", "I will pay by Friday.")))
    steps = [load(entry).name for entry in STEPS]
    assert [finding.step for finding in findings] == steps
    (tasks,) = (finding for finding in findings if finding.step == "tasks")
    assert [task["due_date"] for task in tasks.value["tasks"]] == ["2025-04-18"]


async def test_the_pipeline_asks_the_model_that_its_options_name():
    quote = {"turn": 0, "text": "how can I help you?"}
    nobody = dict.fromkeys(("name", "company", "email", "phone", "address"))
    stated = {"tasks": [], "contact": nobody, "topics": [], "tones": [], "outcome": None}
    with running() as endpoint:
        endpoint.answers({**stated, "summary": [{"text": "Somebody asks how to help.", "quote": quote}]})
        options = ProcessOptions(analysis=of(endpoint.base_url).analysis)
        outcome = await conclude(call().call, LocalWorkers(None, None), Roster(), spoken(), options=options)
    (summary,) = (finding for finding in outcome.findings if finding.step == "summary")
    assert summary.value["text"] == "Somebody asks how to help."
    (line,) = (str(line) for line in render_finding(summary) if "by llm" in str(line))
    assert line == f"(by llm {MODEL})"


def test_doctor_finds_the_endpoint_and_its_model():
    with running() as endpoint:
        (reachable,) = checks_service.analysis(of(endpoint.base_url))
        (other,) = checks_service.analysis(of(endpoint.base_url, model="gpt-x"))
        (elsewhere,) = checks_service.analysis(of(endpoint.base_url.replace("/v1", "/v2")))
        endpoint.key = KEY
        (keyless,) = checks_service.analysis(of(endpoint.base_url))
        (wrong,) = checks_service.analysis(of(endpoint.base_url, api_key="sk-wrong"))
        (right,) = checks_service.analysis(of(endpoint.base_url, api_key=KEY))
    assert (reachable.level, right.level) == (Level.GOOD, Level.GOOD)
    assert reachable.found == f"llm {MODEL} at 127.0.0.1"
    assert f"(listed: {MODEL})" in other.found
    assert "responds 404" in elsewhere.found
    assert "401 to no key" in keyless.found and "401 to this key" in wrong.found
    assert {check.level for check in (other, elsewhere, keyless, wrong)} == {Level.WARN}
    assert KEY not in repr((reachable, right)) and "sk-wrong" not in repr(wrong)


def test_doctor_says_that_nobody_answers_and_what_happens_then():
    (check,) = checks_service.analysis(of("http://127.0.0.1:1/v1"))
    assert check.level is Level.WARN
    assert "does not respond" in check.found and "analyzed by rules" in check.advice


def test_doctor_warns_of_transcripts_in_clear_text():
    *_, clear = checks_service.analysis(of("http://llm.invalid/v1"))
    assert clear.level is Level.WARN and "https" in clear.advice


def test_doctor_has_nothing_to_ask_where_rules_do_the_work():
    (check,) = checks_service.analysis(SimpleNamespace(analysis=AnalysisOptions()))
    assert (check.level, check.found) == (Level.GOOD, "rules, on this machine")
