"""The analysis of a call: by rules, or with a language model, whose answers are recorded one by one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline import analysis
from pipeline.domain.insight import Finding, Material, ModelAnswers, ModelText, ModelTexts, Unanswered
from pipeline.domain.stage import NOT_RECORDED, Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import TimedOut
from pipeline.journal import Journal
from pipeline.observability.tracing import observed
from pipeline.options import ProcessOptions
from pipeline.record_texts import warning_text
from pipeline.runtime.deadlines import deadline
from pipeline.runtime.workers import Workers
from pipeline.steps.llm_requests import LlmClient

MAX_ANSWERS = 32  # of a language model, stored for a call: more than it needs, because speakers and instructions change


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The findings of a call. `late`: why there are none. `warnings`: which the next analysis replaces."""

    findings: tuple[Finding, ...]
    warnings: tuple[str, ...] = ()
    late: TimedOut | None = None


@dataclass(frozen=True, slots=True)
class CallAnalysis:
    """Analyzes the material of one call."""

    workers: Workers
    material: Material
    options: ProcessOptions
    seconds: float  # of the call's audio
    journal: Journal

    async def run(self, llm: LlmClient) -> AnalysisResult:
        """Return the findings, or why there are none: a late analysis does not withhold the transcript."""
        try:
            if analysis.asks_model(self.options.analysis):
                return await self._with_model(llm)
            return AnalysisResult(await self._compute(Stage.ANALYSIS, analysis.analyze))
        except TimedOut as error:
            return AnalysisResult((), late=error)

    async def _with_model(self, llm: LlmClient) -> AnalysisResult:
        """Request only answers that are not recorded yet, so that none is paid for twice.

        This waits for the model in the event loop; the workers read its answers.
        """
        recorded = await self.journal.recall(Stage.ANSWERS)
        texts: ModelTexts = {} if recorded is NOT_RECORDED else dict(recorded)

        async def keep(key: str, text: ModelText) -> None:
            texts[key] = text
            await self.journal.record(Stage.ANSWERS, dict([*texts.items()][-MAX_ANSWERS:]))

        requests = await self._compute(Stage.ANSWERS, analysis.model_requests, texts)
        unanswered: dict[str, Unanswered] = {}
        if requests:
            with observed(Stage.ANSWERS.display_name):
                unanswered = await llm.ask(requests, self.options.analysis, keep)
        findings = await self._compute(Stage.ANALYSIS, analysis.conclude, ModelAnswers(texts, unanswered))
        reasons = dict.fromkeys(answer.reason for answer in unanswered.values() if answer.not_asked)
        warnings = tuple(warning_text(CallWarning.FINDINGS_BY_RULES, reason=reason) for reason in reasons)
        return AnalysisResult(findings, warnings)

    async def _compute(self, stage: Stage, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a CPU function of the analysis. Raises `TimedOut`."""
        async with deadline(stage, self.options.deadlines.of(Stage.ANALYSIS, self.seconds)):
            return await self.workers.compute(fn, self.material, self.options.analysis, *args)
