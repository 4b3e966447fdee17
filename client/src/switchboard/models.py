"""Responses of the API, and edits. `make generate` writes this file from the OpenAPI documents."""

from datetime import date as date_aliased
from datetime import time as time_aliased
from typing import Any, Literal
from uuid import UUID

from pydantic import AwareDatetime

from switchboard._model import Model


class AgentEdit(Model):
    """Correction of the agent, by `userId`; `old` is `agentUserId` of the record."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    old: UUID | None
    """The current value; null: none."""
    new: UUID | None
    """The correct value; null: unknown."""
    kind: Literal["agent"] = "agent"
    """Kind."""


class AnswerEdit(Model):
    """Correction of the answer to a question, or of the result of a tracker."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    kind: Literal["answer"] = "answer"
    """Kind."""
    question: str
    """The key of the question or tracker."""
    old: str | None
    """The current answer; said for trackers; null: not said; n/a: not applicable."""
    new: str | None
    """The correct answer; said for trackers; null: not said; n/a: not applicable."""
    comment: str
    """Reason of the correction."""


class AnswerQuote(Model):
    """Words of a turn that support the answer."""

    call_id: UUID
    """The callId of the submission."""
    turn: int
    """Index of the turn."""
    speaker: str
    """Label of the speaker."""
    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    text: str
    """The words."""


class Bleed(Model):
    """One party audible in the other's channel; it is suppressed before speech is detected."""

    source: int
    """Where it comes from."""
    level_db: float
    """Level of the bleed in dB."""
    delay: float
    """Delay of the bleed in seconds."""
    share: float
    """Share of the time, 0 to 1."""


class BodyFault(Model):
    """A fault of a request body."""

    pointer: str
    """JSON Pointer (RFC 6901) to the field; empty for the whole body."""
    detail: str
    """Human-readable sentence."""


class CalibrationCall(Model):
    """A call to review, with this reviewer's answers by key; None: the call does not say."""

    call_id: UUID
    """The callId of the submission."""
    answers: dict[str, str | None]
    """Answers by question."""


class CalibrationReviewer(Model):
    """A reviewer. `calls`: number of calls with answers; `handed_in_at`: None until then."""

    reviewer: str
    """Name of the reviewer."""
    name: str
    """Name."""
    calls: int
    """Number of calls."""
    handed_in_at: AwareDatetime | None
    """When the reviewer handed in; null: not yet."""


class CallAgreement(Model):
    """A call with each reviewer's score, 0..100. `spread`: the highest less the lowest, in points."""

    call_id: UUID
    """The callId of the submission."""
    agreement: float | None
    """Agreement, 0 to 1; null: too few answers to compare."""
    scores: dict[str, float | None]
    """Scores by the workspace's scorecards."""
    machine_score: float | None
    """The machine's score, 0 to 100."""
    spread: float | None
    """Difference between the highest and the lowest score."""


class CallMoment(Model):
    """An event of a call: "submitted", "process queued", "completed", ... `about` is a job's id, if any."""

    at: AwareDatetime
    """Time of it."""
    what: str
    """What happened, or which part of the call was read."""
    about: UUID | None = None
    """Id of the job, if the moment concerns one."""


class CommentEdit(Model):
    """A comment on the call. Undo the edit to remove it."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    kind: Literal["comment"] = "comment"
    """Kind."""
    comment: str
    """The comment."""


class ComparedCall(Model):
    """A call with the metric of each system. `start`: second with the most word errors; `audio`: path of its audio."""

    call_id: UUID
    """The callId of the submission."""
    seconds: float
    """Seconds."""
    values: list[float | None]
    """Values by metric."""
    start: float | None
    """Start in seconds from the beginning of the recording."""
    audio: str
    """Seconds of audio."""


class Contact(Model):
    """
    A person known to the workspace. Numbers are E.164.

    `inferred`: known only from calls of unknown direction, so that `phone` may be the workspace's number.
    """

    contact_id: str
    """Id of the contact."""
    name: str | None = None
    """Name."""
    company: str | None = None
    """Company of the contact."""
    email: str | None = None
    """E-mail address."""
    phone: str | None = None
    """Phone number, E.164."""
    inferred: bool = False
    """Found in what was said, not submitted."""


class ContactEdit(Model):
    """Correction of the contact, by `contactId`; `old` is that of the record."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    old: UUID | None
    """The current value; null: none."""
    new: UUID | None
    """The correct value; null: unknown."""
    kind: Literal["contact"] = "contact"
    """Kind."""


class ContactLine(Model):
    """A contact with its calls: all of the workspace's, or of the reader's team."""

    contact_id: UUID
    """Id of the contact."""
    name: str | None
    """Name."""
    company: str | None
    """Company of the contact."""
    email: str | None
    """E-mail address."""
    phone: str | None
    """Phone number, E.164."""
    source: str
    """Where it comes from."""
    updated_at: AwareDatetime
    """When it last changed."""
    calls: int
    """Number of calls."""
    last_call: AwareDatetime | None
    """Start of the latest call."""


class Current(Model):
    """The present value at the place of an edit: words and speaker of a turn, or the value of a field."""

    value: str | bool | None
    """The value."""
    turn: int | None = None
    """Index of the turn."""
    start: float | None = None
    """Start in seconds from the beginning of the recording."""
    end: float | None = None
    """End in seconds from the beginning of the recording."""
    speaker: str | None = None
    """Label of the speaker."""


class Disagreement(Model):
    """A question with different answers for a call. `answers`: by reviewer; `machine`: None if it has none."""

    call_id: UUID
    """The callId of the submission."""
    question: str
    """Question, or its key."""
    agreement: float
    """Agreement, 0 to 1; null: too few answers to compare."""
    answers: dict[str, str]
    """Answers by question."""
    machine: str | None
    """What the machine found."""


class Doubt(Model):
    """A stretch of uncertain text. Removed text is stored here, so that nothing is hidden."""

    channel: int
    """Channel of the recording, from 0."""
    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    reasons: list[str]
    """The reasons."""
    text: str = ""
    """The words."""
    kept: bool = True
    """The words are kept in the transcript."""


class Erasure(Model):
    """
    An erasure. `matched`: objects by kind, at its creation; `counts`: those that were erased.

    `counts["held"]`: calls that a legal hold keeps.
    """

    erasure_id: UUID
    """Id of the erasure."""
    kind: str
    """Kind."""
    status: str
    """Status."""
    matched: dict[str, int]
    """What matches, by kind of object."""
    counts: dict[str, int]
    """What was erased, by kind of object."""
    key_id: UUID | None
    """Id of the key, not its secret; null: a person or the operator."""
    created_at: AwareDatetime
    """When it was created."""
    finished_at: AwareDatetime | None
    """When it ended; null: it has not."""


