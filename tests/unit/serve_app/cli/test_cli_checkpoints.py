import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.checkpoints.lock import locked
from serve_app.cli import app
from serve_app.cli.doctor import models as checks_models
from serve_app.cli.doctor.command import Level
from serve_app.settings import Settings

runner = CliRunner()


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    """Set up an empty store, and a lock with file sizes that match no local file."""
    monkeypatch.setenv("SWITCHBOARD_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: None)
    return tmp_path


def test_the_list_fits_80_columns_and_says_what_is_here(store):
    (store / "campplus").mkdir()
    shown = runner.invoke(app, ["checkpoints", "list"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert max(len(line.rstrip()) for line in lines if str(store) not in line) <= 80
    rows = [line.split()[:2] for line in lines[1 : lines.index("")] if not line.startswith(" ")]  # a cell may wrap
    assert rows == [[name, "yes" if name == "campplus" else "no"] for name in locked()]
    assert f"Store: {store}" in shown.stdout


def test_the_list_as_json_names_official_release_license_and_hashes(store):
    data = json.loads(runner.invoke(app, ["checkpoints", "list", "--json"]).stdout)
    assert data["folder"] == str(store)
    (base,) = (checkpoint for checkpoint in data["checkpoints"] if checkpoint["name"] == "whisper-base")
    assert base["license"] == "MIT" and base["source"].endswith("faster-whisper-base") and base["models"] == ["base"]
    assert {file["name"] for file in base["files"]} >= {"model.bin", "LICENSE"}


def test_verify_tells_missing_from_damaged(store):
    nothing = runner.invoke(app, ["checkpoints", "verify"])
    assert nothing.exit_code == 1 and "checkpoints fetch" in nothing.output
    (store / "campplus").mkdir()
    (store / "campplus" / "campplus_cn_en_common.pt").write_bytes(b"no")
    damaged = runner.invoke(app, ["checkpoints", "verify", "--json"])
    assert damaged.exit_code == 1
    assert {row["name"]: row["status"] for row in json.loads(damaged.stdout)} == {
        name: "damaged" if name == "campplus" else "missing" for name in locked()
    }


def test_a_name_that_nothing_has_ends_with_2(store):
    result = runner.invoke(app, ["checkpoints", "fetch", "whisper-huge"])
    assert result.exit_code == 2
    assert "whisper-base" in result.output


@pytest.mark.parametrize(
    ("model", "pipeline", "names"),
    [
        ("base", "auto", ["whisper-base", "segmentation-3.0", "campplus"]),
        ("tiny.en", "pyannote/speaker-diarization-community-1", ["whisper-tiny.en"]),
        ("large-v3-turbo", "/models/diarization", []),
    ],
)
def test_a_set_up_script_fetches_what_the_settings_name(store, monkeypatch, model, pipeline, names):
    asked: list[str] = []
    monkeypatch.setattr("pipeline.checkpoints.fetch.fetch", lambda names, *_: asked.extend(names) or [])
    monkeypatch.setenv("SWITCHBOARD_ASR__MODEL", model)
    monkeypatch.setenv("SWITCHBOARD_DIARIZATION__PIPELINE", pipeline)
    assert runner.invoke(app, ["checkpoints", "fetch", "--configured"]).exit_code == 0
    assert asked == names


def test_doctor_tells_what_the_first_start_fetches(store, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    settings = Settings(asr={"model": "base", "device": "cpu"})
    checks = list(checks_models.checkpoints(settings))
    assert [(check.name, check.level) for check in checks] == [
        ("recognition model", Level.WARN),
        ("diarization model", Level.WARN),
        ("voices", Level.GOOD),
    ]
    assert "switchboard checkpoints fetch whisper-base" in checks[0].advice
    (store / "whisper-base").mkdir()
    (store / "whisper-base" / "model.bin").write_bytes(b"no")
    checks = list(checks_models.checkpoints(settings))
    assert [check.level for check in checks] == [Level.BAD, Level.WARN, Level.GOOD]
    assert "whisper-base" in checks[0].found
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert next(check for check in checks_models.checkpoints(settings) if "diar" in check.name).level is Level.BAD
