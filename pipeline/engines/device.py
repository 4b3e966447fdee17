"""Where an engine computes: on the GPU that its process may use, or on the CPU; never on the CPU by accident.

`device: auto` takes the CPU only where there is no GPU. A GPU that a library cannot use, because its driver is too old
or a library of CUDA is missing, is an error that says what to do: an engine that is merely slow is noticed by nobody.
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
CUBLAS = "libcublas.so.12"  # opened by CTranslate2 at its first forward pass; its own wheel does not bring it
CUBLAS_WHEEL = Path(sysconfig.get_paths()["purelib"], "nvidia/cublas/lib")  # of nvidia-cublas-cu12
CTRANSLATE2_CUDA = "12"  # what its wheels are built for
OLDEST_DRIVER = {"12": "525.60.13", "13": "580.65.06"}  # CUDA's major version -> NVIDIA's driver for Linux
CGROUPS = Path("/sys/fs/cgroup")  # in a container mostly its own control group; else those of the whole machine
OWN_CGROUPS = Path("/proc/self/cgroup")  # lines such as 0::/system.slice/switchboard.service, 4:cpu,cpuacct:/docker/1f
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES; Ray sets "" for an actor without a share of a GPU


def cores() -> int:
    """Return how many cores this process may use: those it is bound to, and no more than a container or unit is given.

    Of a quota (Docker's `--cpus`, Kubernetes' limits, systemd's CPUQuota) a begun core counts as one.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *map(math.ceil, _quotas())]))


def _quotas() -> Iterator[float]:
    """In cores, of each control group that this process is in, and of those above it, in either version of Linux's."""
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
            with contextlib.suppress(OSError, ValueError):  # the root has none, nor has a group of another mount
                given, *period = (folder / file).read_text().split()
                quota = int(given) / int(period[0] if period else (folder / "cpu.cfs_period_us").read_text())
                if quota > 0:  # version 1 says -1 where there is no limit, version 2 "max"
                    yield quota


def gpus() -> list[str]:
    """Return the device files of the GPUs that this process may use: none where CUDA_VISIBLE_DEVICES hides all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in _HIDDEN:
        return []
    return sorted(str(path) for path in DEVICES.glob("nvidia[0-9]*"))


def driver() -> str | None:
    """Return the version of NVIDIA's kernel driver, "580.65.06"; None if it is not loaded."""
    try:
        found = re.search(r"(?<![\d.])(\d{3,}\.\d+(?:\.\d+)?)(?![\d.])", DRIVER.read_text())
    except OSError:
        return None
    return found.group(1) if found else None


def too_old(cuda: str) -> str | None:
    """Return why the driver cannot run this version of CUDA, as a clause; None if it can or is not known."""
    found, oldest = driver(), OLDEST_DRIVER.get(cuda.partition(".")[0])
    if found is None or oldest is None or _numbers(found) >= _numbers(oldest):
        return None
    return f"its driver is {found}, and CUDA {cuda} needs {oldest} or newer"


def choose(usable: Callable[[], bool], library: str, cuda: str | None, setting: str) -> str:
    """Return what `auto` stands for: "cuda" where the library can use a GPU, "cpu" where there is none.

    `usable`: asks the library. `cuda`: the version it was built for. `setting`: names the device, for people. Raises
    `DeviceUnavailable` where there is a GPU and the library cannot use it.
    """
    if usable():
        return "cuda"
    if not gpus():
        return "cpu"
    why = "it was built without CUDA" if cuda is None else too_old(cuda) or f"CUDA {cuda} does not find it"
    raise DeviceUnavailable(
        f"This machine has a GPU, and {library} cannot use it: {why}. "
        f"Fix that (`switchboard doctor --node` says more), or set {setting}=cpu."
    )


def load_cublas() -> None:
    """Load cuBLAS for CTranslate2, from where the system finds it or from the package nvidia-cublas-cu12.

    Once loaded it is found by its name, whatever LD_LIBRARY_PATH says. Raises `DeviceUnavailable`.
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
                "(`.venv/bin/pip install -e '.[cuda]'`), or set SWITCHBOARD_ASR__DEVICE=cpu."
            ) from None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
