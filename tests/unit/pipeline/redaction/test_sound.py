"""The sound of entities: gone on every channel in which it is audible, and nothing else changes."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bench.lib import sounds
from bench.lib.channel_cases import channels_of, over
from pipeline.audio.analyze import Loaded, load
from pipeline.audio.decode.decoder import DecodeOptions, decode
from pipeline.audio.decode.start_time import StartTime
from pipeline.audio.labels import keys
from pipeline.domain.redaction import Entity, EntityKind, EntityWords, RedactionMode, RedactionPolicy
from pipeline.domain.speech import SAMPLE_RATE, LayoutKind, Recording
from pipeline.redaction.sound import Cover, RedactedSound, redact_sound, store_again, store_redacted
from pipeline.sealed_files import RecordingSealed
from tests.support.scenes import at_16_khz
from tests.synthetic_calls import FOLDER

Samples = npt.NDArray[np.int16]
GUARD = 0.25
KEY = b"k" * 32
POLICY = RedactionPolicy(RedactionMode.REDACTED_ONLY, (EntityKind.PERSON,), guard_seconds=GUARD)
PCI = RedactionPolicy(RedactionMode.REDACTED_ONLY, (EntityKind.CARD,), guard_seconds=GUARD)
STEREO = "02_callback_stereo"


def entity(*spans: tuple[float, float], channel: int = 0) -> Entity:
    pieces = tuple(EntityWords(0, 0, 0, channel, start, end) for start, end in spans)
    return Entity(EntityKind.CARD, pieces, 1.0)


def written(folder: Path, *rows: npt.NDArray[np.generic]) -> Recording:
    import soundfile

    path = folder / "call.wav"
    soundfile.write(path, np.stack([np.asarray(row, np.int16) for row in rows], axis=1), SAMPLE_RATE, subtype="PCM_16")
    return Recording(0, path.as_uri(), "0" * 64, path.stat().st_size)


def loaded(folder: Path, *recordings: Recording, swapped: bool = False) -> Loaded:
    return load(recordings, DecodeOptions(), scratch=(folder / "scratch").as_uri(), swapped=swapped)


def fixture(name: str, *files: str) -> tuple[Recording, ...]:
    paths = [FOLDER / name / file for file in files]
    return tuple(Recording(at, path.as_uri(), "0" * 64, path.stat().st_size) for at, path in enumerate(paths))


def stored(folder: Path, sound: RedactedSound, key: bytes | None = KEY) -> list[Samples]:
    recordings = store_redacted(sound.files, (folder / "storage").as_uri(), key)
    return [decode(recording, DecodeOptions()).samples for recording in recordings]


def samples_of(call: Loaded) -> list[Samples]:
    return [np.stack([file.audio.read(row, 0, file.audio.length) for row in range(file.audio.channels)])
            for file in call.files.values()]  # fmt: skip


def changed(before: Samples, after: Samples) -> list[tuple[float, float]]:
    """Return the seconds between the first and the last changed sample of each stretch, closer than 0.1 s."""
    assert before.shape == after.shape
    at = np.flatnonzero(before != after)
    if not len(at):
        return []
    cuts = [0, *(np.flatnonzero(np.diff(at) > SAMPLE_RATE // 10) + 1), len(at)]
    return [(float(at[first]) / SAMPLE_RATE, float(at[last - 1] + 1) / SAMPLE_RATE) for first, last in pairwise(cuts)]


def close(found: Sequence[tuple[float, float]], *expected: tuple[float, float]) -> bool:
    return len(found) == len(expected) and bool(np.allclose(found, expected, atol=0.02))


def loudest(row: npt.NDArray[np.generic], seconds: float) -> float:
    """Return the start of the loudest stretch."""
    total = np.cumsum(np.abs(np.asarray(row, np.float64)))
    width = round(seconds * SAMPLE_RATE)
    return float(np.argmax(total[width:] - total[:-width])) / SAMPLE_RATE


def correlation(hidden: Samples, original: Samples) -> float:
    """Return the largest normalized correlation of two stretches over all lags."""
    from scipy.signal import correlate

    x, y = (row.astype(np.float64) for row in (hidden, original))
    if not x.any() or not y.any():
        return 0.0
    return float(np.abs(correlate(x, y, "full", "fft")).max() / np.sqrt((x @ x) * (y @ y)))


def test_the_rest_is_bit_identical_and_nothing_of_the_entity_is_left(tmp_path: Path) -> None:
    call = loaded(tmp_path, *fixture(STEREO, "call.flac"))
    (before,) = samples_of(call)
    spans = [(0.0, 0.6), (5.0, 6.5), (6.2, 7.0), (call.audio.duration - 0.5, call.audio.duration)]
    sound = redact_sound(call, call.layout, [entity(*spans), entity((20.0, 21.5), channel=1)], POLICY)
    (after,) = stored(tmp_path, sound)
    hidden = [(0.0, 0.6 + GUARD), (5.0 - GUARD, 7.0 + GUARD), (20.0 - GUARD, 21.5 + GUARD),
              (call.audio.duration - 0.5 - GUARD, call.audio.duration)]  # fmt: skip
    assert close([(span.start, min(span.end, call.audio.duration)) for span in sound.hidden], *hidden)
    mask = np.zeros(before.shape[1], bool)
    for start, end in hidden:
        mask[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)] = True
    assert np.array_equal(before[:, ~mask], after[:, ~mask])
    for (start, end), channel in zip(hidden, (0, 0, 1, 0), strict=True):
        piece = slice(round(start * SAMPLE_RATE), round(end * SAMPLE_RATE))
        assert correlation(after[channel, piece], before[channel, piece]) < 0.1
        assert 0 < np.abs(after[channel, piece]).max() < 32767 * 10 ** (-29.9 / 20)  # the beep
        assert np.abs(np.diff(after[channel, piece][:40].astype(int))).max() < 200  # rises without a click
    silent, _ = stored(tmp_path, redact_sound(call, call.layout, [entity(*spans)], POLICY, Cover.SILENCE), None)[0]
    assert not silent[: round(0.85 * SAMPLE_RATE)].any()


def test_the_channel_of_the_other_party_is_hidden_where_it_carries_the_entity(tmp_path: Path) -> None:
    agent, customer = channels_of(STEREO)[:, : 30 * SAMPLE_RATE]
    rng = np.random.default_rng(3)
    start = loudest(agent, 2.0)
    for level, delay in ((-12.0, 1600), (-26.0, 400), (-36.0, 3200)):
        call = loaded(tmp_path, written(tmp_path, agent, customer + over(agent, level, delay, rng)))
        assert call.layout.kind is LayoutKind.STEREO
        (before,) = samples_of(call)
        (after,) = stored(tmp_path, redact_sound(call, call.layout, [entity((start, start + 2.0))], POLICY))
        assert close(changed(before[0], after[0]), (start - GUARD, start + 2.0 + GUARD)), level
        begin, end = (round(at * SAMPLE_RATE) for at in (start - GUARD, start + 2.0 + GUARD))
        assert not after[1, begin : end + delay - 100].any(), level


def test_what_the_other_party_says_at_the_same_time_mostly_stays(tmp_path: Path) -> None:
    """A chance correlation of two voices hides some of it: `BLED`."""
    agent, customer = channels_of("08_flite_voices_stereo")
    call = loaded(tmp_path, written(tmp_path, agent, np.roll(customer, 7 * SAMPLE_RATE)))
    assert call.layout.kind is LayoutKind.STEREO and not call.layout.bleed
    (before,) = samples_of(call)
    kept = both = 0
    for start in np.arange(1.0, call.audio.duration - 3, 1.5).tolist():
        piece = slice(round(start * SAMPLE_RATE), round((start + 1) * SAMPLE_RATE))
        if np.sqrt(np.mean(before[:, piece].astype(float) ** 2, axis=1)).min() < 500:
            continue
        (after,) = stored(tmp_path, redact_sound(call, call.layout, [entity((start, start + 1.0))], POLICY))
        both += 1
        kept += not changed(before[1], after[1])
    assert both >= 3 and kept >= both / 2, (kept, both)


def test_no_correlation_with_the_entity_is_left_in_the_other_channel(tmp_path: Path) -> None:
    agent, customer = channels_of(STEREO)[:, : 30 * SAMPLE_RATE]
    echo = over(agent, -15.0, 2400, np.random.default_rng(5))
    call = loaded(tmp_path, written(tmp_path, agent, customer + echo))
    sound = redact_sound(call, call.layout, [entity((4.0, 8.0))], POLICY)
    (after,) = stored(tmp_path, sound)
    original = agent[round((4.0 - GUARD) * SAMPLE_RATE) : round((8.0 + GUARD) * SAMPLE_RATE)].astype(np.int16)
    late = after[1, round((4.0 - GUARD) * SAMPLE_RATE) : round((8.1 + GUARD) * SAMPLE_RATE)]
    assert correlation(late, original) < 0.1


def test_swapped_channels_and_two_files_are_hidden_where_the_words_are(tmp_path: Path) -> None:
    stereo = loaded(tmp_path, *fixture(STEREO, "call.flac"), swapped=True)
    (before,) = samples_of(stereo)
    (after,) = stored(tmp_path, redact_sound(stereo, stereo.layout, [entity((3.0, 4.0))], POLICY))
    beep = slice(round(3.2 * SAMPLE_RATE), round(3.4 * SAMPLE_RATE))
    assert after[1, beep].any() and not np.array_equal(before[1, beep], after[1, beep])  # the rep is the second channel
    legs = loaded(tmp_path, *fixture("04_contract_two_files", "rep.flac", "customer.flac"))
    assert legs.layout.kind is LayoutKind.TWO_FILES
    rep, customer = samples_of(legs)
    start = legs.layout.starts[1]
    spans = entity((start + 3.0, start + 4.0), channel=1)
    first, second = stored(tmp_path, redact_sound(legs, legs.layout, [spans], POLICY))
    assert close(changed(customer[0], second[0]), (3.0 - GUARD, 4.0 + GUARD))
    assert first.shape == rep.shape


def test_mixed_and_identical_channels_are_hidden_on_all(tmp_path: Path) -> None:
    for name in ("03_repair_mono", "09_repair_identical_stereo"):
        call = loaded(tmp_path, *fixture(name, "call.flac"))
        assert not call.layout.kind.separated
        (before,) = samples_of(call)
        (after,) = stored(tmp_path, redact_sound(call, call.layout, [entity((2.0, 3.0))], POLICY))
        for row in range(len(before)):
            assert close(changed(before[row], after[row]), (2.0 - GUARD, 3.0 + GUARD)), name


def test_keys_are_hidden_anywhere_under_a_policy_of_what_is_typed(tmp_path: Path) -> None:
    pressed = at_16_khz(sounds.level(sounds.keys("4111 1111".replace(" ", ""), Random(1)), -20.0)).samples[0]
    agent, customer = channels_of(STEREO)[:, : 20 * SAMPLE_RATE]
    customer[10 * SAMPLE_RATE : 10 * SAMPLE_RATE + len(pressed)] = pressed
    call = loaded(tmp_path, written(tmp_path, agent, customer))
    assert len(keys.find(call.audio, 1)) == 8
    (after,) = stored(tmp_path, redact_sound(call, call.layout, [], PCI))
    again = loaded(tmp_path, written(tmp_path, *after))
    assert not keys.find(again.audio, 0) and not keys.find(again.audio, 1)
    (unchanged,) = stored(tmp_path, redact_sound(call, call.layout, [], POLICY))
    assert np.array_equal(unchanged, samples_of(call)[0])


def test_a_stored_file_is_sealed_has_its_length_and_its_start(tmp_path: Path) -> None:
    call = loaded(tmp_path, *fixture("03_repair_mono", "call.flac"))
    began = StartTime(1_767_225_600.25, 0.001, "creation_time")
    file = call.files[0]
    call = replace(call, files={0: replace(file, started=began)})
    sound = redact_sound(call, call.layout, [entity((2.0, 3.0))], POLICY)
    (recording,) = store_redacted(sound.files, (tmp_path / "storage").as_uri(), KEY)
    with pytest.raises(RecordingSealed):
        decode(Recording(0, recording.uri, recording.sha256, recording.size_bytes), DecodeOptions())
    again = decode(recording, DecodeOptions())
    assert again.started is not None and again.started.seconds == pytest.approx(began.seconds, abs=0.01)
    assert again.duration == file.duration and not again.warnings
    (plain,) = (store_again(recording, (tmp_path / "other").as_uri()),)
    assert np.array_equal(decode(plain, DecodeOptions()).samples, again.samples)


@pytest.mark.slow
def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    """Kills the process while it encodes, and while it stores."""
    recording = fixture(STEREO, "call.flac")[0]
    for place in ("pipeline.redaction.sound._covered", "pipeline.fetch.storage.Store._place"):
        code = f"""
            import os, pkgutil, signal
            from pipeline.audio.analyze import load
            from pipeline.audio.decode.decoder import DecodeOptions
            from pipeline.domain.redaction import RedactionPolicy
            from pipeline.domain.speech import Recording
            from pipeline.redaction.sound import redact_sound, store_redacted
            owner, _, name = {place!r}.rpartition(".")
            setattr(pkgutil.resolve_name(owner), name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            recording = Recording(0, {recording.uri!r}, "", 0)
            call = load([recording], DecodeOptions(), scratch={(tmp_path / "scratch").as_uri()!r})
            sound = redact_sound(call, call.layout, [], RedactionPolicy())
            store_redacted(sound.files, {(tmp_path / "storage").as_uri()!r}, b"k" * 32)
        """
        process = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=os.environ, check=False)
        assert process.returncode == -9
        kept = [path for path in (tmp_path / "storage").rglob("*") if len(path.parent.name) == 2 and path.is_file()]
        assert kept == []
        assert not list((tmp_path / "scratch").rglob("*.flac")) or place.endswith("_place")


SMALL = "oh zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
LARGE = "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred"
NUMBERS = frozenset(f"{SMALL} {LARGE}".split())
SAMPLES = Path(__file__).parents[4] / "serve_app" / "demo" / "samples"
SPOKEN = ("01_help_line", "03_voicemail", "04_two_files", "07_interview", "08_invoice", "09_repair")  # four real voices


def spoken_numbers(sample: str) -> list[tuple[float, float, int]]:
    """Return (start, end, channel) of each stretch of number words, which are annotated by hand."""
    expected = json.loads((SAMPLES / sample / "expected.json").read_text(encoding="utf-8"))
    found: list[tuple[float, float, int]] = []
    for segment in expected["segments"]:
        channel = int(segment["speaker"] == "customer" and expected["layout"] in ("stereo", "two_files"))
        for word in segment["words"]:
            if word["text"].lower().strip(".,?!") not in NUMBERS:
                continue
            if found and found[-1][2] == channel and word["start"] - found[-1][1] < 0.6:
                found[-1] = (found[-1][0], word["end"], channel)
            else:
                found.append((word["start"], word["end"], channel))
    return found


def number_words(engine: Any, rows: Samples, channel: int, start: float, end: float) -> list[str]:
    """Return the numbers that an engine recognizes in a stretch of a channel, with three seconds around it."""
    from pipeline.domain.speech import Chunk

    first, last = max(0, round((start - 3) * SAMPLE_RATE)), round((end + 3) * SAMPLE_RATE)
    piece = rows[min(channel, len(rows) - 1), first:last].astype(np.float32) / 32768
    (text,) = engine.transcribe([piece], [Chunk(0, 0.0, len(piece) / SAMPLE_RATE, "en")], [()], False)
    inside = [word for word in text.words if start <= first / SAMPLE_RATE + (word.start + word.end) / 2 <= end]
    clean = (word.text.lower().strip(" .,?!$-") for word in inside)
    return [word for word in clean if word in NUMBERS or any(character.isdigit() for character in word)]


@pytest.mark.slow
def test_another_recognizer_finds_no_number_in_redacted_sound(tmp_path: Path) -> None:
    """17 stretches of numbers in six sample calls, four with real voices, by two checkpoints of Whisper."""
    from pipeline.asr import AsrOptions
    from pipeline.asr import load as load_engine
    from tests.engines import store_with

    before, after = [], []
    for model in ("tiny.en", "base"):
        engine = load_engine(AsrOptions(model=model, device="cpu", cpu_threads=1), store_with(f"whisper-{model}"))
        for sample in SPOKEN:
            submission = json.loads((SAMPLES / sample / "submission.json").read_text(encoding="utf-8"))
            files = [SAMPLES / sample / name for name in submission["recordings"]]
            call = loaded(
                tmp_path, *(Recording(at, path.as_uri(), "", path.stat().st_size) for at, path in enumerate(files))
            )
            numbers = spoken_numbers(sample)
            entities = [entity((start, end), channel=channel) for start, end, channel in numbers]
            redacted = stored(tmp_path, redact_sound(call, call.layout, entities, POLICY))
            for start, end, channel in numbers:
                at, row = (channel, 0) if len(redacted) == 2 else (0, channel)
                shift = call.layout.starts[channel] if len(redacted) == 2 else 0.0
                span = (start - shift - GUARD, end - shift + GUARD)
                before.append(number_words(engine, samples_of(call)[at], row, *span))
                after.append(number_words(engine, redacted[at], row, *span))
    print(f"{sum(map(bool, before))} of {len(before)} before, {sum(map(bool, after))} after: {after}")
    assert sum(map(bool, before)) >= 0.7 * len(before), before
    assert not any(after), after
