"""What does Whisper write for windows that the speech detector would reject, and for short real speech?

    python -m bench.training.no_speech.windows --model tiny.en --quiet 700 --speech 1000
    python -m bench.training.no_speech.windows --model base --quiet 350 --speech 450

Windows bypass the detector. Quiet ones are music, tones, fax, clicks and noise; the others are utterances and prompts,
short ones whole, others cut. All of them are of the development half of `bench/real`, over its telephone lines, some of
the speech over noise or music or 30 dB lower. Music is that half's hold music and Debian's frozen-bubble-data. The
results are stored in windows/MODEL.jsonl.gz, which `fit` reads. Takes ten minutes of a core with tiny.en, 20 with base.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.lib import sounds
from bench.real.calls import at_16k
from bench.real.lines import LINES, at_snr, level, noise, pink
from bench.real.outputs import read_rows, write_rows
from bench.real.sources import RATE, Clip, Half, Sound, SourceMissing, Sources, fetch_packages
from bench.real.sources import load as load_sound

KEPT = Path(__file__).parent / "windows"
SEED = 77
OVER = ("gsm", "mulaw", "amr-4.75", "opus-12", "amr-12.2", "wide")
KINDS = (*("music",) * 6, "tone", "fax", "noise", "clicks")
QUIET_SECONDS = (0.6, 0.8, 1.0, 1.3, 1.8, 2.5, 4.0, 6.0)
QUIET_DBFS = (-16.0, -22.0, -30.0, -40.0)
SPEECH_SECONDS = (0.8, 1.2, 1.8, 2.5, 4.0, 6.0)  # of what is cut from longer speech
BEHIND = ("", "", "pink10", "music10", "pink5", "quiet")
PADDING, FLOOR_DBFS = 0.2, -62.0
GAME_MUSIC = "frozen-bubble-data"
A_TRACK = 300_000  # bytes: smaller files are sounds of the game
BATCH = 4
Music = dict[str, Sound]


@dataclass(frozen=True, slots=True)
class ForcedWindow:
    """What is forced on the recognizer."""

    speech: bool
    kind: str
    source: str
    spoken: str  # empty: no words, or a part of a clip with unknown words
    sound: Sound


@dataclass(frozen=True, slots=True)
class RecognizedWindow:
    """What the recognizer made of a window over a line. Without words `first` is 0."""

    speech: bool
    kind: str
    source: str
    line: str
    said: str  # language: ok
    text: str
    no_speech: float  # probability, 0..1
    first: float  # confidence of the first word, 0..1
    mean: float  # log probability per token


def windows(sources: Sources, music: Music, quiet: int, speech: int) -> list[tuple[str, ForcedWindow]]:
    """So many windows of each with the line each goes over; the same ones for the same numbers."""
    draw, rng = random.Random(SEED), np.random.default_rng(SEED)
    result = [_quiet(music, draw, rng) for _ in range(quiet)]
    clips = _clips(sources)
    draw.shuffle(clips)
    result += [_speech(clip, music, draw, rng) for clip in (clips * 3)[:speech]]
    return [_over_a_line(window, draw, rng) for window in result]


def _quiet(music: Music, draw: random.Random, rng: np.random.Generator) -> ForcedWindow:
    kind, seconds = draw.choice(KINDS), draw.choice(QUIET_SECONDS)
    length, source = round(seconds * RATE), kind
    if kind == "music":
        source = draw.choice(list(music))
        first = draw.randrange(0, len(music[source]) - round((seconds + 1) * RATE))
        sound = music[source][first : first + length]
        if draw.random() < 0.4:
            sound = np.concatenate([np.zeros(round(0.3 * RATE), np.float32), sound])
    elif kind == "tone":
        source = draw.choice([*sounds.RINGING, *sounds.ENGAGED])
        frequencies, beats = {**sounds.RINGING, **sounds.ENGAGED}[source]
        sound = at_16k(sounds.cadence(frequencies, beats, seconds, rng))
    elif kind == "fax":
        sound = at_16k(sounds.fax(9, rng))
        first = draw.randrange(0, len(sound) - length)
        sound = sound[first : first + length]
    elif kind == "clicks":
        sound = at_16k(sounds.clicks(seconds, rng))
    else:
        sound = noise(length, int(rng.choice([0, 1, 2])), rng)
    return ForcedWindow(False, kind, source, "", level(sound, draw.choice(QUIET_DBFS)))


def _clips(sources: Sources) -> list[Clip]:
    """Prompts, and so many of each utterance and voice that talk is as frequent as prompts are."""
    half: Half = "development"
    talk = [clip for clips in sources.utterances(half).values() for clip in clips]
    return [*sources.prompts(half), *talk * 6, *sources.voices(half) * 2]


def _speech(clip: Clip, music: Music, draw: random.Random, rng: np.random.Generator) -> ForcedWindow:
    sound, text = clip.load(), clip.text
    if len(sound) > SPEECH_SECONDS[-1] * RATE:
        length = round(draw.choice(SPEECH_SECONDS) * RATE)
        first = draw.randrange(0, len(sound) - length)
        sound, text = sound[first : first + length], ""
    behind = draw.choice(BEHIND)
    sound = level(sound, -23.0)
    if behind.startswith("pink"):
        sound = at_snr(sound, noise(len(sound), 1, rng), float(behind.removeprefix("pink")))
    elif behind == "music10":
        sound = at_snr(sound, music[draw.choice(list(music))][20 * RATE : 40 * RATE], 10.0)
    elif behind == "quiet":
        sound = sound * np.float32(10**-1.5)
    return ForcedWindow(True, f"speech {behind}".strip(), clip.id, text, sound)


def _over_a_line(window: ForcedWindow, draw: random.Random, rng: np.random.Generator) -> tuple[str, ForcedWindow]:
    silence = np.zeros(round(PADDING * RATE), np.float32)
    sound = np.concatenate([silence, window.sound, silence])
    sound = sound + pink(len(sound), FLOOR_DBFS, rng)
    line = draw.choice(OVER)
    sent = np.asarray(LINES[line](sound), np.float32)
    return line, ForcedWindow(window.speech, window.kind, window.source, window.spoken, sent)


def heard(engine: Any, forced: Sequence[tuple[str, ForcedWindow]]) -> Iterator[RecognizedWindow]:
    """Yield the engine's result for each window, in order; progress goes to standard error."""
    from pipeline.domain.speech import Chunk

    for first in range(0, len(forced), BATCH):
        batch = forced[first : first + BATCH]
        chunks = [Chunk(0, 0.0, len(window.sound) / RATE) for _, window in batch]
        texts = engine.transcribe([window.sound for _, window in batch], chunks)
        for (line, window), text in zip(batch, texts, strict=True):
            yield RecognizedWindow(
                window.speech,
                window.kind,
                window.source,
                line,
                window.spoken,
                " ".join(word.text for word in text.words),
                round(text.no_speech_probability, 6),
                round(text.words[0].confidence, 6) if text.words else 0.0,
                round(text.mean_log_probability, 4),
            )
        if first % 100 == 0:
            print(f"{first} of {len(forced)}", file=sys.stderr, flush=True)


