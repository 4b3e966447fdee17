import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.asr.faster_whisper import FasterWhisper
from pipeline.diarization.pyannote import Pyannote
from pipeline.engines import device
from pipeline.errors import DeviceUnavailable, EngineUnavailable
from pipeline.runtime.actors import TranscriberReplica
from serve_app.cli import app
from serve_app.cli.doctor import machine as doctor
from serve_app.cli.doctor.command import Check, Level
from tests import fixture_checkpoints

OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  12.2.0\n"
NEW = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@builder)\nGCC: 13.3.0\n"
AUTO = SimpleNamespace(asr=SimpleNamespace(device="auto"), diarization=SimpleNamespace(device="auto"))
ON_CPU = SimpleNamespace(asr=SimpleNamespace(device="cpu"), diarization=SimpleNamespace(device="cpu"))
WORKING = {"gpus": ["NVIDIA L4"], "cuda": "13.0", "ctranslate2_gpus": 1, "cublas": True}


@pytest.fixture(autouse=True)
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine of the tests has."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv(doctor.PROMISED, raising=False)
    (tmp_path / "dev").mkdir()
    monkeypatch.setattr(device, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(device, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(doctor, "DRIVER_GPUS", tmp_path / "gpus")
    monkeypatch.setattr(doctor, "PCI_DEVICES", tmp_path / "bus")


@pytest.fixture
def old_driver(tmp_path: Path) -> None:
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "dev/nvidiactl").touch()  # is no GPU
    (tmp_path / "version").write_text(OLD)


@pytest.fixture
def new_driver(tmp_path: Path, old_driver: None) -> None:
    (tmp_path / "version").write_text(NEW)


def levels(checks: list[Check]) -> dict[str, Level]:
    return {check.name: check.level for check in checks}


def examined(
    facts: dict[str, object], settings: object = AUTO, strict: bool = True, promised: int | None = None
) -> list[Check]:
    return list(doctor._gpu(facts, settings, strict, promised))


def test_without_a_gpu_auto_is_the_cpu() -> None:
    assert FasterWhisper.device_of(SimpleNamespace(device="auto")) == "cpu"
    assert Pyannote.device_of(SimpleNamespace(device="auto")) == "cpu"


def test_auto_refuses_the_cpu_where_the_driver_is_too_old_for_the_gpu(old_driver: None) -> None:
    with pytest.raises(DeviceUnavailable, match=r"PyTorch .*driver is 535.104.05, and CUDA 13.* needs 580.65.06"):
        Pyannote.device_of(SimpleNamespace(device="auto"))
    with pytest.raises(DeviceUnavailable, match=r"CTranslate2 .*set SWITCHBOARD_ASR__DEVICE=cpu"):
        FasterWhisper.device_of(SimpleNamespace(device="auto"))


def test_the_cpu_is_taken_beside_a_gpu_if_the_settings_say_so(old_driver: None) -> None:
    assert FasterWhisper.device_of(SimpleNamespace(device="cpu")) == "cpu"
    assert Pyannote.device_of(SimpleNamespace(device="cpu")) == "cpu"


def test_an_actor_to_which_ray_gave_no_share_of_the_gpu_computes_on_the_cpu(
    old_driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Pyannote.device_of(SimpleNamespace(device="auto")) == "cpu"


async def test_a_replica_whose_gpu_is_of_no_use_lives_and_says_why(old_driver: None) -> None:
    replica = TranscriberReplica({"model": "base", "device": "auto"})
    assert "has a GPU, but CTranslate2 cannot use it" in str(await replica.problem())
    with pytest.raises(EngineUnavailable):  # calls wait, none fails
        await replica.recognition()


@pytest.mark.parametrize("text, version", [(OLD, "535.104.05"), (NEW, "580.95.05"), ("nothing of use", None)])
def test_the_drivers_version_is_read(tmp_path: Path, text: str, version: str | None) -> None:
    (tmp_path / "version").write_text(text)
    assert device.driver() == version


def test_a_gpu_that_both_engines_use_is_in_order(new_driver: None) -> None:
    assert set(levels(examined(WORKING)).values()) == {Level.GOOD}


def test_doctor_fails_where_an_engine_would_compute_on_the_cpu_beside_a_gpu(new_driver: None) -> None:
    checks = levels(examined(WORKING | {"gpus": []}))
    assert (checks["GPU for diarization"], checks["GPU for recognition"]) == (Level.BAD, Level.GOOD)
    checks = levels(examined(WORKING | {"ctranslate2_gpus": 0}))
    assert (checks["GPU for diarization"], checks["GPU for recognition"]) == (Level.GOOD, Level.BAD)


def test_doctor_fails_where_the_driver_is_too_old_and_names_the_one_that_is_needed(old_driver: None) -> None:
    (check,) = [result for result in examined(WORKING | {"gpus": []}) if result.name == "GPU for diarization"]
    assert check.level is Level.BAD
    assert "535.104.05" in check.found and "580.65.06" in check.found


def test_doctor_fails_without_cublas_12_unless_recognition_is_on_the_cpu(new_driver: None) -> None:
    checks = examined(WORKING | {"cublas": False})
    assert levels(checks)["CUDA for CTranslate2"] is Level.BAD
    assert "make setup EXTRA=cuda" in checks[-1].advice
    assert "CUDA for CTranslate2" not in levels(examined(WORKING | {"cublas": False}, ON_CPU))


def test_the_cpu_by_choice_is_a_remark(new_driver: None) -> None:
    assert set(levels(examined({}, ON_CPU)).values()) == {Level.GOOD, Level.WARN}


@pytest.mark.parametrize("promised, level", [(None, Level.WARN), (0, Level.GOOD), (1, Level.BAD)])
def test_a_node_that_was_promised_a_gpu_has_to_have_it(promised: int | None, level: Level) -> None:
    assert levels(examined({}, promised=promised)) == {"GPU": level}


def test_what_ray_up_says_of_the_node_is_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(doctor.PROMISED, '{"CPU": 8, "GPU": 1}')
    assert doctor._promised() == 1
    monkeypatch.setenv(doctor.PROMISED, '{"CPU": 8}')
    assert doctor._promised() == 0
    monkeypatch.setenv(doctor.PROMISED, "no JSON")
    assert doctor._promised() is None


@pytest.mark.parametrize("place", ["driver", "bus"])
def test_a_gpu_out_of_reach_fails_a_node_and_is_a_remark_on_a_laptop(tmp_path: Path, place: str) -> None:
    if place == "driver":  # seen in every container of the machine, also in one that may not use it
        (tmp_path / "gpus/0000:01:00.0").mkdir(parents=True)
    else:
        (tmp_path / "bus/0000:01:00.0").mkdir(parents=True)
        (tmp_path / "bus/0000:01:00.0/vendor").write_text("0x10de\n")
        (tmp_path / "bus/0000:01:00.0/class").write_text("0x030200\n")
    assert levels(examined({}, strict=True)) == {"GPU": Level.BAD}
    assert levels(examined({}, strict=False)) == {"GPU": Level.WARN}
    assert levels(examined({}, ON_CPU, strict=True)) == {"GPU": Level.WARN}
    assert levels(examined({}, strict=True, promised=0)) == {"GPU": Level.GOOD}  # a pod for CPU work


@pytest.mark.slow
def test_doctor_of_a_node_ends_with_1_if_the_promised_gpu_is_missing(tmp_path: Path) -> None:
    environment = {"SWITCHBOARD_STORAGE": tmp_path.as_uri()}
    missing = CliRunner().invoke(app, ["doctor", "--node", "--gpus", "1"], env=environment)
    assert missing.exit_code == 1, missing.output
    assert "1 GPU promised, 0 usable" in missing.output
    assert "PostgreSQL" not in missing.output  # the head looks at the database
    assert CliRunner().invoke(app, ["doctor", "--node"], env=environment).exit_code == 0


@pytest.mark.skipif(shutil.which("cc") is None, reason="a library is built")
def test_cublas_of_the_package_is_found_by_its_name_once_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("libcublasLt.so.12", "libcublas.so.12"):
        built = ["cc", "-shared", "-o", tmp_path / name, f"-Wl,-soname,{name}", "-x", "c", os.devnull]
        subprocess.run(built, check=True)
    asks = (
        "import ctypes, pathlib; from pipeline.engines import device; "
        f"device.CUBLAS_WHEEL = pathlib.Path({str(tmp_path)!r}); device.load_cublas(); ctypes.CDLL('libcublas.so.12')"
    )
    subprocess.run([sys.executable, "-c", asks], check=True, env=os.environ | {"LD_LIBRARY_PATH": ""})


def test_without_cublas_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceUnavailable, match=r"cuBLAS of CUDA 12 .*EXTRA=cuda"):
        device.load_cublas()


UNIT, DOCKER = "system.slice/switchboard.service", "docker/1f"


@pytest.mark.parametrize(
    ("cgroup", "files", "bound", "expected"),
    [
        ("0::/", {"cpu.max": "max 100000"}, 16, 16),
        ("0::/", {"cpu.max": "200000 100000"}, 16, 2),
        ("0::/", {"cpu.max": "250000 100000"}, 16, 3),
        ("0::/", {"cpu.max": "50000 100000"}, 16, 1),
        ("0::/", {"cpu.max": "6400000 100000"}, 16, 16),
        ("0::/", {"cpu.max": ""}, 3, 3),
        ("0::/", {}, 5, 5),
        (None, {}, 5, 5),
        # a unit of systemd, and a limit of what it belongs to
        (f"0::/{UNIT}", {f"{UNIT}/cpu.max": "400000 100000"}, 16, 4),
        (f"0::/{UNIT}", {f"{UNIT}/cpu.max": "max 100000", "system.slice/cpu.max": "300000 100000"}, 16, 3),
        (f"0::/{UNIT}", {"system.slice/another.service/cpu.max": "100000 100000"}, 16, 16),
        # a container that sees its own group as the root, and knows its name on the machine
        ("0::/kubepods/pod7/c1", {"cpu.max": "200000 100000"}, 16, 2),
        # version 1, its controllers together or apart, and both versions
        (f"4:cpu,cpuacct:/{DOCKER}\n2:memory:/", {f"cpu,cpuacct/{DOCKER}/cpu.cfs_quota_us": "150000"}, 16, 2),
        (f"4:cpu,cpuacct:/{DOCKER}", {"cpu,cpuacct/cpu.cfs_quota_us": "-1"}, 16, 16),
        (f"1:cpu:/{DOCKER}\n0::/", {"cpu/cpu.cfs_quota_us": "300000"}, 16, 3),
        (f"2:cpuset:/{DOCKER}\n0::/{UNIT}", {f"unified/{UNIT}/cpu.max": "100000 100000"}, 16, 1),
    ],
)
def test_the_quota_of_a_container_or_unit_counts_as_its_cores(
    cgroup: str | None,
    files: dict[str, str],
    bound: int,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if cgroup is not None:
        (tmp_path / "membership").write_text(f"{cgroup}\n")
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        path.with_name("cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(device, "OWN_CGROUPS", tmp_path / "membership")
    monkeypatch.setattr(device, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(bound)))
    assert device.cores() == expected


@pytest.mark.parametrize(
    ("cores", "batches", "threads", "calls"),
    [(1, 1, 1, 4), (2, 2, 1, 4), (8, 2, 4, 8), (16, 4, 4, 16), (96, 24, 4, 32)],
)
def test_the_defaults_use_the_cores_that_are_there(
    cores: int, batches: int, threads: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.asr.faster_whisper import FasterWhisper
    from pipeline.asr.whisper_model import FasterWhisperOptions
    from serve_app.conductor.options import ProcessingOptions

    arguments: dict[str, int] = {}

    class Loaded(BaseException):
        pass

    def load(*_: Any, **options: Any) -> None:
        arguments.update(options)
        raise Loaded

    monkeypatch.setattr(device, "OWN_CGROUPS", Path("/nowhere"))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr("faster_whisper.WhisperModel", load)
    with pytest.raises(Loaded):
        FasterWhisper(FasterWhisperOptions(model=str(fixture_checkpoints.RECOGNITION), device="cpu"))
    assert (arguments["num_workers"], arguments["cpu_threads"]) == (batches, threads)
    assert ProcessingOptions().calls_at_once == calls
    assert ProcessingOptions(concurrency=3).calls_at_once == 3
