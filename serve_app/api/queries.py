"""The parameters of requests: one model for each list, read strictly, every fault at once."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal, Self, TypeVar
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import QueryParams

from db.core.pages import MAX_PAGE_ROWS
from db.search.call_list import CallFilter
from db.search.task_list import TaskFilter
from pipeline.domain.call import CallState
from serve_app.api.bodies import Zone
from serve_app.api.errors import InvalidQuery
from serve_app.http.camel_json import camel
from serve_app.http.json_body import Fault

Q = TypeVar("Q", bound="QueryParameters")

Text = Annotated[str, Field(min_length=1, max_length=200)]
Key = Annotated[str, Field(min_length=1, max_length=100)]
Score = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS, description=f"Most items of the page, 1 to {MAX_PAGE_ROWS}.")]
Cursor = Annotated[str, Field(min_length=1, max_length=1000)]
Metric = Literal[
    "wer",
    "wer_written",
    "cpwer",
    "lost_per_minute",
    "invented_per_minute",
    "der",
    "jer",
    "word_time_error",
    "task_f1",
    "contact_f1",
    "rtfx",
    "cost_per_audio_hour",
]
Language = Annotated[str, Field(pattern="^[a-z]{2,3}$")]


def _with_commas(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


class QueryParameters(BaseModel):
    """No parameter but these, each at most once."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=camel)


class NoQuery(QueryParameters):
    """No parameters."""


class CallQuery(QueryParameters):
    """Which calls."""

    status: Annotated[tuple[CallState, ...], BeforeValidator(_with_commas)] = Field(
        (), description="Comma-separated: received, transcribing, completed, failed."
    )
    started_from: AwareDatetime | None = Field(None, description="Calls that started then or later.")
    started_before: AwareDatetime | None = Field(None, description="Calls that started before.")
    updated_after: AwareDatetime | None = Field(
        None,
        description="Calls that changed after this moment, in the order in which they changed. Pass the `asOf` of an "
        "earlier answer to miss nothing; a call may come again.",
    )
    outgoing: bool | None = Field(None, description="true: calls that we placed; false: calls that we were given.")
    team_id: UUID | None = Field(None, description="Calls of this team.")
    user_id: UUID | None = Field(None, description="Calls of this member, as people, the sender or the call said.")
    contact_id: UUID | None = Field(None, description="Calls with this contact.")
    number: Text | None = Field(None, description="Calls from or to this number, in any writing.")
    language: Language | None = Field(None, description="ISO 639-1 code of the language spoken.")
    tone: Literal["negative", "neutral", "positive"] | None = Field(None, description="Overall tone.")
    open_tasks: bool | None = Field(None, description="true: with a task that is not done; false: without any.")
    corrected: bool | None = Field(None, description="true: calls that people corrected; false: others.")
    text: Text | None = Field(
        None, description='What was said, in the forms of its language: words, "a phrase", or, -without.'
    )
    name: Text | None = Field(
        None, description="Part of a name, company, e-mail address or number; one letter of six may be wrong."
    )
    question: Key | None = Field(None, description="Calls in which this question or tracker, by its key, had `answer`.")
    answer: Text | None = Field(
        None, description="As people said where they did: yes, no, one of the choices, said, not said."
    )
    scorecard: Key | None = Field(None, description="Calls that have a score by this scorecard, by its key.")
    passed: bool | None = Field(None, description="true: by that score; false: failed, automatically too.")
    auto_failed: bool | None = Field(None, description="true: failed automatically; false: not so.")
    score_from: Score | None = Field(None, description="Calls with this score, 0 to 100, or a higher one.")
    score_below: Score | None = Field(None, description="Calls with a lower score.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.question is None) is not (self.answer is None):
            raise ValueError("question and answer are given together")
        of_score = ("passed", "auto_failed", "score_from", "score_below")
        given = [camel(name) for name in of_score if getattr(self, name) is not None]
        if given and self.scorecard is None:
            raise ValueError(f"{', '.join(given)} {'needs' if len(given) == 1 else 'need'} a scorecard")
        return self

    def wanted(self) -> CallFilter:
        """The filter."""
        same = (name for name in CallFilter.__dataclass_fields__ if name != "states")
        return CallFilter(states=tuple(map(str, self.status)), **{name: getattr(self, name) for name in same})


Version = Annotated[
    Literal["corrected", "machine"],
    Field(description="corrected: with what people corrected; machine: as the machine said."),
]


class VersionQuery(QueryParameters):
    """Whose words."""

    version: Version = "corrected"


class CallListQuery(CallQuery):
    """A page of calls."""

    meaning: Text | None = Field(
        None,
        description="What a call was about, in your own words and in any language: the calls with the passages most "
        "like it, the most similar first; one page, without a cursor. 409 where search by meaning is switched off.",
    )
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="`next` of the page before.")

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        """By similarity, or by time."""
        others = [name for name in ("text", "name", "cursor") if getattr(self, name) is not None]
        others += ["updatedAfter"] if self.updated_after is not None else []
        if self.meaning is not None and others:
            raise ValueError(f"meaning cannot be given together with {', '.join(others)}")
        return self


