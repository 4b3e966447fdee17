"""What administrators send: one model for each body, read strictly, every fault at once."""

from typing import Annotated, Any, Final, Literal, Self, TypeVar
from uuid import UUID
from zoneinfo import available_timezones

import phonenumbers
from pydantic import AfterValidator, AwareDatetime, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from starlette.requests import Request

from pipeline.domain.summaries import MAX_ITEMS, PARTS, SummaryPartName, SummaryTemplate, TemplatePart, checked
from serve_app.api.errors import AdminBodyRefused
from serve_app.http.json_body import Body, Fault, InvalidBody, read_object
from serve_app.http.limits import LimitOptions, check_media_type, read_body

B = TypeVar("B", bound="Body")

MOST_BYTES: Final = 128 * 1024  # 2,000 callIds of a run


def _name(text: str) -> str:
    tidy = " ".join(text.split())
    if not tidy:
        raise ValueError("must not be blank")
    return tidy


def _country(code: str) -> str:
    if code not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError("must be a country's code, ISO 3166, such as DE or US")
    return code


def _zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("must be a time zone's IANA name, such as Europe/Berlin")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_name)]
Zone = Annotated[str, AfterValidator(_zone)]
Alias = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_name)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[UUID, Field(strict=False)]
Moment = Annotated[AwareDatetime, Field(strict=False)]
Own = "A UUID of yours: the request sent again is answered with what it made."


class SummaryPartBody(Body):
    """A part of a summary."""

    part: SummaryPartName
    heading: str | None = Field(None, description="Unset: as in the language of the call; empty: none.")
    most: int | None = Field(
        None, ge=1, le=MAX_ITEMS, description="Tasks, or sentences of the reason. Unset: as usual."
    )


class SummaryBody(Body):
    """A template of summaries: its parts, in order; the others are left out."""

    parts: list[SummaryPartBody] = Field(min_length=1, max_length=len(PARTS))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.domain()
        return self

    def domain(self) -> SummaryTemplate:
        """The template. Raises ValueError."""
        return checked(TemplatePart(one.part, one.heading, one.most) for one in self.parts)


class _WithSummary(Body):
    def given(self) -> dict[str, Any]:
        """What was sent; a template as the domain has it."""
        found = super().given()
        told = found.get("summary")
        return {**found, "summary": told.domain()} if isinstance(told, SummaryBody) else found


class WorkspaceChanges(_WithSummary):
    """What is changed of the workspace."""

    MAY_BE_NULL = frozenset({"default_country", "summary"})
    name: Name | None = None
    default_country: Annotated[str, AfterValidator(_country)] | None = Field(
        None, description="ISO 3166; national numbers are read by it."
    )
    time_zone: Zone | None = Field(None, description="An IANA name.")
    summary: SummaryBody | None = Field(None, description="Of its summaries; null: that of the call's language.")


class NewTeam(Body):
    """A team."""

    team_id: Id | None = Field(None, description=Own)
    name: Name
    channels_swapped: bool = Field(False, description="Its PBX records the customer first.")


class TeamChanges(_WithSummary):
    """What is changed of a team."""

    MAY_BE_NULL = frozenset({"summary"})
    name: Name | None = None
    channels_swapped: bool | None = None
    summary: SummaryBody | None = Field(None, description="Of its summaries; null: that of the workspace.")


class NewMember(Body):
    """A member."""

    user_id: Id | None = Field(None, description="The userId of submissions. " + Own)
    name: Name
    aliases: list[Alias] = Field(default=[], max_length=20)
    team_id: Id | None = Field(None, description="Unset: of all teams; for a key of a team, of that team.")


class MemberChanges(Body):
    """What is changed of a member."""

    MAY_BE_NULL = frozenset({"team_id"})
    name: Name | None = None
    aliases: list[Alias] | None = Field(None, max_length=20)
    team_id: Id | None = Field(None, description="null: of all teams.")


class NewContact(Body):
    """A contact."""

    contact_id: Id | None = Field(None, description=Own)
    name: Name
    company: Text | None = None
    email: Text | None = None
    phone: Text | None = Field(None, description="In any writing; kept in E.164.")


