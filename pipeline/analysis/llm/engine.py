"""The engine: replaces built-in findings by the statements of a model that the transcript supports."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipeline.analysis.engine import AnalysisOptions, Keep, Spending
from pipeline.analysis.evidence import checked as evidence_checked
from pipeline.analysis.llm import questions
from pipeline.analysis.llm.asking import ask, blocking, key_of, read
from pipeline.analysis.llm.client import NoAnswer
from pipeline.analysis.llm.findings import MAKERS, VERSION
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.prompt import messages, parts
from pipeline.analysis.llm.questions import AskedQuestion
from pipeline.analysis.llm.reading import ReadAnswer, ground, merged
from pipeline.analysis.questions.step import QuestionsStep, answer, track
from pipeline.analysis.questions.step import finding as finding_of
from pipeline.analysis.rules.summary.summary import SummaryStep
from pipeline.analysis.step import run_all
from pipeline.domain.insight import Finding, Material, ModelAnswers, ModelRequest, ModelText, ModelTexts, Unanswered

CUT_OFF = "the model's answer was cut off at the token limit; its complete parts are used"
log = logging.getLogger(__name__)


class NotAsked(NoAnswer):
    """No request was sent to the model; `code` states why."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


class LanguageModel:
    """Tasks, contact facts, summary, topics, tones and outcome by a model; everything else, and every fallback, by
    rule.

    `timeout_seconds` limits all requests. If the answer for one part of the call is missing, the rules analyze the
    whole call: half a list of tasks would look complete.
    """

    def __init__(self, options: AnalysisOptions) -> None:
        self._options = options
        self.name = f"llm {options.model}"

    def analyze(self, material: Material) -> tuple[Finding, ...]:
        """Analyze the call; blocks until the model has answered."""
        texts: ModelTexts = {}

        async def keep(key: str, text: ModelText) -> None:
            texts[key] = text

        unanswered = blocking(lambda: self.ask(self.requests(material, {}), keep))
        return self.conclude(material, ModelAnswers(texts, unanswered))

    def requests(self, material: Material, cached: Mapping[str, ModelText]) -> tuple[ModelRequest, ...]:
        if not _has_words(material):
            return ()
        analyzed = _with_findings(material, run_all(material)) if material.roster.questions else material
        try:
            requests = [*self._of_call(analyzed), *self._of_questions(analyzed, questions.asked(analyzed))]
        except Exception as error:  # `conclude` fails the same way and notes it
            log.error("the language model cannot be asked: %s", type(error).__name__)
            return ()
        return tuple(request for request in requests if request.key not in cached)

    async def ask(
        self, requests: Sequence[ModelRequest], keep: Keep, spending: Spending | None = None
    ) -> dict[str, Unanswered]:
        return await ask(requests, self._options, keep, spending)

    def conclude(self, material: Material, answers: ModelAnswers) -> tuple[Finding, ...]:
        built = run_all(material)
        if not _has_words(material):
            return built
        analyzed = _with_findings(material, built)
        findings = {finding.step: finding for finding in self._analyzed(analyzed, built, answers)}
        findings[QuestionsStep.name] = self._answered(findings[QuestionsStep.name], analyzed, answers)
        return tuple(findings.values())

    def _of_call(self, material: Material) -> list[ModelRequest]:
        pieces = parts(material.transcript, self._options.max_transcript_tokens)
        language = self._options.language or material.transcript.language
        prompts = (messages(part, len(pieces), at, language) for at, part in enumerate(pieces))
        return [
            ModelRequest(key_of(self._options, prompt), "call", tuple(prompt), words=part.words)
            for part, prompt in zip(pieces, prompts, strict=True)
        ]

    def _of_questions(self, material: Material, asked: Sequence[AskedQuestion]) -> list[ModelRequest]:
        pieces = parts(material.transcript, self._options.max_transcript_tokens) if asked else []
        prompts = [questions.messages(asked, part) for part in pieces]
        form = questions.schema(asked)
        return [ModelRequest(key_of(self._options, prompt), "questions", tuple(prompt), form) for prompt in prompts]

    def _analyzed(self, material: Material, built: tuple[Finding, ...], answers: ModelAnswers) -> tuple[Finding, ...]:
        try:
            reading = self._read(material, answers)
        except NotAsked as error:
            return _all_by_rule(built, str(error), error.code)
        except NoAnswer as error:
            return _all_by_rule(built, str(error))
        except Exception as error:  # its message may contain the request, including the key
            log.error("the language model's answer could not be used: %s", type(error).__name__)
            return _all_by_rule(built, f"its answer could not be used ({type(error).__name__})")
        findings: dict[str, Finding] = {}
        for finding in built:
            by_template = finding.step == SummaryStep.name and material.roster.summary is not None
            so_far = replace(material, findings={**material.findings, **findings})
            by_rule = SummaryStep().run(so_far) if by_template else finding
            findings[finding.step] = self._finding(by_rule, reading, material)
        return tuple(findings.values())

    def _read(self, material: Material, answers: ModelAnswers) -> ReadAnswer:
        grounding = Grounding(material, self._options.language)
        readings = []
        for request in self._of_call(material):
            answer, cut_off = read(_text_of(request, answers))
            readings.append(replace(ground(answer, grounding), cut_off=cut_off))
        return merged(readings)

    def _answered(self, built: Finding, material: Material, answers: ModelAnswers) -> Finding:
        asked = questions.asked(material)
        if not asked:
            return built
        defined = material.roster.questions
        by_phrases = [answer(question, material) for question in defined if question.type != "tracker"]
        trackers = [track(question, material) for question in defined if question.type == "tracker"]
        try:
            texts = [_text_of(request, answers).text for request in self._of_questions(material, asked)]
            model_answers = questions.answered(texts, material, asked, by_phrases)
        except Exception as error:  # its message may contain the request, including the key
            why = str(error) if isinstance(error, NoAnswer) else f"its answer cannot be used ({type(error).__name__})"
            if not isinstance(error, NotAsked):
                log.warning("questions answered by phrases: %s", why)
            note = f"answered by phrases, not by the language model: {why}"
            return replace(built, value={**built.value, "answers": questions.unanswered(by_phrases, why)}, note=note)
        value = {**finding_of(model_answers, trackers, material).value, "engine": self.name}
        return evidence_checked(replace(built, value=value), material.transcript)

    def _finding(self, built: Finding, reading: ReadAnswer, material: Material) -> Finding:
        make = MAKERS.get(built.step)
        if make is None:
            return built
        dropped, stated = reading.dropped[built.step], reading.stated[built.step]
        notes = (
            [f"{dropped} of {stated} statements of the model are not supported by the transcript"] if dropped else []
        )
        notes += [CUT_OFF] if reading.cut_off else []
        note = "; ".join(notes) or None
        model_finding = make(reading, built, material)
        if model_finding is None:
            return replace(built, note=_joined(built.note, f"{note}; analyzed by rules")) if note else built
        note = _joined(model_finding.note, note) if note else model_finding.note
        finding = replace(model_finding, version=VERSION, value={**model_finding.value, "engine": self.name}, note=note)
        return evidence_checked(finding, material.transcript)


