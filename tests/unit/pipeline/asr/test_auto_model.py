"""The model `auto` where the preferred one is not available: which one is used instead, and what says so."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.asr.alignment.whisper import CHECKPOINTS as ALIGNMENT
from pipeline.asr.whisper_model import CHECKPOINTS as RECOGNITION
from pipeline.diarization.pyannote import COMMUNITY, UNGATED
from pipeline.runtime.actors import TranscriberReplica
from serve_app.cli.run import up
from serve_app.service.service import EngineReport
from tests.engines import store_with
from tests.hub_server import HubServer
from tests.unit.pipeline.checkpoints.test_checkpoint_store import filled

pytestmark = pytest.mark.cases(2)

__all__ = ["filled"]  # a fixture

CLOSED = "http://127.0.0.1:9"
SMALL = "Systran/faster-whisper-small"
MAX_SECONDS = 30  # far below the minutes that a client without a deadline takes; includes imports on a busy machine
RESOLVE = """
import json, logging, pathlib, sys
from pipeline.checkpoints import lock, resolve
from pipeline.engines.registry import Registry, engine_class
from pipeline.errors import CheckpointMissing
logging.basicConfig(level=logging.WARNING)
lock.LOCK = pathlib.Path(sys.argv[1])
kind = engine_class(Registry({"": sys.argv[3]}, "test", "switchboard.test"), "").CHECKPOINTS
try:
    checkpoint = resolve("auto", kind, "cpu", pathlib.Path(sys.argv[2]))
    print(json.dumps([checkpoint.name, checkpoint.preferred, checkpoint.advice]))
except CheckpointMissing as error:
    print(json.dumps(error.message))
"""
WHISPER = "pipeline.asr.faster_whisper:FasterWhisper"
PYANNOTE = "pipeline.diarization.pyannote:Pyannote"
ALIGNER = "pipeline.asr.alignment.whisper:WhisperAligner"


@pytest.fixture
def silent() -> Iterator[str]:
    """Run a hub that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def resolved(store: Path, home: Path, engine: str = WHISPER, **environment: str) -> tuple[Any, str]:
    """Return the model of `auto` in a separate process, and its log. No package index is reachable."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PIP_"))}
    offline = {"PIP_INDEX_URL": f"{CLOSED}/simple", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, str(store / "test.lock"), str(store), engine],
        env={**clean, **offline, "HF_HOME": str(home), "HF_ENDPOINT": CLOSED, **environment},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=True,
    )
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({}, "the hub could not be reached"), ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set")],
    ids=["closed", "offline"],
)
def test_without_the_hub_the_best_stored_model_is_used_and_a_warning_says_so(
    filled: Path, tmp_path: Path, environment: dict[str, str], reason: str
) -> None:
    (name, preferred, advice), log = resolved(filled, tmp_path / "home", **environment)
    assert (name, preferred) == ("base", "small")
    assert f"hf download {SMALL}" in advice
    for part in ("WARNING", "'small'", reason, "Using base instead", advice):
        assert part in log


@pytest.mark.slow
def test_a_hub_that_never_answers_does_not_stop_the_start(filled: Path, tmp_path: Path, silent: str) -> None:
    (name, preferred, _), log = resolved(filled, tmp_path / "home", HF_ENDPOINT=silent)
    assert (name, preferred) == ("base", "small")
    assert "no response within 5 s" in log or "timed out" in log


def test_the_next_start_takes_the_preferred_model_when_the_hub_has_it(filled: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert resolved(filled, home)[0][0] == "base"
    with HubServer({SMALL: dict.fromkeys(RECOGNITION.required, b"{}")}) as hub:
        (name, preferred, advice), log = resolved(filled, home, HF_ENDPOINT=hub.url)
    assert (name, preferred, advice) == ("small", "", "")
    assert "instead" not in log
    assert resolved(filled, home)[0][0] == "small", "it is in the cache now"


def test_a_cached_model_counts_as_stored(filled: Path, tmp_path: Path) -> None:
    (filled / "whisper-base").rename(filled / "gone")
    with HubServer({"Systran/faster-whisper-tiny": dict.fromkeys(RECOGNITION.required, b"{}")}) as hub:
        code = "from pipeline.checkpoints import hub; import sys; hub.download(sys.argv[1], ['*'])"
        subprocess.run(
            [sys.executable, "-c", code, "Systran/faster-whisper-tiny"],
            env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"},
            check=True,
            timeout=MAX_SECONDS,
        )
    (name, preferred, _), _ = resolved(filled, tmp_path / "home")
    assert (name, preferred) == ("tiny", "small")


def test_with_nothing_stored_the_error_says_what_to_do(filled: Path, tmp_path: Path) -> None:
    (filled / "whisper-base").rename(filled / "gone")
    message, log = resolved(filled, tmp_path / "home")
    assert "'small'" in message and "`switchboard checkpoints fetch whisper-base`" in message
    assert "instead" not in log


def test_the_diarizer_chooses_alike_and_the_aligner_has_its_preferred_model(filled: Path, tmp_path: Path) -> None:
    (name, preferred, _), log = resolved(filled, tmp_path / "home", PYANNOTE, HF_TOKEN="hf_" + "x" * 34)
    assert (name, preferred) == (UNGATED, COMMUNITY)
    assert f"Using {UNGATED} instead" in log
    (name, preferred, _), _ = resolved(filled, tmp_path / "home", ALIGNER)
    assert (name, preferred) == ("base", "")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_model_that_auto_may_use_is_multilingual_and_has_a_repository(device: str) -> None:
    for kind in (RECOGNITION, ALIGNMENT):
        models = kind.auto(device)
        assert len(set(models)) == len(models) > 1
        assert set(models) <= kind.sizes().keys()
        assert not [model for model in models if model.endswith(".en")]


async def test_the_replica_names_the_model_in_use_and_results_are_keyed_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "whisper-base").symlink_to(store_with("whisper-base") / "whisper-base")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    options = {"device": "cpu", "cpu_threads": 1, "compute_type": "int8", "encoder": "ctranslate2"}
    replica = TranscriberReplica({"model": "auto", **options}, str(tmp_path))
    model, recognition = await replica.model(), await replica.recognition()
    assert model is not None
    assert model.engine == recognition.engine == "faster-whisper base int8"
    assert model.preferred == "small"
    other = tmp_path / "other" / "whisper-base"
    shutil.copytree(store_with("whisper-base") / "whisper-base", other)
    (other / "SHA256SUMS").unlink(missing_ok=True)
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    assert recognition.identity != (await TranscriberReplica({"model": str(other), **options}).recognition()).identity
    up.print_engines(EngineReport({"recognition": model}, {}))
    lines = capsys.readouterr().err
    assert "recognition: faster-whisper base int8" in lines and "small is preferred but not available" in lines
