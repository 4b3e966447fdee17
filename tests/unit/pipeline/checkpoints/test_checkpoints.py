import logging
import os
import shutil
import socket
import subprocess
import sys

import pytest

from pipeline import checkpoints
from pipeline.asr.whisper_model import CHECKPOINTS as RECOGNITION
from pipeline.checkpoints import hub, resolve
from pipeline.diarization.pyannote import CHECKPOINTS as DIARIZATION
from pipeline.diarization.pyannote import COMMUNITY
from pipeline.errors import CheckpointDamaged, CheckpointMissing
from tests import fixture_checkpoints

KINDS = pytest.mark.parametrize("kind", [RECOGNITION, DIARIZATION], ids=["recognition", "diarization"])


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the synthetic recognition checkpoint that a test may damage."""
    folder = tmp_path / "model"
    shutil.copytree(fixture_checkpoints.RECOGNITION, folder)
    return folder


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """Provide an empty cache, and make the hub and the package index unreachable."""

    def unreachable(repository, patterns):
        raise OSError("no route to host")

    monkeypatch.setattr(hub, "download", unreachable)
    monkeypatch.setattr(hub, "cached", lambda *args: None)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_a_synthetic_checkpoint_warns_that_it_is_no_use_on_real_voices(copy, caplog):
    with caplog.at_level(logging.WARNING):
        checkpoint = resolve(str(copy), RECOGNITION, "cpu")
    assert checkpoint.synthetic and checkpoint.folder == copy
    assert len(caplog.records) == 1
    assert "no use on real voices" in caplog.text


def test_the_manifest_has_languages_and_the_longest_chunk():
    checkpoint = resolve(str(fixture_checkpoints.RECOGNITION), RECOGNITION, "cpu")
    assert checkpoint.max_chunk_seconds == 8
    assert checkpoint.languages == ("en", "es", "de")


def test_auto_prefers_the_best_model_that_suits_the_device():
    assert [RECOGNITION.auto(device)[0] for device in ("cuda", "cpu")] == ["large-v3-turbo", "small"]


def test_the_name_that_checkpoints_list_prints_resolves_to_the_model(no_hub, tmp_path):
    with pytest.raises(CheckpointMissing) as missing:
        resolve("whisper-base", RECOGNITION, "cpu", tmp_path)
    assert missing.value.facts["model"] == "base"


@pytest.mark.parametrize(
    ("token", "cached", "name"),
    [("hf_x", False, COMMUNITY), (None, True, COMMUNITY), (None, False, "segmentation-3.0+campplus")],
    ids=["token", "cached", "neither"],
)
def test_auto_diarizes_with_the_gated_model_where_it_can_be_had(monkeypatch, caplog, tmp_path, token, cached, name):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    monkeypatch.setattr(hub, "cached", lambda *_: tmp_path if cached else None)
    with caplog.at_level(logging.INFO):
        assert DIARIZATION.auto("cpu")[0] == name
    assert ("set HF_TOKEN" in caplog.text) == (name != COMMUNITY)


@KINDS
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_hub_index_and_stored_models_auto_raises_for_the_preferred_model(kind, device, no_hub, tmp_path):
    with pytest.raises(CheckpointMissing) as raised:
        resolve("auto", kind, device, tmp_path)
    assert not raised.value.retryable
    assert raised.value.facts["model"] == kind.auto(device)[0]


def test_the_error_for_a_missing_recognizer_names_the_setting_and_the_way_to_go_offline(no_hub):
    with pytest.raises(CheckpointMissing) as raised:
        resolve("small", RECOGNITION, "cpu")
    for part in (
        "SWITCHBOARD_ASR__MODEL=base",
        "fetch whisper-base",
        "HF_HUB_OFFLINE=1",
        "hf download Systran/faster-whisper-small",
        "no route",
    ):
        assert part in raised.value.message


def test_the_error_for_a_missing_diarization_pipeline_names_the_license_page_and_the_token(no_hub):
    with pytest.raises(CheckpointMissing) as raised:
        resolve(COMMUNITY, DIARIZATION, "cpu")
    page = "https://huggingface.co/pyannote/speaker-diarization-community-1"
    for part in (
        "SWITCHBOARD_DIARIZATION__PIPELINE=segmentation-3.0+campplus needs no license",
        page,
        "HF_TOKEN",
        "HF_HUB_OFFLINE=1",
    ):
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
    checkpoint = resolve("small", RECOGNITION, "cpu")
    assert (checkpoint.name, checkpoint.folder, checkpoint.synthetic) == ("small", copy, False)


def test_a_file_that_differs_from_its_checksum_is_not_loaded(copy):
    with (copy / "model.bin").open("r+b") as file:
        file.seek(1000)
        file.write(b"\0\1\2\3")
    with pytest.raises(CheckpointDamaged, match=r"model\.bin is not the file that SHA256SUMS lists"):
        resolve(str(copy), RECOGNITION, "cpu")


def test_a_listed_file_that_is_missing_is_reported(copy):
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


@pytest.mark.parametrize("folder", [fixture_checkpoints.RECOGNITION, fixture_checkpoints.DIARIZATION])
def test_the_manifests_and_checksums_of_the_synthetic_checkpoints_match(folder):
    checkpoints.manifest.verify(folder)
    assert checkpoints.manifest.read("synthetic", folder).synthetic


def _resolve_in_a_fresh_process(environment):
    code = (
        "import time\n"
        "from pipeline.asr.whisper_model import CHECKPOINTS as RECOGNITION\n"
        "from pipeline.checkpoints import hub, resolve\n"
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
        timeout=180,
        check=True,
    ).stdout


def test_a_hub_that_takes_the_connection_and_never_answers_does_not_hold_up_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        output = _resolve_in_a_fresh_process({"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"})
    assert "could not be reached" in output


def test_offline_mode_is_named_as_the_reason(tmp_path):
    output = _resolve_in_a_fresh_process({"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert "HF_HUB_OFFLINE is set" in output


def test_importing_the_stages_loads_no_engine():
    code = (
        "import sys, pipeline.asr, pipeline.diarization, pipeline.speakers, pipeline.checkpoints\n"
        "heavy = 'torch ctranslate2 faster_whisper pyannote huggingface_hub'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.strip() == "[]"


def test_a_repository_pinned_to_a_commit_stays_there_whatever_its_owner_does(monkeypatch, tmp_path):
    # loading a checkpoint of the hub may run code: an update must not arrive unnoticed
    old, new = "a" * 40, "b" * 40
    repository = tmp_path / "models--owner--whisper"
    for commit in (old, new):
        folder = repository / "snapshots" / commit
        folder.mkdir(parents=True)
        for file in RECOGNITION.required:
            (folder / file).write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(new)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert resolve("owner/whisper", RECOGNITION, "cpu").folder.name == new
    pinned = resolve(f"owner/whisper@{old}", RECOGNITION, "cpu")
    assert (pinned.name, pinned.folder.name) == ("owner/whisper", old)
    assert hub.cached("owner/whisper@" + "c" * 40, RECOGNITION.patterns, RECOGNITION.required) is None