class Evidence(Model):
    """A verbatim quote of one turn and its seconds."""

    turn: int
    """Index of the turn."""
    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    quote: str
    """The words that were said."""


class Failure(Model):
    """Why a call or a job failed: code and message of its `CallError`, and whether a retry could help."""

    code: str
    """Stable code of the failure, for programs."""
    message: str
    """The failure as a sentence."""
    retryable: bool
    """A retry could help."""


class Finding(Model):
    """Result of one step. `value` is JSON-compatible data, so that any new step can be stored and shown."""

    step: str
    """Step of the analysis: summary, tasks, tone, ..."""
    version: int
    """Version."""
    value: dict[str, Any]
    """The value."""
    evidence: list[Evidence] = []
    """Quotes that support it, with their seconds."""
    confidence: float | None = None
    """Confidence, 0 to 1."""
    note: str | None = None
    """Note, for people."""


class GoldVersion(Model):
    """A version of a gold set."""

    name: str
    """Name."""
    version: int | None = None
    """Unset: the latest."""


class Hit(Model):
    """
    Words that match, as spoken: `words` in `start`..`end`, and `quote` around them.

    In semantic search: a passage that begins with this turn, and its similarity to the question.
    """

    turn: int
    """Index of the turn."""
    speaker: str
    """Label of the speaker."""
    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    words: str
    """The words, or their number."""
    quote: str
    """The words that were said."""
    similarity: float | None = None
    """Similarity, 0 to 1; null: a search by words."""


class JobSummary(Model):
    """A job for operators."""

    job_id: UUID
    """Id of the job."""
    call_id: UUID
    """The callId of the submission."""
    kind: str
    """Kind."""
    status: str
    """Status."""
    stage: str | None
    """Stage of the live job; null: none runs."""
    attempts: int
    """Attempts of the latest job, the present one included."""
    failures: int
    """Attempts that failed."""
    crashes: int
    """Worker processes that ended while they ran the job."""
    created_at: AwareDatetime
    """When it was created."""
    started_at: AwareDatetime | None
    """When it was last started."""
    queued_since: AwareDatetime | None
    """Since when it is queued."""
    next_try: AwareDatetime | None
    """Time of the next attempt, while it waits."""
    finished_at: AwareDatetime | None
    """When it ended; null: it has not."""
    error: Failure | None
    """The last error; null: none."""


class LanguageStretch(Model):
    """One channel speaks one language from `start` to `end`."""

    channel: int
    """Channel of the recording, from 0."""
    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    language: str
    """Language, ISO 639."""
    probability: float | None
    """Probability, 0 to 1."""


class LegalHold(Model):
    """A hold. `subject`: a callId, a number (E.164 if it is one) or the id of a contact."""

    hold_id: UUID
    """Id of the hold."""
    kind: Literal["call", "number", "contact"] | str
    """Kind."""
    subject: str
    """callId, number or contactId that it covers."""
    reason: str
    """The reason, for people."""
    set_by: str
    """Person or key that set it."""
    set_at: AwareDatetime
    """When it was set."""
    released_by: str | None
    """Person or key that released it."""
    released_at: AwareDatetime | None
    """When it was released; null: in force."""


class MemberLine(Model):
    """A member; without a team: of all teams."""

    user_id: UUID
    """The member; null: unknown."""
    name: str
    """Name."""
    aliases: list[str]
    """Other names by which the member introduces itself."""
    team_id: UUID | None
    """Id of the team; null: no team, or all of them."""


class MetricVerdict(Model):
    """Difference of a system to the first one over common calls. `better`: null if it is not significant."""

    value: float
    """The value."""
    low: float | None
    """Lower end of the confidence interval."""
    high: float | None
    """Upper end of the confidence interval."""
    calls: int
    """Number of calls."""
    better: bool | None
    """Which system is better; null: no difference was found."""
    sentence: str
    """The result as a sentence."""


class ModelBudget(Model):
    """Daily limits of a workspace; None: no limit."""

    requests: int | None = None
    """Number of requests."""
    tokens: int | None = None
    """Number of tokens."""
    cost: float | None = None
    """Cost in the operator's currency."""


class ModelSpend(Model):
    """
    Requests and tokens that a question cost; none if the same question was answered a few minutes before.

    `estimated`: the endpoint reported no usage for one of them.
    """

    requests: int = 0
    """Number of requests."""
    prompt_tokens: int = 0
    """Tokens of the requests."""
    completion_tokens: int = 0
    """Tokens of the model's answers."""
    cost: float = 0.0
    """Cost in the operator's currency."""
    estimated: bool = False
    """Some counts are estimates: the model did not report them."""


class ModelUsage(Model):
    """
    A workspace's usage in a day (UTC), and its limits. `reached`: those that stop further requests.

    `estimated`: requests with estimated tokens: without a response, or with one that reports no usage.
    """

    day: date_aliased
    """The day, in UTC."""
    requests: int
    """Number of requests."""
    prompt_tokens: int
    """Tokens of the requests."""
    completion_tokens: int
    """Tokens of the model's answers."""
    cost: float
    """Cost in the operator's currency."""
    estimated: int
    """Some counts are estimates: the model did not report them."""
    budget: ModelBudget
    """Limits of the workspace; null: none."""
    reached: list[str] = []
    """The limit that is reached; null: none."""


class NewPattern(Model):
    """A pattern of the workspace."""

    name: str
    """Name."""
    shape: str
    """A: a letter, 9: a digit, as in AB-999999."""


class Pattern(Model):
    """A shape that a workspace hides, typed or spoken: `A` stands for a letter, `9` for a digit, as in `AB-999999`."""

    name: str
    """Name."""
    shape: str
    """A: a letter, 9: a digit, as in AB-999999."""


class Question(Model):
    """
    A question in plain words, or a tracker. Without limits it applies to every call and to the whole call.

    `first`, `last`: minutes from the first, or before the last, word of a person. `unless`: a phrase does not count in
    a sentence with one of these. `choices`: each with its phrases. `finding`: a tracker of this finding instead of
    phrases. `required`: a tracker is raised if it is missing.
    """

    key: str
    """Key of the question, tracker or scorecard."""
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] | str | None = None
    """Type."""
    question: str = ""
    """Question, or its key."""
    party: Literal["rep", "customer", "anyone"] | str | None = None
    """Only words of this party; null: of both."""
    first: float | None = None
    """Only in the first seconds of the call; null: anywhere."""
    last: float | None = None
    """Only in the last seconds of the call; null: anywhere."""
    outgoing: bool | None = None
    """true: outbound; false: inbound; null: unknown."""
    languages: list[str] = []
    """Languages, ISO 639."""
    teams: list[str] = []
    """Teams that it applies to; empty: all."""
    phrases: list[str] = []
    """Phrases that answer the question or raise the tracker."""
    unless: list[str] = []
    """Phrases that prevent a match."""
    choices: dict[str, list[str]] | None = None
    """Possible answers of a choice."""
    finding: Literal["recording_notice"] | None = None
    """Result of the analysis that answers the question; null: its phrases do."""
    required: bool = False
    """Raised if the phrases are missing."""
    weight: float = 1.0
    """Weight in the score."""
    version: int = 0
    """Version."""


