"""From a model's name to a folder: paths, the demo checkpoints, a hub that is not there."""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys

import pytest

from pipeline import checkpoints
from pipeline.checkpoints import DIARIZATION, RECOGNITION, hub, resolve
from pipeline.errors import CheckpointDamaged, CheckpointMissing

KINDS = pytest.mark.parametrize("kind", [RECOGNITION, DIARIZATION], ids=["recognition", "diarization"])


@pytest.fixture
def copy(tmp_path):
    """A copy of the demo recognition checkpoint that a test may damage."""
    folder = tmp_path / "model"
    shutil.copytree(RECOGNITION.demo, folder, ignore=shutil.ignore_patterns("recipe"))
    return folder


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """An empty cache and a hub that cannot be reached."""

    def unreachable(repository, patterns):
        raise OSError("no route to host")

    monkeypatch.setattr(hub, "download", unreachable)
    monkeypatch.setattr(hub, "cached", lambda *args: None)


@KINDS
def test_the_demo_checkpoint_is_loaded_by_name_only_and_warns_that_it_is_no_use_on_real_voices(kind, caplog):
    with caplog.at_level(logging.WARNING):
        found = resolve("demo", kind, "cpu")
    assert found.demo and found.name == "demo"
    assert len(caplog.records) == 1
    assert "no use on real voices" in caplog.text


def test_a_demo_checkpoint_named_by_its_path_warns_too(copy, caplog):
    found = resolve(str(copy), RECOGNITION, "cpu")
    assert found.demo and found.folder == copy
    assert "no use on real voices" in caplog.text


def test_the_manifest_says_what_the_checkpoint_has_learnt():
    found = resolve("demo", RECOGNITION, "cpu")
    assert found.max_chunk_seconds == 8
    assert found.languages == ("en", "es", "de")


def test_auto_takes_the_best_that_the_device_carries():
    assert RECOGNITION.auto == {"cuda": "large-v3-turbo", "cpu": "small"}
    assert set(DIARIZATION.auto.values()) == {"pyannote/speaker-diarization-community-1"}


@KINDS
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_hub_and_cache_nothing_falls_back_to_the_demo_checkpoint(kind, device, no_hub):
    with pytest.raises(CheckpointMissing) as raised:
        resolve("auto", kind, device)
    assert not raised.value.retryable
    assert raised.value.facts["model"] == kind.auto[device]


def test_the_error_for_a_missing_recogniser_says_what_to_set_and_how_to_go_offline(no_hub):
    with pytest.raises(CheckpointMissing) as raised:
        resolve("small", RECOGNITION, "cpu")
    for part in ("SWITCHBOARD_ASR__MODEL", "HF_HUB_OFFLINE=1", "hf download Systran/faster-whisper-small", "no route"):
        assert part in raised.value.message


def test_the_error_for_a_missing_diarization_pipeline_names_the_licence_page_and_the_token(no_hub):
    with pytest.raises(CheckpointMissing) as raised:
        resolve("auto", DIARIZATION, "cpu")
    page = "https://huggingface.co/pyannote/speaker-diarization-community-1"
    for part in ("SWITCHBOARD_DIARIZATION__PIPELINE", page, "HF_TOKEN", "HF_HUB_OFFLINE=1"):
        assert part in raised.value.message


def test_an_unknown_size_lists_the_known_ones():
    with pytest.raises(CheckpointMissing, match="large-v3-turbo"):
        resolve("huge", RECOGNITION, "cpu")


@KINDS
def test_a_path_without_a_model_is_refused_with_what_is_missing(kind, tmp_path):
    with pytest.raises(CheckpointMissing, match=kind.required[0]):
        resolve(str(tmp_path), kind, "cpu")


def test_a_cached_model_is_used_without_asking_the_hub(monkeypatch, copy):
    (copy / "switchboard.json").unlink()
    (copy / "SHA256SUMS").unlink()
    monkeypatch.setattr(hub, "cached", lambda *args: copy)
    found = resolve("small", RECOGNITION, "cpu")
    assert (found.name, found.folder, found.demo) == ("small", copy, False)


def test_a_file_that_differs_from_its_checksum_is_not_loaded(copy):
    with (copy / "model.bin").open("r+b") as file:
        file.seek(1000)
        file.write(b"\0\1\2\3")
    with pytest.raises(CheckpointDamaged, match=r"model\.bin is not the file that SHA256SUMS lists"):
        resolve(str(copy), RECOGNITION, "cpu")


def test_a_file_that_is_listed_and_missing_is_noticed(copy):
    (copy / "tokenizer.json").unlink()
    with pytest.raises(CheckpointDamaged, match=r"tokenizer\.json"):
        resolve(str(copy), RECOGNITION, "cpu")


def test_weights_that_no_checksum_covers_are_refused(copy):
    (copy / "extra.bin").write_bytes(b"pickled")
    with pytest.raises(CheckpointDamaged, match="not listed"):
        resolve(str(copy), RECOGNITION, "cpu")


def test_a_manifest_that_is_not_json_is_refused(copy):
    (copy / "SHA256SUMS").unlink()
    (copy / "switchboard.json").write_text("{")
    with pytest.raises(CheckpointDamaged, match="not a manifest"):
        resolve(str(copy), RECOGNITION, "cpu")


@KINDS
def test_the_shipped_manifest_and_checksums_are_whole(kind):
    checkpoints.manifest.verify(kind.demo)
    manifest = json.loads((kind.demo / "switchboard.json").read_text())
    assert manifest["demo"] is True


def _resolve_in_a_fresh_process(environment):
    code = (
        "import time\n"
        "from pipeline.checkpoints import RECOGNITION, hub, resolve\n"
        "from pipeline.errors import CheckpointMissing\n"
        "hub.ANSWER_TIMEOUT = 1.0\n"
        "try:\n    resolve('small', RECOGNITION, 'cpu')\n"
        "except CheckpointMissing as error:\n    print(error.message)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_a_hub_that_takes_the_connection_and_never_answers_does_not_hold_up_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = _resolve_in_a_fresh_process({"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"})
    assert "could not be reached" in said


def test_offline_mode_is_named_as_the_reason(tmp_path):
    said = _resolve_in_a_fresh_process({"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert "HF_HUB_OFFLINE is set" in said


def test_importing_the_stages_loads_no_engine():
    code = (
        "import sys, pipeline.asr, pipeline.diarization, pipeline.speakers, pipeline.checkpoints\n"
        "heavy = 'torch ctranslate2 faster_whisper pyannote huggingface_hub'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
