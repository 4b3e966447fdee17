"""The engine: built-in findings first, then in their place what a model states and the transcript bears out."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from pipeline.analysis.engine import AnalysisOptions
from pipeline.analysis.evidence import checked as evidence_checked
from pipeline.analysis.llm import questions
from pipeline.analysis.llm.answer import ModelAnswer, UnreadableAnswer, complete_items, parsed
from pipeline.analysis.llm.client import Message, ModelClient, NoAnswer
from pipeline.analysis.llm.findings import MAKERS, VERSION
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.prompt import PromptPart, messages, parts, repair
from pipeline.analysis.llm.reading import ReadAnswer, ground, merged
from pipeline.analysis.llm.remembering import RememberingClient, key_of
from pipeline.analysis.questions.step import OwnQuestions, answer, track
from pipeline.analysis.questions.step import finding as finding_of
from pipeline.analysis.step import run_all
from pipeline.domain.insight import Finding, Material, ModelText, ModelTexts

CUT_OFF = "the model's answer was cut off at its longest; what was whole of it is used"
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
        return self.analyze_knowing(material, {})[0]

    def analyze_knowing(
        self, material: Material, known: Mapping[str, ModelText]
    ) -> tuple[tuple[Finding, ...], ModelTexts]:
        """What the model gave before a later part failed is given back, too: it is paid for."""
        built = run_all(material)
        given: ModelTexts = {}
        if not any(turn.words for turn in material.transcript.turns):
            return built, given  # nothing to ask about
        ends = time.monotonic() + self._options.timeout_seconds
        made = self._analyzed(material, built, known, given)
        found = replace(material, findings={finding.step: finding for finding in built})

        def answered(one: Finding) -> Finding:
            return self._answered(one, found, ends, known, given) if one.step == OwnQuestions.name else one

        return tuple(map(answered, made)), given

    def _analyzed(
        self, material: Material, built: tuple[Finding, ...], known: Mapping[str, ModelText], given: ModelTexts
    ) -> tuple[Finding, ...]:
        try:
            reading = self._read(material, known, given)
        except NoAnswer as error:
            return _all_by_rule(built, str(error))
        except Exception as error:  # its text may hold what was sent, the key among it
            log.error("the language model's answer could not be used: %s", type(error).__name__)
            return _all_by_rule(built, f"its answer could not be used ({type(error).__name__})")
        found = replace(material, findings={finding.step: finding for finding in built})
        return tuple(self._finding(finding, reading, found) for finding in built)

    def _answered(
        self, built: Finding, material: Material, ends: float, known: Mapping[str, ModelText], given: ModelTexts
    ) -> Finding:
        """The workspace's own questions: one more request, in what is left of the time."""
        wanted = questions.asked(material)
        if not wanted:
            return built
        client = RememberingClient(self._options, lambda _: questions.schema(wanted), ends, known)
        by_phrases = [answer(one, material) for one in material.roster.questions if one.type != "tracker"]
        trackers = [track(one, material) for one in material.roster.questions if one.type == "tracker"]
        try:
            answers = questions.ask(client, material, wanted, self._options.max_transcript_tokens, by_phrases)
        except Exception as error:  # its text may hold what was sent, the key among it
            why = str(error) if isinstance(error, NoAnswer) else f"its answer cannot be used ({type(error).__name__})"
            log.warning("own questions by phrases: %s", why)
            note = f"answered by phrases, not by the language model: {why}"
            return replace(built, value={**built.value, "answers": questions.unanswered(by_phrases, why)}, note=note)
        given.update(client.given)
        value = {**finding_of(answers, trackers, material).value, "engine": self.name}
        return evidence_checked(replace(built, value=value), material.transcript)

    def _read(self, material: Material, known: Mapping[str, ModelText], given: ModelTexts) -> ReadAnswer:
        """What the model states about every part; `given` gets what it was asked. Raises `NoAnswer`."""
        client, grounding = ModelClient(self._options), Grounding(material, self._options.language)
        pieces = parts(material.transcript, self._options.max_transcript_tokens)
        readings = []
        for at, part in enumerate(pieces):
            asked = messages(part, len(pieces), at, self._options.language or material.transcript.language)
            key = key_of(self._options, asked)
            if key not in known:
                given[key] = _answer(client, asked, part)
            answer, cut_off = _parsed(known.get(key) or given[key])
            readings.append(replace(ground(answer, grounding), cut_off=cut_off))
        return merged(readings)

    def _finding(self, built: Finding, reading: ReadAnswer, material: Material) -> Finding:
        make = MAKERS.get(built.step)
        if make is None:
            return built
        dropped, stated = reading.dropped[built.step], reading.stated[built.step]
        notes = (
            [f"{dropped} of {stated} statements of the model are not borne out by the transcript"] if dropped else []
        )
        notes += [CUT_OFF] if reading.cut_off else []
        note = "; ".join(notes) or None
        made = make(reading, built, material)
        if made is None:
            return replace(built, note=_joined(built.note, f"{note}; made by rule")) if note else built
        note = _joined(made.note, note) if note else made.note
        finding = replace(made, version=VERSION, value={**made.value, "engine": self.name}, note=note)
        return evidence_checked(finding, material.transcript)


def _answer(client: ModelClient, asked: list[Message], part: PromptPart) -> ModelText:
    """The answer, after one chance to fix it. One that was cut off gets none: more room would be needed and not another
    attempt. Raises `NoAnswer`."""
    completion = client.ask(asked)
    if completion.prompt_tokens is not None and completion.prompt_tokens < part.words:
        raise NoAnswer("the endpoint read only a part of what it was sent: its context is too small")
    told = ModelText(completion.text, completion.cut_off)
    try:
        _parsed(told)
    except UnreadableAnswer as error:
        again = client.ask(repair(asked, completion.text, str(error)))
        told = ModelText(again.text, again.cut_off)
        try:
            _parsed(told)
        except UnreadableAnswer:
            raise NoAnswer("the model's answer does not fit the schema, also when asked once more") from None
    return told


def _parsed(told: ModelText) -> tuple[ModelAnswer, bool]:
    """What is stated, and whether it is only what is whole of an answer. Raises `NoAnswer`, `UnreadableAnswer`."""
    if not told.cut_off:
        return parsed(told.text), False
    answer, statements = complete_items(told.text)
    if not statements:
        raise NoAnswer("the model's answer was cut off at its longest, before its first statement was whole")
    return answer, True


def _all_by_rule(built: tuple[Finding, ...], why: str) -> tuple[Finding, ...]:
    log.warning("analysis by rule: %s", why)
    told = f"made by rule, not by the language model: {why}"
    return tuple(
        replace(finding, note=_joined(finding.note, told)) if finding.step in MAKERS else finding for finding in built
    )


def _joined(note: str | None, more: str) -> str:
    return f"{note}; {more}" if note else more