class QuestionAgreement(Model):
    """
    Agreement of the reviewers on a question.

    `agreement`, 0..1: the share of equal pairs among the `pairs` of answers of two reviewers to the same call; None: no
    pair. `with_machine`, 0..1: the share of answers that equal the machine's; None: it has none.
    """

    question: str
    """Question, or its key."""
    title: str
    """Title."""
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] | str
    """Type."""
    answers: int
    """Answers by question."""
    pairs: int
    """Pairs of answers that were compared."""
    agreement: float | None
    """Agreement, 0 to 1; null: too few answers to compare."""
    with_machine: float | None
    """Agreement of the reviewers with the machine."""


class QuestionAnswer(Model):
    """
    Answer of a call to a question. `version` is that of the question; `reason` says why it was not asked.

    `answer`: "yes" or "no", the choice, a number, a text, or a date in ISO 8601; None unless it was said.
    `confidence`, 0..1: recognition confidence of the quoted words times the confidence of the method.
    """

    key: str
    """Key of the question, tracker or scorecard."""
    version: int
    """Version."""
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] | str
    """Type."""
    question: str
    """Question, or its key."""
    status: Literal["said", "not_said", "not_asked", "out_of_scope"] | str
    """Status."""
    answer: str | float | None = None
    """The answer; null: not said."""
    said_by: str | None = None
    """Party that said it."""
    evidence: Evidence | None = None
    """Quotes that support it, with their seconds."""
    found_by: Literal["phrases", "model", "person"] | str | None = None
    """rules or model."""
    confidence: float | None = None
    """Confidence, 0 to 1."""
    weight: float = 1.0
    """Weight in the score."""
    reason: str | None = None
    """The reason, for people."""


class Rate(Model):
    """A pooled ratio. `low`, `high`: 95 % bootstrap interval over calls; None for fewer than `MIN_CALLS`."""

    value: float
    """The value."""
    low: float | None
    """Lower end of the confidence interval."""
    high: float | None
    """Upper end of the confidence interval."""
    calls: int
    """Number of calls."""


class Recording(Model):
    """A fetched file."""

    channel: int
    """Channel of the recording, from 0."""
    sha256: str
    """SHA-256 of the file."""
    size_bytes: int
    """Bytes of the file."""
    media_type: str | None = None
    """Media type that the sender's server declared."""
    redaction: str | None = None
    """What was hidden, and by which policy."""


class RecordingUpload(Model):
    """An upload that is not complete. Send its bytes from `offset` on, until `expiresAt`."""

    upload_id: str
    """Id of the upload."""
    offset: int
    """Number of bytes that have arrived."""
    length: int
    """Size in bytes."""
    expires_at: AwareDatetime
    """When it expires; null: never."""


class RedactedSpan(Model):
    """Where something is hidden: seconds of a channel, without the words."""

    kind: (
        Literal[
            "card",
            "card_code",
            "card_expiry",
            "iban",
            "account",
            "national_id",
            "phone",
            "birth_date",
            "password",
            "email",
            "spelled_name",
            "address",
            "person",
            "organization",
            "place",
            "health",
            "custom",
        ]
        | str
    )
    """Kind."""
    channel: int
    """Channel of the recording, from 0."""
    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    confidence: float
    """Confidence, 0 to 1."""
    pattern: str = ""
    """Name of the pattern of the workspace."""


class RetentionPeriod(Model):
    """Days after which content is deleted. `team_id`: None for teams without a period of this kind."""

    kind: Literal["recordings", "transcripts", "voiceprints", "submissions", "events", "access_log", "calls"] | str
    """Kind."""
    team_id: UUID | None
    """Id of the team; null: no team, or all of them."""
    days: int
    """Days after which it is deleted; null: never."""


class RetriedCall(Model):
    """A call that is processed again. `job_id`: a new job, or the waiting one, which is tried now."""

    call_id: UUID
    """The callId of the submission."""
    job_id: UUID
    """Id of the job."""


class ReviewerAgreement(Model):
    """
    How strict a reviewer is. `score`: the mean over the calls, 0..100.

    `from_group`: the mean difference, in points, from the mean of all reviewers of the same call; `from_machine`: from
    the score of the machine's answers. Above 0: more lenient. None: no call has both scores.
    """

    reviewer: str
    """Name of the reviewer."""
    name: str
    """Name."""
    score: float | None
    """Score, 0 to 100; null: nothing applied."""
    from_group: float | None
    """Mean difference from the other reviewers."""
    from_machine: float | None
    """Mean difference from the machine."""


class RolesEdit(Model):
    """Correction of which party is the rep."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    kind: Literal["roles"] = "roles"
    """Kind."""
    old: bool
    """The record's `swapped`."""
    new: bool
    """true: the parties are swapped compared to the machine's result."""


class Run(Model):
    """
    A run and its progress.

    `settings`: by group, those that differ from the live ones. `configuration`: all settings, with engines, checkpoints
    and code, once it has started; `digest` is its digest.
    """

    run_id: UUID
    """Id of the run."""
    name: str
    """Name."""
    status: str
    """Status."""
    settings: dict[str, dict[str, Any]]
    """Settings that differ from those of the service."""
    configuration: dict[str, Any] | None
    """All settings of the run."""
    digest: str | None
    """SHA-256 of the results; equal digests are equal results."""
    calls: int
    """Number of calls."""
    waiting: int
    """Calls that wait."""
    running: int
    """Calls that are being processed."""
    done: int
    """Finished ones."""
    failed: int
    """Failed ones."""
    promoted: int
    """Its results are the record."""
    audio_seconds: float
    """Seconds of audio."""
    worked_seconds: float
    """Seconds of processing."""
    made_at: AwareDatetime
    """When it was created."""
    made_by: str
    """Person or key that created it."""
    started_at: AwareDatetime | None
    """When it was last started."""
    finished_at: AwareDatetime | None
    """When it ended; null: it has not."""
    promoted_at: AwareDatetime | None
    """When it was promoted; null: it was not."""
    promoted_by: str | None
    """Person or key that promoted it."""


