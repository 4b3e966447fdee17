"""The audio stage as a whole, on the sample calls as they would lie in the store."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.audio import Loaded, examine, load
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.decode import DecodeOptions
from pipeline.audio.storage import all_stored
from pipeline.domain.speech import LayoutKind, Recording

SAMPLES = Path(__file__).parents[2] / "serve_app" / "demo" / "samples"


def recordings(name: str) -> tuple[Recording, ...]:
    submission = json.loads((SAMPLES / name / "submission.json").read_text(encoding="utf-8"))
    paths = [SAMPLES / name / file for file in submission["recordings"]]
    return tuple(Recording(channel, path.as_uri(), "0" * 64, path.stat().st_size) for channel, path in enumerate(paths))


def loaded(name: str) -> Loaded:
    return load(recordings(name), DecodeOptions())


@pytest.mark.parametrize("folder", sorted(SAMPLES.iterdir()), ids=lambda folder: folder.name)
def test_every_sample_call_has_its_layout_and_its_length(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    call = loaded(folder.name)
    assert call.layout.kind == expected["layout"]
    assert call.audio.duration == pytest.approx(expected["duration"], abs=0.1)
    assert call.warnings == ()


def test_a_call_is_heard_channel_by_channel_in_chunks_of_the_asked_length() -> None:
    call = loaded("04_contract_two_files")
    heard = examine(call, SpeechOptions(), 8.0)
    assert len(heard.speech) == heard.layout.channels == 2
    assert {chunk.channel for chunk in heard.chunks} == {0, 1}
    assert max(chunk.duration for chunk in heard.chunks) <= 8.0
    assert heard.duration == call.audio.duration
    assert pickle.loads(pickle.dumps(heard)) == heard


def test_files_count_by_their_channel_and_not_by_their_order() -> None:
    first, second = recordings("04_contract_two_files")
    straight, crossed = (load(pair, DecodeOptions()) for pair in ((first, second), (second, first)))
    assert (straight.audio.samples == crossed.audio.samples).all()


def test_the_second_file_alone_is_known_to_be_one_of_two() -> None:
    _, second = recordings("04_contract_two_files")
    assert load([second], DecodeOptions()).layout.kind is LayoutKind.ONE_SIDED


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
