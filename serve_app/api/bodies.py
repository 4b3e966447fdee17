from typing import Annotated, Any, Final, Literal, Self, TypeVar
from uuid import UUID
from zoneinfo import available_timezones

import phonenumbers
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from starlette.requests import Request

from db.records.retention import MAX_DAYS, RetentionKind
from db.workspace.legal_holds import HoldKind
from db.workspace.redaction_policies import MAX_PATTERNS, MAX_SHAPE, named
from pipeline.domain import redaction
from pipeline.domain.summaries import MAX_ITEMS, PARTS, SummaryPartName, SummaryTemplate, TemplatePart, checked
from serve_app.api.errors import AdminBodyRefused
from serve_app.http.json_body import Body, Fault, InvalidBody, read_object, unknown_name
from serve_app.http.limits import check_media_type, read_body
from serve_app.http.options import LimitOptions

B = TypeVar("B", bound="Body")

MAX_BODY_BYTES: Final = 128 * 1024  # 2,000 callIds of a run


def tidy(text: str) -> str:
    """Return the text with single spaces. Raises ValueError for a blank one."""
    words = " ".join(text.split())
    if not words:
        raise ValueError("must not be blank")
    return words


def _country(code: str) -> str:
    if code not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError("must be an ISO 3166 country code such as DE or US")
    return code


def _zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("must be an IANA time zone such as Europe/Berlin")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(tidy)]
Zone = Annotated[str, AfterValidator(_zone)]
Alias = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(tidy)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[UUID, Field(strict=False)]
Moment = Annotated[AwareDatetime, Field(strict=False)]
IdempotencyKey = Annotated[
    Id | None,
    Field(description="Client-generated UUID. A repeated request creates nothing again; the response has the id."),
]


class SummaryPartBody(Body):
    """A part of a summary template."""

    part: SummaryPartName
    heading: str | None = Field(None, description="Unset: the default in the language of the call; empty: none.")
    most: int | None = Field(
        None, ge=1, le=MAX_ITEMS, description="Max. tasks, or sentences of the reason. Unset: the default."
    )


class SummaryBody(Body):
    """A summary template: its parts in order; other parts are omitted."""

    parts: list[SummaryPartBody] = Field(min_length=1, max_length=len(PARTS))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.domain()
        return self

    def domain(self) -> SummaryTemplate:
        """Return the template. Raises ValueError."""
        return checked(TemplatePart(part.part, part.heading, part.most) for part in self.parts)


class _WithSummary(Body):
    def sent_fields(self) -> dict[str, Any]:
        """Return the fields that were sent, with the summary as a `SummaryTemplate`."""
        values = super().sent_fields()
        summary = values.get("summary")
        return {**values, "summary": summary.domain()} if isinstance(summary, SummaryBody) else values


class WorkspaceChanges(_WithSummary):
    """Changes of a workspace."""

    MAY_BE_NULL = frozenset({"default_country", "summary"})
    name: Name | None = None
    default_country: Annotated[str, AfterValidator(_country)] | None = Field(
        None, description="ISO 3166 country code for national phone numbers."
    )
    time_zone: Zone | None = Field(None, description="IANA time zone.")
    summary: SummaryBody | None = Field(
        None, description="Template of its summaries; null: the default of the call's language."
    )
    voiceprints: Literal["off", "consented"] | None = Field(
        None, description="Whose voiceprints are stored: none, or those of members with a consent. Deletes the others."
    )


class NewTeam(Body):
    """A team."""

    idempotency_key: IdempotencyKey = None
    name: Name
    channels_swapped: bool = Field(False, description="The PBX records the customer on the first channel.")


class TeamChanges(_WithSummary):
    """Changes of a team."""

    MAY_BE_NULL = frozenset({"summary"})
    name: Name | None = None
    channels_swapped: bool | None = None
    summary: SummaryBody | None = Field(None, description="Template of its summaries; null: that of the workspace.")


class NewMember(Body):
    """A member."""

    user_id: Id | None = Field(
        None, description="The userId in submissions, a client-generated UUID; also the idempotency key."
    )
    name: Name
    aliases: list[Alias] = Field(default=[], max_length=20)
    team_id: Id | None = Field(None, description="Unset: no team; with a key of a team, that team.")


class MemberChanges(Body):
    """Changes of a member."""

    MAY_BE_NULL = frozenset({"team_id"})
    name: Name | None = None
    aliases: list[Alias] | None = Field(None, max_length=20)
    team_id: Id | None = Field(None, description="null: no team.")


