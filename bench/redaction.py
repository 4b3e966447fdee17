"""How much of the personal data in calls is found, and what is hidden that is none?

    python -m bench.redaction [--seed N] [--per-cell N] [--sound N] [--piper MODEL] [--spliced N] [--pii FILE]
        [--asterisk FOLDER] [--json FILE]

- Planted: calls in five languages with one secret each (`lib/planted_secrets.py`), recall by kind and language. A
  secret counts as found if no word of it is left. Cards, codes and expiries: with the kinds of a card only.
- `--sound`: as many calls per kind and language, spoken and recognized by Whisper base (`lib/planted_sound.py`): by
  espeak-ng, or in English by a voice of Piper. `--spliced`: the digits as people recorded them, in three languages. A
  secret counts as found if nothing of its form is left in the turns that carry it, and as recognized if half of its
  digits are in the words.
- False redactions per hour: what is hidden in turns without a secret, and in real read speech of the report half
  (`bench.real`), as said and as recognized by both models in four ways, which holds no personal data but a password.
- `--pii`: labeled turns of typed dialogues, by class.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.lib import planted_secrets, planted_sound
from bench.lib.intervals import wilson
from bench.lib.planted_secrets import LANGUAGES, PlantedCall
from bench.real import outputs
from bench.real.outputs import RecognizedWord, SystemOutput
from bench.real.sources import Sources
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


def planted(calls: Iterable[PlantedCall], say: planted_sound.Say | None = None) -> dict[str, Any]:
    """Return found and all secrets by kind, language and way, and the secrets that are left.

    `hours` and `false`: of calls that are not spoken, and what is hidden in their turns without a secret.
    """
    cells: dict[str, Counter[str]] = defaultdict(Counter)
    missed = []
    hours, false = 0.0, 0
    for call in calls:
        kinds = CARD if call.kind in CARD else EVERYTHING
        is_recognized = True
        if say:
            outcome = planted_sound.heard(call, policy(kinds), *planted_sound.recognize(call, say))
            is_found, is_recognized = outcome.is_hidden, outcome.recognized
        else:
            recognized, secret = call.recognized()
            places = entities(recognized, kinds)
            is_found = secret <= hidden(places)
            hours += recognized.texts[-1].chunk.end / 3600
            false += sum({p.text for p in entity.pieces}.isdisjoint(text for text, _ in secret) for entity in places)
        for cell in (
            f"kind {call.kind}",
            f"language {call.language}",
            f"way {call.way}",
            f"{call.kind} {call.language}",
        ):
            cells[cell].update(found=is_found, all=1, recognized=is_recognized, both=is_found and is_recognized)
        if not is_found:
            missed.append([call.language, call.kind, call.way, [" ".join(turn.words) for turn in call.turns]])
    return {"cells": {name: dict(c) for name, c in cells.items()}, "missed": missed, "hours": hours, "false": false}


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
    for name, count in sorted(cells.items()):
        if name.startswith(("kind", "language", "way")):
            low, high = wilson(count["found"], count["all"])
            share, of_recognized = count["found"] / count["all"], f"{count['both']} of {count['recognized']}"
            print(
                f"  {name:24} {count['found']:4} of {count['all']:4}  {share:.3f} ({low:.3f} to {high:.3f})"
                f"  {of_recognized} recognized"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("dev", "report"), default="report")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--per-cell", type=int, default=11, help="calls per kind and language")
    parser.add_argument("--sound", type=int, default=0, help="calls per kind and language that are spoken")
    parser.add_argument("--piper", type=Path, help="a voice of Piper, instead of espeak-ng")
    parser.add_argument("--spliced", type=int, default=0, help="calls per kind and language with recorded digits")
    parser.add_argument("--asterisk", type=Path, help="where the packages of Asterisk's sounds are unpacked")
    parser.add_argument("--pii", type=Path, help="labeled turns, a JSON list with text and spans")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
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
    if args.sound:
        calls = planted_secrets.calls(args.seed, args.half, args.sound + 1)
        spoken = (call for call in calls if call.way != "typed")
        say = planted_sound.piper(args.piper) if args.piper else planted_sound.espeak
        results["sound"] = planted((call for call in spoken if call.language == "en" or not args.piper), say)
        show("Planted, on synthetic sound", results["sound"]["cells"])
    if args.spliced:
        calls = planted_sound.spliced_calls(args.seed, args.half, args.spliced)
        results["spliced"] = planted(calls, planted_sound.spliced(Sources(asterisk=args.asterisk)))
        show("Planted, with recorded digits", results["spliced"]["cells"])
    if args.json:
        args.json.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
