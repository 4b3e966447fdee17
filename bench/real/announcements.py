"""Are announcements separated from what people say? Real prompts, real voices, real recognition.

    python -m bench.real announcements --half development --folder build/announcements [--judge] [--details]

Places a hundred prompts of Debian's `asterisk-core-sounds-{en,es,fr,it,ru}` at the beginning of a dialogue, in its
middle (half after hold music, half between two turns) or at its end. The dialogues are short turns cut out of
LibriSpeech test-other. Each call exists with separated channels (the rep's and the customer's channel are treated
alike, so one recognition counts for both) and, one call in three, mixed to one channel. English is recognized with
`whisper-tiny.en`, the others with `whisper-base` in the prompt's language: then the English turns become text of that
language, which is one more way to be wrongly taken for a machine.

Sources and halves are those of `sources.py`. What was recognized is kept in the folder; `--judge` only judges it.
"""

import argparse
import asyncio
import pickle
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from scipy.signal import resample_poly

from bench.lib.sounds import RINGING, cadence, level, through
from bench.real.announced import Labeled, LabeledWord, PartVerdict, SpokenPart, keep, verdicts
from bench.real.sources import Clip, Half, Sound, Sources
from pipeline import asr, diarization
from pipeline.audio import analyze
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.speech import (
    AudioAnalysis,
    AudioInMemory,
    Diarization,
    Layout,
    LayoutKind,
    Recognized,
)
from pipeline.runtime.workers import LocalWorkers, RemoteRef
from pipeline.speakers import machines
from pipeline.speakers.channel_voices import needs_voice_check
from pipeline.speakers.machines import Voices
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.seconds import by_machine
from pipeline.steps.machine_voices import cluster_voices
from pipeline.steps.recognize import recognize

RATE = 8000  # Hz
SHARES = {"en": 66, "es": 9, "fr": 9, "it": 9, "ru": 9}
MAX_PROMPT_SECONDS = 15.0  # seconds of a prompt


@dataclass(frozen=True)
class AnnouncementCase:
    """A composed call. `channels` are float32 at 8 kHz; channel `host` carries the prompts."""

    name: str
    language: str
    channels: tuple[Sound, Sound]
    parts: tuple[SpokenPart, ...]


@dataclass(frozen=True)
class RecognizedForm:
    """What the engines made of one form of a call."""

    case: str
    form: str  # separated or mixed
    parts: tuple[SpokenPart, ...]
    audio: AudioAnalysis
    recognized: Recognized
    diarization: Diarization | None
    voices: Voices


def chosen_prompts(sources: Sources, half: Half, language: str) -> list[Clip]:
    """Return `SHARES` of the prompts of four or more words that are whole sentences and short enough."""
    prompts = {
        clip.text: clip
        for clip in sources.prompts(half, language)
        if len(re.findall(r"\w{2,}", clip.text)) >= 4
        and not re.search(r"\.\.\.|…", clip.text)
        and soundfile.info(clip.path).duration <= MAX_PROMPT_SECONDS
    }
    return sorted(prompts.values(), key=lambda clip: zlib.crc32(clip.id.encode()))[: SHARES[language]]


def read(clip: Clip) -> Sound:
    """Read a recording at 8 kHz."""
    return np.asarray(resample_poly(clip.load(), 1, 2), np.float32)


def turns(clips: Sequence[Clip], dbfs: float) -> list[Sound]:
    """Cut a speaker's utterances at pauses into turns of about 1 to 4 seconds."""
    return [piece for clip in clips for piece in cut(level(read(clip), dbfs))]


def cut(sound: Sound) -> list[Sound]:
    """Pieces of a recording between its pauses of 0.15 s, those shorter than 1 s joined to the next."""
    size = RATE // 100
    frames = sound[: len(sound) // size * size].reshape(-1, size)
    levels = np.sqrt(np.mean(frames**2, axis=1))
    loud = levels > np.sqrt(np.percentile(levels, 10) * np.percentile(levels, 95))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], loud.astype(int), [0]])))
    runs: list[list[int]] = []
    for start, end in edges.reshape(-1, 2).tolist():
        if runs and (start - runs[-1][1] < 15 or runs[-1][1] - runs[-1][0] < 100):
            runs[-1][1] = end
        else:
            runs.append([start, end])
    return [sound[max(0, a - 5) * size : (b + 5) * size] for a, b in runs if b - a >= 60]