def _has_words(material: Material) -> bool:
    return any(turn.words for turn in material.transcript.turns)


def _with_findings(material: Material, built: tuple[Finding, ...]) -> Material:
    """Return the material with the findings: which questions apply may depend on the direction that the rules find."""
    return replace(material, findings={finding.step: finding for finding in built})


def _text_of(request: ModelRequest, answers: ModelAnswers) -> ModelText:
    if request.key in answers.texts:
        return answers.texts[request.key]
    why = answers.unanswered.get(request.key)
    if why is not None and why.not_asked:
        raise NotAsked(why.reason, why.not_asked)
    raise NoAnswer(why.reason if why else "no request was sent")


def _all_by_rule(built: tuple[Finding, ...], why: str, not_asked: str | None = None) -> tuple[Finding, ...]:
    """Note the reason in all findings. `not_asked` is its code if no request was sent; that is logged elsewhere."""
    if not_asked is None:
        log.warning("analysis by rule: %s", why)
    reason = f"analyzed by rules, not by the language model: {why}"
    more = {"not_asked": not_asked} if not_asked else {}

    def by_rule(finding: Finding) -> Finding:
        return replace(finding, value=finding.value | more, note=_joined(finding.note, reason))

    return tuple(by_rule(finding) if finding.step in MAKERS else finding for finding in built)


def _joined(note: str | None, more: str) -> str:
    return f"{note}; {more}" if note else more
