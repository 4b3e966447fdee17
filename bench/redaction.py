"""How much of the personal data in calls is found, and what is hidden that is none?

    python -m bench.redaction [--seed N] [--per-cell N] [--sound N] [--pico COMMAND] [--spliced N]
        [--read N --digits FOLDER --librispeech FOLDER] [--asterisk FOLDER] [--work FOLDER] [--again] [--pii FILE]
        [--json FILE]

- Planted: calls in five languages with one secret each (`lib/planted_secrets.py`), recall by kind and language. A
  secret counts as found if no word of it is left. Cards, codes and expiries: with the kinds of a card only.
- `--sound`: as many calls per kind and language, spoken and recognized by Whisper base (`lib/planted_sound.py`): by
  espeak-ng, or by SVOX Pico, which does not speak Portuguese. `--spliced`: the digits as people recorded them, in
  three languages. `--read`: digits of the Free Spoken Digit Dataset after a sentence of LibriSpeech. With `--work`,
  what is recognized is stored there, a file per call, and a run that was stopped continues.
  A secret counts as found if nothing of its form is left in the turns that carry it, as recognized if half of its
  digits are in the words, and as hidden in sound if at most 0.1 s of each of its words is audible in the redacted
  sound (`lib/planted_score.py`). `--again`: tiny.en, or base where the call is not English, recognizes that sound, and
  the original.
- False redactions per hour: what is hidden in turns without a secret, and in real read speech of the report half
  (`bench.real`), as said and as recognized by both models in four ways, which holds no personal data but a password.
- `--pii`: labeled turns of typed dialogues, by class.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lib import pico, planted_score, planted_secrets, planted_sound
from bench.lib.intervals import wilson
from bench.lib.planted_secrets import LANGUAGES, PlantedCall
from bench.real import outputs
from bench.real.outputs import RecognizedWord, SystemOutput
from bench.real.sources import Half, Sources
from pipeline.domain.redaction import NEEDS_ENGINE, Entity, EntityKind, RedactionMode, RedactionPolicy, RedactionState
from pipeline.domain.speech import Chunk, ChunkText, Recognized, Word, text_of
from pipeline.redaction.detect import find_entities

CARD = frozenset([EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY])
EVERYTHING = frozenset(EntityKind) - NEEDS_ENGINE
WITHOUT_WORDS = EVERYTHING - {EntityKind.HEALTH, EntityKind.PERSON}
MAX_PAUSE = 0.8  # seconds inside a turn
STATED_PASSWORD = "4242"
"""What one recorded prompt states as a password: it is rightly hidden."""
PII_CLASSES = {
    "ssn": "social security number", "phone_number": "phone number", "phonenumber": "phone number", "name": "name",
    "email_address": "email address", "address": "address", "current_zipcode": "zip code", "card_number": "card number",
    "account_number": "account number", "password": "password",
}  # fmt: skip
"""Labels that are personal data, and what an agent asks for."""


def policy(kinds: frozenset[EntityKind]) -> RedactionPolicy:
    return RedactionPolicy(RedactionMode.MASK, tuple(sorted(kinds)))


def entities(recognized: Recognized, kinds: frozenset[EntityKind]) -> tuple[Entity, ...]:
    return find_entities(recognized, policy(kinds)).entities


def hidden(entities_of_call: Iterable[Entity]) -> set[tuple[int, int]]:
    return {(p.text, at) for entity in entities_of_call for p in entity.pieces for at in range(p.first, p.last + 1)}


@dataclass(frozen=True, slots=True)
class Sounding:
    """How calls are spoken: the voice, where recognized words are stored, and whether redacted sound is recognized."""

    say: planted_sound.Say
    folder: Path | None
    again: bool
    whole: bool = False  # the stages of the service recognize it


def planted(calls: Iterable[PlantedCall], sounding: Sounding | None = None) -> dict[str, Any]:
    """Return found and all secrets by kind, language and way, and the secrets that are left.

    `hours` and `false`: of calls that are not spoken, and what is hidden in their turns without a secret.
    """
    cells: dict[str, Counter[str]] = defaultdict(Counter)
    missed = []
    hours, false = 0.0, 0
    for call in calls:
        kinds = CARD if call.kind in CARD else EVERYTHING
        counts: dict[str, int] = {}
        texts = [" ".join(turn.words) for turn in call.turns]
        if sounding:
            outcome = _spoken(call, policy(kinds), sounding)
            is_found, is_recognized = outcome.is_hidden, outcome.recognized
            texts = [outcome.text, outcome.remains, *(outcome.back or ())]
            if outcome.sound is not None:
                counts = {"timed": 1, "sound": outcome.sound, "sound of recognized": outcome.sound and is_recognized}
            if outcome.back is not None:
                counts |= {"again": 1, "back": bool(outcome.back), "plain": bool(outcome.plain)}
        else:
            recognized, secret = call.recognized()
            places = entities(recognized, kinds)
            is_found, is_recognized = secret <= hidden(places), True
            hours += recognized.texts[-1].chunk.end / 3600
            false += sum({p.text for p in entity.pieces}.isdisjoint(text for text, _ in secret) for entity in places)
        for cell in (
            f"kind {call.kind}",
            f"language {call.language}",
            f"way {call.way}",
            f"{call.kind} {call.language}",
        ):
            cells[cell].update(found=is_found, all=1, recognized=is_recognized, both=is_found and is_recognized)
            cells[cell].update(counts)
        if not is_found or not counts.get("sound", True) or counts.get("back"):
            missed.append([call.language, call.kind, call.way, texts, is_recognized, counts])
    return {"cells": {name: dict(c) for name, c in cells.items()}, "missed": missed, "hours": hours, "false": false}


def _spoken(call: PlantedCall, policy: RedactionPolicy, sounding: Sounding) -> planted_score.Outcome:
    transcript = planted_sound.hear(call, sounding.say, sounding.folder, sounding.whole)
    again = ("tiny.en" if call.language == "en" else "base") if sounding.again else None
    return planted_score.outcome(call, policy, transcript, sounding.say, again)


def real_calls() -> Iterator[tuple[str, float, Recognized]]:
    """Yield the calls of the report half: as said, and as recognized by each model."""
    truths = outputs.read_truths(outputs.FOLDER / "truths.jsonl.gz")
    for truth in truths.values():
        texts = [
            _chunk(event.channel, event.onset, event.offset, event.text.split(), event.language or "en")
            for event in truth.events
            if event.text and (event.language or "en") in LANGUAGES
        ]
        if texts:
            yield "as said", truth.duration, Recognized(tuple(texts), "truth")
    for name in ("switchboard", "raw"):
        for output in outputs.read(outputs.FOLDER / f"{name}.jsonl.gz"):
            if output.words and output.call in truths:
                recognized = Recognized(tuple(_turns(output)), output.engine)
                yield f"{output.system} {output.model}", truths[output.call].duration, recognized


def _turns(output: SystemOutput) -> Iterator[ChunkText]:
    """Yield the turns of an output; of one without turns, what is said without a pause."""
    turns: list[list[RecognizedWord]] = []
    for word in sorted(output.words, key=lambda word: (word.channel, word.start)):
        last = turns[-1][-1] if turns else None
        if not last or (last.channel, last.turn) != (word.channel, word.turn) or word.start - last.end > MAX_PAUSE:
            turns.append([])
        turns[-1].append(word)
    for turn in turns:
        words = tuple(Word(w.start, max(w.end, w.start + 0.01), w.text.strip(), w.confidence) for w in turn)
        chunk = Chunk(turn[0].channel, words[0].start, words[-1].end)
        yield ChunkText(chunk, output.language or "en", 1.0, words, 0, 0)


def _chunk(channel: int, start: float, end: float, texts: list[str], language: str) -> ChunkText:
    step = (end - start) / max(1, len(texts))
    words = tuple(Word(start + at * step, start + (at + 1) * step, text, 0.9) for at, text in enumerate(texts))
    return ChunkText(Chunk(channel, start, end), language, 1.0, words, -0.2, 0.0)


def false_redactions() -> dict[str, Any]:
    """Return hours and what is hidden in calls without personal data, with and without names and health."""
    hours: Counter[str] = Counter()
    redacted: dict[str, list[list[str]]] = defaultdict(list)
    for source, seconds, recognized in real_calls():
        redaction = find_entities(recognized, policy(EVERYTHING))
        if redaction.state is RedactionState.COULD_NOT_LOOK:
            redacted[f"{source}, could not look"].append([redaction.reason])
            continue
        hours[source] += seconds / 3600  # type: ignore[assignment]
        for entity in redaction.entities:
            piece = entity.pieces[0]
            text = text_of(recognized.texts[piece.text].words[piece.first : piece.last + 1])
            if re.sub(r"\D", "", text) != STATED_PASSWORD:
                redacted[source].append([entity.kind, text])
    return {
        source: {"hours": hours[source], "found": redacted[source], "all": len(redacted[source]),
                 "numbers": sum(EntityKind(kind) in WITHOUT_WORDS for kind, _ in redacted[source])}
        for source in hours
    }  # fmt: skip


def labeled_turns(path: Path) -> dict[str, Any]:
    """Return, by class of a labeled set, how many spans are hidden with any kind, and with the class's own.

    The turn before is not in the set, so most cues are missing: a span is looked for in its turn alone, and again after
    a question for its class.
    """
    cells: dict[str, Counter[str]] = defaultdict(Counter)
    clean: Counter[str] = Counter()
    for row in json.loads(path.read_text(encoding="utf-8")):
        texts = row["text"].split()
        if not texts:
            continue
        spans = [span for span in row["spans"] if span["label"] in PII_CLASSES]
        recognized = Recognized((_chunk(1, 1.0, 1.0 + 0.4 * len(texts), texts, "en"),), "typed")
        alone = entities(recognized, EVERYTHING - {EntityKind.HEALTH})
        if not row["spans"]:
            clean.update(turns=1, hidden=bool(alone))
        for span in spans:
            question = _chunk(0, 0.0, 0.9, _question(span["label"]).split(), "en")
            asked = Recognized((question, *recognized.texts), "typed")
            after = entities(asked, EVERYTHING - {EntityKind.HEALTH})
            covers = [_covers(recognized, alone, span["text"]), _covers(asked, after, span["text"])]
            cells[span["label"]].update(alone=covers[0], asked=covers[1], all=1)
    return {"classes": {name: dict(count) for name, count in cells.items()}, "without labels": dict(clean)}


def _question(label: str) -> str:
    return f"what is your {PII_CLASSES[label]}"


def _covers(recognized: Recognized, entities_of_call: Iterable[Entity], span: str) -> bool:
    """Return whether every word of a span is hidden where it occurs first."""
    at = len(recognized.texts) - 1
    words = [word.text.lower().strip(".,?!") for word in recognized.texts[at].words]
    labeled = [word.lower().strip(".,?!") for word in span.split()]
    first = next((n for n in range(len(words)) if words[n : n + len(labeled)] == labeled), None)
    return first is not None and {(at, first + n) for n in range(len(labeled))} <= hidden(entities_of_call)


def show(title: str, cells: dict[str, dict[str, int]]) -> None:
    print(f"\n{title}")
    total: Counter[str] = Counter()
    for name, count in sorted(cells.items()):
        if name.startswith("kind"):
            total.update(count)
    for name, count in [*sorted(cells.items()), ("kind: all", dict(total))]:
        if name.startswith(("kind", "language", "way")):
            parts = [_share("found", count["found"], count["all"]),
                     _share("of recognized", count["both"], count["recognized"])]  # fmt: skip
            if "timed" in count:
                parts.append(_share("in sound", count["sound"], count["timed"]))
                parts.append(_share("of recognized", count["sound of recognized"], count["recognized"]))
            if "again" in count:
                parts.append(f"back {count['back']} of {count['again']}, unredacted {count['plain']}")
            print(f"  {name:24} {'  '.join(parts)}")


def _share(name: str, hits: int, count: int) -> str:
    low, high = wilson(hits, count)
    return f"{name} {hits:3} of {count:3} {hits / max(1, count):.3f} ({low:.3f} to {high:.3f})"


def spoken(args: argparse.Namespace) -> dict[str, Any]:
    """Return the results of each mode that is spoken."""
    results: dict[str, Any] = {}
    sources = Sources(librispeech=args.librispeech, asterisk=args.asterisk)

    def run(name: str, title: str, calls: Iterable[PlantedCall], say: planted_sound.Say) -> None:
        folder = args.work / name if args.work else None
        results[name] = planted(calls, Sounding(say, folder, args.again, whole=name == "read"))
        show(title, results[name]["cells"])

    if args.sound:
        calls = planted_sound.spoken_calls(args.seed, args.half, args.sound)
        if args.pico:
            voiced = (call for call in calls if call.language in pico.VOICES)
            run("pico", "Planted, as SVOX Pico says it", voiced, planted_sound.pico(args.pico))
        else:
            run("sound", "Planted, as espeak-ng says it", calls, planted_sound.espeak)
    if args.spliced:
        calls = planted_sound.prompted_calls(args.seed, args.half, args.spliced)
        run("spliced", "Planted, with recorded digits", calls, planted_sound.prompts(sources))
    if args.read:
        calls = planted_sound.read_calls(args.seed, args.half, args.read)
        half: Half = "report" if args.half == "report" else "development"
        say = planted_sound.read_digits(sources, args.digits, half)
        run("read", "Planted, in real read speech", calls, say)
    return results


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("dev", "report"), default="report")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--per-cell", type=int, default=11, help="calls per kind and language")
    parser.add_argument("--sound", type=int, default=0, help="calls per kind and language that are spoken")
    parser.add_argument("--pico", help="the command of SVOX Pico, pico2wave, instead of espeak-ng")
    parser.add_argument("--spliced", type=int, default=0, help="calls per kind and language with recorded digits")
    parser.add_argument("--asterisk", type=Path, help="where the packages of Asterisk's sounds are unpacked")
    parser.add_argument("--read", type=int, default=0, help="calls per kind with digits and a sentence read by people")
    parser.add_argument("--digits", type=Path, help="the recordings of the Free Spoken Digit Dataset")
    parser.add_argument("--librispeech", type=Path, help="where LibriSpeech is unpacked")
    parser.add_argument("--work", type=Path, help="where recognized words are stored, to continue a run")
    parser.add_argument("--again", action="store_true", help="recognize the redacted sound by another model")
    parser.add_argument("--pii", type=Path, help="labeled turns, a JSON list with text and spans")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    args = options()
    results: dict[str, Any] = {"text": planted(planted_secrets.calls(args.seed, args.half, args.per_cell))}
    show("Planted, on text", results["text"]["cells"])
    print(f"  {results['text']['false']} hidden in turns without a secret, in {results['text']['hours']:.2f} h")
    results["false"] = false_redactions()
    for source, count in results["false"].items():
        print(
            f"  {source}: {count['all']} hidden in {count['hours']:.2f} h, {count['numbers']} without names and health"
        )
    if args.pii:
        results["labeled"] = labeled_turns(args.pii)
        for name, count in sorted(results["labeled"]["classes"].items()):
            print(f"  {name:20} alone {count['alone']} asked {count['asked']} of {count['all']}")
        print(f"  turns without labels: {results['labeled']['without labels']}")
    results |= spoken(args)
    if args.json:
        args.json.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