class RunCall(Model):
    """A call of a run with its state and cost."""

    call_id: UUID
    """The callId of the submission."""
    status: str
    """Status."""
    engine: str | None
    """Engine and model that recognized the speech."""
    digest: str | None
    """SHA-256 of the results; equal digests are equal results."""
    audio_seconds: float | None
    """Seconds of audio."""
    seconds: dict[str, float | None] | None
    """Seconds."""
    error_code: str | None
    """Code of the failure; null: none."""
    error_message: str | None
    """Message of the failure."""
    started_at: AwareDatetime | None
    """When it was last started."""
    finished_at: AwareDatetime | None
    """When it ended; null: it has not."""
    promoted: bool
    """Its results are the record."""


class ScoreWeek(Model):
    """The scores of a team's or member's calls that started in one week. `score`: their mean, 0..100."""

    key: str
    """Key of the question, tracker or scorecard."""
    week: date_aliased
    """Monday of the week."""
    team_id: UUID | None
    """Id of the team; null: no team, or all of them."""
    user_id: UUID | None
    """The member; null: unknown."""
    name: str | None
    """Name."""
    calls: int
    """Number of calls."""
    score: float
    """Score, 0 to 100; null: nothing applied."""
    passed: int
    """The call passed."""
    failed: int
    """Failed ones."""
    auto_failed: int
    """Failed automatically by one answer."""


class ScorecardItem(Model):
    """
    A question or tracker on a scorecard, by its key.

    `points`: the share of the weight, 0..1, that an outcome earns; none given: see `points_of`. `weight`: None: that of
    the question. `auto_fail`: the whole call scores 0 where this earns nothing.
    """

    question: str
    """Question, or its key."""
    section: str = ""
    """Section of the scorecard."""
    weight: float | None = None
    """Weight in the score."""
    points: dict[str, float | None] | None = None
    """Points of the item."""
    auto_fail: bool = False
    """A wrong outcome fails the whole scorecard."""


class ScorecardScore(Model):
    """A call's score by a scorecard, 0..100. `passed`: None without a pass mark."""

    key: str
    """Key of the question, tracker or scorecard."""
    score: float
    """Score, 0 to 100; null: nothing applied."""
    passed: bool | None
    """The call passed."""
    auto_failed: bool
    """Failed automatically by one answer."""


class ScoredItem(Model):
    """
    Points of a call's answer to one question.

    `outcome` and `earned` (0..1) are None if the item does not count: the question could not be answered or does not
    apply to the call; `reason` says why.
    """

    question: str
    """Question, or its key."""
    title: str
    """Title."""
    section: str
    """Section of the scorecard."""
    weight: float
    """Weight in the score."""
    points: dict[str, float | None]
    """Points of the item."""
    auto_fail: bool
    """A wrong outcome fails the whole scorecard."""
    outcome: str | None = None
    """The outcome."""
    earned: float | None = None
    """Points that the call got."""
    reason: str | None = None
    """The reason, for people."""


class SectionScore(Model):
    """Score of the items of one section, 0..100; None if no item counts."""

    section: str
    """Section of the scorecard."""
    score: float | None
    """Score, 0 to 100; null: nothing applied."""


class Similarity(Model):
    """Similarity of a voiceprint to a member's profile: the cosine, -1 to 1, to its closest centroid."""

    user_id: UUID
    """The member; null: unknown."""
    name: str | None
    """Name."""
    cosine: float
    """Cosine of the voiceprint and the member's closest centroid, -1 to 1."""


class Speaker(Model):
    """One voice of a call. `label` is unique in the call ("rep", "customer", "A", "B", ...)."""

    label: str
    """Name of the speaker in the turns: rep, customer, ..."""
    role: Literal["rep", "customer", "unknown"] | str
    """rep, customer or another role."""
    role_confidence: float
    """Confidence of the role, 0 to 1."""
    role_reason: str
    """Why the speaker has the role."""
    user_id: str | None = None
    """The member; null: unknown."""


class SpeakerEdit(Model):
    """Correction of the speaker of a turn."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    turn: int
    """The turn's `index`."""
    start: float
    """Current `start` of the first word."""
    end: float
    """Current `end` of the last word."""
    kind: Literal["speaker"] = "speaker"
    """Kind."""
    old: str
    """The turn's `speaker`."""
    new: str
    """rep, customer or another speaker label."""


class StoredQuestion(Model):
    """A version of a question. `retired_at`: when it was replaced or removed; None: it is active."""

    question: Question
    """Question, or its key."""
    made_at: AwareDatetime
    """When it was created."""
    made_by: str
    """Person or key that created it."""
    retired_at: AwareDatetime | None
    """When a later version or a deletion ended it; null: current."""
    retired_by: str | None
    """Person or key that ended it."""


class SubmitReply(Model):
    """An accepted submission. `jobId` is present if and only if `status` is `transcribing`."""

    status: Literal["received", "transcribing"] | str
    call_id: UUID
    """The submitted callId, in lower case."""
    job_id: str | None = None
    """Present if status is transcribing."""


