"""Edit lists and gaps in the tables of MP4 and QuickTime files: sound lies where a player would play it."""

import io
import struct
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import soxr

from pipeline.audio.decode import edits, mp4
from pipeline.audio.decode.decoder import Decoded, decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import SAMPLE_RATE
from tests.support.lossy_files import without_packets
from tests.unit.pipeline.audio.test_absurd_media import box

Edit = tuple[float, float | None]  # seconds, and from which second of the track; None: nothing
SECONDS = 12
FORMS: dict[str, tuple[str, str, int]] = {
    "QuickTime, PCM": ("mov", "pcm_s16le", 16000),
    "QuickTime, mu-law": ("mov", "pcm_mulaw", 8000),
    "QuickTime, IMA ADPCM": ("mov", "adpcm_ima_qt", 8000),
    "MP4, AAC": ("mp4", "aac", 16000),
    "MP4, Opus": ("mp4", "libopus", 48000),
}
PRIMED = {"MP4, AAC": 1024 / 16000, "MP4, Opus": 312 / 48000}  # seconds before the sound, which the edits here keep
EDITS: dict[str, list[Edit]] = {
    "a delay": [(2, None), (12, 0)],
    "a gap": [(4, 0), (3, None), (8, 4)],
    "a gap between packets": [(4.013, 0), (3.007, None), (7.987, 4.013)],
    "something left out": [(4, 0), (5, 7)],
    "a delay, a gap, and something left out": [(1.5, None), (3, 0.5), (2, None), (4, 6)],
    "many gaps": [edit for at in range(5) for edit in ((1.3, 2.0 * at), (0.7, None))],
}


@cache
def noise() -> np.ndarray:
    """int16 values (n,) at `SAMPLE_RATE`, no two seconds alike, in the band of a telephone."""
    white = np.random.default_rng(3).normal(0, 4000, SECONDS * 7000)
    samples: np.ndarray = np.clip(soxr.resample(white, 7000, SAMPLE_RATE), -32768, 32767)
    samples.setflags(write=False)
    return samples


@cache
def written(form: str) -> bytes:
    container, codec, rate = FORMS[form]
    samples = np.clip(soxr.resample(noise(), SAMPLE_RATE, rate), -32768, 32767).astype(np.int16)
    return without_packets(samples, rate, container, codec, lambda _: False)


def replaced(data: bytes, name: bytes, box_: bytes) -> bytes:
    """The file with other tables of that name; the samples lie before them and stay where they are."""
    out, at = b"", 0
    while at + 8 <= len(data):
        length, found = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + length]
        if found == name:
            out += box_
        elif found in mp4.PARENTS:
            out += box(found, replaced(content, name, box_))
        else:
            out += data[at : at + length]
        at += length
    return out


def edited(data: bytes, rate: int, chosen: Sequence[Edit], form: str = ">IiI") -> bytes:
    entries = b"".join(
        struct.pack(form, round(1000 * seconds), -1 if start is None else round(start * rate), 1 << 16)
        for seconds, start in chosen
    )
    head = struct.pack(">BxxxI", form == ">QqI", len(chosen))
    return replaced(data, b"edts", box(b"edts", box(b"elst", head, entries)))


def lasting(data: bytes, runs: Sequence[tuple[int, int]]) -> bytes:
    entries = b"".join(struct.pack(">II", *run) for run in runs)
    return replaced(data, b"stts", box(b"stts", struct.pack(">II", 0, len(runs)), entries))


def played(sound: np.ndarray, chosen: Sequence[Edit]) -> np.ndarray:
    """What a player would play of a track."""
    pieces = []
    for seconds, start in chosen:
        length, first = round(seconds * SAMPLE_RATE), round((start or 0) * SAMPLE_RATE)
        piece = np.zeros(length) if start is None else sound[first : first + length]
        pieces.append(np.pad(piece, (0, length - len(piece))))
    return np.concatenate(pieces)


def decoded(data: bytes) -> Decoded:
    return decode_file(io.BytesIO(data), DecodeOptions())


def assert_plays(found: Decoded, wanted: np.ndarray, primed: float = 0.0) -> None:
    """Every half second of it is there at its time, and nothing where nothing is wanted."""
    sound, step = found.samples[0].astype(float), SAMPLE_RATE // 2
    assert found.duration == pytest.approx(len(np.trim_zeros(wanted, "b")) / SAMPLE_RATE, abs=0.02)
    for first in range(0, len(sound) - step, step):
        piece = wanted[first : first + step]
        found_there = [sound[first + round(lag * SAMPLE_RATE) :][:step] for lag in (0.0, primed)]
        if not piece.any():
            assert not sound[first + 320 : first + step - 320].any()
        elif piece.all() and len(found_there[1]) == step:
            assert max(np.corrcoef(piece, one)[0, 1] for one in found_there) > 0.8, first / SAMPLE_RATE