class Placed:
    """Where the parts of a call are put, one after the other."""

    def __init__(self) -> None:
        self.placed: list[tuple[int, float, Sound]] = []
        self.parts: list[SpokenPart] = []
        self.at = 1.0

    def put(self, channel: int, sound: Sound, gap: float, kind: str = "", place: str = "", text: str = "") -> None:
        end = self.at + len(sound) / RATE
        self.placed.append((channel, self.at, sound))
        if kind:
            self.parts.append(SpokenPart(kind, channel, self.at, end, place, text))
        self.at = end + gap

    def mixed(self, rng: np.random.Generator) -> tuple[Sound, Sound]:
        channels = [rng.normal(0, 10 ** (-62 / 20), round((self.at + 1) * RATE)).astype(np.float32) for _ in range(2)]
        for channel, start, sound in self.placed:
            first = round(start * RATE)
            channels[channel][first : first + len(sound)] += sound
        return channels[0], channels[1]


def cases(sources: Sources, half: Half, languages: Sequence[str]) -> Iterator[AnnouncementCase]:
    """Three prompts to a call: at its beginning, in its middle and at its end."""
    people = [turns(clips, dbfs) for clips, dbfs in zip(sources.utterances(half).values(), (-20, -23), strict=True)]
    music = [read(clip) for clip in sources.music(half)]
    for language in languages:
        mine = chosen_prompts(sources, half, language)
        for index in range(0, len(mine) - 2, 3):
            rng = random.Random(f"{language}{index}{half}")
            yield compose(f"{language}{index:03d}", mine[index : index + 3], people, music, rng)


def compose(
    name: str, prompts: Sequence[Clip], people: Sequence[Sequence[Sound]], music: Sequence[Sound], rng: random.Random
) -> AnnouncementCase:
    score = Placed()
    noise = np.random.default_rng(zlib.crc32(name.encode()))
    prompt_sounds = [level(read(prompt), rng.choice((-18, -20, -22))) for prompt in prompts]

    def talk(count: int) -> None:
        for at in range(count):
            score.put(at % 2, rng.choice(people[at % 2]), rng.choice((0.2, 0.4, 0.7, 1.1, 1.6)), "turn")

    def prompt(at: int, place: str) -> None:
        score.put(0, prompt_sounds[at], rng.choice((0.6, 1.0, 1.3, 2.0)), "prompt", place, prompts[at].text)

    ring = rng.random()
    if ring < 0.3:
        score.put(0, level(cadence(*RINGING["United States"], 8.0, noise), -20), 0.5)
    prompt(0, "begin")
    if ring > 0.75:  # the customer answers the machine by voice
        score.put(1, rng.choice(people[1]), 0.8, "turn")
    talk(3)
    if rng.random() < 0.5:
        piece = rng.choice(music)
        first = rng.randrange(len(piece) - 8 * RATE)
        score.put(0, level(piece[first : first + 7 * RATE], -24), 0.3)
        prompt(1, "after_music")
    else:
        prompt(1, "between")
    talk(3)
    prompt(2, "end")
    return AnnouncementCase(name, prompts[0].language, score.mixed(noise), tuple(score.parts))


async def recorded(workers: LocalWorkers, case: AnnouncementCase, form: str) -> RecognizedForm:
    """Recognize one form of a call."""
    sounds = case.channels if form == "separated" else (case.channels[0] + case.channels[1],)
    lines = np.stack([resample_poly(through(sound, "mulaw"), 2, 1) for sound in sounds])
    audio = AudioInMemory(np.clip(lines * 32768, -32768, 32767).astype(np.int16))
    kind = LayoutKind.STEREO if len(sounds) == 2 else LayoutKind.MONO
    loaded = analyze.Loaded(audio, Layout(kind, len(sounds), len(sounds), 1.0, {}, "composed"))
    engine = await workers.recognition()
    analysis = analyze.analyze_audio(loaded, SpeechOptions(), engine.max_chunk_seconds, engine.packing)
    analysis = replace(analysis, chunks=tuple(replace(chunk, language=case.language) for chunk in analysis.chunks))
    recognized = await recognize(workers, RemoteRef(loaded), analysis, engine.engine, ())
    mixed = await workers.diarize(RemoteRef(loaded)) if form == "mixed" else None
    stretches = needs_voice_check(recognized.texts, len(analysis.labels), mixed.spans if mixed else ())
    voices = await cluster_voices(workers, RemoteRef(loaded), stretches, RoleOptions())
    return RecognizedForm(case.name, form, case.parts, analysis, recognized, mixed, voices)