class TagEdit(Model):
    """A tag, which any number of calls may have. Undo the edit to remove it."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    kind: Literal["tag"] = "tag"
    """Kind."""
    new: str
    """The tag, stored in lower case; without commas."""


class TaskLine(Model):
    """A task with its call. `task_id` is stable when another analysis finds the task again."""

    task_id: UUID
    """Id of the task; it survives another analysis."""
    call_id: UUID
    """The callId of the submission."""
    team_id: UUID
    """Id of the team; null: no team, or all of them."""
    user_id: UUID | None
    """The member; null: unknown."""
    start_time: AwareDatetime
    """Start of the call."""
    title: str
    """Title."""
    owner: str
    """Party that owns the task: rep, customer, other or unknown."""
    kind: str
    """Kind."""
    owner_user_id: str | None
    """Member that owns the task; null: unknown."""
    beneficiary: str | None
    """Party that benefits from the task."""
    due_expression: str | None
    """The words that name the due date."""
    due_date: date_aliased | None
    """Due date; null: none was said."""
    due_time: time_aliased | None
    """Time of day that it is due; null: none was said."""
    confidence: float
    """Confidence, 0 to 1."""
    evidence: Evidence
    """Quotes that support it, with their seconds."""
    done_at: AwareDatetime | None
    """When a person marked the task as done; null: open."""
    done_by: str | None
    """Person or key that marked it as done."""


class TaskMark(Model):
    """Whether a task is done, since when, and by whom."""

    task_id: UUID
    """Id of the task; it survives another analysis."""
    done_at: AwareDatetime | None
    """When a person marked the task as done; null: open."""
    done_by: str | None
    """Person or key that marked it as done."""


class TeamQueue(Model):
    """The live jobs of one team."""

    team_id: UUID
    """Id of the team; null: no team, or all of them."""
    team: str
    """Name of the team."""
    fetching: int
    """Calls whose recording is being fetched or waits for it."""
    queued: int
    """Calls that wait for their turn."""
    running: int
    """Calls that are being processed."""
    later: int
    """Of fetching and queued: to be retried later, after a failure."""
    audio_seconds: float
    """Seconds of audio."""
    oldest: AwareDatetime | None
    """When the longest waiting job was queued."""


class TeamWeek(Model):
    """The calls of one team that started in one week."""

    team_id: UUID
    """Id of the team; null: no team, or all of them."""
    week: date_aliased
    """Monday of the week."""
    calls: int
    """Number of calls."""
    failed: int
    """Failed ones."""
    positive: int
    """Calls with a positive tone."""
    neutral: int
    """Calls with a neutral tone."""
    negative: int
    """Calls with a negative tone."""
    talk_ratio: float | None
    """Mean share of the agent in the talk, 0 to 1; null: no call has one."""
    tasks: int = 0
    """Tasks, or their number."""
    tasks_done: int = 0
    """Tasks that are done."""
    outcomes: dict[str, int] | None = None
    """Calls by known outcome."""


class TemplatePart(Model):
    """
    A part of a summary. `heading`: text before it; None: in the language of the call; empty: none.

    `most`, 1..10: maximum of tasks or actions (None: 3), or of sentences of the reason (None: 2, which is the limit).
    """

    part: Literal["reason", "done", "agreed", "open", "next_step", "ending"] | str
    """Part of the summary."""
    heading: str | None = None
    """Text before the part; null: the default, empty: none."""
    most: int | None = None
    """Max. number of items of the part; null: the default."""


class TextEdit(Model):
    """Correction of one or several words of a turn."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    turn: int
    """The turn's `index`."""
    start: float
    """Current `start` of the first word."""
    end: float
    """Current `end` of the last word."""
    kind: Literal["text"] = "text"
    """Kind."""
    old: str
    """The current words, separated by single spaces."""
    new: str
    """The correct words; empty: nothing was said."""


class TrackerMatch(Model):
    """A place where a tracker's phrase was said."""

    said_by: str
    """Party that said it."""
    evidence: Evidence
    """Quotes that support it, with their seconds."""
    confidence: float
    """Confidence, 0 to 1."""


class TrackerResult(Model):
    """Whether a tracker's phrases were said. `raised`: they were, or were not in case of a required tracker."""

    key: str
    """Key of the question, tracker or scorecard."""
    version: int
    """Version."""
    question: str
    """Question, or its key."""
    required: bool
    """Raised if the phrases are missing."""
    status: Literal["said", "not_said", "not_asked", "out_of_scope"] | str
    """Status."""
    raised: bool
    """The tracker matched."""
    matches: list[TrackerMatch] = []
    """Where phrases of the tracker were said."""
    reason: str | None = None
    """The reason, for people."""


class UploadedRecording(Model):
    """A call whose recording is uploaded and committed, as the response of /submit."""

    status: Literal["received", "transcribing", "completed", "failed"] | str
    """Status."""
    call_id: UUID
    """The callId of the submission."""
    job_id: UUID | None
    """Id of the job."""


class VoiceConsent(Model):
    """A consent of a member. `text_version`: of the text agreed to; `active`: the latest, which is in force."""

    user_id: UUID
    """The member; null: unknown."""
    text_version: str
    """Version of the text that was agreed to."""
    recorded_at: AwareDatetime
    """When it was recorded."""
    recorded_by: str
    """Person or key that recorded it."""
    expires_at: AwareDatetime | None
    """When it expires; null: never."""
    withdrawn_at: AwareDatetime | None
    """When it was withdrawn; null: it was not."""
    withdrawn_by: str | None
    """Person or key that withdrew it."""
    active: bool
    """The latest consent, which is in force."""


class VoiceprintEvent(Model):
    """A user's action: removed, restored, assigned (to `user_id`) or approved; replaced: by another recording."""

    at: AwareDatetime
    """Time of it."""
    who: str
    """Person, key or operator."""
    action: str
    """What was done: created, changed, removed, ..."""
    user_id: UUID | None = None
    """The member; null: unknown."""
    name: str | None = None
    """Name."""


class VoiceprintSummary(Model):
    """
    An agent's voice in one call. `state`: enrolled, waiting, quarantined, removed, unassigned, or recognized.

    `recognized`: it is not assigned but clearly matches the profile of `user_id`; it is not enrolled.
    """

    call_id: UUID
    """The callId of the submission."""
    workspace_id: UUID
    """Id of the workspace."""
    user_id: UUID | None
    """The member; null: unknown."""
    name: str | None
    """Name."""
    status: str
    """Status."""
    reasons: list[str]
    """The reasons."""
    model: str
    """Model that computed the vector."""
    speech_seconds: float
    """Seconds of speech."""
    agreement: float | None
    """Similarity to the member's other voiceprints, -1 to 1; null: there are none."""
    created_at: AwareDatetime
    """When it was created."""


class Waveform(Model):
    """The loudest sample of each slice of the recording, 0 to 255, by channel; the slices are equally long."""

    channels: list[list[int]]
    """Number of channels."""
    duration: float
    """Seconds of the recording; null until it is transcribed."""


class Word(Model):
    """A timed word as recognized, punctuation attached. `confidence` is a probability, 0..1."""

    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    text: str
    """The words."""
    confidence: float
    """Confidence, 0 to 1."""
    doubtful: bool = False
    """The word is probably wrong."""
    joined: bool = False
    """Not separated from the word before."""


class Action(Model):
    """What a party did or booked during the call. The record, events, exports and gold sets have these fields."""

    title: str
    """Title."""
    kind: Literal["appointment", "payment", "transfer", "refund", "order", "change", "reset", "cancellation"] | str
    """Kind."""
    by: str
    """Party: rep, customer or unknown."""
    evidence: Evidence
    """Quotes that support it, with their seconds."""
    amount: float | None = None
    """Amount of money, in the currency that was said; null: none."""
    date: str | None = None
    """Day of the appointment or deed, ISO 8601; null: not said."""
    time: str | None = None
    """Time of day, HH:MM, on the clock of the workspace; null: not said."""
    address: str | None = None
    """Address that was said; null: none."""


class Agreement(Model):
    """Result of a calibration. Calls and questions are ordered by disagreement, the largest first."""

    pairs: int
    """Pairs of answers that were compared."""
    agreement: float | None
    """Agreement, 0 to 1; null: too few answers to compare."""
    reviewers: list[ReviewerAgreement]
    """The reviewers."""
    questions: list[QuestionAgreement]
    """The questions, or the agreement by question."""
    calls: list[CallAgreement]
    """Number of calls."""
    disagreements: list[Disagreement]
    """Calls and questions on which reviewers differ."""


