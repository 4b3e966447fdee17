"""Does the service understand real telephone calls? Words, speakers, machines, names and what was done.

    python -m bench.real telephone --folder FOLDER [--engine clustering] [--raw] [--texts] [--detail] [--json FILE]

The calls are of the Gridspace-Stanford Harper Valley corpus (Wu et al., 2020, CC BY 4.0): people who play an agent and
a customer of a bank over telephone lines, one recording per party. FOLDER is `data` of a clone of
https://github.com/cricketclub/gridspace-stanford-harper-valley. It can also hold NAME.json with the same facts and
NAME.flac with the agent on the first channel.

Each recording is processed with separate channels and mixed to one. The human transcripts are analyzed as they are, in
lower case without punctuation, and with capitals and punctuation. The expected action follows from the task that the
customer was given, so an agent who skips it counts as missed.
"""

import argparse
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from bench.analysis import material
from bench.real.calls import SoundEvent, Truth
from bench.real.normalize import words as normalized
from bench.real.outputs import SystemOutput
from bench.real.score import cp_errors, score
from bench.real.sources import Sound
from bench.real.systems import RAW_WAYS, Raw, Switchboard
from pipeline.analysis import analyze
from pipeline.domain.insight import Finding
from pipeline.domain.vocabulary import ActionKind
from pipeline.evaluation.matching import same_field

RECORDED = "0002f70f7386445b 0091a706bc604188 00d676d7058c49bb 010eaccb7a23436f 01f7ec3700424bc0 03a17cc36d474151"
READ = (
    f"{RECORDED} 00f7dce6fc3849a2 0188295665114e74 0377245f73a54480 04a1020bb9bc4a45 05e4cfa661ed4215 07c275cd57b84685 "
    "08f12faa2b594aa6 0b41e7d162844d45 0e2ad0dd8a6f4f83 115fbdc950404a3f 1d1ad6e932d44146 b3cd48f1fc864de0"
)
PARTIES = {"agent": "rep", "caller": "customer", "customer": "customer"}
START = "2020-06-01T15:33:00-07:00"
ACTIONS = {  # by the task that the customer was given; other tasks are questions
    "replace card": ActionKind.ORDER,
    "transfer money": ActionKind.TRANSFER,
    "schedule appointment": ActionKind.APPOINTMENT,
    "pay bill": ActionKind.PAYMENT,
    "order checks": ActionKind.ORDER,
    "reset password": ActionKind.RESET,
}
TURN_PAUSE = 2.0  # seconds between segments of one turn
WORD_SECONDS = 0.3  # of a word in a transcript without ends
_QUESTION = re.compile(r"^(?:(?:and|okay|uh|alright|hi) )*(?:how|which|what|is there|can you|did you)\b")
_NAMED = re.compile(r"(?<=name is )\w+(?: \w+)?|harper \w+ national bank|\bi\b|\b(?:mon|tues|wednes|thurs|fri)day\b")


@dataclass(frozen=True, slots=True)
class Segment:
    """What a party ("rep" or "customer") says without a pause, in lower case."""

    party: str
    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class TelephoneCall:
    """A call with its human transcript, the names of both parties and the customer's task."""

    name: str
    agent: str
    customer: str
    task: dict[str, Any]
    segments: tuple[Segment, ...]

    def truth(self, duration: float, mixed: bool) -> Truth:
        """Return what `bench.real.score` compares with."""
        events = tuple(
            SoundEvent(int(s.party == "customer"), s.start, s.end, s.start, s.end, "speech", self.name, s.party, s.text)
            for s in self.segments
        )
        return Truth(self.name, "development", "telephone", 1 if mixed else 2, mixed, duration, "en", events)

    def said_by(self, party: str) -> list[str]:
        return [word for segment in self.segments if segment.party == party for word in normalized(segment.text)]


