"""Answers of a real language model, stored as they arrive, so that a killed bench resumes; scores of the model alone.

One JSON line per request: its key, the answer or the error, seconds, and the tokens of each attempt.
"""

import json
import statistics
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import Any

from pipeline.analysis import AnalysisOptions, ask, conclude, model_requests
from pipeline.analysis.llm.asking import blocking, read
from pipeline.analysis.llm.client import NoAnswer
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.reading import ReadAnswer, ground, merged
from pipeline.analysis.rules.sentiment.sentiment import tone
from pipeline.domain.insight import Finding, Material, ModelAnswers, ModelRequest, ModelText, Topic, Unanswered


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--base-url", help="an OpenAI-compatible endpoint: judge a language model")
    parser.add_argument("--model", help="its name there")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one call in all (default 120)")
    parser.add_argument("--at-once", type=int, default=1, help="requests at once (default 1)")
    parser.add_argument("--answers", type=Path, help="keep the model's answers in this file, and ask only for others")


def options_of(arguments: Namespace) -> AnalysisOptions:
    """Return the options: rules only, unless an endpoint is given; SWITCHBOARD_ANALYSIS__API_KEY holds its key."""
    if not arguments.base_url:
        return AnalysisOptions()
    return AnalysisOptions(
        engine="llm",
        base_url=arguments.base_url,
        model=arguments.model,
        api_key=environ.get("SWITCHBOARD_ANALYSIS__API_KEY"),
        timeout_seconds=arguments.timeout,
    )


class _Counted:
    """`Spending` without a limit: the tokens of each attempt, prompt and answer."""

    def __init__(self) -> None:
        self.attempts: list[tuple[int, int]] = []

    async def reserve(self, prompt_tokens: int, completion_tokens: int) -> "_Counted":
        return self

    async def settle(self, prompt_tokens: int, completion_tokens: int, estimated: bool = False) -> None:
        self.attempts.append((prompt_tokens, completion_tokens))


class StoredAnswers:
    """What the model answered, by the keys of requests; asks for what is not there yet."""

    def __init__(self, options: AnalysisOptions, path: Path | None) -> None:
        self._options, self._path = options, path
        self._lines: dict[str, dict[str, Any]] = {}
        self._writing = threading.Lock()
        if path and path.exists():
            lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            self._lines = {line["key"]: line for line in lines}

    def findings(self, material: Material, topic: Topic | None = None) -> tuple[Finding, ...]:
        """Return the findings of the product's engine: rules and model joined. `topic`: send its requests only."""
        self.ask_all([material], topic)
        return conclude(material, self._options, self._answers())

    def ask_all(self, calls: Sequence[Material], topic: Topic | None = None, at_once: int = 1) -> None:
        """Ask what is not known yet, of so many calls at once, in their order."""
        every = (request for call in calls for request in self._requests(call))
        open_ones = [request for request in every if request.key not in self._lines and topic in (None, request.topic)]
        with ThreadPoolExecutor(at_once) as threads:
            for done, _ in enumerate(threads.map(self._ask, open_ones), 1):
                print(f"\r{done} of {len(open_ones)} requests", end="", file=sys.stderr, flush=True)

    def _requests(self, material: Material) -> tuple[ModelRequest, ...]:
        return model_requests(material, self._options, {})

    def _answers(self) -> ModelAnswers:
        lines = self._lines.items()
        texts = {key: ModelText(line["text"], line["cut_off"]) for key, line in lines if "text" in line}
        return ModelAnswers(texts, {key: Unanswered(line["why"]) for key, line in lines if "why" in line})

    def _ask(self, request: ModelRequest) -> None:
        counted = _Counted()
        line: dict[str, Any] = {"key": request.key, "topic": request.topic}

        async def keep(key: str, text: ModelText) -> None:
            line.update(text=text.text, cut_off=text.cut_off)

        started = time.perf_counter()
        unanswered = blocking(lambda: ask([request], self._options, keep, counted))
        line |= {"seconds": round(time.perf_counter() - started, 2), "attempts": counted.attempts}
        if request.key in unanswered:
            line["why"] = unanswered[request.key].reason
        with self._writing:
            self._keep(line, again=request.key in unanswered and unanswered[request.key].down)

    def _keep(self, line: dict[str, Any], again: bool) -> None:
        """`again`: the endpoint was down, so that a later run asks once more."""
        self._lines[line["key"]] = line
        if self._path and not again:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def reading(self, material: Material) -> ReadAnswer:
        """Return the model's statements that the transcript supports; nothing without an answer."""
        readings = []
        for request in self._requests(material):
            if request.topic == "call":
                try:
                    answer, cut_off = read(self._answers().texts[request.key])
                except (KeyError, NoAnswer):
                    return ReadAnswer()
                readings.append(replace(ground(answer, Grounding(material)), cut_off=cut_off))
        return merged(readings)

    def cost(self, materials: list[Material], topic: Topic = "call") -> dict[str, float | int]:
        """Seconds and tokens of a call, and how its answers ended."""
        asked = [
            [
                self._lines[request.key]
                for request in self._requests(call)
                if request.topic == topic and request.key in self._lines
            ]
            for call in materials
        ]
        every = [line for lines in asked for line in lines]
        per_call = {
            "seconds": [sum(line["seconds"] for line in lines) for lines in asked],
            "prompt tokens": [sum(sent for line in lines for sent, _ in line["attempts"]) for lines in asked],
            "answer tokens": [
                sum(answer_tokens for line in lines for _, answer_tokens in line["attempts"]) for lines in asked
            ],
        }
        return {
            **{f"{name}, median": statistics.median(values) for name, values in per_call.items()},
            **{f"{name}, most": max(values) for name, values in per_call.items()},
            "answers": len(every),
            "asked once more": sum(len(line["attempts"]) > 1 for line in every),
            "cut off": sum(line.get("cut_off", False) for line in every),
            "no answer": sum("why" in line for line in every),
        }


def alone(reading: ReadAnswer) -> dict[str, Any]:
    """Return a reading in the scorer's form; direction, agent and match are never the model's."""
    facts = {name: reading.facts[name].text if name in reading.facts else None for name in _FIELDS}
    return {
        "outgoing": None,
        "agent": {"userId": None, "name": None},
        "tasks": [_task(task.task) for task in reading.tasks],
        "contact": {**facts, "match": None},
        "tone": {label: tone(score).label for label, (_, score) in reading.tones.items()},
        "topics": [topic.text for topic in reading.topics],
        "summary": " ".join(sentence.text for sentence in reading.sentences),
        "outcome": reading.outcome and reading.outcome.text,
    }


_FIELDS = ("name", "company", "email", "phone", "address")
NOT_ITS_OWN = ("direction", "agent", "contact match")
"""Figures that say nothing of the model alone."""


def _task(task: Any) -> dict[str, Any]:
    due = task.due_date.isoformat() if task.due_date else None
    return {"text": task.title, "owner": task.owner, "due_date": due, "turn": task.evidence.turn}


def dropped(readings: list[ReadAnswer]) -> dict[str, tuple[int, int]]:
    """Return by kind of statement how many the transcript did not support, and the total."""
    refused = sum((reading.dropped for reading in readings), Counter())
    stated = sum((reading.stated for reading in readings), Counter())
    return {kind: (refused[kind], count) for kind, count in sorted(stated.items())}