class Calibration(Model):
    """A version of a scorecard, and calls that reviewers answer it on. `closed_at` None: reviews are open."""

    calibration_id: UUID
    """Id of the calibration."""
    name: str
    """Name."""
    scorecard: str
    """The scorecard, or its key."""
    version: int
    """Version."""
    calls: int
    """Number of calls."""
    made_at: AwareDatetime
    """When it was created."""
    made_by: str
    """Person or key that created it."""
    closed_at: AwareDatetime | None
    """When it was closed; null: open."""
    reviewers: list[CalibrationReviewer]
    """The reviewers."""


class CalibrationAgreement(Model):
    """Agreement of the submitted reviews of a calibration."""

    calibration: Calibration
    """Id of the calibration."""
    agreement: Agreement
    """Agreement, 0 to 1; null: too few answers to compare."""


class CallEdit(Model):
    """
    An edit for display. `machine` is the machine's value at the time of the edit, `person` the user's: words, a
    speaker's label, whether the parties are swapped, an id, whether a task is done, an answer.

    `question`: the key of the question; `comment`: the reason for another answer. `turn`: its present position.
    `start`, `end`: seconds; `channel`: of the machine's layout.
    """

    edit_id: UUID
    """Id of the edit."""
    kind: Literal["text", "speaker", "roles", "agent", "contact", "task", "answer", "tag", "comment"] | str
    """Kind."""
    status: Literal["applied", "superseded", "not-applied", "undone"] | str
    """Status."""
    machine: str | bool | None
    """What the machine found."""
    person: str | bool | None
    """What the person set."""
    turn: int | None
    """Index of the turn."""
    channel: int | None
    """Channel of the recording, from 0."""
    start: float | None
    """Start in seconds from the beginning of the recording."""
    end: float | None
    """End in seconds from the beginning of the recording."""
    task_id: UUID | None
    """Id of the task; it survives another analysis."""
    made_at: AwareDatetime
    """When it was created."""
    made_by: str
    """Person or key that created it."""
    key_id: UUID | None
    """Id of the key, not its secret; null: a person or the operator."""
    session_id: UUID | None
    """Session of the console; null: a key or the operator."""
    undone_at: AwareDatetime | None
    """When it was undone; null: in force."""
    undone_by: str | None
    """Person or key that undid it."""
    question: str | None = None
    """Question, or its key."""
    comment: str | None = None
    """Reason that the person gave."""


class CallSummary(Model):
    """One row of a list of calls."""

    call_id: UUID
    """The callId of the submission."""
    workspace_id: UUID
    """Id of the workspace."""
    team_id: UUID
    """Id of the team; null: no team, or all of them."""
    user_id: UUID | None
    """The member; null: unknown."""
    from_number: str
    """The calling number, as submitted."""
    to_number: str
    """The called number, as submitted."""
    start_time: AwareDatetime
    """Start of the call."""
    outgoing: bool | None
    """true: outbound; false: inbound; null: unknown."""
    duration: float | None
    """Seconds of the recording; null until it is transcribed."""
    declared_duration: int | None
    """Seconds, as submitted."""
    status: Literal["received", "transcribing", "completed", "failed"] | str
    """Status."""
    stage: str | None
    """Stage of the live job; null: none runs."""
    attempts: int
    """Attempts of the latest job, the present one included."""
    next_try: AwareDatetime | None
    """Time of the next attempt, while it waits."""
    failure: Failure | None
    """Why it failed; null: it has not."""
    language: str | None
    """Language, ISO 639."""
    created_at: AwareDatetime
    """When it was created."""
    updated_at: AwareDatetime
    """When it last changed."""
    completed_at: AwareDatetime | None
    """When the record was completed."""
    last_error: Failure | None = None
    """Error of the last attempt while the call is processed."""


class CallTask(Model):
    """A task of a call. `task_id` is stable when another analysis finds the task again."""

    title: str
    """Title."""
    owner: str
    """Party that owns the task: rep, customer, other or unknown."""
    kind: str
    """Kind."""
    evidence: Evidence
    """Quotes that support it, with their seconds."""
    confidence: float
    """Confidence, 0 to 1."""
    owner_user_id: str | None = None
    """Member that owns the task; null: unknown."""
    beneficiary: str | None = None
    """Party that benefits from the task."""
    due_expression: str | None = None
    """The words that name the due date."""
    due_date: date_aliased | None = None
    """Due date; null: none was said."""
    due_time: time_aliased | None = None
    """Time of day that it is due; null: none was said."""
    task_id: UUID | None = None
    """Id of the task; it survives another analysis."""
    done_at: AwareDatetime | None = None
    """When a person marked the task as done; null: open."""
    done_by: str | None = None
    """Person or key that marked it as done."""


class CallsAnswer(Model):
    """
    An answer from quoted turns.

    `answer` None: nothing supports one, and `reason` says what was looked at. `matched`: calls that match the filters,
    up to 1,000 of those with words or names. `read`: calls of which the model has read words. `complete`: it has read
    all words of all matching calls with a transcript.
    """

    answer: str | None
    """The answer, in sentences that the quotes support; null: nothing supports an answer."""
    reason: str | None
    """Why there is no answer; null: there is one."""
    quotes: list[AnswerQuote]
    """Words of turns that support the answer, copied from the transcripts."""
    matched: int
    """Calls that match the filters, up to 1,000 of those with words or names."""
    read: int
    """Calls of which the model has read words."""
    complete: bool
    """The model has read all words of all matching calls with a transcript."""
    chosen_by: Literal["meaning", "words"] | str
    """How the words were chosen: meaning, or words of the question."""
    model: str
    """Name of the language model."""
    spend: ModelSpend
    """What the answer cost."""


class ComparedSlice(Model):
    """Calls that share a property; lists are in the order of the systems."""

    fact: str
    """The fact by which calls are sliced."""
    value: str
    """The value."""
    calls: int
    """Number of calls."""
    seconds: float
    """Seconds."""
    systems: list[Rate | None]
    """The compared systems."""
    against_first: list[MetricVerdict | None]
    """Difference from the first system, by metric."""


class ComparedSystem(Model):
    """A measured system with its metrics by name. `missing`: calls that it has not processed."""

    name: str
    """Name."""
    missing: int
    """Calls or objects that are missing."""
    metrics: dict[str, Rate]
    """Metrics with confidence intervals."""
    against_first: dict[str, MetricVerdict]
    """Difference from the first system, by metric."""


class CreatedErasure(Model):
    """What matches now, by kind of object, and the erasure that has begun; None: a dry run."""

    matched: dict[str, int]
    """What matches, by kind of object."""
    erasure: Erasure | None
    """The erasure; null: a dry run."""


