from collections.abc import Sequence
from datetime import date, datetime, time, tzinfo
from typing import Annotated, Any, Literal, Self, TypeVar
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from starlette.datastructures import QueryParams

from db.core.pages import MAX_PAGE_ROWS
from db.records.correct import tag_of
from db.search.call_list import CallFilter
from db.search.task_list import TaskFilter
from pipeline.domain.call import CallState
from serve_app.api.bodies import Zone
from serve_app.api.errors import InvalidQuery
from serve_app.http.camel_json import camel
from serve_app.http.json_body import Fault, unknown_name

Q = TypeVar("Q", bound="QueryParameters")

Text = Annotated[str, Field(min_length=1, max_length=200)]
Key = Annotated[str, Field(min_length=1, max_length=100)]
Score = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS, description=f"Max. items per page, 1 to {MAX_PAGE_ROWS}.")]
Cursor = Annotated[str, Field(min_length=1, max_length=1000)]
MAX_BATCH = 20  # records of a response
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
    "action_f1",
    "contact_f1",
    "rtfx",
    "cost_per_audio_hour",
]
Language = Annotated[str, Field(pattern="^[a-z]{2,3}$")]


def _with_commas(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


class Day(date):
    """A date in place of a time: the beginning of the day in the workspace's time zone."""


_AWARE: TypeAdapter[datetime] = TypeAdapter(AwareDatetime)


def _moment(text: Any) -> datetime | Day:
    try:
        if not isinstance(text, str):  # in a body
            raise ValueError
        return Day.fromisoformat(text) if len(text) == len("2026-01-31") else _AWARE.validate_python(text)
    except ValueError:
        raise ValueError("must be a time with an offset (2026-01-31T08:00:00+01:00) or a date (2026-01-31)") from None


Moment = Annotated[
    datetime,  # or a `Day`, until `in_zone`
    PlainValidator(_moment),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}]}),
]


