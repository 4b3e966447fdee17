import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import checkpoints
from pipeline.checkpoints.lock import default_store
from pipeline.diarization.pyannote import CHECKPOINTS
from pipeline.domain.speech import SAMPLE_RATE
from pipeline.voice.calibration import SHIPPED, calibration_of, read
from tests.fixture_checkpoints import FOLDER
from tests.paths import FIXTURES

pytestmark = pytest.mark.cases(2)

GOLDEN = FIXTURES / "campplus.json"
NAME = "segmentation-3.0+campplus"


def frames(count: int) -> Any:
    """Return reproducible filterbank frames, (1, count, 80), with mean zero."""
    import torch

    time, band = np.mgrid[0:count, 0:80]
    bands = 2 * np.sin(0.13 * time + 0.7 * band) + np.cos(0.011 * time * (band + 1))
    return torch.tensor(bands - bands.mean(axis=0), dtype=torch.float32)[None]


@pytest.fixture(scope="module")
def stored() -> Path:
    folder = Path(os.environ.get("SWITCHBOARD_CHECKPOINTS") or default_store())
    if not (folder / "campplus").is_dir() or not (folder / "segmentation-3.0").is_dir():
        pytest.skip("CAM++ is not in the checkpoint store: `switchboard checkpoints fetch` brings it")
    return folder


@pytest.fixture(scope="module")
def embedding(stored: Path) -> Any:
    from pipeline.diarization import campplus
    from pipeline.diarization.campplus_pipeline import EMBEDDING_FILE, CAMPlusPlusEmbedding

    calibration = calibration_of(f"pyannote {NAME}")
    assert calibration is not None
    network = campplus.load(stored / "campplus" / EMBEDDING_FILE)
    return CAMPlusPlusEmbedding(network, calibration.center).eval()


@pytest.mark.parametrize("count", [60, 317])
def test_it_computes_what_the_original_computes(embedding: Any, count: int) -> None:
    import torch

    golden = json.loads(GOLDEN.read_text())[str(count)]
    with torch.inference_mode():
        vector = embedding.network(frames(count))[0]
    np.testing.assert_allclose(vector, golden, atol=1e-4)


def test_every_speaker_of_a_window_is_embedded_as_if_alone(embedding: Any) -> None:
    import torch

    sound = torch.randn(2, 1, 4 * SAMPLE_RATE, generator=torch.Generator().manual_seed(1)) / 10
    weights = torch.zeros(2, 3, 400)
    weights[:, 0], weights[0, 1, 100:300], weights[1, 1, :30] = 1, 1, 1
    with torch.inference_mode():
        vectors = embedding(sound, weights)
        whole = embedding(sound)
        part = embedding(sound[:1, :, SAMPLE_RATE : 3 * SAMPLE_RATE])
    torch.testing.assert_close(vectors[:, 0], whole, atol=1e-4, rtol=0)
    assert torch.nn.functional.cosine_similarity(vectors[0, 1], part[0], dim=0) > 0.99  # a frame more at either edge
    assert torch.isnan(vectors[1, 1]).all()  # 0.3 s
    assert torch.isnan(vectors[:, 2]).all()
    torch.testing.assert_close(embedding(sound, weights[:, 1]), vectors[:, 1], equal_nan=True)


def test_voices_that_share_a_pass_on_a_gpu_come_out_as_they_do_alone(
    embedding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from pipeline.diarization import campplus

    passes: list[int] = []
    counting = embedding.network.register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0])))
    lengths = [998, 39, 40, 41, 300, 301, 998, 555, 5, 120]
    voices = [frames(998)[0][:length] for length in lengths]
    with torch.inference_mode():
        alone = campplus.embedded(embedding.network, voices)
        assert passes == [1] * 8  # of these, two of one length are already too much for a pass on a CPU
        groups = campplus._groups
        monkeypatch.setattr(campplus, "_groups", lambda lengths, on_gpu: groups(lengths, True))
        together = campplus.embedded(embedding.network, voices)
    counting.remove()
    assert passes[8:] == [8]
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0, equal_nan=True)
    assert torch.isnan(alone).all(dim=1).tolist() == [length < 40 for length in lengths]