class ExportQuery(CallQuery):
    """All calls."""

    format: Literal["ndjson", "csv", "parquet"] = Field(
        "ndjson", description="A JSON object a line, comma-separated values, or an Apache Parquet file."
    )
    include: Annotated[tuple[Literal["transcript", "edits"], ...], BeforeValidator(_with_commas)] = Field(
        (),
        description="With commas. transcript: with what was said, of ndjson and parquet; edits: with what people "
        "corrected, undone edits too, of ndjson.",
    )
    version: Version = "corrected"


class ScoreQuery(QueryParameters):
    """Scores over time."""

    by: Literal["team", "member"] = Field("team", description="team: of each team; member: of each agent.")
    weeks: int = Field(12, ge=1, le=104, description="How many weeks, up to that of the latest call.")
    time_zone: Zone | None = Field(
        None, description="IANA name of the zone in which weeks begin. Unset: the workspace's."
    )
    format: Literal["json", "csv"] = Field("json", description="JSON, or comma-separated values.")


class TaskListQuery(QueryParameters):
    """A page of tasks."""

    done: bool | None = Field(None, description="true: ticked off; false: still to be done.")
    owner: Literal["rep", "customer", "other", "unknown"] | None = Field(None, description="Whose task it is.")
    owner_user_id: UUID | None = Field(None, description="The member whose task it is.")
    kind: Literal["commitment", "request", "follow-up", "appointment"] | None = Field(None, description="What it is.")
    due_from: date | None = Field(None, description="Due on this day or later.")
    due_before: date | None = Field(None, description="Due before this day.")
    team_id: UUID | None = Field(None, description="Tasks of this team's calls.")
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="`next` of the page before.")

    def wanted(self) -> TaskFilter:
        """The filter."""
        return TaskFilter(**{name: getattr(self, name) for name in TaskFilter.__dataclass_fields__})


class ContactListQuery(QueryParameters):
    """A page of contacts."""

    text: Text | None = Field(None, description="Part of a name, company, e-mail address or number.")
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="`next` of the page before.")


class MemberListQuery(QueryParameters):
    """A page of members."""

    team_id: UUID | None = Field(None, description="Members of this team.")
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="`next` of the page before.")


class ChangeListQuery(QueryParameters):
    """A page of changes."""

    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="`next` of the page before.")


class AudioQuery(QueryParameters):
    """Which sound of a call."""

    channel: Literal["original", "mixed", "rep", "customer"] | None = Field(
        None,
        description="original: the file as it was fetched; mixed, rep, customer: WAV, 16 kHz, 16 bits, mono. "
        "Unset: the original, or mixed where there are two files.",
    )


class StreamQuery(QueryParameters):
    """Since when."""

    since: AwareDatetime | None = Field(None, description="Changes after this moment; unset: from now on.")


def read_query(parameters: QueryParams, model: type[Q]) -> Q:
    """The parameters of a request. Raises `InvalidQuery` with every fault."""
    items = parameters.multi_items()
    faults = [
        Fault(f"/{name}", f"{name} is given more than once.")
        for name in dict.fromkeys(name for name, _ in items)
        if len(parameters.getlist(name)) > 1 and name in _names(model)
    ]
    try:
        found = model.model_validate({name: _clean(value) for name, value in items})
    except ValidationError as error:
        faults += [_fault(one, model) for one in error.errors(include_url=False, include_input=False)]
    if faults:
        raise InvalidQuery(list(dict.fromkeys(faults)))
    return found


def _names(model: type[QueryParameters]) -> Sequence[str]:
    return [str(field.alias) for field in model.model_fields.values()]


def _clean(value: str) -> str:
    """PostgreSQL keeps neither a NUL nor half of a surrogate pair, and so finds neither."""
    return value.replace("\x00", "").encode("utf-8", "ignore").decode()


def _fault(error: Any, model: type[QueryParameters]) -> Fault:
    if error["type"] == "extra_forbidden":
        known = ", ".join(_names(model)) or "none"
        return Fault("", f"A parameter is not one of this path's. Those are: {known}.")
    if not error["loc"]:  # of several parameters together
        return Fault("", f"{error['msg'].removeprefix('Value error, ')}.")
    name = str(error["loc"][0])
    return Fault(f"/{name}", f"{name}: {error['msg']}.")


def asked_for_time(text: str) -> datetime | None:
    """A moment in ISO 8601 with its offset; None where it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


class RunCallListQuery(QueryParameters):
    """Which calls of a run."""

    status: Literal["waiting", "running", "done", "failed", "canceled"] | None = Field(
        None, description="Calls with this status."
    )
    limit: Limit = 100
    cursor: Cursor | None = Field(None, description="`next` of the page before.")


class RunComparisonQuery(QueryParameters):
    """What a run is compared with, and how."""

    other: UUID | None = Field(None, description="Another run to compare it with. Unset: the records.")
    gold: str | None = Field(
        None,
        pattern=r"^[^@]{1,200}(@[0-9]{1,6})?$",
        description="Measure both against this gold set: name or name@version. Unset: how the run differs.",
    )
    by: Metric = Field("wer", description="The metric of slices and of the worst calls.")
    limit: int | None = Field(
        None, ge=1, le=500, description="Compare at most this many calls. Unset: all, of which there may be 500."
    )
