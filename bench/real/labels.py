"""Are labels right by class, how much speech do they keep, and how many beginnings of utterances do they cut?

    python -m bench.real labels --half development [--line mulaw] [--json FILE]

Voices of the half with pauses, over noise, over and between hold music; prompts in five languages; hold music; tones;
machines; each over every line. Nothing is recognized: what recognition makes of it is for `python -m bench.real`.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.real import catalog
from bench.real.calls import FLOOR, Builder, SoundEvent
from bench.real.lines import LINES, MACHINES, at_snr, energy, level, noise, pink, telephone_band
from bench.real.sources import RATE, Clip, Half, Sound, SourceMissing, Sources
from pipeline.audio.labels import labeling
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.speech import AudioInMemory, Label, LabelKind

CODECS = ("mulaw", "gsm", "amr-4.75")
PAUSES = (0.3, 0.6, 1.0, 1.5, 2.5, 4.0)  # seconds between utterances
BESIDE_MUSIC = (0.1, 0.3, 0.6, 1.0, 2.0)  # seconds between music and who speaks
LOUD_DB, STRONG_DB = 25.0, 15.0  # below an utterance's loud moments: speech; speech without breath
JOINED_DB = 38.0  # what is joined to strong speech belongs to it down to here
MAX_JOINED_FRAMES = 25  # frames of 10 ms
EDGE = 0.3  # seconds of an utterance's beginning and end that are looked at
CUT = 0.05  # seconds of them missing: cut
RIGHT = {
    "announcement": {"speech"},  # the words decide later between person and machine
    "noise": {"noise", "silence"},
    "silence": {"silence", "noise"},
}
MINUTE = 60 * RATE  # samples of noise, repeated: the spectrum of an hour takes minutes
Mask = npt.NDArray[np.bool_]  # per 10 ms


@dataclass
class Tally:
    """What labels say of the events of one kind."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by label
    loud: float = 0.0
    loud_speech: float = 0.0
    utterances: int = 0
    begin_cut: int = 0
    end_cut: int = 0

    def row(self, kind: str) -> dict[str, Any]:
        """Shares in percent."""
        total = sum(self.seconds.values())
        right = sum(self.seconds.get(label, 0.0) for label in RIGHT.get(kind, {kind}))
        row: dict[str, Any] = {"seconds": round(total, 1), "right": _percent(right, total)}
        most_first = sorted(self.seconds.items(), key=itemgetter(1), reverse=True)
        wrong = {label: _percent(seconds, total) for label, seconds in most_first}
        row["labels"] = {label: share for label, share in wrong.items() if share >= 0.05}
        if self.utterances:
            row |= {"utterances": self.utterances, "loud speech kept": _percent(self.loud_speech, self.loud)}
            row |= {"begin cut": _percent(self.begin_cut, self.utterances)}
            row |= {"end cut": _percent(self.end_cut, self.utterances)}
        return row


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def spoken_frames(sound: Sound) -> tuple[int, int, Mask]:
    """First and last frame (exclusive) of what is said in a clean clip, and which frames are loud.

    In the telephone band: below it a reader's breath and lips are as loud as the voice. What is said begins with the
    first strong moment and what is joined to it before; a pause follows a breath.
    """
    decibel = energy(telephone_band(sound))
    top = np.quantile(decibel, 0.95)
    strong = np.flatnonzero(np.convolve(decibel > top - STRONG_DB, np.ones(3), "same") >= 3)
    audible = decibel > max(np.quantile(decibel, 0.02) + 10, top - JOINED_DB)
    first = _walk(audible, int(strong[0]), -1, 2)
    last = _walk(audible, int(strong[-1]), 1, 7) + 1
    loud = decibel > top - LOUD_DB
    loud[:first] = loud[last:] = False
    return first, last, loud


def _walk(audible: Mask, start: int, step: int, gap: int) -> int:
    """Return the furthest audible frame from `start`, over gaps of up to `gap` frames."""
    reached = at = start
    while 0 <= at < len(audible) and abs(at - start) <= MAX_JOINED_FRAMES and abs(at - reached) <= gap:
        reached = at if audible[at] else reached
        at += step
    return reached


