import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import soundfile
from pydantic import ValidationError

from pipeline import asr
from pipeline.analysis import STEPS, AnalysisOptions, analyze
from pipeline.analysis import step as analysis_step
from pipeline.asr import AsrOptions
from pipeline.domain.redaction import EntityKind, RedactionMode, RedactionPolicy, RedactionState
from pipeline.engines import registry
from pipeline.engines.registry import engine_classes, identity_of
from pipeline.steps.redact import look, names_engine
from serve_app.settings import documented
from tests import fixture_checkpoints
from tests.paths import ROOT
from tests.support.calls_by_hand import call
from tests.synthetic_calls import FOLDER
from tests.unit.pipeline.redaction.calls import call as spoken

Install = Callable[..., None]
ENGINE = """
from pipeline.asr.faster_whisper import FasterWhisper
from pipeline.asr.whisper_model import FasterWhisperOptions


class Options(FasterWhisperOptions):
    loudness: float = 1.0


class Engine(FasterWhisper):
    Options = Options
"""
STEP = """
from pipeline.domain.insight import Finding


class LengthStep:
    name, version = "{name}", 1

    def run(self, material):
        return Finding(self.name, self.version, {{"turns": len(material.transcript.turns)}}, ())
"""


def forget() -> None:
    registry.every_entry_point.cache_clear()
    registry.installed.cache_clear()
    analysis_step.all_steps.cache_clear()
    names_engine.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package with one module and one entry point, for the time of a test."""
    modules = set(sys.modules)

    def install_package(name: str, code: str, group: str, entry: str) -> None:
        folder = tmp_path / name
        metadata = folder / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (folder / f"{name}.py").write_text(code)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        monkeypatch.syspath_prepend(folder)
        forget()

    yield install_package
    monkeypatch.undo()
    forget()
    for module in set(sys.modules) - modules:
        if module.startswith("acme"):
            del sys.modules[module]


def test_an_installed_engine_has_a_name_options_and_settings_like_a_built_in_one(install: Install) -> None:
    install("acme_ears", ENGINE, "switchboard.asr", "ears = acme_ears:Engine")
    assert asr.ENGINES.names() == ["faster-whisper", "openai", "onnx", "ears"]
    options = AsrOptions.model_validate({"engine": "ears", "loudness": 2})
    assert options.for_engine().loudness == 2.0  # type: ignore[attr-defined]
    assert options.engine_class.__module__ == "acme_ears"
    assert "SWITCHBOARD_ASR__LOUDNESS" in {setting.variable for setting in documented()}


NAMES = """
from pipeline.domain.redaction import Entity, EntityKind, EntityWords


def names(recognized):
    yield Entity(EntityKind.PLACE, (EntityWords(0, 2, 2, 0, 0.8, 1.15),), 0.9)
