"""From the name in a setting to a checkpoint's folder, or an error that says what to set.

A name is, in this order: "auto" (the best that the device carries), "demo" (the shipped checkpoint), a path, a size
that faster-whisper knows, or a repository of the Hugging Face hub ("owner/name"). Nothing falls back to "demo".
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from pipeline.checkpoints import hub, manifest
from pipeline.checkpoints.manifest import Checkpoint
from pipeline.errors import CheckpointMissing

logger = logging.getLogger(__name__)

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Kind:
    """What one kind of model needs to be found, and what to tell people who lack it."""

    title: str
    setting: str  # the environment variable that names the model
    demo: Path
    auto: dict[str, str]  # device -> name
    required: tuple[str, ...]  # files without which a folder is not such a model
    patterns: tuple[str, ...]  # what to download


RECOGNITION = Kind(
    title="speech recognition model",
    setting="SWITCHBOARD_ASR__MODEL",
    demo=HERE / "recognition-demo",
    auto={"cuda": "large-v3-turbo", "cpu": "small"},
    required=("config.json", "model.bin"),
    patterns=("config.json", "preprocessor_config.json", "model.bin", "tokenizer.json", "vocabulary.*"),
)
DIARIZATION = Kind(
    title="diarization pipeline",
    setting="SWITCHBOARD_DIARIZATION__PIPELINE",
    demo=HERE / "diarization-demo",
    auto=dict.fromkeys(("cuda", "cpu"), "pyannote/speaker-diarization-community-1"),
    required=("config.yaml",),
    patterns=("config.yaml", "*.bin", "*.npz", "*.safetensors"),
)


def resolve(name: str, kind: Kind, device: str) -> Checkpoint:
    """The checkpoint called `name`, on this machine.

    `device` is "cpu" or "cuda" and matters for "auto" only. The first use of a hub model downloads it, with a progress
    bar on a terminal and log lines elsewhere. Raises `CheckpointMissing` or `CheckpointDamaged`.
    """
    if name == "auto":
        name = kind.auto[device]
    if name == "demo":
        return _demo(kind)
    if _is_path(name):
        return _from_path(name, kind)
    repository = _repository(name, kind)
    folder = hub.cached(repository, kind.patterns, kind.required) or _download(name, repository, kind)
    return manifest.read(name, folder)


def _demo(kind: Kind) -> Checkpoint:
    checkpoint = manifest.read("demo", kind.demo)
    logger.warning("Using the demo %s. %s", kind.title, checkpoint.note)
    return checkpoint


def _is_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or Path(name).is_dir()


def _from_path(name: str, kind: Kind) -> Checkpoint:
    folder = Path(name).expanduser().resolve()
    absent = [file for file in kind.required if not (folder / file).is_file()]
    if absent:
        raise CheckpointMissing(
            f"No {kind.title} at {folder}: {', '.join(absent)} missing. {_advice(kind, repository=None)}"
        ).with_facts(model=name, setting=kind.setting)
    checkpoint = manifest.read(folder.name, folder)
    if checkpoint.demo:
        logger.warning("Using the demo %s in %s. %s", kind.title, folder, checkpoint.note)
    return checkpoint


def _repository(name: str, kind: Kind) -> str:
    if name.count("/") == 1:
        return name
    if kind is RECOGNITION:
        from faster_whisper.utils import _MODELS as SIZES  # no public name

        if name in SIZES:
            return str(SIZES[name])
        known = f" Sizes are {', '.join(SIZES)}."
    else:
        known = ""
    raise CheckpointMissing(
        f"{name!r} names no {kind.title}.{known} {_advice(kind, repository=None)}",
    ).with_facts(model=name, setting=kind.setting)


def _download(name: str, repository: str, kind: Kind) -> Path:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return hub.download(repository, kind.patterns)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _not_to_be_had(name, repository, kind, hub.why(error)) from error
    except Exception as error:  # the hub's client lets the errors of its HTTP library through, whichever that is
        if not type(error).__module__.startswith(("httpx", "httpcore", "requests", "urllib3")):
            raise
        raise _not_to_be_had(name, repository, kind, hub.why(error)) from error


def _not_to_be_had(name: str, repository: str, kind: Kind, reason: str) -> CheckpointMissing:
    message = f"No {kind.title} {name!r}: it is not in the cache, and {reason}. {_advice(kind, repository)}"
    return CheckpointMissing(message).with_facts(model=name, repository=repository, setting=kind.setting)


def _advice(kind: Kind, repository: str | None) -> str:
    """What to do, in order of how often it helps."""
    steps = []
    if repository and kind is DIARIZATION:
        steps.append(
            f"Accept the licence at https://huggingface.co/{repository} and set HF_TOKEN to a token of that account."
        )
    steps.append(f"Set {kind.setting} to another model of the hub or to a folder that holds one.")
    if repository:
        steps.append(
            "To go offline, download it where the hub can be reached "
            f"(hf download {repository}), bring the cache (HF_HOME) or the folder here, and set HF_HUB_OFFLINE=1."
        )
    steps.append(f"{kind.setting}=demo loads the shipped checkpoint, which is of no use on real voices.")
    return " ".join(steps)