class CreatedRun(Model):
    """A new run, and the calls that it omits because they are not completed."""

    run: Run
    """The run."""
    left_out: list[UUID]
    """Calls that were left out."""


class Label(Model):
    """Content of one channel from `start` to `end`. The labels of a channel are contiguous."""

    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    kind: (
        Literal[
            "speech",
            "silence",
            "ringback",
            "busy",
            "dtmf",
            "music",
            "announcement",
            "voicemail",
            "beep",
            "gap",
            "noise",
        ]
        | str
    )
    """Kind."""
    confidence: float = 1.0
    """Confidence, 0 to 1."""
    detail: str | None = None
    """Details, for people."""
    keys: int | None = None
    """Keys that were pressed, or null."""


class Layout(Model):
    """How the channels were separated, and why. `evidence` holds the measured figures by name."""

    kind: Literal["mono", "identical", "one_sided", "stereo", "two_files"] | str
    """Kind."""
    channels: int
    """Number of channels."""
    source_channels: int
    """Channels of the file."""
    confidence: float
    """Confidence, 0 to 1."""
    evidence: dict[str, float | None]
    """Quotes that support it, with their seconds."""
    reason: str
    """The reason, for people."""
    bleed: list[Bleed] = []
    """How much of one channel is heard in the other; null: not measured."""
    starts: list[float] = []
    """Seconds at which each channel starts."""
    swapped: bool = False
    """A person swapped the parties."""


class NamedPolicy(Model):
    """A policy as it was set, in a form that is stored with each call."""

    mode: Literal["off", "mask", "redacted-only"] | str
    """mask: originals are sealed; redacted-only: none is kept."""
    kinds: list[
        Literal[
            "card",
            "card_code",
            "card_expiry",
            "iban",
            "account",
            "national_id",
            "phone",
            "birth_date",
            "password",
            "email",
            "spelled_name",
            "address",
            "person",
            "organization",
            "place",
            "health",
            "custom",
        ]
        | str
    ] = []
    """Kinds of data that are hidden."""
    patterns: list[Pattern] = []
    """Shapes that the workspace hides, such as its order numbers."""
    last_digits: int = 0
    """Last digits of cards, accounts and numbers that stay readable, 0 to 4."""
    agents_exempt: bool = False
    """Names of members stay."""
    guard_seconds: float = 0.25
    """Sound hidden before and after each span, in seconds."""
    hold: bool = True
    """A call that cannot be checked fails; false: it is shown with a warning."""
    name: str
    """Name."""
    version: int
    """Version."""


class PromotionResult(Model):
    """Result of a promotion or its rollback. `skipped`: by callId, why a call did not change."""

    run: Run
    """The run."""
    calls: int
    """Number of calls."""
    skipped: dict[str, str] | None = None
    """Calls that have changed since and were left out."""


class RunComparison(Model):
    """
    Comparison of a run with the live records or another run.

    `measured_against`: the gold set, "name@version"; without one the baseline counts as the truth, the only system is
    the run, and its errors are differences. `findings`: calls in which the value of a step differs. `left_out`: calls
    whose recording was replaced. `calls`: number of measured calls. `slices`, `worst`: by the metric `by`.
    """

    run: str
    """The run."""
    beside: str
    """Name of the run or record that is compared."""
    measured_against: str
    """Gold set or record that both are compared with."""
    by: str
    """Metric of the slices and of the worst calls."""
    calls: int
    """Number of calls."""
    seconds: float
    """Seconds."""
    left_out: int
    """Calls that were left out."""
    findings: dict[str, int]
    """Findings of the analysis, with evidence."""
    systems: list[ComparedSystem]
    """The compared systems."""
    slices: list[ComparedSlice]
    """Metrics by facts of the calls."""
    worst: list[ComparedCall]
    """Calls with the largest differences."""
    measured_at: AwareDatetime
    """When it was measured."""


class Scorecard(Model):
    """Questions that score a call. Without limits it applies to every call. `pass_mark`: the score that passes."""

    key: str
    """Key of the question, tracker or scorecard."""
    type: Literal["scorecard"] = "scorecard"
    """Type."""
    title: str = ""
    """Title."""
    pass_mark: float | None = None
    """Score from which a call passes."""
    outgoing: bool | None = None
    """true: outbound; false: inbound; null: unknown."""
    languages: list[str] = []
    """Languages, ISO 639."""
    teams: list[str] = []
    """Teams that it applies to; empty: all."""
    items: list[ScorecardItem] = []
    """The items, in order."""
    version: int = 0
    """Version."""


class ScorecardResult(Model):
    """Score of a call on a scorecard, 0..100; None if no item counts. `passed`: None without a pass mark or score."""

    key: str
    """Key of the question, tracker or scorecard."""
    version: int
    """Version."""
    title: str
    """Title."""
    pass_mark: float | None
    """Score from which a call passes."""
    score: float | None
    """Score, 0 to 100; null: nothing applied."""
    auto_failed: bool
    """Failed automatically by one answer."""
    passed: bool | None
    """The call passed."""
    items: list[ScoredItem]
    """The items, in order."""
    sections: list[SectionScore] = []
    """Scores by section."""


class StoredPolicy(Model):
    """The policy of a workspace (`team_id` None) or a team; None: a team has its workspace's, a workspace none."""

    team_id: UUID | None
    """Id of the team; null: no team, or all of them."""
    version: int
    """Version."""
    policy: NamedPolicy | None
    """The policy as it was set; null: none."""


class StoredScorecard(Model):
    """A version of a scorecard. `retired_at`: when it was replaced or removed; None: it is active."""

    scorecard: Scorecard
    """The scorecard, or its key."""
    made_at: AwareDatetime
    """When it was created."""
    made_by: str
    """Person or key that created it."""
    retired_at: AwareDatetime | None
    """When a later version or a deletion ended it; null: current."""
    retired_by: str | None
    """Person or key that ended it."""


class SummaryTemplate(Model):
    """Parts of a summary in order; other parts are omitted."""

    parts: list[TemplatePart]
    """Parts of the summary in order."""


class Team(Model):
    """
    A part of a workspace; every call belongs to one. `channels_swapped`: its PBX records the customer first.

    `summary`: its template of summaries; None: its workspace's.
    """

    team_id: UUID
    """Id of the team; null: no team, or all of them."""
    workspace_id: UUID
    """Id of the workspace."""
    name: str
    """Name."""
    channels_swapped: bool = False
    """The PBX records the customer on the first channel."""
    summary: SummaryTemplate | None = None
    """Summary, or its template."""


