import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from pipeline.diarization.regions import Region, diarized
from pipeline.domain.speech import SAMPLE_RATE
from pipeline.voice.calibration import calibration_of
from tests.engine_cases import VOICES, speech

HOW = calibration_of("clustering campplus").clustering
ANN, BEN, CAM = np.eye(3, dtype=np.float32)
NOBODY = np.full(3, np.nan, np.float32)


def windows(*runs):
    """Return regions and vectors of runs of windows (1.5 s every 0.75 s), with pauses of 1 s."""
    regions, vectors, at = [], [], 0.0
    for number, voices in enumerate(runs):
        for voice in voices:
            regions.append(Region(number, at, at + 1.5))
            vectors.append(voice)
            at += 0.75
        at += 1.75
    return regions, np.array(vectors, np.float32)


def told(spans):
    return [span.speaker for span in spans]


def test_voices_are_speakers_by_first_appearance():
    spans, means = diarized(*windows([BEN] * 4, [ANN] * 4, [BEN] * 4), HOW, 1, None)
    assert told(spans) == ["A", "B", "A"]
    np.testing.assert_allclose(means["A"], BEN, atol=1e-6)


def test_a_change_within_a_run_is_where_the_windows_change():
    regions, vectors = windows([ANN] * 6 + [BEN] * 6)
    spans, _ = diarized(regions, vectors, HOW, 1, None)
    assert told(spans) == ["A", "B"]
    assert spans[0].end == spans[1].start == pytest.approx((regions[5].start + regions[6].end) / 2, abs=0.1)


def test_a_voice_of_a_moment_is_nobodys_and_goes_to_the_nearest():
    near = (ANN + CAM) / np.sqrt(2)
    spans, means = diarized(*windows([ANN] * 6, [near], [BEN] * 6), HOW.model_copy(update={"threshold": 0.1}), 1, None)
    assert set(means) == {"A", "B"}
    assert told(spans)[:2] == ["A", "A"]


def test_bounds_on_speakers_are_kept():
    calls = windows([ANN] * 6, [BEN] * 5, [CAM] * 4)
    assert set(told(diarized(*calls, HOW, 1, 2)[0])) == {"A", "B"}
    assert set(told(diarized(*calls, HOW, 1, None)[0])) == {"A", "B", "C"}
    alike = windows([ANN] * 6, [(5 * ANN + BEN) / np.sqrt(26)] * 6)
    assert set(told(diarized(*alike, HOW, 1, None)[0])) == {"A"}
    assert set(told(diarized(*alike, HOW, 2, None)[0])) == {"A", "B"}


def test_speech_too_short_to_embed_is_of_whoever_spoke_before():
    spans, _ = diarized(*windows([ANN] * 4, [NOBODY], [BEN] * 4), HOW, 1, None)
    assert told(spans) == ["A", "A", "B"]


def test_speech_of_which_nothing_can_be_embedded_is_one_speaker_without_a_voice():
    spans, means = diarized(*windows([NOBODY], [NOBODY]), HOW, 1, None)
    assert set(told(spans)) == {"A"}
    assert means == {}


def test_a_long_call_is_clustered_by_some_of_its_windows(monkeypatch):
    from pipeline.diarization import regions

    monkeypatch.setattr(regions, "MAX_CLUSTERED", 10)
    assert told(diarized(*windows(*[[ANN] * 6, [BEN] * 6] * 4), HOW, 1, None)[0]) == ["A", "B"] * 4


def test_a_real_voice_that_follows_another_without_a_pause_is_heard_where_it_begins(clustering):
    first, second = speech(VOICES["A"][0])[: 6 * SAMPLE_RATE], np.concatenate([speech(name) for name in VOICES["B"]])
    diarization = clustering.diarize(np.concatenate([first, second]))
    changes = [(a.end + b.start) / 2 for a, b in pairwise(diarization.spans) if a.speaker != b.speaker]
    assert changes == [pytest.approx(6.0, abs=0.6)]


def test_voiceprints_are_those_that_pyannote_makes_of_the_same_network(clustering):
    from pipeline.diarization import DiarizationOptions, load

    folder = clustering.checkpoint.folder
    if not (folder.parent / "segmentation-3.0").is_dir():
        pytest.skip("segmentation-3.0 is not in the checkpoint store")
    options = DiarizationOptions(pipeline="segmentation-3.0+campplus", device="cpu")
    other = load(options, folder.parent).voiceprint([speech()])
    assert np.dot(other.vector, clustering.voiceprint([speech()]).vector) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.slow
def test_the_engine_brings_in_nothing_of_pyannote(clustering):
    store = str(clustering.checkpoint.folder.parent)
    program = (
        "import sys; from pathlib import Path; from pipeline.diarization import DiarizationOptions, load;"
        f"load(DiarizationOptions(engine='clustering', device='cpu'), Path({store!r}));"
        "print([name for name in sys.modules if name.startswith('pyannote')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "[]", done.stderr