class ContactChanges(Body):
    """What is changed of a contact; null removes a value."""

    MAY_BE_NULL = frozenset({"company", "email", "phone"})
    name: Name | None = None
    company: Text | None = None
    email: Text | None = None
    phone: Text | None = None


class NewKey(Body):
    """A key of the workspace, or of a team."""

    key_id: Id | None = Field(None, description="A UUID of yours: sent again, it makes no second key.")
    name: Name
    scopes: list[Literal["submit", "read", "edit", "admin"]] = Field(min_length=1, max_length=4)
    team_id: Id | None = Field(None, description="Unset: workspace-wide; for a key of a team, of that team.")
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = Field(None, description="Unset: never.")
    channels_swapped: bool | None = Field(None, description="Of its calls; unset: as the team's.")


class KeyChanges(Body):
    """What is changed of a key. What it may do does not change: make another one."""

    MAY_BE_NULL = frozenset({"channels_swapped"})
    name: Name | None = None
    channels_swapped: bool | None = None


class GoldVersion(Body):
    """A gold set, and which version."""

    name: Name
    version: int | None = Field(None, ge=1, description="Unset: the latest.")


class NewRun(Body):
    """A run: which completed calls, and what differs from the service's settings."""

    run_id: Id | None = Field(None, description=Own)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Letters, digits, dots, dashes, _.")
    settings: dict[str, dict[str, Any]] = Field(
        default={},
        description="By group (asr, diarization, safety, roles, analysis), what differs from the service's "
        'settings: {"asr": {"model": "whisper-tiny.en"}}.',
    )
    call_ids: list[Id] = Field(default=[], max_length=2_000, description="These calls. Unset: all of the filters.")
    gold: GoldVersion | None = Field(None, description="Calls of this gold set.")
    started_from: Moment | None = Field(None, description="Calls that started then or later.")
    started_before: Moment | None = Field(None, description="Calls that started before.")
    team_id: Id | None = Field(None, description="Calls of this team.")
    language: str | None = Field(None, pattern="^[a-z]{2,3}$", description="ISO 639-1 code of the language spoken.")
    limit: int | None = Field(None, ge=1, le=2_000, description="At most this many, the latest first.")


async def read_admin_body(request: Request, model: type[B]) -> B:
    """The body of a request. Raises `AdminBodyRefused` with every fault; they hold nothing that was sent."""
    check_media_type(request.headers.getlist("content-type"), request.headers.getlist("content-encoding"))
    known = frozenset(str(field.alias) for field in model.model_fields.values())
    try:
        body, faults = read_object(await read_body(request, LimitOptions(), MOST_BYTES), known)
    except InvalidBody as error:
        raise AdminBodyRefused(error.faults) from None
    try:
        found = model.model_validate(body)
    except ValidationError as error:
        faults += [_fault(one, known) for one in error.errors(include_url=False, include_input=False)]
        raise AdminBodyRefused(list(dict.fromkeys(faults))) from None
    faults += _nulls(found)
    if not found.model_fields_set:
        faults.append(Fault("", f"Say what to change: {', '.join(sorted(known))}."))
    if faults:
        raise AdminBodyRefused(list(dict.fromkeys(faults)))
    return found


def _nulls(body: Body) -> list[Fault]:
    """Fields that are null and have to hold something, where they are sent at all."""
    changes = not any(field.is_required() for field in type(body).model_fields.values())
    names = [name for name, value in body.given().items() if changes and value is None and name not in body.MAY_BE_NULL]
    return [Fault(f"/{to_camel(name)}", f"{to_camel(name)}: leave it out, or say a value.") for name in names]


def _fault(error: Any, known: frozenset[str]) -> Fault:
    name = next((one for one in error["loc"] if one in known), None)
    message = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    if error["type"] == "extra_forbidden" and name is None:
        return Fault("", f"A key is not a field of this body. Fields are: {', '.join(sorted(known))}.")
    return Fault(f"/{name}" if name else "", f"{name or 'The body'}: {message}.")
