"""Selects the device of an engine: the GPU that its process may use, or the CPU; never the CPU by accident.

`device: auto` selects the CPU only without a GPU. A GPU that a library cannot use, because its driver is too old or a
library of CUDA is missing, is an error with a remedy: an engine that is merely slow would go unnoticed.
"""

import contextlib
import ctypes
import math
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.errors import DeviceUnavailable

DEVICES = Path("/dev")  # nvidia0, nvidia1 ...: GPUs that NVIDIA's driver lets this container or machine use
DRIVER = Path("/proc/driver/nvidia/version")
CUBLAS = "libcublas.so.12"  # opened by CTranslate2 at its first forward pass, but not part of its wheel
CUBLAS_WHEEL = Path(sysconfig.get_paths()["purelib"], "nvidia/cublas/lib")  # of nvidia-cublas-cu12
CTRANSLATE2_CUDA = "12"  # of its wheels
OLDEST_DRIVER = {"12": "525.60.13", "13": "580.65.06"}  # CUDA's major version -> NVIDIA's driver for Linux
CGROUPS = Path("/sys/fs/cgroup")  # in a container mostly its own control group; else those of the whole machine
OWN_CGROUPS = Path("/proc/self/cgroup")  # lines such as 0::/system.slice/switchboard.service, 4:cpu,cpuacct:/docker/1f
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES; Ray sets "" for an actor without a share of a GPU


def cores() -> int:
    """Return how many cores this process may use: those it is bound to, within the quota of its container or unit.

    A quota (Docker's `--cpus`, Kubernetes' limits, systemd's CPUQuota) is rounded up to whole cores.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *map(math.ceil, _quotas())]))


def _quotas() -> Iterator[float]:
    """Yield the quota, in cores, of each control group of this process and its parents (cgroups 1 and 2)."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:  # no Linux
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            roots, file = (CGROUPS, CGROUPS / "unified"), "cpu.max"
        elif "cpu" in controllers.split(","):
            roots, file = (CGROUPS / controllers, CGROUPS / "cpu"), "cpu.cfs_quota_us"
        else:
            continue
        above = Path(path.strip("/"))
        for folder in {root / part for root in roots for part in (above, *above.parents)}:
            with contextlib.suppress(OSError, ValueError):  # missing at the root and in groups of another mount
                amount, *period = (folder / file).read_text().split()
                quota = int(amount) / int(period[0] if period else (folder / "cpu.cfs_period_us").read_text())
                if quota > 0:  # without a limit: -1 in version 1, "max" in version 2
                    yield quota


def gpus() -> list[str]:
    """Return the device files of the GPUs that this process may use: none if CUDA_VISIBLE_DEVICES hides all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in _HIDDEN:
        return []
    return sorted(str(path) for path in DEVICES.glob("nvidia[0-9]*"))


def driver() -> str | None:
    """Return the version of NVIDIA's kernel driver, "580.65.06"; None if it is not loaded."""
    try:
        match = re.search(r"(?<![\d.])(\d{3,}\.\d+(?:\.\d+)?)(?![\d.])", DRIVER.read_text())
    except OSError:
        return None
    return match.group(1) if match else None


def too_old(cuda: str) -> str | None:
    """Return why the driver cannot run this version of CUDA, as a clause; None if it can or is unknown."""
    installed, oldest = driver(), OLDEST_DRIVER.get(cuda.partition(".")[0])
    if installed is None or oldest is None or _numbers(installed) >= _numbers(oldest):
        return None
    return f"its driver is {installed}, and CUDA {cuda} needs {oldest} or newer"


def choose(usable: Callable[[], bool], library: str, cuda: str | None, setting: str) -> str:
    """Resolve `auto`: "cuda" if the library can use a GPU, "cpu" without one.

    `usable` queries the library. `cuda`: the version it was built for. `setting`: the name of the device setting.
    Raises `DeviceUnavailable` if there is a GPU that the library cannot use.
    """
    if usable():
        return "cuda"
    if not gpus():
        return "cpu"
    why = "it was built without CUDA" if cuda is None else too_old(cuda) or f"CUDA {cuda} does not find it"
    raise DeviceUnavailable(
        f"This machine has a GPU, but {library} cannot use it: {why}. "
        f"Fix that (see `switchboard doctor --node`), or set {setting}=cpu."
    )


def load_cublas() -> None:
    """Load cuBLAS for CTranslate2, from where the system finds it or from the package nvidia-cublas-cu12.

    Once loaded it is found by its name, independent of LD_LIBRARY_PATH. Raises `DeviceUnavailable`.
    """
    try:
        ctypes.CDLL(CUBLAS)
    except OSError:
        try:
            ctypes.CDLL(str(CUBLAS_WHEEL / CUBLAS.replace("cublas", "cublasLt")), ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(CUBLAS_WHEEL / CUBLAS), ctypes.RTLD_GLOBAL)
        except OSError:
            raise DeviceUnavailable(
                f"Recognition on a GPU needs cuBLAS of CUDA 12 ({CUBLAS}). Install the extra `cuda` "
                "(`make setup EXTRA=cuda`), or set SWITCHBOARD_ASR__DEVICE=cpu."
            ) from None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