@pytest.mark.parametrize("chosen", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("form", FORMS)
def test_edits_are_applied(form: str, chosen: list[Edit]) -> None:
    found = decoded(edited(written(form), FORMS[form][2], chosen))
    assert_plays(found, played(noise(), chosen), PRIMED.get(form, 0.0))
    empty = [index for index, (_, start) in enumerate(chosen) if start is None and 0 < index < len(chosen) - 1]
    assert len(found.audio.gaps(0)) == len(empty)
    assert len(found.warnings) == bool(empty)


def test_what_a_single_edit_skips_is_left_to_the_decoder() -> None:
    data = edited(written("QuickTime, PCM"), 16000, [(11, 1)])
    assert edits.read(io.BytesIO(data), len(data)).patches == {}
    assert_plays(decoded(data), played(noise(), [(11, 1)]))


def test_edits_may_be_counted_in_64_bits() -> None:
    chosen = EDITS["a delay, a gap, and something left out"]
    assert_plays(decoded(edited(written("QuickTime, PCM"), 16000, chosen, ">QqI")), played(noise(), chosen))


@pytest.mark.parametrize("form", ["QuickTime, PCM", "QuickTime, mu-law"])
def test_a_sample_that_lasts_longer_is_a_gap_behind_it(form: str) -> None:
    rate = FORMS[form][2]
    runs = [(4 * rate - 1, 1), (1, 1 + 3 * rate), (4 * rate - 1, 1), (1, 1 + 2 * rate), (4 * rate, 1)]
    found = decoded(lasting(replaced(written(form), b"edts", b""), runs))
    assert_plays(found, played(noise(), [(4, 0), (3, None), (4, 4), (2, None), (4, 8)]))
    gaps = [(gap.start, gap.end) for gap in found.audio.gaps(0)]
    assert gaps == [pytest.approx((4, 7), abs=0.001), pytest.approx((11, 13), abs=0.001)]


def test_twenty_minutes_with_such_a_sample_are_not_taken_for_forged() -> None:
    """Each sample is an entry of FFmpeg's index then; in an hour there are more than it is given room for."""
    samples = np.zeros(mp4.MAX_ENTRIES + 10, np.int16)
    data = without_packets(samples, 16000, "mov", "pcm_s16le", lambda _: False)
    data = lasting(data, [(16000, 1), (1, 48000), (len(samples) - 16001, 1)])
    assert mp4.has_absurd_tables(io.BytesIO(data), len(data))
    found = edits.read(io.BytesIO(data), len(data))
    assert not mp4.has_absurd_tables(edits.Patched(io.BytesIO(data), len(data), found.patches), len(data))


def test_edits_count_the_gaps_of_samples_too() -> None:
    data = edited(written("QuickTime, PCM"), 16000, [(2, None), (9, 1)])
    found = decoded(lasting(data, [(63999, 1), (1, 48001), (128000, 1)]))
    assert_plays(found, played(noise(), [(2, None), (3, 1), (3, None), (3, 4)]))


def test_a_gap_of_which_the_tables_tell_no_place_is_said_to_be_missing() -> None:
    samples = noise().astype(np.int16)
    data = without_packets(samples, 16000, "mov", "pcm_s16le", lambda time: 3 <= time < 6)
    assert decoded(data).warnings == ("The recording is incomplete: it declares 12.0 s and has 9.0 s.",)


def test_an_edited_file_that_is_cut_off_is_said_to_be() -> None:
    whole = edited(written("QuickTime, PCM"), 16000, EDITS["a gap"])
    moov = whole[whole.index(b"moov") - 4 :]
    before = len(whole) - len(moov)
    moved = moov.replace(b"stco" + struct.pack(">III", 0, 1, 36), b"stco" + struct.pack(">III", 0, 1, 36 + len(moov)))
    assert moved != moov
    front = whole[:28] + moved + whole[28:before]
    assert decoded(front).warnings[-1].startswith("3.0 s of audio")
    assert decoded(front[: len(front) - 64000]).warnings[-1] == (
        "The recording is incomplete: it declares 15.0 s and has 13.0 s."
    )


@pytest.mark.parametrize("chosen", [[(4, 6), (4, 0)], [(4, 0), (4, 0), (4, 4)]], ids=["swapped", "repeated"])
def test_edits_that_go_back_are_left_to_the_decoder(chosen: list[Edit]) -> None:
    data = edited(written("QuickTime, PCM"), 16000, chosen)
    assert edits.read(io.BytesIO(data), len(data)).timelines == {}
    assert decoded(data).duration == pytest.approx(sum(seconds for seconds, _ in chosen), abs=0.1)


@pytest.mark.parametrize(
    "runs", [[(1, 1), (0xFFFFFFFF, 2)], [(0xFFFFFFFF, 1), (0xFFFFFFFF, 0)], [(1, 1), (1, 2)] * 60_000], ids=str
)
def test_tables_that_would_cost_much_are_left_to_the_decoder(runs: list[tuple[int, int]]) -> None:
    data = lasting(written("QuickTime, mu-law"), runs)
    assert edits.read(io.BytesIO(data), len(data)).timelines == {}


def test_a_file_with_other_bytes_reads_as_such() -> None:
    shown = edits.Patched(io.BytesIO(bytes(range(20))), 20, {4: b"abc", 18: b"z"})
    assert shown.read() == b"\0\1\2\3abc" + bytes(range(7, 18)) + b"z\x13"
    assert [shown.seek(5), shown.read(3), shown.tell()] == [5, b"bc\7", 8]
    assert [shown.seek(-1, io.SEEK_END), shown.read(9), shown.read(9)] == [19, b"\x13", b""]
