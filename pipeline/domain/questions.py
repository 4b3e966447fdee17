"""What a workspace asks of its calls: questions in plain words, and trackers."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

QuestionType = Literal["yes/no", "choice", "number", "text", "date", "tracker"]
AskedParty = Literal["rep", "customer", "anyone"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question in plain words, or a tracker. Without limits it is asked of every call, about all of it.

    `first`, `last`: minutes from the first, or before the last, word of a person. `unless`: a phrase does not count in
    a sentence with one of these. `choices`: each with its phrases. `required`: a tracker is raised where it is missing.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    key: str
    type: QuestionType = "yes/no"
    question: str = ""
    party: AskedParty = "anyone"
    first: float | None = None
    last: float | None = None
    direction: Literal["incoming", "outgoing"] | None = None
    languages: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()  # ids
    phrases: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    required: bool = False
    weight: float = 1.0
    version: int = 0  # counted by the database

    @property
    def has_phrases(self) -> bool:
        """Whether it can be answered without a model."""
        return bool(self.phrases) or any(self.choices.values())
