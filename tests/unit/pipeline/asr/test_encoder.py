"""Whisper's encoder in bfloat16: the numbers of CTranslate2's own, from the same file, on any CPU."""

import struct
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rapidfuzz.distance import Levenshtein

from pipeline import checkpoints
from pipeline.asr import AsrOptions, load, whisper_model
from pipeline.asr.encoder import BFloat16Encoder, suits_this_cpu
from pipeline.asr.plausible import plain
from pipeline.asr.whisper_model import CHECKPOINTS
from pipeline.domain.speech import Chunk
from pipeline.errors import EngineError
from tests import fixture_checkpoints

pytestmark = pytest.mark.cases(2)

SAMPLE = Path(find_spec("pyannote.audio").origin).parent / "sample" / "sample.wav"  # 30 s of two people, 16 kHz


@pytest.fixture(scope="module")
def tiny_folder():
    return checkpoints.resolve("tiny.en", CHECKPOINTS, "cpu").folder


def engine(model, encoder, compute_type="auto"):
    return load(AsrOptions(model=str(model), device="cpu", cpu_threads=1, encoder=encoder, compute_type=compute_type))


@pytest.fixture(scope="module")
def ours(tiny_folder):
    return engine(tiny_folder, "bfloat16")


@pytest.fixture(scope="module")
def talk():
    return soundfile.read(SAMPLE, dtype="float32")[0]


def off_by(actual, exact):
    return float(np.sqrt(((np.asarray(actual) - exact) ** 2).mean() / (exact**2).mean()))


@pytest.mark.parametrize("quantized", [False, True])
def test_it_is_nearer_to_the_exact_encoder_than_int8_is(tiny_folder, talk, quantized):
    folder = fixture_checkpoints.RECOGNITION if quantized else tiny_folder  # the fixture's weights are int8 already
    exact, int8 = (engine(folder, "ctranslate2", kind) for kind in ("float32", "int8"))
    features = exact._features(talk[: 16_000 * 8], Chunk(0, 0.0, 8.0, "en"))
    expected = np.asarray(exact._encode([features]))
    actual = BFloat16Encoder(folder, 1)(features)
    assert actual.shape == expected.shape and actual.dtype == np.float32
    assert off_by(actual, expected) < 0.02
    assert off_by(actual, expected) < off_by(int8._encode([features]), expected)


def test_words_and_their_times_are_those_of_the_other_encoder(ours, tiny_folder, talk):
    chunks = [Chunk(0, 12.0, 20.0, "en"), Chunk(0, 18.0, 26.0, "en")]  # an earlier "hello, hello" is read in many ways
    sounds = [talk[int(chunk.start * 16_000) : int(chunk.end * 16_000)] for chunk in chunks]
    theirs = engine(tiny_folder, "ctranslate2")
    texts = [[word for text in each.transcribe(sounds, chunks) for word in text.words] for each in (ours, theirs)]
    assert ours.name == f"{theirs.name} (encoder bfloat16)"
    plain_texts = [[plain(word.text) for word in text] for text in texts]
    blocks = Levenshtein.editops(*plain_texts).as_matching_blocks()
    same = [(block.a + k, block.b + k) for block in blocks for k in range(block.size)]
    assert len(same) > 0.8 * max(map(len, plain_texts)) > 16, plain_texts
    starts = np.array([(texts[0][a].start, texts[1][b].start) for a, b in same])
    assert np.median(np.abs(starts[:, 0] - starts[:, 1])) <= 0.04


@pytest.mark.slow
def test_several_windows_at_once_are_those_one_by_one(ours, talk):
    features = [ours._features(sound, Chunk(0, 0.0, 8.0, "en")) for sound in (talk[:128_000], talk[128_000:256_000])]
    together = np.asarray(ours._encode(features))
    np.testing.assert_array_equal(together, np.concatenate([np.asarray(ours._encode([window])) for window in features]))


def test_threads_of_others_are_left_as_they_are(ours, tiny_folder, talk):
    features = ours._features(talk[:128_000], Chunk(0, 0.0, 8.0, "en"))
    import torch

    def count():
        torch.set_num_threads(2)
        BFloat16Encoder(tiny_folder, 1)(features)
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(count).result() == 2


@pytest.mark.parametrize(
    ("about", "suits"),
    [
        ("flags\t\t: fpu amx_bf16 avx512_bf16 amx_tile\n", True),
        ("flags\t\t: fpu avx512_bf16 amx_tile\n", False),  # bfloat16, but not in tiles: not measured
        ("bugs : amx_bf16\n", False),
        ("", False),
    ],
)
def test_the_system_says_whether_the_cpu_suits(tmp_path, about, suits):
    path = tmp_path / "cpuinfo"
    path.write_text(about)
    assert suits_this_cpu(path) is suits


def test_a_system_that_says_nothing_of_its_cpu_has_none_that_suits(tmp_path):
    assert suits_this_cpu(tmp_path / "missing") is False


@pytest.mark.parametrize(
    ("suits", "encoder", "compute_type", "apart"),
    [
        (True, "auto", "auto", True),
        (False, "auto", "auto", False),
        (True, "auto", "float32", False),  # who names a format gets it
        (True, "ctranslate2", "auto", False),
        (False, "bfloat16", "auto", True),
    ],
)
def test_it_is_chosen_by_cpu_and_settings(monkeypatch, suits, encoder, compute_type, apart):
    monkeypatch.setattr(whisper_model, "suits_this_cpu", lambda: suits)
    chosen = engine(fixture_checkpoints.RECOGNITION, encoder, compute_type)
    assert chosen.name.endswith("(encoder bfloat16)") is apart


@pytest.mark.parametrize("cut", [3, 200, 100_000])
def test_half_a_file_is_refused_by_name(tmp_path, tiny_folder, cut):
    (tmp_path / "model.bin").write_bytes((tiny_folder / "model.bin").read_bytes()[:cut])
    with pytest.raises(EngineError, match=r"model\.bin has no readable encoder"):
        BFloat16Encoder(tmp_path, 1)


def test_a_file_of_another_layout_is_refused(tmp_path, tiny_folder):
    content = (tiny_folder / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(struct.pack("<I", 7) + content[4:])
    with pytest.raises(EngineError, match=r"layout 7, not 6.*SWITCHBOARD_ASR__ENCODER=ctranslate2"):
        BFloat16Encoder(tmp_path, 1)


def test_a_pass_that_fails_is_an_error_of_the_engine(monkeypatch, talk):
    ours = engine(fixture_checkpoints.RECOGNITION, "bfloat16")

    def no_memory(_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(ours, "_bfloat16", no_memory)
    with pytest.raises(EngineError, match="Recognition failed"):
        ours.transcribe([talk[:80_000]], [Chunk(0, 0.0, 5.0, "en")])