def judge(
    labels: Sequence[Label], events: Sequence[SoundEvent], clips: dict[str, Clip], tallies: dict[str, Tally]
) -> None:
    """Add what labels say of the events of one channel."""
    kinds = np.full(int(labels[-1].end * 100) + 2, "silence", "<U12") if labels else np.zeros(0, "<U12")
    for label in labels:
        kinds[round(label.start * 100) : round(label.end * 100)] = label.kind.value
    for event in events:
        tally = tallies[event.kind]
        first = round(event.start * 100)
        if event.kind not in ("speech", "announcement"):
            for kind, count in Counter(kinds[first : round(event.end * 100)].tolist()).items():
                tally.seconds[kind] += count / 100
            continue
        begin, end, loud = spoken_frames(clips[event.source].load())
        frame_kinds = kinds[first : first + len(loud)]
        loud, speech = loud[: len(frame_kinds)], frame_kinds == LabelKind.SPEECH.value
        for kind, count in Counter(frame_kinds[loud].tolist()).items():
            tally.seconds[kind] += count / 100
        tally.loud += loud.sum() / 100
        tally.loud_speech += (loud & speech).sum() / 100
        tally.utterances += 1
        edge, missing = round(EDGE * 100), round(CUT * 100)
        tally.begin_cut += int(np.sum(~speech[begin : begin + edge]) >= missing)
        tally.end_cut += int(np.sum(~speech[max(begin, end - edge) : end]) >= missing)


def _as_it_is(sound: Sound) -> Sound:
    return sound


def scenes(sources: Sources, half: Half) -> Iterator[tuple[str, Builder, Callable[[Sound], Sound]]]:
    """Name, what is put on channel 0, and what is done to it before the line."""
    voices = [*sources.voices(half), *(clip for clips in sources.utterances(half).values() for clip in clips)]
    built = in_a_row(voices, "speech")
    yield "voices", built, _as_it_is
    yield "voices, 30 dB lower", built, lambda sound: np.asarray(sound * 10 ** (-30 / 20), np.float32)
    for decibel in (10, 5):
        yield f"voices over pink noise, {decibel} dB", built, _over_pink(decibel)
    for decibel in (10, 5):
        yield f"voices over music, {decibel} dB", built, _over(sources.music(half), decibel)
    yield "voices between music", between_music(voices, sources.music(half)), _as_it_is
    for language in ("en", "es", "fr", "it", "ru"):
        some = [clip for clip in sources.prompts(half, language) if len(clip.text.split()) >= 4]
        yield f"prompts {language}", in_a_row(random.Random(1).sample(some, 15), "announcement"), _as_it_is
    yield "hold music", music(sources.music(half)), _as_it_is
    yield "tones", tones(sources, half), _as_it_is
    yield "machines", machines(half), _as_it_is


def _over_pink(decibel: float) -> Callable[[Sound], Sound]:
    return lambda sound: at_snr(sound, noise(MINUTE, 1, np.random.default_rng(5)), decibel)


def _over(pieces: Sequence[Clip], decibel: float) -> Callable[[Sound], Sound]:
    music = np.concatenate([clip.load()[15 * RATE : 75 * RATE] for clip in pieces])
    return lambda sound: at_snr(sound, music, decibel)


def in_a_row(clips: Sequence[Clip], kind: str) -> Builder:
    """Clips with pauses."""
    rng, built, at = random.Random(7), Builder(7), 1.0
    for clip in rng.sample(list(clips), len(clips)):
        at = built.say(0, at, clip, kind) + rng.choice(PAUSES)
    built.pad(1.0)
    return built