class NewConsent(Body):
    """A member's consent to voiceprints."""

    text_version: str = Field(
        min_length=1, max_length=200, description="Version of the text that the member agreed to."
    )
    expires_at: Moment | None = Field(None, description="Unset: until it is withdrawn.")


class NewContact(Body):
    """A contact."""

    idempotency_key: IdempotencyKey = None
    name: Name
    company: Text | None = None
    email: Text | None = None
    phone: Text | None = Field(None, description="In any format; stored as E.164.")


class ContactChanges(Body):
    """Changes of a contact; null removes a value."""

    MAY_BE_NULL = frozenset({"company", "email", "phone"})
    name: Name | None = None
    company: Text | None = None
    email: Text | None = None
    phone: Text | None = None


class NewKey(Body):
    """A key of a workspace or team."""

    idempotency_key: IdempotencyKey = None
    name: Name
    scopes: list[Literal["submit", "read", "edit", "admin", "unredacted"]] = Field(min_length=1, max_length=5)
    team_id: Id | None = Field(None, description="Unset: workspace-wide; with a key of a team, that team.")
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        None, description="Unset: when the key that creates it expires."
    )
    channels_swapped: bool | None = Field(None, description="For calls of this key; unset: the setting of the team.")


class KeyChanges(Body):
    """Changes of a key. Scopes cannot be changed: create another key."""

    MAY_BE_NULL = frozenset({"channels_swapped"})
    name: Name | None = None
    channels_swapped: bool | None = None


class NewRetention(Body):
    """A retention period."""

    kind: Annotated[RetentionKind, Field(strict=False)]
    days: int | None = Field(
        ge=1, le=MAX_DAYS, description="null: no period. A team has that of its workspace then, a workspace keeps all."
    )
    team_id: Id | None = Field(None, description="Unset: of the workspace, for teams without a period.")


class NewPattern(Body):
    """A pattern of the workspace."""

    name: Name
    shape: str = Field(min_length=1, max_length=MAX_SHAPE, description="A: a letter, 9: a digit, as in AB-999999.")


_DEFAULTS = redaction.RedactionPolicy()


class NewRedaction(Body):
    """A policy of redaction."""

    mode: Annotated[redaction.RedactionMode, Field(strict=False)] | None = Field(
        description="mask: originals are sealed; redacted-only: none is kept; null: no policy. A team has that of its "
        "workspace then."
    )
    team_id: Id | None = Field(None, description="Unset: of the workspace, for teams without a policy.")
    presets: list[Literal["pci", "privacy", "health"]] = Field([], max_length=3, description="Named sets of kinds.")
    kinds: list[Annotated[redaction.EntityKind, Field(strict=False)]] = Field([], max_length=len(redaction.EntityKind))
    patterns: list[NewPattern] = Field([], max_length=MAX_PATTERNS)
    last_digits: int = Field(
        _DEFAULTS.last_digits,
        ge=0,
        le=redaction.MAX_LAST_DIGITS,
        description="Of cards, accounts and numbers, that stay readable.",
    )
    agents_exempt: bool = Field(_DEFAULTS.agents_exempt, description="Names of members stay.")
    guard_seconds: float = Field(
        _DEFAULTS.guard_seconds,
        ge=0,
        le=redaction.MAX_GUARD_SECONDS,
        description="Sound hidden before and after each span.",
    )
    hold: bool = Field(
        _DEFAULTS.hold, description="A call that cannot be checked fails; false: it is shown with a warning."
    )

    def policy(self) -> redaction.NamedPolicy | None:
        """Return the policy; None: it is removed. Raises `PolicyRefused`."""
        if self.mode is None:
            return None
        options = self.model_dump(exclude={"mode", "team_id", "presets", "patterns"})
        presets = [redaction.RedactionPreset(preset) for preset in self.presets]
        patterns = tuple(redaction.Pattern(pattern.name, pattern.shape) for pattern in self.patterns)
        return named(self.mode, presets, **options, patterns=patterns)


class NewHold(Body):
    """A legal hold."""

    kind: Annotated[HoldKind, Field(strict=False)]
    subject: Text = Field(description="callId, number or contactId.")
    reason: Name = Field(description="Shown to users who may see a call that it covers.")


class GoldVersion(Body):
    """A version of a gold set."""

    name: Name
    version: int | None = Field(None, ge=1, description="Unset: the latest.")


