"""The origin of each stage's result as a digest: a result is reused only if the same inputs would produce it.

A digest covers the engine (its name, options and checkpoint by content), the options and the code of the stage, and the
stages before it. So another analysis step recognizes nothing again, and another model does. Facts about a call (roster,
terms, metadata) are not part of it: a change of those runs the speakers and the analysis again.
"""

import contextlib
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.domain.stage import Stage
from pipeline.engines.registry import digest_of
from pipeline.errors import CheckpointDamaged, CheckpointMissing, EngineUnavailable
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import Recognition, Workers

HERE = Path(__file__).parents[1]
CODE = {
    Stage.AUDIO: ("audio", "language"),
    Stage.PROSODY: ("audio/prosody.py", "audio/yin.py"),
    Stage.RECOGNITION: ("asr", "steps/recognize.py"),
    Stage.REDACTION: ("redaction", "steps/redact.py"),
    Stage.DIARIZATION: ("diarization",),
    Stage.RECLUSTERING: (
        "speakers/reclustering.py",
        "speakers/second_look.py",
        "speakers/dialogue.py",
        "speakers/roles.py",
        "speakers/machines.py",
    ),
    Stage.VOICES: ("steps/machine_voices.py", "speakers/machines.py", "speakers/channel_voices.py"),
    Stage.VOICEPRINT: ("speakers/gate.py", "speakers/voiceprint.py"),
}
"""The files and folders of the pipeline that a stage's result depends on."""

Producers = dict[Stage, str]


async def producers(workers: Workers, options: ProcessOptions) -> Producers:
    """Return what would produce each stage's result now, without the stages of an engine that has no model."""
    recognition = diarizer = None
    with contextlib.suppress(EngineUnavailable, CheckpointMissing, CheckpointDamaged):
        recognition = await workers.recognition()
        diarizer = await workers.diarizer()
    return of_engines(options, recognition, diarizer)


def of_engines(options: ProcessOptions, recognition: Recognition | None, diarizer: str | None) -> Producers:
    """Return the producers for identified engines; `diarizer` is the result of `Workers.diarizer`."""
    if recognition is None:
        return {}
    digests: Producers = {}

    def add(stage: Stage, *facts: Any) -> None:
        digests[stage] = digest_of(stage, code_digest(*CODE[stage]), *facts)

    add(Stage.AUDIO, options.speech.model_dump(mode="json"), recognition.max_chunk_seconds, recognition.packing)
    add(Stage.PROSODY, digests[Stage.AUDIO], options.analysis.tone_by_voice)
    add(Stage.RECOGNITION, digests[Stage.AUDIO], recognition.identity, options.safety.model_dump(mode="json"))
    add(Stage.REDACTION, digests[Stage.RECOGNITION])
    if diarizer is None:
        return digests
    voices = (diarizer, _calibration(options))
    add(Stage.DIARIZATION, digests[Stage.AUDIO], diarizer)
    add(Stage.RECLUSTERING, digests[Stage.DIARIZATION], digests[Stage.RECOGNITION], *voices)
    add(Stage.VOICES, digests[Stage.DIARIZATION], digests[Stage.RECOGNITION], *voices)
    add(Stage.VOICEPRINT, digests[Stage.RECOGNITION], *voices)
    return digests


@cache
def code_digest(*parts: str) -> str:
    """Return a digest of files and folders of the pipeline; without `parts`, of all. Raises `FileNotFoundError`."""
    digest = hashlib.sha256()
    for part in parts or (".",):
        path = HERE / part
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if not file.is_dir() and file.suffix not in (".pyc", ".md") and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(HERE).as_posix()}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _calibration(options: ProcessOptions) -> str:
    """Return a digest of the calibration that is set; built-in ones are part of the code."""
    path = options.roles.calibration
    if path is None:
        return ""
    files = sorted(path.rglob("*.toml")) if path.is_dir() else [path] if path.is_file() else []
    return digest_of(*(hashlib.sha256(file.read_bytes()).hexdigest() for file in files))
