"""Are members known by voice in short mixed calls, and strangers not?

    python -m bench.real.members run HALF FILE.json [--librispeech FOLDER]
    python -m bench.real.members show FILE.json

Every voice of a half that speaks for 8 s or more is enrolled from the first part of what it says, over three lines.
The second parts make calls of two voices in one channel, about 10 to 60 s, that go through the whole pipeline with
real weights: each voice in six or more, in turns of 0.7 to 6 s, over five lines, the second voice up to 6 dB lower.
Each call is asked three times: the first voice is a member's and the second a stranger's, the reverse, and neither is
a member's; all other voices of the half are members'. Besides, who is a member is asked for alone, as where the sender
says who handled the call. A speaker stands for the voice that it holds most of. Compared are the voiceprints of the
diarizer and those after reclustering. `show` counts: every figure comes from the file.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.real.calls import Builder, ComposedCall, finish
from bench.real.lines import level
from bench.real.mixes import pieces_of, turns
from bench.real.sources import RATE, Half, Sound, Sources
from bench.real.systems import Switchboard
from bench.real.voices import ENOUGH, ENROLLED, LEAST, LONGEST, OVER, net, on_line, read, show, written
from pipeline.domain.insight import MemberVoiceprint, Roster
from pipeline.domain.speech import Diarization, SpeakerSpan, Voiceprint
from pipeline.domain.voices import VoiceSample
from pipeline.speakers.profile import learn
from pipeline.speakers.roles import RoleOptions, member_by_voice
from pipeline.voice.calibration import calibration_of

TURNS = {"short": (0.7, 2.2), "mid": (1.2, 4.0), "long": (2.0, 6.0)}  # seconds
GAPS = (0.2, 0.4, 0.7, 1.1)  # seconds between turns
QUIETER = 6.0  # dB
SAID = 25.0  # seconds at most of a voice in one call
COUNTED = (
    *("right", "wrong", "not named", "strangers named"),
    *("said who: right", "said who: wrong", "said who: not named"),
    *("speakers", "voiceprints", "seconds said", "seconds with the wrong voice"),
)
WAYS = {"diarization": "the diarizer's", "reclustering": "after reclustering"}
Row = dict[str, Any]


def parts(half: Half, sources: Sources) -> dict[str, tuple[Sound, Sound]]:
    """What each voice is enrolled from, and what it says in calls; at one level."""
    found = {}
    for clip in sources.voices(half):
        sound = level(clip.load())
        if len(net(sound)) >= LEAST * RATE:
            found[clip.speaker] = (sound[: len(sound) // 2], sound[len(sound) // 2 :])
    for name, clips in sources.utterances(half).items():
        said = np.concatenate([level(clip.load()) for clip in clips])
        found[name] = (said[: round(LONGEST * RATE)], said[-round(SAID * RATE) :])
    return found


def calls(half: Half, voices: Mapping[str, tuple[Sound, Sound]]) -> list[tuple[str, str, str, str]]:
    """First voice, second voice, length of turns and line: each voice with six others. Any first ones are a sample."""
    names = sorted(voices)
    made = [
        (first, names[(number + stride) % len(names)], kind, OVER[number % len(OVER)])
        for stride, kind in enumerate(TURNS, 1)
        for number, first in enumerate(names)
    ]
    random.Random(half).shuffle(made)
    return made


def composed(
    half: Half, voices: Mapping[str, tuple[Sound, Sound]], first: str, second: str, kind: str, line: str
) -> ComposedCall:
    """A call of two voices in turn, in one channel."""
    name = f"{first}-{second}-{kind}"
    rng = random.Random(name)
    built = Builder(rng.randrange(1 << 30))
    lower = np.float32(10 ** (-rng.uniform(0, QUIETER) / 20))
    own = [pieces_of(voices[first][1], rng, TURNS[kind]), pieces_of(lower * voices[second][1], rng, TURNS[kind])]
    at = 0.5
    for turn in range(max(map(len, own))):
        for channel, speaker in enumerate((first, second)):
            if turn < len(own[channel]):
                at = built.put(channel, at, own[channel][turn].sound, "speech", name, speaker=speaker)
                at += rng.choice(GAPS)
    built.pad(0.5)
    return finish(built, built.lines(), name, half, kind, line, "mixed")


def run(half: Half, sources: Sources, model: str, pipeline: str, count: int | None = None) -> Iterator[Row]:
    """Rows: voiceprints of the first parts, then calls with what each stage says."""
    from pipeline.diarization import DiarizationOptions, load

    engine = load(DiarizationOptions(pipeline=pipeline, device="cpu", threads=1))
    voices = parts(half, sources)
    for name, (first, _) in voices.items():
        for line in ENROLLED:
            made = engine.voiceprint([on_line(net(first), line, f"{name}/{line}")])
            if made is not None:
                yield {"speaker": name, "line": line} | written(made)
    system = Switchboard(model, model, pipeline)
    for chosen in calls(half, voices)[:count]:
        call = composed(half, voices, *chosen)
        with tempfile.TemporaryDirectory() as folder:
            system(call.write(Path(folder)))
        said = {way: _said(system.recorded[way]) for way in WAYS}
        yield {"call": call.name, "seconds": call.duration, "turns": turns(call), "said": said}


def _said(diarization: Diarization) -> Row:
    return {
        "spans": [(span.start, span.end, span.speaker) for span in diarization.spans],
        "voiceprints": {label: written(made) for label, made in diarization.voiceprints.items()},
    }


def figures(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """What became of each question, by whose voiceprints were asked and by the length of turns."""
    known = _known([row for row in rows if "speaker" in row])
    heard = [row for row in rows if "call" in row]
    found = {"voices": {"profiles": len(known), "calls": len(heard), "seconds": sum(row["seconds"] for row in heard)}}
    for way, title in WAYS.items():
        for kind in (*TURNS, "all"):
            chosen = [row for row in heard if kind in ("all", row["call"].rpartition("-")[2])]
            found[f"{title}, turns: {kind}"] = dict(_asked(chosen, way, known))
    return found


def _known(rows: Sequence[Row]) -> dict[str, list[Voiceprint]]:
    samples: dict[str, list[VoiceSample]] = {}
    for row in rows:
        samples.setdefault(row["speaker"], []).append(VoiceSample(row["line"], read(row)))
    calibration = calibration_of(rows[0]["model"])
    learned = {name: learn(own, {}, calibration, ENOUGH).centroids for name, own in samples.items()}
    return {name: [one.voiceprint for one in centroids] for name, centroids in learned.items() if centroids}


def _asked(rows: Sequence[Row], way: str, known: Mapping[str, Sequence[Voiceprint]]) -> dict[str, float]:
    tally = dict.fromkeys(COUNTED, 0.0)
    for row in rows:
        said = row["said"][way]
        prints = {label: read(made) for label, made in said["voiceprints"].items()}
        held = _held([SpeakerSpan(*span) for span in said["spans"]], row["turns"])
        stands_for = {label: max(own, key=lambda voice: own[voice]) for label, own in held.items()}
        parties = row["call"].split("-")[:2]
        for member, stranger in (parties, parties[::-1]):
            tally[_named(prints, stands_for, member, known, {stranger})] += 1
            tally[f"said who: {_named(prints, stands_for, member, known, set(), member)}"] += 1
        tally["strangers named"] += _named(prints, stands_for, "", known, set(parties)) != "not named"
        tally["speakers"] += len(held)
        tally["voiceprints"] += len(prints)
        tally["seconds said"] += sum(sum(own.values()) for own in held.values())
        tally["seconds with the wrong voice"] += sum(sum(own.values()) - max(own.values()) for own in held.values())
    return tally


def _named(
    prints: Mapping[str, Voiceprint],
    stands_for: Mapping[str, str],
    member: str,
    known: Mapping[str, Sequence[Voiceprint]],
    strangers: set[str],
    said: str | None = None,
) -> str:
    """What the pipeline makes of the voiceprints: "right", "wrong" or "not named"."""
    members = [MemberVoiceprint(name, one) for name, own in known.items() if name not in strangers for one in own]
    found = member_by_voice(list(stands_for), prints, Roster(voiceprints=tuple(members)), said, RoleOptions())
    if found is None:
        return "not named"
    label, best = found
    return "right" if best.name == member == stands_for[label] else "wrong"


def _held(spans: Sequence[SpeakerSpan], said: Sequence[tuple[float, float, str]]) -> dict[str, dict[str, float]]:
    """Seconds of each voice that each speaker holds."""
    held: dict[str, dict[str, float]] = {}
    for span in spans:
        own = held.setdefault(span.speaker, {})
        for start, end, voice in said:
            own[voice] = own.get(voice, 0.0) + max(0.0, min(span.end, end) - max(span.start, start))
    return held


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("run")
    making.add_argument("half", choices=("development", "report"))
    making.add_argument("file", type=Path)
    making.add_argument("--librispeech", type=Path)
    making.add_argument("--calls", type=int, help="the first so many only")
    making.add_argument("--model", default="tiny.en")
    making.add_argument("--pipeline", default="segmentation-3.0+campplus", help="as SWITCHBOARD_DIARIZATION__PIPELINE")
    showing = commands.add_parser("show")
    showing.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        with options.file.open("w") as file:
            sources = Sources(options.librispeech)
            for row in run(options.half, sources, options.model, options.pipeline, options.calls):
                print(json.dumps(row), file=file, flush=True)
    show(figures([json.loads(line) for line in options.file.read_text().splitlines()]))


if __name__ == "__main__":
    main()
