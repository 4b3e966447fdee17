import hashlib
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.lib import sounds
from pipeline.audio.analyze import Loaded, analyze_audio
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.audio.labels.keypad_digits import Labels, without_digits
from pipeline.domain.insight import Roster
from pipeline.domain.speech import AudioInMemory, Label, LabelKind, Layout, LayoutKind, Recording
from pipeline.domain.stage import Stage
from pipeline.errors import LeaseLost
from pipeline.journal import MemoryJournal
from pipeline.process import process
from pipeline.runtime.workers import LocalWorkers
from tests.support import scenes
from tests.support.calls_by_hand import call

CARD = "4111111111111111"
RING = Label(0.0, 1.0, LabelKind.RINGBACK, 0.9, "425 Hz")


def pressed(*groups: tuple[float, str]) -> tuple[Label, ...]:
    """Return labels of keys from (second, keys), a fifth of a second each."""
    return tuple(Label(at, at + 0.2 * len(keys), LabelKind.DTMF, 0.95, keys) for at, keys in groups)


def kept(*channels: tuple[Label, ...]) -> list[str | None]:
    return [label.detail for channel in without_digits(channels, True) for label in channel]


def test_without_a_wish_nothing_says_which_keys_were_pressed() -> None:
    (labels,) = without_digits(((RING, *pressed((5, "1"), (50, "42#"))),), False)
    assert labels[0] == RING
    assert [(label.detail, label.keys) for label in labels[1:]] == [(None, 1), (None, 3)]


def test_with_it_what_cannot_hold_a_card_is_kept() -> None:
    assert kept(pressed((5, "1"), (50, "49301234567#"), (300, "2"))) == ["1", "49301234567#", "2"]


def test_an_entry_that_may_hold_a_card_is_not() -> None:
    for length in range(12, 24):
        digits = (CARD + "12271234")[:length]
        for entry in (digits, digits + "#", "*" + digits[:4] + "*" + digits[4:]):
            assert kept(pressed((5, entry))) == [None], entry
        assert without_digits((pressed((5, digits)),), True)[0][0].keys == length


@pytest.mark.parametrize("pause", [0.5, 3.0, 12.0, 29.0])
def test_a_card_in_groups_is_one_entry(pause: float) -> None:
    at, groups = 5.0, []
    for first in range(0, 16, 4):
        groups.append((at, CARD[first : first + 4]))
        at += 0.8 + pause
    assert kept(pressed(*groups)) == [None] * 4
    apart = [(5.0 + 0.2 * index + (pause * (index // 4)), digit) for index, digit in enumerate(CARD)]
    assert kept(pressed(*apart)) == [None] * 16


def test_what_is_typed_behind_a_card_is_not_kept_either() -> None:
    assert kept(pressed((5, CARD), (48, "1227#"), (120, "123#"), (500, "2"))) == [None, None, None, "2"]


def test_keys_of_both_channels_are_one_entry_and_an_echo_counts_once() -> None:
    assert kept(pressed((5, CARD[:8])), pressed((8, CARD[8:]))) == [None, None]
    assert kept(pressed((5, "49301234")), pressed((5.1, "493012"))) == ["49301234", "493012"]


def heard(*parts: np.ndarray, keep_digits: bool) -> Labels:
    sound = scenes.line(np.concatenate(parts), np.random.default_rng(0), -65)
    audio = scenes.at_16_khz(sounds.through(sound, "mulaw"))
    assert isinstance(audio, AudioInMemory)
    loaded = Loaded(audio, Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "One channel."))
    return analyze_audio(loaded, SpeechOptions(), 30.0, keep_digits=keep_digits).labels


@pytest.mark.parametrize("keep_digits", [False, True])
async def test_a_call_is_heard_as_its_workspace_wishes(keep_digits: bool, tmp_path: Path, transcriber: Any) -> None:
    rng = np.random.default_rng(3)
    sound = np.concatenate([np.zeros(sounds.RATE), sounds.level(sounds.keys("42", rng), -18), np.zeros(sounds.RATE)])
    file = tmp_path / "menu.wav"
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1), out.setsampwidth(2), out.setframerate(sounds.RATE)
        out.writeframes((sound * 32767).astype("<i2").tobytes())
    fetched = (Recording(0, file.as_uri(), hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size),)
    labels: list[Label] = []

    class StopAfterAudio(MemoryJournal):
        async def record(self, stage: Stage, result: Any) -> None:
            labels.extend(label for label in result.labels[0] if label.kind is LabelKind.DTMF)
            raise LeaseLost  # nothing beyond the audio stage matters here

    journal, roster = StopAfterAudio({Stage.FETCH: fetched}), Roster(keep_digits=keep_digits)
    with pytest.raises(LeaseLost):
        await process(call().call, LocalWorkers(transcriber, None), roster, journal)
    assert [(label.keys, label.detail) for label in labels] == [(2, "42" if keep_digits else None)]


@pytest.mark.parametrize(("keep_digits", "menu"), [(False, None), (True, "2")])
def test_of_a_card_typed_into_a_call_the_audio_stage_says_no_digit(keep_digits: bool, menu: str | None) -> None:
    rng, pause = np.random.default_rng(3), np.zeros(5 * sounds.RATE, np.float32)
    groups = [sounds.level(sounds.keys(CARD[at : at + 4], rng), -18) for at in range(0, 16, 4)]
    card = [part for group in groups for part in (group, pause)]
    long = np.zeros(40 * sounds.RATE, np.float32)
    (labels,) = heard(pause, sounds.level(sounds.keys("2", rng), -18), long, *card, keep_digits=keep_digits)
    typed = [label for label in labels if label.kind is LabelKind.DTMF]
    assert [label.keys for label in typed] == [1, 4, 4, 4, 4]
    assert [label.detail for label in typed] == [menu, None, None, None, None]
    assert all(replace(label, keys=None) == label for label in labels if label not in typed)
