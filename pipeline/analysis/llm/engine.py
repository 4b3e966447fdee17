"""The engine: built-in findings first, then in their place what a model states and the transcript bears out."""

import logging
from dataclasses import replace

from pipeline.analysis.engine import AnalysisOptions
from pipeline.analysis.evidence import checked as evidence_checked
from pipeline.analysis.llm.answer import ModelAnswer, UnreadableAnswer, parsed, schema
from pipeline.analysis.llm.client import Message, ModelClient, NoAnswer
from pipeline.analysis.llm.findings import MAKERS, VERSION
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.prompt import PromptPart, messages, parts, repair
from pipeline.analysis.llm.reading import ReadAnswer, ground, merged
from pipeline.analysis.step import run_all
from pipeline.domain.insight import Finding, Material

log = logging.getLogger(__name__)


class LanguageModel:
    """Tasks, contact facts, summary, topics, tones and outcome by a model; all else, and every fallback, by rule.

    Bounded by `timeout_seconds`; blocks meanwhile. A part of the call that cannot be had leaves the whole call to the
    rules: half a list of tasks would pass for a whole one.
    """

    def __init__(self, options: AnalysisOptions) -> None:
        self._options = options
        self.name = f"llm {options.model}"

    def analyze(self, material: Material) -> tuple[Finding, ...]:
        built = run_all(material)
        if not any(turn.words for turn in material.transcript.turns):
            return built  # nothing to ask about
        try:
            reading = self._read(material)
        except NoAnswer as error:
            return _all_by_rule(built, str(error))
        except Exception as error:  # its text may hold what was sent, the key among it
            log.error("the language model's answer could not be used: %s", type(error).__name__)
            return _all_by_rule(built, f"its answer could not be used ({type(error).__name__})")
        known = replace(material, findings={finding.step: finding for finding in built})
        return tuple(self._finding(finding, reading, known) for finding in built)

    def _read(self, material: Material) -> ReadAnswer:
        """What the model states about every part. Raises `NoAnswer`."""
        client, grounding = ModelClient(self._options), Grounding(material)
        pieces = parts(material.transcript, self._options.max_transcript_tokens)
        readings = []
        for at, part in enumerate(pieces):
            asked = messages(part, len(pieces), at, self._options.language or material.transcript.language)
            readings.append(ground(_answer(client, asked, part), grounding))
        return merged(readings)

    def _finding(self, built: Finding, reading: ReadAnswer, material: Material) -> Finding:
        make = MAKERS.get(built.step)
        if make is None:
            return built
        dropped, stated = reading.dropped[built.step], reading.stated[built.step]
        note = f"{dropped} of {stated} statements of the model are not borne out by the transcript" if dropped else None
        made = make(reading, built, material)
        if made is None:
            return replace(built, note=_joined(built.note, f"{note}; made by rule")) if dropped else built
        note = _joined(made.note, note) if note else made.note
        finding = replace(made, version=VERSION, value={**made.value, "engine": self.name}, note=note)
        return evidence_checked(finding, material.transcript)


def _answer(client: ModelClient, asked: list[Message], part: PromptPart) -> ModelAnswer:
    """The answer, after one chance to fix it. Raises `NoAnswer`."""
    completion = client.ask(asked, schema())
    if completion.prompt_tokens is not None and completion.prompt_tokens < part.words:
        raise NoAnswer("the endpoint read only a part of what it was sent: its context is too small")
    try:
        return parsed(completion.text)
    except UnreadableAnswer as error:
        fault = str(error)
    try:
        return parsed(client.ask(repair(asked, completion.text, fault), schema()).text)
    except UnreadableAnswer:
        raise NoAnswer("the model's answer does not fit the schema, also when asked once more") from None


def _all_by_rule(built: tuple[Finding, ...], why: str) -> tuple[Finding, ...]:
    log.warning("analysis by rule: %s", why)
    told = f"made by rule, not by the language model: {why}"
    return tuple(
        replace(finding, note=_joined(finding.note, told)) if finding.step in MAKERS else finding for finding in built
    )


def _joined(note: str | None, more: str) -> str:
    return f"{note}; {more}" if note else more
