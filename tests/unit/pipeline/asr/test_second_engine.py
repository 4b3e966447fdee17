"""Another recognition engine takes one file (tests/word_net.py) and one line in the registry."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from pipeline import asr
from pipeline.domain.speech import CUSTOMER, REP, Chunk, Span, Word
from pipeline.errors import CheckpointMissing
from serve_app.cli import app
from serve_app.cli.doctor import models as checks_models
from serve_app.cli.doctor.command import Level
from serve_app.settings import Settings, documented
from tests import word_net
from tests.synthetic_calls import FOLDER

CALL = FOLDER / "01_invoice_stereo" / "call.flac"
ROLES = {REP: "rep", CUSTOMER: "customer"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, sample_call: Any) -> Path:
    """Train a network on one call."""
    folder = tmp_path_factory.mktemp("models") / "words"
    call = sample_call("01")
    word_net.train(folder, [(call.samples[channel], said(call, role)) for channel, role in ROLES.items()])
    return folder


def said(call: Any, role: str) -> list[Word]:
    return [Word(w["start"], w["end"], w["text"], 1.0) for s in call.said(role) for w in s["words"]]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(asr.ENGINES, "word-net", "tests.word_net:WordNet")


@pytest.fixture
def chosen(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWITCHBOARD_ASR__ENGINE", "word-net")
    monkeypatch.setenv("SWITCHBOARD_ASR__MODEL", str(checkpoint))
    return checkpoint


def test_it_is_an_engine_and_reads_the_words_it_has_learned(checkpoint: Path, sample_call: Any) -> None:
    engine = asr.load(asr.AsrOptions(engine="word-net", model=str(checkpoint)))
    assert isinstance(engine, asr.Engine)
    assert engine.name == "word-net words"
    call = sample_call("01")
    vocabulary = said(call, "rep")
    chunk = Chunk(REP, vocabulary[0].start - 0.2, vocabulary[5].end + 0.2)
    (text,) = engine.transcribe([call.sound(chunk)], [chunk])
    read = {word.text: word for word in text.words}
    assert sum(word.text in read and abs(word.start - read[word.text].start) < 0.15 for word in vocabulary[:6]) >= 4
    assert all(Span(chunk.start, chunk.end).start <= word.start < word.end <= chunk.end for word in text.words)
    assert not text.language_detected


def test_its_options_are_settings_and_those_of_another_engine_are_refused(
    chosen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "SWITCHBOARD_ASR__MIN_FRAMES" in {setting.variable for setting in documented()}
    monkeypatch.setenv("SWITCHBOARD_ASR__MIN_FRAMES", "9")
    assert Settings().asr.for_engine().min_frames == 9  # type: ignore[attr-defined]
    monkeypatch.setenv("SWITCHBOARD_ASR__BEAM_SIZE", "3")
    with pytest.raises(ValidationError, match=r"asr\n +beam_size: Extra inputs are not permitted"):
        Settings()


def test_how_its_checkpoint_is_found_the_engine_says(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissing, match=r"No network of words at .*net.pt, words.json missing. Train one"):
        asr.load(asr.AsrOptions(engine="word-net", model=str(tmp_path)))
    with pytest.raises(CheckpointMissing, match=r"'word-net' names no network of words\. Train one"):
        asr.load(asr.AsrOptions(engine="word-net"))


def test_doctor_asks_the_engine(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recognition() -> Any:
        return next(check for check in checks_models.checkpoints(Settings()) if check.name == "recognition model")

    assert (recognition().level, recognition().found) == (Level.GOOD, f"words in {chosen}")
    (chosen / word_net.WEIGHTS).rename(chosen / "elsewhere")
    try:
        assert recognition().level is Level.BAD
        assert "No network of words" in recognition().found
    finally:
        (chosen / "elsewhere").rename(chosen / word_net.WEIGHTS)


@pytest.mark.slow
def test_the_whole_pipeline_runs_with_it(chosen: Path, sample_call: Any) -> None:
    done = CliRunner().invoke(app, ["process", str(CALL), "--json"])
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    transcript = result["transcript"]
    assert transcript["engine"] == "word-net words"
    read = [word["text"] for turn in transcript["turns"] for word in turn["words"]]
    expected = [word.text for role in ROLES.values() for word in said(sample_call("01"), role)]
    assert len(set(read) & set(expected)) > len(set(expected)) / 2, sorted(set(expected) - set(read))
