"""Messages to the model: instructions, and the transcript as numbered turns in a block that speakers cannot close."""

import hashlib
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.analysis.llm.answer import OUTCOMES, schema
from pipeline.domain.insight import Topic
from pipeline.domain.speech import Role, Transcript, Turn, Word, text_of

Message = dict[str, str]  # role, content

BYTES_PER_TOKEN = 3  # of UTF-8; most tokenizers need fewer tokens than that
OVERLAP = 6  # turns repeated from the part before, so that an answer follows its question
SHARE = 4  # max. one in so many tokens of a part is overlap

EXAMPLES = Path(__file__).parent / "examples"  # one file for each language

INSTRUCTIONS = Path(__file__).parent / "instructions"  # one file for each topic

SENTENCES = 4
MAX_LINE = 119  # characters of a line of the instructions

MAX_REPAIRED = 20_000  # characters of an answer in a repair request
REPAIR = """\
That cannot be read. {fault}
Send the whole JSON object once more, corrected, and nothing else. It must fit the schema; quotes are copied exactly."""


@dataclass(frozen=True, slots=True)
class PromptPart:
    """Lines of a transcript for one request."""

    lines: tuple[str, ...]

    @property
    def words(self) -> int:
        return sum(len(line.split()) for line in self.lines)


@dataclass(frozen=True, slots=True)
class Example:
    """A short call and the answer expected for it."""

    lines: tuple[str, ...]
    answer: dict[str, Any]


@cache
def instructions_of(topic: Topic) -> str:
    """Return the template of the instructions, without its last line break."""
    return (INSTRUCTIONS / f"{topic}.txt").read_text(encoding="utf-8").removesuffix("\n")


@cache
def example_of(language: str | None) -> Example:
    """Return the example in a language, by its code (de, pt-BR); in English if there is none."""
    code = (language or "").lower().partition("-")[0]
    paths = {path.stem: path for path in EXAMPLES.glob("*.json")}
    example = json.loads(paths.get(code, paths["en"]).read_text(encoding="utf-8"))
    lines = (f"[{at}] {speaker} ({speaker}): {text}" for at, (speaker, text) in enumerate(example["lines"]))
    return Example(tuple(lines), example["answer"])


def tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def parts(transcript: Transcript, max_tokens: int) -> list[PromptPart]:
    """Split the transcript into parts of at most `max_tokens`, each with the last turns of the part before it.

    A turn that is longer than the overlap is cut between words; its pieces keep its number.
    """
    lines = [line for turn in transcript.turns for line in lines_of(turn, transcript, max_tokens // SHARE)]
    prompt_parts: list[PromptPart] = []
    current: list[str] = []
    size = fresh = 0
    for line in lines:
        if fresh and size + tokens(line) > max_tokens:
            prompt_parts.append(PromptPart(tuple(current)))
            current, fresh = _tail(current, max_tokens // SHARE), 0
            size = sum(map(tokens, current))
        current.append(line)
        size, fresh = size + tokens(line), fresh + 1
    return [*prompt_parts, PromptPart(tuple(current))] if fresh else prompt_parts


def _tail(lines: list[str], max_tokens: int) -> list[str]:
    tail: list[str] = []
    for line in reversed(lines[-OVERLAP:]):
        if sum(map(tokens, tail)) + tokens(line) > max_tokens:
            break
        tail.insert(0, line)
    return tail


def lines_of(turn: Turn, transcript: Transcript, max_tokens: int) -> Iterator[str]:
    """Yield a turn as lines of at most `max_tokens`, each with its number, speaker and role."""
    role = next((speaker.role for speaker in transcript.speakers if speaker.label == turn.speaker), Role.UNKNOWN)
    head = f"[{turn.index}] {turn.speaker} ({'machine' if turn.machine else role.value}): "
    words: list[Word] = []
    size = tokens(head)
    for word in turn.words:
        if words and size + tokens(" " + word.text) > max_tokens:
            yield head + text_of(words)
            words, size = [], tokens(head)
        words.append(word)
        size += tokens(" " + word.text)
    if words:
        yield head + text_of(words)


def enclosed(lines: Sequence[str]) -> str:
    """Return lines in a block that no speaker can close: its mark is a hash of its text."""
    text = "\n".join(lines)
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"BEGIN {mark}\n{text}\nEND {mark}"


def messages(part: PromptPart, of: int, at: int, language: str | None) -> list[Message]:
    """Return the instructions and part `at` (from 0) of `of`.

    The instructions are the same for all calls of a language: a server that caches prefixes processes them once.
    """
    example = example_of(language)
    instructions = instructions_of("call").format(
        sentences=SENTENCES if of == 1 else 2,
        lines="\n".join(example.lines),
        outcome=_outcome_instruction(),
        example=json.dumps(example.answer, ensure_ascii=False),
        language=f"the language {language}" if language else "the language of the call",
        schema=json.dumps(schema(), ensure_ascii=False),
    )
    which = "" if of == 1 else f"PromptPart {at + 1} of {of} of one call; state what this part holds.\n"
    return [
        {"role": "system", "content": instructions},
        {"role": "user", "content": which + enclosed(part.lines)},
    ]


@cache
def _outcome_instruction() -> str:
    listed = ", ".join(f"{outcome} ({meaning})" if meaning else outcome for outcome, meaning in OUTCOMES.items())
    return textwrap.fill(f"outcome: {listed}; null if none fits or this part does not tell.", MAX_LINE)


def repair(asked: Sequence[Message], answer: str, fault: str) -> list[Message]:
    return [
        *asked,
        {"role": "assistant", "content": answer[:MAX_REPAIRED]},
        {"role": "user", "content": REPAIR.format(fault=fault)},
    ]