"""


def test_an_installed_engine_for_names_finds_what_rules_do_not(install: Install) -> None:
    recognized = spoken((0, "back to Lisbon then"))
    policy = RedactionPolicy(RedactionMode.MASK, (EntityKind.PLACE,))
    assert look(recognized, policy).state is RedactionState.COULD_NOT_LOOK
    install("acme_names", NAMES, "switchboard.redaction", "acme = acme_names:names")
    assert [entity.kind for entity in look(recognized, policy).entities] == [EntityKind.PLACE]
    install("acme_others", NAMES, "switchboard.redaction", "others = acme_others:names")
    with pytest.raises(ValueError, match=r"acme_\w+ 1.0, acme_\w+ 1.0 have an engine"):
        look(recognized, policy)


def test_another_version_of_the_package_has_another_identity(install: Install) -> None:
    install("acme_ears", ENGINE, "switchboard.asr", "ears = acme_ears:Engine")
    model = str(fixture_checkpoints.RECOGNITION)
    engine: Any = asr.load(AsrOptions(engine="ears", model=model, device="cpu"))
    later = copy(engine)  # before its identity is computed
    assert engine.package == "acme_ears 1.0"
    later.package = "acme_ears 2.0"
    assert identity_of(later) != identity_of(engine)


def test_an_unknown_engine_is_an_error_with_the_installed_ones(install: Install) -> None:
    install("acme_ears", ENGINE, "switchboard.asr", "ears = acme_ears:Engine")
    with pytest.raises(ValidationError, match=r"'ear' is no recognition engine; installed: faster-whisper.*, ears\."):
        AsrOptions(engine="ear")
    with pytest.raises(ValidationError, match=r"'mind' is no analysis engine; installed: rules, llm\. Choose one"):
        AnalysisOptions(engine="mind")


def test_a_name_that_two_packages_use_is_an_error_with_both(install: Install) -> None:
    install("acme_ears", ENGINE, "switchboard.asr", "onnx = acme_ears:Engine")
    with pytest.raises(
        ValidationError, match=r"'onnx' is in several packages: Switchboard, acme_ears 1\.0\. Uninstall"
    ):
        AsrOptions(engine="onnx")
    install("acme_ear", ENGINE, "switchboard.asr", "onnx = acme_ear:Engine")
    with pytest.raises(ValidationError, match=r"Switchboard, acme_ear 1\.0, acme_ears 1\.0"):
        AsrOptions(engine="onnx")
    assert AsrOptions(engine="openai", base_url="http://127.0.0.1/v1", model="a").engine == "openai"  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import acme_is_not_here", r"cannot be imported \(acme_ears:Engine\): ModuleNotFoundError"),
        ("x = 1", "cannot be imported .*: AttributeError"),
        ("class Engine:\n    Options = None", "lacks CHECKPOINTS, device_of"),
    ],
)
def test_a_broken_engine_is_an_error_when_it_is_chosen_and_a_warning_before(
    code: str, problem: str, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("acme_ears", code, "switchboard.asr", "ears = acme_ears:Engine")
    with pytest.raises(ValidationError, match=rf"engine 'ears' of the package acme_ears 1\.0 {problem}"):
        AsrOptions(engine="ears")
    assert [name for name, _ in engine_classes(asr.ENGINES)] == list(asr.ENGINES)
    assert re.search(problem, caplog.text)


def test_an_installed_step_runs_after_the_built_in_ones(install: Install) -> None:
    install("acme_length", STEP.format(name="length"), "switchboard.steps", "length = acme_length:LengthStep")
    findings = analyze(call(("rep", "Good morning."), ("customer", "Hello.")))
    assert len(findings) == len(STEPS) + 1
    assert (findings[-1].step, findings[-1].value) == ("length", {"turns": 2})


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (STEP.format(name="tasks"), r"acme_length 1\.0 has an analysis step 'tasks', and so has Switchboard"),
        ("import acme_is_not_here", r"step 'length' of the package acme_length 1\.0 cannot be imported"),
    ],
)
def test_a_step_that_cannot_run_is_an_error_of_the_settings(code: str, problem: str, install: Install) -> None:
    install("acme_length", code, "switchboard.steps", "length = acme_length:LengthStep")
    with pytest.raises(ValidationError, match=problem):
        AnalysisOptions()


def build_and_install(page: str, folder: Path) -> Path:
    """Install the package whose files a page shows; return the folder for PYTHONPATH."""
    files = re.findall(r"`(acme-asr/\S+)`:\n\n```\w+\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["acme-asr/pyproject.toml", "acme-asr/acme_asr.py"]
    for name, text in files:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    target = folder / "installed"
    options = ["--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--target", str(target)]
    pip = [sys.executable, "-m", "pip", "install", *options, str(folder / "acme-asr")]
    subprocess.run(pip, check=True, capture_output=True, timeout=120)
    return target


@pytest.mark.slow
def test_the_package_of_the_page_on_extending_is_built_installed_and_used(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (engine,) = re.findall(r"SWITCHBOARD_ASR__ENGINE=(\w+)", page)
    sound, rate = soundfile.read(FOLDER / "01_invoice_stereo" / "call.flac", dtype="int16")
    soundfile.write(
        tmp_path / "call.wav", sound[24 * rate : 27 * rate], rate
    )  # "I will send you the invoice by Friday."
    other_variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))
    }
    environment = other_variables | {
        "PYTHONPATH": str(build_and_install(page, tmp_path)),
        "SWITCHBOARD_ASR__ENGINE": engine,
        "SWITCHBOARD_ASR__MODEL": str(fixture_checkpoints.RECOGNITION),
        "SWITCHBOARD_DIARIZATION__PIPELINE": str(fixture_checkpoints.DIARIZATION),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "serve_app.cli", "process", str(tmp_path / "call.wav"), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"({engine})" in done.stderr
    (result,) = json.loads(done.stdout)
    words = [word["text"] for turn in result["transcript"]["turns"] for word in turn["words"]]
    assert "Invoice" in words and "invoice" not in words
