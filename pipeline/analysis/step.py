"""The registry of analysis steps, and the built-in engine: the loop that runs them."""

import logging
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint
from typing import Protocol

from pipeline.analysis.evidence import checked
from pipeline.domain.insight import Finding, Material
from pipeline.engines.registry import installed, load_entry, package_of
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
    "pipeline.analysis.rules.actions:ActionsStep",
    "pipeline.analysis.rules.summary.summary:SummaryStep",
    "pipeline.analysis.rules.notice:RecordingNoticeStep",
    "pipeline.analysis.questions.step:QuestionsStep",
)
"""In order: a step may build on those above it."""
GROUP = "switchboard.steps"  # of entry points: steps of installed packages


@cache
def all_steps() -> tuple[str, ...]:
    """Return the built-in steps and those of installed packages, in the order of their names.

    Raises ValueError for a step that cannot be imported or that has the name of another one.
    """
    points = [point for _, same in sorted(installed(GROUP).items()) for point in same]
    taken = {load(entry).name for entry in STEPS} if points else set()
    for point in points:
        name = load_entry(point, "analysis step")().name
        if name in taken:
            raise ValueError(
                f"The package {package_of(point)} has an analysis step {name!r}, and so has Switchboard or another "
                "package. Uninstall one of the packages, or rename the step"
            )
        taken.add(name)
    return (*STEPS, *(point.value for point in points))


def load(entry: str) -> Step:
    """Return the step that `module:Class` names."""
    step: Step = EntryPoint("", entry, GROUP).load()()
    return step


class Rules:
    """The built-in engine: language packs and rules; no model, no network, deterministic."""

    name = "rules"

    def __init__(self, options: object = None) -> None:
        """Ignore `options`: this engine has none. Raises `LanguagePackInvalid`."""
        load_all()

    def analyze(self, material: Material) -> tuple[Finding, ...]:
        return run_all(material)


def run_all(material: Material, steps: tuple[str, ...] | None = None) -> tuple[Finding, ...]:
    """Run all steps in order. A step that fails leaves a finding with an empty value and the reason in its note."""
    findings = dict(material.findings)
    new_findings = []
    for entry in all_steps() if steps is None else steps:
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
    except Exception as error:  # the transcript and the other findings stay usable
        logger.exception("analysis step %s failed", name)
        return Finding(name, version, {}, note=f"the step failed ({type(error).__name__})")
