"""The prompts for a language model, as files that people review. `make generate` writes them.

Other texts are another version of the findings (`pipeline/analysis/llm/findings.py`): `versions.txt` has the digest of
each version's texts, and takes no second one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

from pipeline.analysis.llm import call_answers, questions
from pipeline.analysis.llm.findings import VERSION
from pipeline.analysis.llm.prompt import Message, messages, parts, repair
from pipeline.domain.questions import Question
from pipeline.engines.registry import digest_of
from tests.support.calls_by_hand import call

FOLDER = Path(__file__).parent / "fixtures" / "prompts"
VERSIONS = "versions.txt"
LANGUAGES = ("de", "en", "es", "fr", "it")  # Italian has no example
LINES = (("rep", "Good morning."), ("customer", "I cancel, {please}."))
ASKED = (
    Question("why", "text", question="Why do they call?"),
    Question("plan", "choice", question="Which plan?", party="customer", choices={"basic": (), "gold": ()}),
)


def rendered() -> dict[str, str]:
    """Return the texts by file name."""
    material = call(*LINES)
    (part,) = parts(material.transcript, 1000)
    asked = questions.asked(replace(material, roster=replace(material.roster, questions=ASKED)))
    texts: dict[str, Sequence[Message]] = {
        **{f"call.{language}.txt": messages(part, 1, 0, language) for language in LANGUAGES},
        "part.txt": messages(part, 3, 1, "en")[1:],
        "repair.txt": repair((), "{", "It is not JSON."),
        "questions.txt": questions.messages(asked, part),
    }
    return {name: _shown(messages) for name, messages in texts.items()}


def _shown(messages: Sequence[Message]) -> str:
    return "".join(f"--- {message['role']}\n{message['content']}\n" for message in messages)


def _asked() -> Sequence[Message]:
    """Return the prompt of a question about calls, which is no part of the findings."""
    calls = [call_answers.AskedCall(UUID(int=1), datetime(2026, 11, 2, 9), call(*LINES).transcript)]
    question = "Who cancels, {and} why?"
    return call_answers.messages(question, call_answers.choose(question, calls, 1000))


def versions(texts: Mapping[str, str], recorded: str) -> str:
    """Return the lines of `versions.txt` with these texts. Raises ValueError if their version has others."""
    lines = dict(line.split() for line in recorded.splitlines())
    digest = digest_of(dict(texts))
    if lines.setdefault(str(VERSION), digest) != digest:
        raise ValueError(f"version {VERSION} of the findings has other texts: raise VERSION in llm/findings.py")
    return "".join(f"{version} {digest}\n" for version, digest in lines.items())


def files() -> dict[str, str]:
    """Return every file of the folder by name."""
    texts = rendered()
    return {
        **texts,
        "ask.txt": _shown(_asked()),
        VERSIONS: versions(texts, (FOLDER / VERSIONS).read_text(encoding="utf-8")),
    }