class QueryParameters(BaseModel):
    """Query parameters; unknown and repeated ones are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=camel)

    def days(self) -> dict[str, Day]:
        """Return the fields that are a date in place of a time."""
        return {name: value for name in type(self).model_fields if isinstance(value := getattr(self, name), Day)}

    def in_zone(self, zone: tzinfo) -> Self:
        """Return the parameters with times in place of dates."""
        times = {name: datetime.combine(day, time(), zone) for name, day in self.days().items()}
        return self.model_copy(update=times)

    @property
    def searches(self) -> bool:
        """Whether the query looks for words, which costs more than a look-up."""
        return any(getattr(self, name, None) for name in ("text", "name", "meaning", "total"))


class NoQuery(QueryParameters):
    """No parameters."""


class KeyRevocationQuery(QueryParameters):
    """What a revocation includes."""

    keep_created: bool = Field(
        False,
        description="true: the keys and webhooks that the key created stay valid. false: those keys are revoked, and "
        "the webhooks disabled.",
    )


class CallQuery(QueryParameters):
    """Filters of calls."""

    status: Annotated[tuple[CallState, ...], BeforeValidator(_with_commas)] = Field(
        (), description="Comma-separated: received, transcribing, completed, failed."
    )
    started_from: Moment | None = Field(
        None, description="Calls that started at this time or later; a date is its beginning in the workspace's zone."
    )
    started_before: Moment | None = Field(None, description="Calls that started before this time or date.")
    updated_after: Moment | None = Field(
        None,
        description="Calls that changed after this time, in order of change. Pass the `asOf` of an earlier "
        "response to miss no change; a call may be returned again.",
    )
    outgoing: bool | None = Field(None, description="true: outbound calls; false: inbound calls.")
    team_id: UUID | None = Field(None, description="Calls of this team.")
    user_id: UUID | None = Field(None, description="Calls of this member, as corrected, submitted or inferred.")
    contact_id: UUID | None = Field(None, description="Calls with this contact.")
    number: Text | None = Field(None, description="Calls to or from this number, in any format.")
    language: Language | None = Field(None, description="Language of the call, ISO 639-1.")
    tone: Literal["negative", "neutral", "positive"] | None = Field(None, description="Overall tone.")
    open_tasks: bool | None = Field(None, description="true: calls with an open task; false: calls without open tasks.")
    corrected: bool | None = Field(None, description="true: calls with corrections; false: calls without.")
    tag: Annotated[Key, AfterValidator(tag_of)] | None = Field(None, description="Calls with this tag, in any case.")
    text: Text | None = Field(
        None,
        description='Words of the transcript in all forms of their language; "a phrase", `or`, `-` to exclude a word.',
    )
    name: Text | None = Field(
        None, description="Part of a name, company, e-mail address or number; tolerates one wrong letter in six."
    )
    question: Key | None = Field(None, description="Key of a question or tracker that has the outcome `answer`.")
    answer: Text | None = Field(
        None, description="Outcome, with corrections applied: yes, no, one of the choices, said, not said."
    )
    scorecard: Key | None = Field(None, description="Key of a scorecard: calls that have a score by it.")
    passed: bool | None = Field(
        None, description="true: passed by that scorecard; false: failed, including automatically."
    )
    auto_failed: bool | None = Field(None, description="true: failed automatically; false: other calls.")
    score_from: Score | None = Field(None, description="Calls with this score (0 to 100) or higher.")
    score_below: Score | None = Field(None, description="Calls with a score below this.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.question is None) is not (self.answer is None):
            raise ValueError("question and answer require each other")
        of_score = ("passed", "auto_failed", "score_from", "score_below")
        filters = [camel(name) for name in of_score if getattr(self, name) is not None]
        if filters and self.scorecard is None:
            raise ValueError(f"{', '.join(filters)} {'requires' if len(filters) == 1 else 'require'} scorecard")
        return self

    def to_filter(self) -> CallFilter:
        others = ("states", "oldest_first", "call_ids")
        same = (name for name in CallFilter.__dataclass_fields__ if name not in others)
        oldest_first = getattr(self, "sort", None) == "startTime"
        same_values = {name: getattr(self, name) for name in same}
        return CallFilter(tuple(map(str, self.status)), **same_values, oldest_first=oldest_first)


Version = Annotated[
    Literal["corrected", "machine"],
    Field(description="corrected: with corrections applied; machine: without corrections."),
]


Fields = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9]{1,40}(\.[A-Za-z0-9]{1,40}){0,3}$")], ...],
    BeforeValidator(_with_commas),
    Field(max_length=50),
]
FIELDS = "Comma-separated fields to return, nested ones with dots: call.callId,summary. Unset: all."
UNREDACTED = "With what a policy of redaction has sealed; needs the scope unredacted, and is logged."


class VersionQuery(QueryParameters):
    """Version of a record."""

    version: Version = "corrected"


class TranscriptQuery(VersionQuery):
    """Version of a transcript."""

    unredacted: bool = Field(False, description=UNREDACTED)


class RecordQuery(TranscriptQuery):
    """Version and fields of a record."""

    fields: Fields = Field((), description=FIELDS)


class BatchQuery(VersionQuery):
    """Several records."""

    fields: Fields = Field((), description=FIELDS)
    call_ids: Annotated[tuple[UUID, ...], BeforeValidator(_with_commas)] = Field(
        min_length=1, max_length=MAX_BATCH, description=f"Comma-separated callIds, at most {MAX_BATCH}."
    )


class StatisticsQuery(QueryParameters):
    """Weeks of the statistics."""

    weeks: int = Field(12, ge=1, le=104, description="Number of weeks, ending with that of the latest call.")
    time_zone: Zone | None = Field(None, description="IANA time zone of the weeks. Unset: that of the workspace.")


class CallListQuery(CallQuery):
    """A page of calls."""

    meaning: Text | None = Field(
        None,
        description="Search by meaning in any language: calls with similar passages, the most similar first; "
        "one page, without a cursor. 409 if search by meaning is switched off.",
    )
    sort: Literal["-startTime", "startTime"] = Field(
        "-startTime", description="-startTime: the latest first; startTime: the earliest first."
    )
    total: bool = Field(False, description="true: `total` of the response is the number of all matching calls.")
    fields: Fields = Field((), description=FIELDS)
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="The `next` cursor from the previous page.")

    @model_validator(mode="after")
    def _sortable(self) -> Self:
        searches = [name for name in ("text", "name", "meaning") if getattr(self, name) is not None]
        if searches and (self.total or self.sort == "startTime"):
            raise ValueError(f"sort=startTime and total cannot be combined with {', '.join(searches)}")
        if self.sort == "startTime" and self.updated_after is not None:
            raise ValueError("sort cannot be combined with updatedAfter, whose order is that of the changes")
        return self

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        others = [name for name in ("text", "name", "cursor") if getattr(self, name) is not None]
        others += ["updatedAfter"] if self.updated_after is not None else []
        if self.meaning is not None and others:
            raise ValueError(f"meaning cannot be combined with {', '.join(others)}")
        return self


class ExportQuery(CallQuery):
    """An export of calls."""

    format: Literal["ndjson", "csv", "parquet"] = Field(
        "ndjson", description="ndjson: one JSON object per line; csv: comma-separated values; parquet: Apache Parquet."
    )
    include: Annotated[tuple[Literal["transcript", "edits"], ...], BeforeValidator(_with_commas)] = Field(
        (),
        description="Comma-separated. transcript: add transcripts (ndjson and parquet); edits: add edits, including "
        "undone ones (ndjson).",
    )
    version: Version = "corrected"


class ScoreQuery(QueryParameters):
    """Scores over time."""

    by: Literal["team", "member"] = Field("team", description="team: per team; member: per agent.")
    weeks: int = Field(12, ge=1, le=104, description="Number of weeks, ending with that of the latest call.")
    time_zone: Zone | None = Field(None, description="IANA time zone of the weeks. Unset: that of the workspace.")
    format: Literal["json", "csv"] = Field("json", description="json: JSON; csv: comma-separated values.")


class TaskListQuery(QueryParameters):
    """A page of tasks."""

    done: bool | None = Field(None, description="true: done; false: open.")
    owner: Literal["rep", "customer", "other", "unknown"] | None = Field(None, description="Party that owns the task.")
    owner_user_id: UUID | None = Field(None, description="Member that owns the task.")
    kind: Literal["commitment", "request", "follow-up", "appointment"] | None = Field(None, description="Kind of task.")
    due_from: date | None = Field(None, description="Due on this date or later.")
    due_before: date | None = Field(None, description="Due before this date.")
    team_id: UUID | None = Field(None, description="Tasks from calls of this team.")
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="The `next` cursor from the previous page.")

    def to_filter(self) -> TaskFilter:
        return TaskFilter(**{name: getattr(self, name) for name in TaskFilter.__dataclass_fields__})


class ContactListQuery(QueryParameters):
    """A page of contacts."""

    text: Text | None = Field(None, description="Part of a name, company, e-mail address or number.")
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="The `next` cursor from the previous page.")


class MemberListQuery(QueryParameters):
    """A page of members."""

    team_id: UUID | None = Field(None, description="Members of this team.")
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="The `next` cursor from the previous page.")


class ChangeListQuery(QueryParameters):
    """A page of changes."""

    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="The `next` cursor from the previous page.")


class DeliveryListQuery(QueryParameters):
    """The latest deliveries."""

    status: Literal["waiting", "behind", "sending", "delivered", "failed"] | None = Field(
        None, description="Deliveries with this status; behind: waiting for an earlier event of the call."
    )
    call_id: UUID | None = Field(None, description="Events of this call.")
    limit: Limit = 50


class AccessLogQuery(QueryParameters):
    """A page of the access log."""

    call_id: UUID | None = Field(None, description="Only reads and changes of this call.")
    key_id: UUID | None = Field(None, description="Only by this key or session.")
    since: Moment | None = Field(None, description="Only from this time or date on.")
    until: Moment | None = Field(None, description="Only before this time or date.")
    limit: Limit = 50
    cursor: Cursor | None = Field(None, description="The `next` cursor from the previous page.")


class AudioQuery(QueryParameters):
    """Channel of a recording."""

    channel: Literal["original", "mixed", "rep", "customer"] | None = Field(
        None,
        description="original: the file as fetched; mixed, rep, customer: WAV, 16 kHz, 16 bits, mono. "
        "Unset: original, or mixed if there are two files.",
    )
    unredacted: bool = Field(False, description=UNREDACTED)


class StreamQuery(QueryParameters):
    """Start of a stream."""

    since: Moment | None = Field(None, description="Changes after this time or date; unset: from now on.")


def read_query(parameters: QueryParams, model: type[Q]) -> Q:
    """Return the query parameters. Raises `InvalidQuery` with every fault."""
    items = parameters.multi_items()
    faults = [
        Fault(f"/{name}", f"{name} is repeated.")
        for name in dict.fromkeys(name for name, _ in items)
        if len(parameters.getlist(name)) > 1 and name in _names(model)
    ]
    try:
        query = model.model_validate({name: _clean(value) for name, value in items})
    except ValidationError as error:
        faults += [_fault(item, model) for item in error.errors(include_url=False, include_input=False)]
    if faults:
        raise InvalidQuery(list(dict.fromkeys(faults)))
    return query


def _names(model: type[QueryParameters]) -> Sequence[str]:
    return [str(field.alias) for field in model.model_fields.values()]


def _clean(value: str) -> str:
    """Return the value without NUL and lone surrogates, which PostgreSQL cannot store."""
    return value.replace("\x00", "").encode("utf-8", "ignore").decode()


def _fault(error: Any, model: type[QueryParameters]) -> Fault:
    if error["type"] == "extra_forbidden":
        names = _names(model)
        sentence = unknown_name("parameter", str(error["loc"][0]), names)
        return Fault("", f"{sentence} Parameters of this path: {', '.join(names) or 'none'}.")
    if not error["loc"]:  # of several parameters together
        return Fault("", f"{error['msg'].removeprefix('Value error, ')}.")
    name = str(error["loc"][0])
    return Fault(f"/{name}", f"{name}: {error['msg'].removeprefix('Value error, ')}.")


def parse_timestamp(text: str) -> datetime | None:
    """Return the time of an ISO 8601 text with an offset, else None."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


class RunCallListQuery(QueryParameters):
    """A page of the calls of a run."""

    status: Literal["waiting", "running", "done", "failed", "canceled"] | None = Field(
        None, description="Calls with this status."
    )
    limit: Limit = 100
    cursor: Cursor | None = Field(None, description="The `next` cursor from the previous page.")


class RunComparisonQuery(QueryParameters):
    """Baseline and metric of a comparison."""

    other: UUID | None = Field(None, description="Run to compare with. Unset: the live records.")
    gold: str | None = Field(
        None,
        pattern=r"^[^@]{1,200}(@[0-9]{1,6})?$",
        description="Gold set to score both against: name or name@version. Unset: differences only.",
    )
    by: Metric = Field("wer", description="Metric for slices and the worst calls.")
    limit: int | None = Field(None, ge=1, le=500, description="Max. calls to compare. Unset: all, up to 500.")