def between_music(voices: Sequence[Clip], pieces: Sequence[Clip]) -> Builder:
    """Compose 10 s of a piece, speech, and 8 s of the piece, with every pause of `BESIDE_MUSIC`."""
    rng, built, at = random.Random(4), Builder(3), 1.0
    order = iter(rng.sample(list(voices), len(voices)))
    for piece in pieces:
        sound = level(piece.load(), -24)
        for index, pause in enumerate(BESIDE_MUSIC * 2):
            start = (20 + index * 12) * RATE
            clip = next(order)
            at = built.put(0, at, sound[start : start + 10 * RATE], "music", piece.id) + pause
            begin, end, _ = spoken_frames(clip.load())
            at = built.say(0, at - begin / 100, clip) - (len(clip.load()) / RATE - end / 100) + pause
            at = built.put(0, at, sound[start + 10 * RATE : start + 18 * RATE], "music", piece.id) + 3.0
    return built


def music(pieces: Sequence[Clip]) -> Builder:
    """Ninety seconds of each piece."""
    built, at = Builder(31), 1.0
    for piece in pieces:
        at = built.put(0, at, level(piece.load()[: 90 * RATE]), "music", piece.id) + 3.0
    return built


def tones(sources: Sources, half: Half) -> Builder:
    """Ringing, busy, keys, beeps and special information tones of `catalog.tones`, and a real machine's beep."""
    call = catalog.tones(sources, half, "tones")
    built = Builder(32)
    for event in call.events:
        special = event.source == "special information tone"
        piece = call.samples[0, round(event.start * RATE) : round(event.end * RATE)]
        built.put(0, event.start, piece, "busy" if special else event.kind, event.source)
    at = call.duration + 2.0
    for _ in range(3):
        at = built.put(0, at, level(sources.prompt("beep").load(), -18), "beep", "Asterisk's beep") + 3.0
    return built


def machines(half: Half) -> Builder:
    """Twelve seconds of each machine, at two levels."""
    rng = np.random.default_rng(61 if half == "development" else 62)
    built, at = Builder(35), 1.0
    for name, make in MACHINES.items():
        for dbfs in (-24, -38):
            sound = make(12.0, rng) * np.float32(10 ** (dbfs / 20))
            at = built.put(0, at, sound, "noise", name) + 4.0
    return built


def measure(sources: Sources, half: Half, lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per scene, line and kind of event; the last one is the cost."""
    clips = {clip.id: clip for clip in sources.voices(half)}
    clips |= {clip.id: clip for speaker_clips in sources.utterances(half).values() for clip in speaker_clips}
    for language in ("en", "es", "fr", "it", "ru"):
        clips |= {clip.id: clip for clip in sources.prompts(half, language)}
    rows: list[dict[str, Any]] = []
    took = duration = 0.0
    for name, built, treat in scenes(sources, half):
        floor = np.resize(pink(MINUTE, FLOOR, np.random.default_rng(6)), len(built.channels[0]))
        treated = treat(built.channels[0] + floor)
        for line in lines:
            sound = LINES[line](treated)
            audio = AudioInMemory(np.clip(np.round(sound * 32768), -32768, 32767).astype(np.int16)[None])
            before = time.process_time()
            (labels,) = labeling.label(audio, SpeechOptions())
            took, duration = took + time.process_time() - before, duration + audio.duration
            tallies: dict[str, Tally] = defaultdict(Tally)
            judge(labels, built.events, clips, tallies)
            rows += [{"scene": name, "line": line, "kind": kind, **tally.row(kind)} for kind, tally in tallies.items()]
            print(*(f"{key}={value}" for row in rows[-len(tallies) :] for key, value in row.items()), flush=True)
    rows.append({"processor seconds per minute": round(60 * took / duration, 3)})
    print(rows[-1])
    return rows


def main(arguments: Sequence[str]) -> None:
    """Print a line for each scene, line and kind; exit with a message where a source is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.real labels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=("development", "report"), required=True)
    parser.add_argument("--line", action="append", choices=tuple(LINES), help="only this one; may be repeated")
    parser.add_argument("--librispeech", type=Path, help="folder with test-other and train-clean-100 (LIBRISPEECH)")
    parser.add_argument("--asterisk", type=Path, help="folder with Debian's packages unpacked (ASTERISK_SOUNDS)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    args = parser.parse_args(arguments)
    try:
        rows = measure(Sources(args.librispeech, args.asterisk), args.half, args.line or CODECS)
    except SourceMissing as error:
        sys.exit(str(error))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