class Turn(Model):
    """Consecutive words of one speaker. `speaker` is a `Speaker.label`."""

    index: int
    """Position of the turn, from 0."""
    speaker: str
    """Label of the speaker."""
    start: float
    """Start in seconds from the beginning of the recording."""
    end: float
    """End in seconds from the beginning of the recording."""
    words: list[Word]
    """The words, or their number."""
    language: str
    """Language, ISO 639."""
    machine: bool = False
    """What the machine found."""


class VoiceprintRecord(Model):
    """A voiceprint, its similarity to each member's profile (the closest first), and users' actions."""

    summary: VoiceprintSummary
    """Summary, or its template."""
    likeness: list[Similarity]
    """Similarity to each member's profile, the closest first."""
    history: list[VoiceprintEvent]
    """Decisions about it, the earliest first."""


class CallLine(Model):
    """One row of a list: a call with its most wanted facts."""

    call: CallSummary
    """The call."""
    agent: str | None = None
    """Name of the member on the call."""
    contact: Contact | None = None
    """The contact; null: none is linked."""
    tone: str | None = None
    """Overall tone: negative, neutral or positive."""
    summary: str | None = None
    """Summary, or its template."""
    tasks: int = 0
    """Tasks, or their number."""
    open_tasks: int = 0
    """Tasks that are not done."""
    tags: list[str] = []
    """Tags that users have given the call, in lower case."""
    actions: int = 0
    """What was done in the call, or the number of such actions."""
    scores: list[ScorecardScore] = []
    """Scores by the workspace's scorecards."""
    hits: list[Hit] = []
    """Where the words of the search were said."""


class CallListPage(Model):
    """A page of calls. `as_of`: pass it as `updatedAfter` later to miss no change."""

    items: list[CallLine]
    """The items, in order."""
    next: str | None
    """Cursor of the next page; null: this is the last one."""
    as_of: AwareDatetime
    """Time of the response; pass it as `updatedAfter` later to miss no change."""
    total: int | None = None
    """Number of all matching calls, if requested."""


class CallRedaction(Model):
    """What was hidden in a call, by which policy. `reason`: why redaction could not look."""

    status: Literal["off", "nothing_found", "found", "could_not_look"] | str
    """Status."""
    policy: NamedPolicy
    """The policy as it was set; null: none."""
    counts: dict[str, int] | None = None
    """What was erased, by kind of object."""
    spans: list[RedactedSpan] = []
    """Where something is hidden, without the words."""
    reason: str = ""
    """The reason, for people."""


class ReviewSheet(Model):
    """The questions of a reviewer and their answers; without answers of other reviewers and of the machine."""

    calibration: Calibration
    """Id of the calibration."""
    scorecard: Scorecard
    """The scorecard, or its key."""
    questions: list[Question]
    """The questions, or the agreement by question."""
    calls: list[CalibrationCall]
    """Number of calls."""
    handed_in_at: AwareDatetime | None
    """When the reviewer handed in; null: not yet."""


class RunComparing(Model):
    """Progress: scored calls of all systems; `comparison` once all are scored."""

    done: int
    """Finished ones."""
    all: int
    """Calls to compare."""
    comparison: RunComparison | None
    """The result; null: it is still being measured."""


class Transcript(Model):
    """Transcript, in one form for every audio layout. An empty one has the reason in `note`."""

    language: str | None
    """Language, ISO 639."""
    language_probability: float | None
    """Probability of the language, 0 to 1."""
    duration: float
    """Seconds of the recording; null until it is transcribed."""
    speakers: list[Speaker]
    """The speakers, with their roles."""
    turns: list[Turn]
    """Turns in the order of their start."""
    layout: Layout
    """Which party is on which channel, and why."""
    engine: str
    """Engine and model that recognized the speech."""
    note: str | None = None
    """Note, for people."""
    labels: list[list[Label]] = []
    """Sounds that are not speech, by channel."""
    languages: list[LanguageStretch] = []
    """Languages, ISO 639."""
    language_note: str | None = None
    """How the language was decided, for people."""
    doubts: list[Doubt] = []
    """Stretches whose words are probably wrong."""
    redaction: CallRedaction | None = None
    """What was hidden, and by which policy."""


class CallRecord(Model):
    """
    The record of a call. Results of a recording are included only while it is the call's present recording.

    Either with users' corrections, listed in `edits`, or as the machine produced it, without edits.
    """

    call: CallSummary
    """The call."""
    job_id: UUID | None
    """Id of the job."""
    from_e164: str | None
    """The calling number in E.164; null: not a number."""
    to_e164: str | None
    """The called number in E.164; null: not a number."""
    recording_url: str | None
    """Address of the recording, without the parts that may give access."""
    recording_url2: str | None
    """Address of the second recording, likewise."""
    layout: Layout | None
    """Which party is on which channel, and why."""
    transcript: Transcript | None
    """The transcript; null: there is none yet, or it was deleted."""
    findings: list[Finding]
    """Findings of the analysis, with evidence."""
    tasks: list[CallTask]
    """Tasks, or their number."""
    contacts: list[Contact]
    """Linked contacts."""
    recordings: list[Recording]
    """Fetched files."""
    warnings: list[str]
    """What may be wrong with the results, as sentences."""
    submissions: int
    """Number of submissions."""
    jobs: list[JobSummary]
    """Jobs of the call, the latest first."""
    timeline: list[CallMoment]
    """What happened to the call, the earliest first."""
    agent_user_id: UUID | None = None
    """userId of the agent: as corrected, submitted or inferred."""
    actions: list[Action] = []
    """What was done in the call, or the number of such actions."""
    swapped: bool = False
    """A person swapped the parties."""
    edits: list[CallEdit] = []
    """Corrections in the order of their creation, undone ones included."""
    answers: list[QuestionAnswer] = []
    """Answers by question."""
    trackers: list[TrackerResult] = []
    """Trackers that were evaluated."""
    scorecards: list[ScorecardResult] = []
    """Scores by the workspace's scorecards."""
    request_ids: list[str] = []
    """Ids of the submissions in the log of the service."""
    recordings_expired: bool = False
    """Retention deleted the recordings."""
    content_expired: bool = False
    """Retention deleted transcript, findings and corrections."""
    legal_holds: list[str] = []
    """Reasons of the legal holds that cover the call."""
    redaction: CallRedaction | None = None
    """What was hidden, and by which policy."""


class RunResult(Model):
    """A run's result of one call."""

    call: RunCall
    """The call."""
    transcript: Transcript | None
    """The transcript; null: there is none yet, or it was deleted."""
    findings: list[Finding]
    """Findings of the analysis, with evidence."""
    warnings: list[str]
    """What may be wrong with the results, as sentences."""


class CallBatch(Model):
    """Records of calls, in the order requested. `missing`: calls that do not exist or are not visible to the key."""

    items: list[CallRecord]
    """The items, in order."""
    missing: list[UUID]
    """Calls or objects that are missing."""