class NewRun(Body):
    """A run: its calls, and the settings that differ from those of the service."""

    idempotency_key: IdempotencyKey = None
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Letters, digits, dots, dashes, _.")
    settings: dict[str, dict[str, Any]] = Field(
        default={},
        description="Differences from the settings of the service by group (asr, diarization, safety, roles, "
        "analysis): "
        '{"asr": {"model": "whisper-tiny.en"}}.',
    )
    call_ids: list[Id] = Field(
        default=[], max_length=2_000, description="Only these calls. Unset: all that match the filters."
    )
    gold: GoldVersion | None = Field(None, description="Calls of this gold set.")
    started_from: Moment | None = Field(None, description="Calls that started at this time or later.")
    started_before: Moment | None = Field(None, description="Calls that started before this time.")
    team_id: Id | None = Field(None, description="Calls of this team.")
    language: str | None = Field(None, pattern="^[a-z]{2,3}$", description="Language of the call, ISO 639-1.")
    limit: int | None = Field(None, ge=1, le=2_000, description="Max. number of calls, the latest first.")


class NewErasure(Body):
    """What is erased: exactly one of the ids, or a number."""

    call_id: Id | None = Field(None, description="This call.")
    number: Text | None = Field(None, description="Calls from or to this number, in any format.")
    contact_id: Id | None = Field(None, description="Calls with this contact, and the contact.")
    member_id: Id | None = Field(
        None, description="The member (userId): voice profile, voiceprints, and the name in records. Calls are kept."
    )
    team_id: Id | None = Field(None, description="All calls of this team, and the team.")
    dry_run: bool = Field(False, description="true: count what matches, and erase nothing.")

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if len(self.targets()) != 1:
            raise ValueError("set exactly one of callId, number, contactId, memberId and teamId")
        return self

    def targets(self) -> dict[str, Any]:
        """Return the fields that are set, apart from `dry_run`."""
        fields = ("call_id", "number", "contact_id", "member_id", "team_id")
        return {name: value for name in fields if (value := getattr(self, name)) is not None}


async def read_admin_body(request: Request, model: type[B]) -> B:
    """Return the parsed body. Raises `AdminBodyRefused` with every fault; faults contain no sent values."""
    check_media_type(request.headers.getlist("content-type"), request.headers.getlist("content-encoding"))
    names = _names(model)
    try:
        body, faults = read_object(await read_body(request, LimitOptions(), MAX_BODY_BYTES), names)
    except InvalidBody as error:
        raise AdminBodyRefused(error.faults) from None
    try:
        parsed = model.model_validate(body)
    except ValidationError as error:
        faults += [_fault(item, model) for item in error.errors(include_url=False, include_input=False)]
        raise AdminBodyRefused(list(dict.fromkeys(faults))) from None
    faults += _nulls(parsed)
    if not parsed.model_fields_set:
        faults.append(Fault("", f"The body has no field. Set at least one of: {', '.join(sorted(names))}."))
    if faults:
        raise AdminBodyRefused(list(dict.fromkeys(faults)))
    return parsed


def _nulls(body: Body) -> list[Fault]:
    """Return faults for fields that are null and must not be."""
    changes = not any(field.is_required() for field in type(body).model_fields.values())
    names = [
        name for name, value in body.sent_fields().items() if changes and value is None and name not in body.MAY_BE_NULL
    ]
    return [
        Fault(f"/{to_camel(name)}", f"{to_camel(name)}: must not be null. Omit it or set a value.") for name in names
    ]


def _fault(error: Any, model: type[Body]) -> Fault:
    names = _names(model)
    name = next((part for part in error["loc"] if part in names), None)
    place = "".join(f"[{part}]" for part in error["loc"][1:] if isinstance(part, int))
    message = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    inner = next((_nested(field) for field in model.model_fields.values() if field.alias == name), None)
    if inner is not None and len(error["loc"]) > 1:  # the field of an object
        inner_name, inner_names = str(error["loc"][1]), _names(inner)
        if inner_name in inner_names:
            return Fault(f"/{name}/{inner_name}", f"{name}.{inner_name}: {message}.")
        sentence = unknown_name("field", inner_name, inner_names)
        return Fault(f"/{name}", f"{name}: {sentence} Fields are: {', '.join(sorted(inner_names))}.")
    if error["type"] == "extra_forbidden" and name is None:
        sentence = unknown_name("field", str(error["loc"][-1]), names)
        return Fault("", f"{sentence} Fields are: {', '.join(sorted(names))}.")
    return Fault(f"/{name}" if name else "", f"{name}{place}: {message}." if name else f"The body: {message}.")


def _names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(str(field.alias) for field in model.model_fields.values())


def _nested(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
