from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

SummaryPartName = Literal["reason", "done", "agreed", "open", "next_step", "ending"]
PARTS: tuple[str, ...] = get_args(SummaryPartName)
"""Why there was a call, what was done, agreed and is open, what comes next, and how a call was refused."""
MAX_ITEMS = 10  # items of a part
MAX_HEADING_LENGTH = 60


class SummaryTemplateInvalid(ValueError):
    """The parts form no valid template; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TemplatePart:
    """A part of a summary. `heading`: text before it; None: in the language of the call; empty: none.

    `most`, 1..10: maximum of tasks or actions (None: 3), or of sentences of the reason (None: 2, which is the limit).
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    part: SummaryPartName
    heading: str | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class SummaryTemplate:
    """Parts of a summary in order; other parts are omitted."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    parts: tuple[TemplatePart, ...]

    def most(self, part: str) -> int | None:
        """Return the maximum of a part; 0 if it is omitted."""
        return next((template_part.most for template_part in self.parts if template_part.part == part), 0)


def checked(parts: Iterable[TemplatePart]) -> SummaryTemplate:
    """Return the template with headings normalized to single spaces. Raises `SummaryTemplateInvalid`."""
    checked_parts: list[TemplatePart] = []
    for part in parts:
        if part.part not in PARTS:
            raise SummaryTemplateInvalid(f"Unknown part {part.part!r}. Parts: {', '.join(PARTS)}.")
        if part.part in (other.part for other in checked_parts):
            raise SummaryTemplateInvalid(f"The part {part.part!r} is repeated. Name it once.")
        if part.most is not None and not 1 <= part.most <= MAX_ITEMS:
            raise SummaryTemplateInvalid(f"{part.part}: the maximum must be 1 to {MAX_ITEMS}, not {part.most}.")
        heading = None if part.heading is None else " ".join(part.heading.split()).rstrip(":")
        if heading and (len(heading) > MAX_HEADING_LENGTH or not heading.isprintable() or set(heading) & {"{", "}"}):
            problem = (
                f"{part.part}: a heading is plain text of at most {MAX_HEADING_LENGTH} characters, without braces."
            )
            raise SummaryTemplateInvalid(f"{problem} Change it.")
        checked_parts.append(TemplatePart(part.part, heading, part.most))
    if not checked_parts:
        raise SummaryTemplateInvalid(f"A template needs at least one part. Parts: {', '.join(PARTS)}.")
    return SummaryTemplate(tuple(checked_parts))