def read(folder: Path, name: str) -> TelephoneCall:
    """Return a call of either form of the folder; without ends a turn lasts as long as its words do in speech."""
    if not (folder / "transcript").is_dir():
        data = json.loads((folder / f"{name}.json").read_text())
        ends = [turn.get("end", turn["start"] + WORD_SECONDS * len(turn["text"].split())) for turn in data["turns"]]
        turns = [(t["speaker"], t["start"], end, t["text"]) for t, end in zip(data["turns"], ends, strict=True)]
        return TelephoneCall(name, data["agent_name"], data["caller_name"], data["task"], _segments(turns))
    data = json.loads((folder / "metadata" / f"{name}.json").read_text())
    rows = json.loads((folder / "transcript" / f"{name}.json").read_text())
    times = [(row["offset_ms"] / 1000, (row["offset_ms"] + row["duration_ms"]) / 1000) for row in rows]
    turns = [(row["speaker_role"], *time, row["human_transcript"]) for row, time in zip(rows, times, strict=True)]
    names = data["agent"]["metadata"]["agent_name"], data["caller"]["metadata"]["first and last name"]
    return TelephoneCall(name, *names, data["tasks"][0], _segments(turns))


def _segments(turns: Iterable[tuple[str, float, float, str]]) -> tuple[Segment, ...]:
    spoken = (Segment(PARTIES[speaker], start, end, text) for speaker, start, end, text in turns)
    return tuple(sorted((s for s in spoken if normalized(s.text)), key=lambda s: s.start))


def sound_of(folder: Path, name: str) -> tuple[Sound, int]:
    """Return the channels of a call, shape (2, n), and the sample rate."""
    if not (folder / "audio").is_dir():
        samples, rate = soundfile.read(folder / f"{name}.flac", dtype="float32", always_2d=True)
        return samples.T, rate
    files = [soundfile.read(folder / "audio" / party / f"{name}.wav", dtype="float32") for party in ("agent", "caller")]
    size = max(len(samples) for samples, _ in files)
    return np.stack([np.pad(samples, (0, size - len(samples))) for samples, _ in files]), files[0][1]


def marked(call: TelephoneCall, cased: bool) -> list[dict[str, Any]]:
    """Return the turns of the human transcript as `bench.analysis` reads them; `cased`: with capitals and signs."""
    turns: list[dict[str, Any]] = []
    for before, segment in pairwise((None, *call.segments)):
        assert segment is not None
        text = re.sub(r"\s*(?:\[\w+\]|<\w+>)\s*", " ", segment.text).strip()
        text = _cased(text, call) if cased else text
        if before and before.party == segment.party and segment.start - before.end <= TURN_PAUSE:
            turns[-1] |= {"end": segment.end, "text": f"{turns[-1]['text']} {text}"}
        else:
            times = {"start": segment.start, "end": segment.end}
            turns.append({"index": len(turns), "speaker": segment.party, "text": text, **times})
    return turns


def _cased(text: str, call: TelephoneCall) -> str:
    names = "|".join({*call.agent.lower().split(), *call.customer.lower().split(), "smart electric"})
    sign = "?" if _QUESTION.match(text) else "."
    text = re.sub(rf"\b(?:{names})\b", lambda match: match[0].title(), text)
    text = _NAMED.sub(lambda match: match[0].title(), text)
    return f"{text[:1].upper()}{text[1:]}{sign}"


