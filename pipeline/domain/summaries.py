"""What a workspace, or a team of it, wants in its summaries: which parts, in which order, under which headings."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

SummaryPartName = Literal["reason", "agreed", "open", "next_step", "ending"]
PARTS: tuple[str, ...] = get_args(SummaryPartName)
"""Why there was a call, what was agreed, what is open, what comes next, and how a call was refused."""
MOST = 10  # items of a part
LONGEST_HEADING = 60


class SummaryTemplateInvalid(ValueError):
    """Parts that make no template; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class TemplatePart:
    """A part of a summary. `heading`: what stands before it; None: as in the language of the call; empty: nothing.

    `most`, 1..10: at most so many tasks, or sentences of the reason (two at most); None: three, or two sentences.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    part: SummaryPartName
    heading: str | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class SummaryTemplate:
    """The parts of a summary, in order; what is not there is left out."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    parts: tuple[TemplatePart, ...]

    def most(self, part: str) -> int | None:
        """Of a part; 0: it is left out."""
        return next((one.most for one in self.parts if one.part == part), 0)


def checked(parts: Iterable[TemplatePart]) -> SummaryTemplate:
    """The template of these parts, headings with single spaces. Raises `SummaryTemplateInvalid`."""
    kept: list[TemplatePart] = []
    for one in parts:
        if one.part not in PARTS:
            raise SummaryTemplateInvalid(f"There is no part {one.part!r}. There are: {', '.join(PARTS)}.")
        if one.part in (other.part for other in kept):
            raise SummaryTemplateInvalid(f"The part {one.part!r} is there twice. Name it once.")
        if one.most is not None and not 1 <= one.most <= MOST:
            raise SummaryTemplateInvalid(f"{one.part}: at most {one.most} items cannot be. Take 1 to {MOST}.")
        heading = None if one.heading is None else " ".join(one.heading.split()).rstrip(":")
        if heading and (len(heading) > LONGEST_HEADING or not heading.isprintable() or set(heading) & {"{", "}"}):
            told = f"{one.part}: a heading is plain text of at most {LONGEST_HEADING} characters, without braces."
            raise SummaryTemplateInvalid(f"{told} Change it.")
        kept.append(TemplatePart(one.part, heading, one.most))
    if not kept:
        raise SummaryTemplateInvalid(f"A template has one part or more. There are: {', '.join(PARTS)}.")
    return SummaryTemplate(tuple(kept))
