"""Where an engine computes: on the GPU that its process may use, or on the CPU; never on the CPU by accident.

`device: auto` takes the CPU only where there is no GPU. A GPU that a library cannot use, because its driver is too old
or a library of CUDA is missing, is an error that says what to do: an engine that is merely slow is noticed by nobody.
"""

import ctypes
import math
import os
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path

from pipeline.errors import DeviceUnavailable

DEVICES = Path("/dev")  # nvidia0, nvidia1 ...: GPUs that NVIDIA's driver lets this container or machine use
DRIVER = Path("/proc/driver/nvidia/version")
CUBLAS = "libcublas.so.12"  # opened by CTranslate2 at its first forward pass; its own wheel does not bring it
CUBLAS_WHEEL = Path(sysconfig.get_paths()["purelib"], "nvidia/cublas/lib")  # of nvidia-cublas-cu12
CTRANSLATE2_CUDA = "12"  # what its wheels are built for
OLDEST_DRIVER = {"12": "525.60.13", "13": "580.65.06"}  # CUDA's major version -> NVIDIA's driver for Linux
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of this container: "200000 100000" are two cores, "max 100000" is no limit
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES; Ray sets "" for an actor without a share of a GPU


def cores() -> int:
    """Return how many cores this process may use: those it is bound to, and no more than its container is given."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        given, period = QUOTA.read_text().split()
        return max(1, min(bound, math.ceil(int(given) / int(period))))
    except (OSError, ValueError):  # no container, or one without a limit
        return bound


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