def understood(call: TelephoneCall, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return what the findings say of names, the action and the outcome, and whether it is right."""
    of = {finding.step: finding.value for finding in findings}
    names = {
        "rep": of["agent"]["spoken_name"],
        "customer": (of["contacts"]["heard"].get("name") or {}).get("value"),
    }
    actions = of["actions"]["actions"]
    kind = ACTIONS.get(call.task["task_type"])
    action = next((action for action in actions if action["kind"] == kind), None)
    details = {name: action is not None and right(action) for name, right in _details(call.task).items()}
    return {
        "named": {
            party: _right_name(call, party, names[party], name)
            for party, name in (("rep", call.agent), ("customer", call.customer))
        },
        "names": names,
        "action": None if kind is None else action is not None,
        "details": details,
        "invented": sum(item["kind"] != kind for item in actions),
        "actions": actions,
        "outcome": of["summary"]["outcome"],
        "summary": of["summary"]["text"],
    }


def _right_name(call: TelephoneCall, party: str, name: str | None, expected: str) -> bool:
    """Return whether a name is the party's, or as it was said in its place; a party who says none has none."""
    spoken = call.said_by(party)
    if not set(normalized(expected)) & set(spoken):
        return name is None
    return name is not None and (same_field("name", name, expected) or set(normalized(name)) <= set(spoken))


def _details(task: dict[str, Any]) -> dict[str, Any]:
    """Return tests of an action by detail."""
    tests: dict[str, Any] = {}
    if amount := task.get("transfer amount") or task.get("money amount"):
        tests["amount"] = lambda action: action["amount"] == float(amount)
    if day := task.get("day"):
        tests["day"] = lambda action: action["date"] and f"{date.fromisoformat(action['date']):%A}" == day
        time = f"{datetime.strptime(task['time'], '%I:%M %p'):%H:%M}"
        tests["time"] = lambda action: action["time"] == time
    if address := task.get("home address"):
        tests["address"] = lambda action: same_field("address", action["address"], address)
    return tests


def text_row(call: TelephoneCall, cased: bool) -> dict[str, Any]:
    """Analyze the human transcript of a call."""
    turns = marked(call, cased)
    call_input = {
        "language": "en",
        "startTime": START,
        "durationSeconds": turns[-1]["end"],
        "roster": [],
        "contacts": [],
    }
    row = understood(call, analyze(material({"input": {**call_input, "turns": turns}})))
    return {"call": call.name, "form": "cased text" if cased else "uncased text", **row}


def recording_row(call: TelephoneCall, form: str, seconds: float, system: Switchboard, output: SystemOutput) -> Any:
    """Compare one processed form of a recording with its truth."""
    truth = call.truth(seconds, form == "mixed")
    assert system.outcome is not None
    transcript = system.outcome.transcript
    right_words: dict[str, list[bool]] = defaultdict(list)
    for turn in transcript.turns:
        role = output.roles[turn.speaker]
        party = max(PARTIES.values(), key=lambda party: _shared(call, party, turn.start, turn.end))
        right_words[party] += [role == party] * len(turn.words)
    return {
        "call": call.name,
        "form": form,
        **_word_errors(truth, output),
        "cp_errors": cp_errors(truth, output)[0],
        "machine_turns": sum(turn.machine for turn in transcript.turns),
        "voices": len({turn.speaker for turn in transcript.turns}),
        "roles_right": all(2 * sum(right) > len(right) for right in right_words.values()) and len(right_words) == 2,
        **understood(call, system.outcome.findings),
    }


def _shared(call: TelephoneCall, party: str, start: float, end: float) -> float:
    return sum(max(0.0, min(end, s.end) - max(start, s.start)) for s in call.segments if s.party == party)


def _word_errors(truth: Truth, output: SystemOutput) -> dict[str, int]:
    events = score(truth, output).events
    return {
        "words": sum(event.words for event in events),
        "errors": sum(event.substituted + event.deleted + event.inserted for event in events),
    }


def recording_rows(folder: Path, names: Sequence[str], model: str, checkpoint: str, engine: str) -> Iterable[Any]:
    """Process each recording with separate channels, and mixed."""
    system = Switchboard(model, checkpoint, "auto", engine=engine)
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            call, (channels, rate) = read(folder, name), sound_of(folder, name)
            for form, path in _written(channels, rate, Path(scratch), name).items():
                yield recording_row(call, form, channels.shape[1] / rate, system, system(path))


def raw_rows(folder: Path, names: Sequence[str], model: str, checkpoint: str) -> Iterable[dict[str, Any]]:
    """Transcribe each channel with faster-whisper alone."""
    from pipeline.asr.whisper_model import CHECKPOINTS
    from pipeline.checkpoints import resolve

    with tempfile.TemporaryDirectory() as scratch:
        for way in RAW_WAYS:
            raw = Raw(way, model, resolve(checkpoint, CHECKPOINTS, "cpu").folder)
            for name in names:
                call, (channels, rate) = read(folder, name), sound_of(folder, name)
                path = _written(channels, rate, Path(scratch), name)["separate"]
                truth = call.truth(channels.shape[1] / rate, mixed=False)
                yield {"call": name, "form": f"raw {way}", **_word_errors(truth, raw(path))}


def _written(channels: Sound, rate: int, folder: Path, name: str) -> dict[str, Path]:
    """Write both forms of a recording as 16-bit files."""
    forms = {"separate": channels.T, "mixed": np.clip(channels.sum(axis=0), -1, 1)}
    paths = {form: folder / f"{name}-{form}.wav" for form in forms}
    for form, samples in forms.items():
        soundfile.write(paths[form], samples, rate, subtype="PCM_16")
    return paths


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures of each form."""
    by_form: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_form[row["form"]].append(row)
    return {form: _figures(form_rows) for form, form_rows in by_form.items()}


def _figures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {"calls": len(rows)}
    if "words" in rows[0]:
        words = sum(row["words"] for row in rows)
        result["WER, %"] = round(100 * sum(row["errors"] for row in rows) / words, 1)
    if "cp_errors" in rows[0]:
        result["cpWER, %"] = round(100 * sum(row["cp_errors"] for row in rows) / words, 1)
        result["turns of people labeled as machine"] = sum(row["machine_turns"] for row in rows)
        result["two voices"] = _share(row["voices"] == 2 for row in rows)
        result["agent and customer right"] = _share(row["roles_right"] for row in rows)
    if "named" in rows[0]:
        result["agents named"], result["callers named"] = (
            _share(row["named"][party] for row in rows) for party in ("rep", "customer")
        )
        result["actions"] = _share(row["action"] for row in rows if row["action"] is not None)
        for detail in ("amount", "day", "time", "address"):
            result[f"actions: {detail}"] = _share(row["details"][detail] for row in rows if detail in row["details"])
        result["actions invented"] = sum(row["invented"] for row in rows)
        result["outcome refused"] = sum(row["outcome"] == "refused" for row in rows)
    return result


def _share(answers: Iterable[Any]) -> str:
    right = [bool(answer) for answer in answers]
    return f"{sum(right)} of {len(right)}"


def table(results: dict[str, dict[str, Any]]) -> str:
    """Format one line per figure, one column per form."""
    names = list(dict.fromkeys(name for of in results.values() for name in of))
    lines = [f"{'':36}" + "".join(f"{form:>14}" for form in results)]
    lines += [f"{name:36}" + "".join(f"{of.get(name, '-'):>14}" for of in results.values()) for name in names]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.real telephone", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="the corpus, or NAME.json and NAME.flac")
    parser.add_argument("--call", action="append", help="measure this call instead; may be repeated")
    parser.add_argument("--model", choices=("base", "tiny.en"), default="base")
    parser.add_argument("--engine", default="pyannote", help="diarization of mixed calls: pyannote or clustering")
    parser.add_argument("--texts", action="store_true", help="analyze the human transcripts only")
    parser.add_argument("--raw", action="store_true", help="also run faster-whisper alone")
    parser.add_argument("--detail", action="store_true", help="print the row of each call")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures and the row of each call")
    options = parser.parse_args(arguments)
    calls = [read(options.folder, name) for name in options.call or READ.split()]
    rows = [text_row(call, cased) for cased in (False, True) for call in calls]
    if not options.texts:
        names, checkpoint = options.call or RECORDED.split(), f"whisper-{options.model}"
        rows += recording_rows(options.folder, names, options.model, checkpoint, options.engine)
        rows += raw_rows(options.folder, names, options.model, checkpoint) if options.raw else []
    if options.detail:
        print(*(json.dumps(row) for row in rows), sep="\n")
    results = figures(rows)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps({"figures": results, "calls": rows}, indent=1) + "\n")