def test_a_pass_holds_no_more_than_fits() -> None:
    from pipeline.diarization.campplus import TOGETHER_CPU, TOGETHER_GPU, _groups

    rng = np.random.default_rng(4)
    lengths = [int(length) for length in rng.choice([30, 60, 150, 997, 998, 20_000], 200)]
    for on_gpu, most in ((True, TOGETHER_GPU), (False, TOGETHER_CPU)):
        groups = list(_groups(lengths, on_gpu))
        assert sorted(at for group in groups for at in group) == [
            at for at, length in enumerate(lengths) if length > 39
        ]
        for group in groups:
            longest = max(lengths[at] for at in group)
            assert len(group) == 1 or len(group) * longest <= most
            assert on_gpu or {lengths[at] for at in group} == {longest}
    assert len(list(_groups(lengths, True))) < len(list(_groups(lengths, False))) / 2


def test_filterbanks_in_one_go_are_those_of_each_sound() -> None:
    import torch

    from pipeline.diarization.campplus import filterbanks, filterbanks_together

    noise = torch.randn(100_000, generator=torch.Generator().manual_seed(2)) / 10
    sounds = [noise[at : at + n] for at, n in enumerate((16_000, 160, 399, 400, 12_345, 0, 559, 560, 90_000))]
    alone, together = filterbanks(sounds), filterbanks_together(sounds)
    assert (
        [len(spectrum) for spectrum in together]
        == [98, 0, 0, 1, 75, 0, 1, 2, 561]
        == [len(spectrum) for spectrum in alone]
    )
    for spectrum, other in zip(alone, together, strict=True):
        torch.testing.assert_close(spectrum, other, atol=1e-4, rtol=0)
    assert filterbanks([]) == []


def test_too_short_a_sound_is_refused(embedding: Any) -> None:
    import torch

    with pytest.raises(ValueError, match="40 frames"):
        embedding(torch.zeros(1, 1, SAMPLE_RATE // 4))


def test_a_file_that_is_no_state_dict_runs_nothing(tmp_path: Path) -> None:
    import pickle

    from pipeline.diarization import campplus

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "weights.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(pickle.UnpicklingError):
        campplus.load(tmp_path / "weights.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_two_real_voices_of_a_telephone_call_are_separated(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import soundfile

    from bench.real.mono import errors
    from bench.real.sources import Sources
    from pipeline.diarization import DiarizationOptions, load

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    telephone = Sources.telephone()
    samples, rate = soundfile.read(telephone.path, dtype="float32")
    assert rate == SAMPLE_RATE
    engine = load(DiarizationOptions(pipeline=NAME, device="cpu"), stored)
    diarization = engine.diarize(samples)
    assert engine.name == f"pyannote {NAME}"
    row = {
        "seconds": len(samples) / rate,
        "truth": [(turn.start, turn.end, turn.speaker) for turn in telephone.turns],
        "found": [(span.start, span.end, span.speaker) for span in diarization.spans],
    }
    missed, false, confused, total = errors(row, 0.25).values()
    assert (missed + false + confused) / total <= 0.02
    assert set(diarization.voiceprints) == {"A", "B"}
    assert np.dot(diarization.voiceprints["A"].vector, diarization.voiceprints["B"].vector) < 0.4


def test_shipped_calibrations_are_whole_and_say_what_they_rest_on() -> None:
    names = [path.name for path in sorted(SHIPPED.glob("*.toml"))]
    assert names == ["campplus.toml"]
    for name in names:
        document = read(SHIPPED / name)
        assert len(document.basis) > 100
        assert document.threshold >= document.fit >= document.related


def test_the_pipeline_of_synthetic_voices_carries_its_calibration() -> None:
    folder = checkpoints.resolve(str(FOLDER / "diarization"), CHECKPOINTS, "cpu").folder
    assert calibration_of("pyannote diarization", folder / "calibration.toml") is not None
    assert calibration_of("pyannote diarization") is None
    assert calibration_of("pyannote pyannote/speaker-diarization-community-1") is None
