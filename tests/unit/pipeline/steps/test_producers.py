from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.asr.engine import AsrOptions
from pipeline.checkpoints.manifest import Checkpoint
from pipeline.domain.stage import Stage
from pipeline.engines.registry import identity_of
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import Recognition
from pipeline.speakers.roles import RoleOptions
from pipeline.steps import provenance
from pipeline.steps.provenance import Producers, of_engines

PLAIN = Recognition("engine", 30.0, True, "one")


def changed(before: Producers, after: Producers) -> set[Stage]:
    assert before.keys() == after.keys()
    return {stage for stage in before if before[stage] != after[stage]}


def made(options: ProcessOptions | None = None, recognition: Recognition = PLAIN, diarizer: str = "d") -> Producers:
    return of_engines(options or ProcessOptions(), recognition, diarizer)


def test_the_same_engines_and_options_produce_the_same() -> None:
    assert made() == made() and set(made()) == set(provenance.CODE)


def test_another_checkpoint_recognizes_again_and_keeps_the_audio_and_the_diarization() -> None:
    other = Recognition("engine", 30.0, True, "two")
    assert changed(made(), made(recognition=other)) == {
        Stage.RECOGNITION,
        Stage.REDACTION,
        Stage.RECLUSTERING,
        Stage.VOICES,
        Stage.VOICEPRINT,
    }


def test_a_recognizer_of_longer_chunks_cuts_the_audio_again() -> None:
    assert Stage.AUDIO in changed(made(), made(recognition=Recognition("engine", 15.0, True, "one")))


def test_another_diarizer_keeps_the_words() -> None:
    assert changed(made(), made(diarizer="e")) == {
        Stage.DIARIZATION,
        Stage.RECLUSTERING,
        Stage.VOICES,
        Stage.VOICEPRINT,
    }


def test_another_calibration_of_voices_keeps_words_and_diarization(tmp_path: Path) -> None:
    file = tmp_path / "calibration.toml"
    file.write_text("a = 1")
    calibrated = made(ProcessOptions(roles=RoleOptions(calibration=file)))
    file.write_text("a = 2")
    two = made(ProcessOptions(roles=RoleOptions(calibration=file)))
    assert changed(calibrated, two) == {Stage.RECLUSTERING, Stage.VOICES, Stage.VOICEPRINT}


def test_every_file_that_a_stage_depends_on_exists() -> None:
    parts = {part for of_stage in provenance.CODE.values() for part in of_stage}
    assert {part for part in parts if not (provenance.HERE / part).exists()} == set()


def test_other_code_of_the_analysis_changes_no_stage_and_of_recognition_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("asr", "analysis", "audio", "language", "diarization", "redaction", "speakers", "steps"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "it.py").write_text("x = 1")
    for part in (part for parts in provenance.CODE.values() for part in parts if part.endswith(".py")):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        (tmp_path / part).write_text("x = 1")
    monkeypatch.setattr(provenance, "HERE", tmp_path)

    def now() -> tuple[Producers, str]:
        provenance.code_digest.cache_clear()
        return made(), provenance.code_digest()

    try:
        before, code = now()
        (tmp_path / "analysis" / "it.py").write_text("x = 2")
        after, other = now()
        assert after == before and other != code
        (tmp_path / "asr" / "it.py").write_text("x = 2")
        assert Stage.RECOGNITION in changed(before, now()[0])
        assert Stage.AUDIO not in changed(before, now()[0])
    finally:
        monkeypatch.undo()
        provenance.code_digest.cache_clear()


@dataclass
class Engine:
    name: str = "engine"
    options: Any = field(default_factory=AsrOptions)
    checkpoint: Checkpoint | None = None
    aligner: Any = None


def test_an_engine_is_known_by_name_options_and_checkpoint_by_content(tmp_path: Path) -> None:
    weights = tmp_path / "model.bin"
    weights.write_bytes(b"one")

    def engine(**more: Any) -> str:
        return identity_of(Engine(checkpoint=Checkpoint("m", tmp_path), **more))

    first = engine()
    (tmp_path / "README.md").write_text("a word about it")
    assert engine() == first
    assert engine(name="other") != first and engine(options=AsrOptions(device="cpu")) != first
    weights.write_bytes(b"two")
    assert engine() != first


def test_words_timed_by_another_aligner_are_other_results_and_without_one_the_same_as_ever() -> None:
    @dataclass
    class Plain:
        name: str = "engine"
        options: Any = field(default_factory=AsrOptions)
        checkpoint: Checkpoint | None = None

    Plain.__name__ = Engine.__name__
    without = identity_of(Engine())
    assert without == identity_of(Plain())
    by_whisper = identity_of(Engine(aligner=Plain("whisper base")))
    assert len({without, by_whisper, identity_of(Engine(aligner=Plain("whisper small")))}) == 3
    assert by_whisper == identity_of(Engine(aligner=Plain("whisper base")))