def music_of(sources: Sources, folder: Path | None) -> Music:
    """Return the development half's hold music, and the tracks of `GAME_MUSIC` in `folder`; None: download it."""
    tracks = {clip.id: clip.load() for clip in sources.music("development")}
    unpacked = folder or fetch_packages(GAME_MUSIC, (GAME_MUSIC,))
    files = sorted(path for path in unpacked.rglob("*.ogg") if path.stat().st_size > A_TRACK)
    if not files:
        raise SourceMissing(f"There is no music in {unpacked}: is {GAME_MUSIC} unpacked there?")
    return tracks | {path.stem: load_sound(path) for path in files}


def read(model: str) -> list[RecognizedWindow]:
    """Read the stored windows of a model."""
    return [RecognizedWindow(**row) for row in read_rows(KEPT / f"{model}.jsonl.gz")]


def main() -> None:
    """Run the command line."""
    from pipeline import asr

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny.en", help="as SWITCHBOARD_ASR__MODEL")
    parser.add_argument("--quiet", type=int, default=700, metavar="N", help="windows without speech")
    parser.add_argument("--speech", type=int, default=1000, metavar="N", help="windows of speech")
    parser.add_argument("--librispeech", type=Path, help="folder with test-other and train-clean-100 (LIBRISPEECH)")
    parser.add_argument("--asterisk", type=Path, help="folder with Debian's packages unpacked (ASTERISK_SOUNDS)")
    parser.add_argument("--music", type=Path, help=f"folder with Debian's {GAME_MUSIC} unpacked")
    parser.add_argument("--target", type=Path, default=KEPT, help="folder for MODEL.jsonl.gz")
    args = parser.parse_args()
    try:
        sources = Sources(args.librispeech, args.asterisk)
        forced = windows(sources, music_of(sources, args.music), args.quiet, args.speech)
    except SourceMissing as error:
        sys.exit(str(error))
    engine = asr.load(asr.AsrOptions(model=args.model, device="cpu", cpu_threads=1, batch_size=BATCH))
    target = args.target / f"{args.model}.jsonl.gz"
    write_rows(target, (asdict(row) for row in heard(engine, forced)))
    print(target)


if __name__ == "__main__":
    main()