def record(options: argparse.Namespace, folder: Path) -> None:
    """Recognize what is not in the folder yet."""
    diarizer = diarization.load(diarization.DiarizationOptions(pipeline=options.diarization, device="cpu", threads=1))
    loaded: dict[str, Any] = {}
    sources = Sources(options.librispeech, options.asterisk)
    for case in cases(sources, options.half, options.language or list(SHARES)):
        model = "whisper-tiny.en" if case.language == "en" else "whisper-base"
        if model not in loaded:
            loaded[model] = asr.load(asr.AsrOptions(model=model, device="cpu", cpu_threads=1))
        forms = ("separated", "mixed") if int(case.name[2:]) % 9 == 0 else ("separated",)
        for form in forms:
            path = folder / f"{case.name}-{form}.pickle"
            if not path.is_file():
                path.write_bytes(pickle.dumps(asyncio.run(recorded(LocalWorkers(loaded[model], diarizer), case, form))))


def labeled(recognized: RecognizedForm) -> Labeled:
    """Label the call with this revision."""
    labels = machines.refine(recognized.audio.labels, recognized.recognized.texts, recognized.voices)
    machine = by_machine(labels)
    words = [(text.chunk.channel, word) for text in recognized.recognized.texts for word in text.words]
    labeled_words = tuple(LabeledWord(at, word.start, word.end, word.text, machine(at, word)) for at, word in words)
    return Labeled(recognized.case, recognized.form, recognized.parts, labeled_words)


def show(verdicts: Sequence[PartVerdict], details: bool) -> None:
    """Shares by place, form and language; with `details` what was judged wrong."""
    prompt_verdicts = [v for v in verdicts if v.part.kind == "prompt"]
    people = [v for v in verdicts if v.part.kind == "turn"]
    groups: dict[str, list[PartVerdict]] = {"all prompts": prompt_verdicts}
    for form in ("separated", "mixed"):
        for place in ("begin", "after_music", "between", "end"):
            groups[f"{form}, {place}"] = [v for v in prompt_verdicts if (v.form, v.part.place) == (form, place)]
    for code in SHARES:
        groups[code] = [v for v in prompt_verdicts if v.case.startswith(code)]
    for name, group in groups.items():
        labeled_count = sum(v.labeled for v in group)
        print(f"{name:<28}{labeled_count:>5} of {len(group):>4} labeled  {labeled_count / max(1, len(group)):.3f}")
    for form in ("separated", "mixed"):
        group = [v for v in people if v.form == form]
        wrong = sum(v.labeled for v in group)
        print(
            f"{f'turns of people, {form}':<28}{wrong:>5} of {len(group):>4} labeled  {wrong / max(1, len(group)):.4f}"
        )
    if details:
        for v in prompt_verdicts:
            if not v.labeled:
                print("missed", v.case, v.form, v.part.place, f"{v.share:.2f}", "|", v.part.text, "|", v.words)
        for v in people:
            if v.labeled:
                print("wrong ", v.case, v.form, f"{v.share:.2f}", "|", v.words)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.real announcements",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--half", choices=("development", "report"), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where what was recognized is kept")
    parser.add_argument("--librispeech", type=Path, help="folder with test-other (LIBRISPEECH)")
    parser.add_argument("--asterisk", type=Path, help="folder with Debian's packages unpacked (ASTERISK_SOUNDS)")
    parser.add_argument("--language", action="append", choices=tuple(SHARES), help="only this one; may be repeated")
    parser.add_argument("--diarization", default="segmentation-3.0+campplus", help="pipeline for mixed calls")
    parser.add_argument("--judge", action="store_true", help="recognize nothing")
    parser.add_argument("--keep", action="store_true", help="write what `make figures` scores: report half only")
    parser.add_argument("--details", action="store_true", help="print what was judged wrong")
    options = parser.parse_args(arguments)
    folder = options.folder / options.half
    folder.mkdir(parents=True, exist_ok=True)
    if not options.judge:
        record(options, folder)
    calls = [labeled(pickle.loads(path.read_bytes())) for path in sorted(folder.glob("*.pickle"))]
    show([verdict for call in calls for verdict in verdicts(call)], options.details)
    if options.keep:
        keep(calls)
