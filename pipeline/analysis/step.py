import importlib
import logging
from dataclasses import replace
from typing import Protocol

from pipeline.analysis.engine import AnalysisOptions
from pipeline.analysis.evidence import checked
from pipeline.domain.insight import Finding, Material
from pipeline.language.pack import load_all

logger = logging.getLogger(__name__)


class Step(Protocol):
    """A named pure function of the material. Raise `version` with every change that can change a value."""

    name: str
    version: int

    def run(self, material: Material) -> Finding:
        """Return one finding. `material.findings` holds those of the steps before this one."""


STEPS: tuple[str, ...] = (
    "pipeline.analysis.statistics:StatisticsStep",
    "pipeline.analysis.rules.sentiment.sentiment:SentimentStep",
    "pipeline.analysis.rules.direction.direction:DirectionStep",
    "pipeline.analysis.rules.people.agent:AgentStep",
    "pipeline.analysis.rules.people.contacts:ContactsStep",
    "pipeline.analysis.rules.commitments.tasks:TasksStep",
    "pipeline.analysis.rules.summary.summary:SummaryStep",
    "pipeline.analysis.questions.step:QuestionsStep",
)
"""In order: a step may build on those above it."""


def load(entry: str) -> Step:
    """Return the step of an entry of `STEPS` (`module:Class`)."""
    module, _, name = entry.partition(":")
    step: Step = getattr(importlib.import_module(module), name)()
    return step


class Rules:
    """The built-in engine: language packs and rules; no model, no network, deterministic."""

    name = "rules"

    def __init__(self, options: AnalysisOptions | None = None) -> None:
        """Load all language packs. `options` are part of the interface and unused. Raises `LanguagePackInvalid`."""
        load_all()

    def analyze(self, material: Material) -> tuple[Finding, ...]:
        return run_all(material)


def run_all(material: Material, steps: tuple[str, ...] = STEPS) -> tuple[Finding, ...]:
    """Run all steps in order. A step that fails leaves a finding with an empty value and the reason in its note."""
    findings = dict(material.findings)
    new_findings = []
    for entry in steps:
        finding = run(entry, replace(material, findings=dict(findings)))
        findings[finding.step] = finding
        new_findings.append(finding)
    return tuple(new_findings)


def run(entry: str, material: Material) -> Finding:
    """Run one step and check its evidence against the transcript."""
    name, version = entry.rpartition(":")[2].removesuffix("Step").lower(), 0
    try:
        step = load(entry)
        name, version = step.name, step.version
        return checked(step.run(material), material.transcript)
    except Exception as error:  # whatever it is, the transcript and the other findings stand
        logger.exception("analysis step %s failed", name)
        return Finding(name, version, {}, note=f"the step failed ({type(error).__name__})")
