import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio.analyze import Loaded, analyze_audio, load
from pipeline.audio.decode.decoder import decode
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.insight import Roster
from pipeline.domain.speech import (
    AudioInMemory,
    ChunkText,
    Label,
    LabelKind,
    Layout,
    LayoutKind,
    Recognized,
    Recording,
    Word,
)
from pipeline.fetch.storage import all_stored
from pipeline.speakers.attribute import attribute
from tests.synthetic_calls import FOLDER

pytestmark = pytest.mark.cases(3)


def recordings(name: str) -> tuple[Recording, ...]:
    submission = json.loads((FOLDER / name / "submission.json").read_text(encoding="utf-8"))
    paths = [FOLDER / name / file for file in submission["recordings"]]
    return tuple(Recording(channel, path.as_uri(), "0" * 64, path.stat().st_size) for channel, path in enumerate(paths))


def loaded(name: str) -> Loaded:
    return load(recordings(name), DecodeOptions())


@pytest.mark.parametrize("folder", sorted(FOLDER.iterdir()), ids=lambda folder: folder.name)
def test_every_sample_call_has_its_layout_and_its_length(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    call = loaded(folder.name)
    assert call.layout.kind == expected["layout"]
    assert call.audio.duration == pytest.approx(expected["duration"], abs=0.1)
    assert call.warnings == ()


def test_a_call_is_heard_channel_by_channel_in_chunks_of_the_asked_length() -> None:
    call = loaded("04_contract_two_files")
    analysis = analyze_audio(call, SpeechOptions(), 8.0)
    assert len(analysis.speech) == analysis.layout.channels == 2
    assert {chunk.channel for chunk in analysis.chunks} == {0, 1}
    assert max(chunk.duration for chunk in analysis.chunks) <= 8.0
    assert analysis.duration == call.audio.duration
    assert pickle.loads(pickle.dumps(analysis)) == analysis


@pytest.mark.parametrize(("seconds", "chunks"), [(0.3, 0), (0.49, 0), (0.9, 1)])
def test_a_recording_too_short_for_a_word_says_so_and_is_not_recognized(seconds: float, chunks: int) -> None:
    """Whisper transcribed any sound of three tenths of a second as "you." or "Sorry"."""
    call = loaded("01_invoice_stereo")
    spoken = call.audio.read(0, 2 * 16000, 2 * 16000 + round(seconds * 16000))
    audio = AudioInMemory(spoken[None])
    layout = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "cut by hand")
    analysis = analyze_audio(Loaded(audio, layout, ("one before",)), SpeechOptions(), 30.0)
    assert len(analysis.chunks) == chunks
    assert any("too short" in warning for warning in analysis.warnings) == (chunks == 0)
    assert analysis.warnings[0] == "one before"


def test_files_count_by_their_channel_and_not_by_their_order() -> None:
    first, second = recordings("04_contract_two_files")
    straight, crossed = (load(pair, DecodeOptions()) for pair in ((first, second), (second, first)))
    assert (straight.audio.samples == crossed.audio.samples).all()


@pytest.mark.parametrize("leg", [0, 1])
@pytest.mark.parametrize("missing", ["not fetched", "no audio"])
def test_of_two_files_the_one_that_could_be_had_keeps_its_party(leg: int, missing: str, tmp_path: Path) -> None:
    both = recordings("04_contract_two_files")
    broken = tmp_path / "broken"
    broken.write_bytes(np.random.default_rng(0).bytes(10_000))
    useless = Recording(1 - leg, broken.as_uri(), "0" * 64, 10_000)
    call = load([both[leg]] if missing == "not fetched" else [both[leg], useless], DecodeOptions(), 2)
    assert (call.layout.kind, call.layout.channels) == (LayoutKind.TWO_FILES, 2)
    assert (
        f"only file {leg + 1} could be fetched: it is {('the rep', 'the customer')[leg]}'s line" in call.layout.reason
    )
    assert (call.audio.samples[leg] == decode(both[leg], DecodeOptions()).samples[0]).all()
    analysis = analyze_audio(call, SpeechOptions(), 30.0)
    assert analysis.labels[1 - leg] == (Label(0.0, analysis.duration, LabelKind.GAP),)
    assert analysis.chunks
    assert {chunk.channel for chunk in analysis.chunks} == {leg}
    texts = tuple(
        ChunkText(chunk, "en", 1.0, (Word(chunk.start, chunk.end, "words", 0.9),), -0.1, 0.0)
        for chunk in analysis.chunks
    )
    transcript = attribute(analysis, Recognized(texts, "by hand"), None, None, Roster(), None)
    assert {turn.speaker for turn in transcript.turns} == {("rep", "customer")[leg]}


def test_a_whole_call_in_the_only_one_of_two_files_keeps_both_parties() -> None:
    (stereo,) = recordings("01_invoice_stereo")
    assert load([stereo], DecodeOptions(), 2).layout.kind is LayoutKind.STEREO


def test_a_warning_names_its_file_where_there_are_two(tmp_path: Path) -> None:
    whole = Path(recordings("04_contract_two_files")[0].uri.removeprefix("file://")).read_bytes()
    path = tmp_path / "half"
    path.write_bytes(whole[: len(whole) // 2])
    first, second = recordings("04_contract_two_files")
    half = Recording(1, path.as_uri(), second.sha256, path.stat().st_size)
    warnings = load((first, half), DecodeOptions()).warnings
    assert warnings
    assert all(warning.startswith("File 2: ") for warning in warnings)


def test_the_store_says_whether_it_still_has_a_calls_recordings(tmp_path: Path) -> None:
    path = tmp_path / "stored"
    path.write_bytes(b"x")
    recording = Recording(0, path.as_uri(), "0" * 64, 1)
    assert all_stored([recording])
    path.unlink()
    assert not all_stored([recording])
    assert all_stored([])


def test_importing_the_audio_stage_loads_no_engine() -> None:
    code = "import sys, pipeline.audio; print(*{'torch', 'av', 'faster_whisper', 'scipy', 'soxr'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
