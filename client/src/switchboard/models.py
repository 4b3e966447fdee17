"""Responses of the API, and edits. `make generate` writes this file from the OpenAPI documents."""

from datetime import date, time
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


class AnswerEdit(Model):
    """Correction of the answer to a question, or of the result of a tracker."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    kind: Literal["answer"] = "answer"
    question: str
    """The key of the question or tracker."""
    old: str | None
    """The current answer; said for trackers; null: not said; n/a: not applicable."""
    new: str | None
    """The correct answer; said for trackers; null: not said; n/a: not applicable."""
    comment: str
    """Reason of the correction."""


class Bleed(Model):
    """One party audible in the other's channel; it is suppressed before speech is detected."""

    source: int
    level_db: float
    delay: float
    share: float


class BodyFault(Model):
    """A fault of a request body."""

    pointer: str
    """JSON Pointer (RFC 6901) to the field; empty for the whole body."""
    detail: str
    """Human-readable sentence."""


class CalibrationCall(Model):
    """A call to review, with this reviewer's answers by key; None: the call does not say."""

    call_id: UUID
    answers: dict[str, str | None]


class CalibrationReviewer(Model):
    """A reviewer. `calls`: number of calls with answers; `handed_in_at`: None until then."""

    reviewer: str
    name: str
    calls: int
    handed_in_at: AwareDatetime | None


class CallAgreement(Model):
    """A call with each reviewer's score, 0..100. `spread`: the highest less the lowest, in points."""

    call_id: UUID
    agreement: float | None
    scores: dict[str, float | None]
    machine_score: float | None
    spread: float | None


class CallMoment(Model):
    """An event of a call: "submitted", "process queued", "completed", ... `about` is a job's id, if any."""

    at: AwareDatetime
    what: str
    about: UUID | None = None


class ComparedCall(Model):
    """
    A call with the metric of each system. `start`: second with the most word errors; `audio`: path of its audio
    in this API.
    """

    call_id: UUID
    seconds: float
    values: list[float | None]
    start: float | None
    audio: str


class Contact(Model):
    """
    A person known to the workspace. Numbers are E.164.

    `inferred`: known only from calls whose direction the sender did not set, so that `phone` may be the workspace's
    number.
    """

    contact_id: str
    name: str | None = None
    company: str | None = None
    email: str | None = None
    phone: str | None = None
    inferred: bool = False


class ContactEdit(Model):
    """Correction of the contact, by `contactId`; `old` is that of the record."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    old: UUID | None
    """The current value; null: none."""
    new: UUID | None
    """The correct value; null: unknown."""
    kind: Literal["contact"] = "contact"


class ContactLine(Model):
    """A contact with its calls: all of the workspace's, or of the reader's team."""

    contact_id: UUID
    name: str | None
    company: str | None
    email: str | None
    phone: str | None
    source: str
    updated_at: AwareDatetime
    calls: int
    last_call: AwareDatetime | None


class Current(Model):
    """The present value at the place of an edit: words and speaker of a turn, or the value of a field."""

    value: str | bool | None
    turn: int | None = None
    start: float | None = None
    end: float | None = None
    speaker: str | None = None


class Disagreement(Model):
    """A question with different answers for a call. `answers`: by reviewer; `machine`: None if it has none."""

    call_id: UUID
    question: str
    agreement: float
    answers: dict[str, str]
    machine: str | None


class Doubt(Model):
    """A stretch of uncertain text. Removed text is stored here, so that nothing is hidden."""

    channel: int
    start: float
    end: float
    reasons: list[str]
    text: str = ""
    kept: bool = True


class Erasure(Model):
    """
    An erasure. `matched`: objects by kind, at its creation; `counts`: those that were erased.

    `counts["held"]`: calls that a legal hold keeps.
    """

    erasure_id: UUID
    kind: str
    status: str
    matched: dict[str, int]
    counts: dict[str, int]
    key_id: UUID | None
    created_at: AwareDatetime
    finished_at: AwareDatetime | None


class Evidence(Model):
    """A verbatim quote of one turn and its seconds."""

    turn: int
    start: float
    end: float
    quote: str


class Failure(Model):
    """Why a call or a job failed: code and message of its `CallError`, and whether a retry could help."""

    code: str
    message: str
    retryable: bool


class Finding(Model):
    """Result of one step. `value` is JSON-compatible data, so that any new step can be stored and shown."""

    step: str
    version: int
    value: dict[str, Any]
    evidence: list[Evidence] = []
    confidence: float | None = None
    note: str | None = None


class GoldVersion(Model):
    """A version of a gold set."""

    name: str
    version: int | None = None
    """Unset: the latest."""


class Hit(Model):
    """
    Words that match, as spoken: `words` in `start`..`end`, and `quote` around them.

    In semantic search: a passage that begins with this turn, and its similarity to the question.
    """

    turn: int
    speaker: str
    start: float
    end: float
    words: str
    quote: str
    similarity: float | None = None


class JobSummary(Model):
    """A job for operators."""

    job_id: UUID
    call_id: UUID
    kind: str
    status: str
    stage: str | None
    attempts: int
    failures: int
    crashes: int
    created_at: AwareDatetime
    started_at: AwareDatetime | None
    queued_since: AwareDatetime | None
    next_try: AwareDatetime | None
    finished_at: AwareDatetime | None
    error: Failure | None


class LanguageStretch(Model):
    """One channel speaks one language from `start` to `end`."""

    channel: int
    start: float
    end: float
    language: str
    probability: float | None


class LegalHold(Model):
    """A hold. `subject`: a callId, a number (E.164 if it is one) or the id of a contact."""

    hold_id: UUID
    kind: Literal["call", "number", "contact"] | str
    """What a hold is on."""
    subject: str
    reason: str
    set_by: str
    set_at: AwareDatetime
    released_by: str | None
    released_at: AwareDatetime | None


class MemberLine(Model):
    """A member; without a team: of all teams."""

    user_id: UUID
    name: str
    aliases: list[str]
    team_id: UUID | None


class MetricVerdict(Model):
    """Difference of a system to the first one over common calls. `better`: null if it is not significant."""

    value: float
    low: float | None
    high: float | None
    calls: int
    better: bool | None
    sentence: str


class ModelBudget(Model):
    """Daily limits of a workspace; None: no limit."""

    requests: int | None = None
    tokens: int | None = None
    cost: float | None = None


class ModelUsage(Model):
    """
    A workspace's usage in a day (UTC), and its limits. `reached`: the limits reached; no more requests are sent
    then.

    `estimated`: requests with estimated tokens: without a response, or with one that reports no usage.
    """

    day: date
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float
    estimated: int
    budget: ModelBudget
    reached: list[str] = []


class NewPattern(Model):
    """A pattern of the workspace."""

    name: str
    shape: str
    """A: a letter, 9: a digit, as in AB-999999."""


class Pattern(Model):
    """A shape that a workspace hides, typed or spoken: `A` stands for a letter, `9` for a digit, as in `AB-999999`."""

    name: str
    shape: str


class Question(Model):
    """
    A question in plain words, or a tracker. Without limits it applies to every call and to the whole call.

    `first`, `last`: minutes from the first, or before the last, word of a person. `unless`: a phrase does not count in
    a sentence with one of these. `choices`: each with its phrases. `finding`: a tracker of this finding instead of
    phrases. `required`: a tracker is raised if it is missing.
    """

    key: str
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] | str | None = None
    question: str = ""
    party: Literal["rep", "customer", "anyone"] | str | None = None
    first: float | None = None
    last: float | None = None
    outgoing: bool | None = None
    languages: list[str] = []
    teams: list[str] = []
    phrases: list[str] = []
    unless: list[str] = []
    choices: dict[str, list[str]] | None = None
    finding: Literal["recording_notice"] | None = None
    required: bool = False
    weight: float = 1.0
    version: int = 0


class QuestionAgreement(Model):
    """
    Agreement of the reviewers on a question.

    `agreement`, 0..1: the share of equal pairs among the `pairs` of answers of two reviewers to the same call; None: no
    pair. `with_machine`, 0..1: the share of answers that equal the machine's; None: it has none.
    """

    question: str
    title: str
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] | str
    answers: int
    pairs: int
    agreement: float | None
    with_machine: float | None


class QuestionAnswer(Model):
    """
    Answer of a call to a question. `version` is that of the question; `reason` says why it was not asked.

    `answer`: "yes" or "no", the choice, a number, a text, or a date in ISO 8601; None unless it was said.
    `confidence`, 0..1: recognition confidence of the quoted words times the confidence of the method.
    """

    key: str
    version: int
    type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] | str
    question: str
    status: Literal["said", "not_said", "not_asked", "out_of_scope"] | str
    answer: str | float | None = None
    said_by: str | None = None
    evidence: Evidence | None = None
    found_by: Literal["phrases", "model", "person"] | str | None = None
    confidence: float | None = None
    weight: float = 1.0
    reason: str | None = None


class Rate(Model):
    """A pooled ratio. `low`, `high`: 95 % bootstrap interval over calls; None for fewer than `MIN_CALLS`."""

    value: float
    low: float | None
    high: float | None
    calls: int


class Recording(Model):
    """A fetched file."""

    channel: int
    sha256: str
    size_bytes: int
    media_type: str | None = None
    redaction: str | None = None


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
    """A kind of personal data; in upper case and brackets it is the mark in the text: `[CARD]`."""
    channel: int
    start: float
    end: float
    confidence: float
    pattern: str = ""


class RetentionPeriod(Model):
    """Days after which content is deleted. `team_id`: None for teams without a period of this kind."""

    kind: Literal["recordings", "transcripts", "voiceprints", "submissions", "events", "access_log", "calls"] | str
    """What has a retention period. `CALLS`: erasure of the whole call."""
    team_id: UUID | None
    days: int


class ReviewerAgreement(Model):
    """
    How strict a reviewer is. `score`: the mean over the calls, 0..100.

    `from_group`: the mean difference, in points, from the mean of all reviewers of the same call; `from_machine`: from
    the score of the machine's answers. Above 0: more lenient. None: no call has both scores.
    """

    reviewer: str
    name: str
    score: float | None
    from_group: float | None
    from_machine: float | None


class RolesEdit(Model):
    """Correction of which party is the rep."""

    edit_id: UUID | None = None
    """Client-generated UUID, used as the idempotency key."""
    kind: Literal["roles"] = "roles"
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
    name: str
    status: str
    settings: dict[str, dict[str, Any]]
    configuration: dict[str, Any] | None
    digest: str | None
    calls: int
    waiting: int
    running: int
    done: int
    failed: int
    promoted: int
    audio_seconds: float
    worked_seconds: float
    made_at: AwareDatetime
    made_by: str
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    promoted_at: AwareDatetime | None
    promoted_by: str | None


class RunCall(Model):
    """A call of a run with its state and cost."""

    call_id: UUID
    status: str
    engine: str | None
    digest: str | None
    audio_seconds: float | None
    seconds: dict[str, float | None] | None
    error_code: str | None
    error_message: str | None
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    promoted: bool


class ScoreWeek(Model):
    """The scores of a team's or member's calls that started in one week. `score`: their mean, 0..100."""

    key: str
    week: date
    team_id: UUID | None
    user_id: UUID | None
    name: str | None
    calls: int
    score: float
    passed: int
    failed: int
    auto_failed: int


class ScorecardItem(Model):
    """
    A question or tracker on a scorecard, by its key.

    `points`: the share of the weight, 0..1, that an outcome earns; none given: see `points_of`. `weight`: None: that of
    the question. `auto_fail`: the whole call scores 0 where this earns nothing.
    """

    question: str
    section: str = ""
    weight: float | None = None
    points: dict[str, float | None] | None = None
    auto_fail: bool = False


class ScorecardScore(Model):
    """A call's score by a scorecard, 0..100. `passed`: None without a pass mark."""

    key: str
    score: float
    passed: bool | None
    auto_failed: bool


class ScoredItem(Model):
    """
    Points of a call's answer to one question.

    `outcome` and `earned` (0..1) are None if the item does not count: the question could not be answered or does not
    apply to the call; `reason` says why.
    """

    question: str
    title: str
    section: str
    weight: float
    points: dict[str, float | None]
    auto_fail: bool
    outcome: str | None = None
    earned: float | None = None
    reason: str | None = None


class SectionScore(Model):
    """Score of the items of one section, 0..100; None if no item counts."""

    section: str
    score: float | None


class Speaker(Model):
    """One voice of a call. `label` is unique in the call ("rep", "customer", "A", "B", ...)."""

    label: str
    role: Literal["rep", "customer", "unknown"] | str
    """Which party of the call a speaker is."""
    role_confidence: float
    role_reason: str
    user_id: str | None = None


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
    old: str
    """The turn's `speaker`."""
    new: str
    """rep, customer or another speaker label."""


class StoredQuestion(Model):
    """A version of a question. `retired_at`: when it was replaced or removed; None: it is active."""

    question: Question
    made_at: AwareDatetime
    made_by: str
    retired_at: AwareDatetime | None
    retired_by: str | None


class SubmitReply(Model):
    """An accepted submission. `jobId` is present if and only if `status` is `transcribing`."""

    status: Literal["received", "transcribing"] | str
    call_id: UUID
    """The submitted callId, in lower case."""
    job_id: str | None = None
    """Present if status is transcribing."""


class TaskLine(Model):
    """A task with its call. `task_id` is stable when another analysis finds the task again."""

    task_id: UUID
    call_id: UUID
    team_id: UUID
    user_id: UUID | None
    start_time: AwareDatetime
    title: str
    owner: str
    kind: str
    owner_user_id: str | None
    beneficiary: str | None
    due_expression: str | None
    due_date: date | None
    due_time: time | None
    confidence: float
    evidence: Evidence
    done_at: AwareDatetime | None
    done_by: str | None


class TaskMark(Model):
    """Whether a task is done, since when, and by whom."""

    task_id: UUID
    done_at: AwareDatetime | None
    done_by: str | None


class TeamQueue(Model):
    """The live jobs of one team."""

    team_id: UUID
    team: str
    fetching: int
    queued: int
    running: int
    later: int
    audio_seconds: float
    oldest: AwareDatetime | None


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
    old: str
    """The current words, separated by single spaces."""
    new: str
    """The correct words; empty: nothing was said."""


class TrackerMatch(Model):
    """A place where a tracker's phrase was said."""

    said_by: str
    evidence: Evidence
    confidence: float


class TrackerResult(Model):
    """Whether a tracker's phrases were said. `raised`: they were, or were not in case of a required tracker."""

    key: str
    version: int
    question: str
    required: bool
    status: Literal["said", "not_said", "not_asked", "out_of_scope"] | str
    raised: bool
    matches: list[TrackerMatch] = []
    reason: str | None = None


class VoiceConsent(Model):
    """A consent of a member. `text_version`: of the text agreed to; `active`: the latest, which is in force."""

    user_id: UUID
    text_version: str
    recorded_at: AwareDatetime
    recorded_by: str
    expires_at: AwareDatetime | None
    withdrawn_at: AwareDatetime | None
    withdrawn_by: str | None
    active: bool


class Word(Model):
    """A timed word as recognized, punctuation attached. `confidence` is a probability, 0..1."""

    start: float
    end: float
    text: str
    confidence: float
    doubtful: bool = False
    joined: bool = False


class Agreement(Model):
    """Result of a calibration. Calls and questions are ordered by disagreement, the largest first."""

    pairs: int
    agreement: float | None
    reviewers: list[ReviewerAgreement]
    questions: list[QuestionAgreement]
    calls: list[CallAgreement]
    disagreements: list[Disagreement]


class Calibration(Model):
    """A version of a scorecard, and calls that reviewers answer it on. `closed_at` None: reviews are open."""

    calibration_id: UUID
    name: str
    scorecard: str
    version: int
    calls: int
    made_at: AwareDatetime
    made_by: str
    closed_at: AwareDatetime | None
    reviewers: list[CalibrationReviewer]


class CalibrationAgreement(Model):
    """Agreement of the submitted reviews of a calibration."""

    calibration: Calibration
    agreement: Agreement


class CallEdit(Model):
    """
    An edit for display. `machine` is the machine's value at the time of the edit, `person` the user's: words, a
    speaker's label, whether the parties are swapped, an id, whether a task is done, an answer.

    `question`: the key of the question; `comment`: the reason for another answer. `turn`: its present position.
    `start`, `end`: seconds; `channel`: of the machine's layout.
    """

    edit_id: UUID
    kind: Literal["text", "speaker", "roles", "agent", "contact", "task", "answer"] | str
    """What an edit corrects."""
    status: Literal["applied", "superseded", "not-applied", "undone"] | str
    """Whether an edit is in effect."""
    machine: str | bool | None
    person: str | bool | None
    turn: int | None
    channel: int | None
    start: float | None
    end: float | None
    task_id: UUID | None
    made_at: AwareDatetime
    made_by: str
    key_id: UUID | None
    session_id: UUID | None
    undone_at: AwareDatetime | None
    undone_by: str | None
    question: str | None = None
    comment: str | None = None


class CallSummary(Model):
    """One row of a list of calls."""

    call_id: UUID
    workspace_id: UUID
    team_id: UUID
    user_id: UUID | None
    from_number: str
    to_number: str
    start_time: AwareDatetime
    outgoing: bool | None
    duration: float | None
    declared_duration: int | None
    status: Literal["received", "transcribing", "completed", "failed"] | str
    """Status of a call. Stage, attempt and time of the next attempt are fields of the record, not states."""
    stage: str | None
    attempts: int
    next_try: AwareDatetime | None
    failure: Failure | None
    language: str | None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    completed_at: AwareDatetime | None
    last_error: Failure | None = None


class CallTask(Model):
    """A task of a call. `task_id` is stable when another analysis finds the task again."""

    title: str
    owner: str
    kind: str
    evidence: Evidence
    confidence: float
    owner_user_id: str | None = None
    beneficiary: str | None = None
    due_expression: str | None = None
    due_date: date | None = None
    due_time: time | None = None
    task_id: UUID | None = None
    done_at: AwareDatetime | None = None
    done_by: str | None = None


class ComparedSlice(Model):
    """Calls that share a property; lists are in the order of the systems."""

    fact: str
    value: str
    calls: int
    seconds: float
    systems: list[Rate | None]
    against_first: list[MetricVerdict | None]


class ComparedSystem(Model):
    """A measured system with its metrics by name. `missing`: calls that it has not processed."""

    name: str
    missing: int
    metrics: dict[str, Rate]
    against_first: dict[str, MetricVerdict]


class CreatedErasure(Model):
    """What matches now, by kind of object, and the erasure that has begun; None: a dry run."""

    matched: dict[str, int]
    erasure: Erasure | None


class CreatedRun(Model):
    """A new run, and the calls that it omits because they are not completed."""

    run: Run
    left_out: list[UUID]


class Label(Model):
    """Content of one channel from `start` to `end`. The labels of a channel are contiguous."""

    start: float
    end: float
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
    """Content of a stretch of a channel."""
    confidence: float = 1.0
    detail: str | None = None
    keys: int | None = None


class Layout(Model):
    """How the channels were separated, and why. `evidence` holds the measured figures by name."""

    kind: Literal["mono", "identical", "one_sided", "stereo", "two_files"] | str
    """Which party is on which channel; decided from the samples, never from a flag."""
    channels: int
    source_channels: int
    confidence: float
    evidence: dict[str, float | None]
    reason: str
    bleed: list[Bleed] = []
    starts: list[float] = []
    swapped: bool = False


class NamedPolicy(Model):
    """A policy as it was set, in a form that is stored with each call. `kinds` are sorted."""

    name: str
    version: int
    mode: Literal["off", "mask", "redacted-only"] | str
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
    patterns: list[Pattern] = []
    last_digits: int = 0
    agents_exempt: bool = False
    guard_seconds: float = 0.25
    hold: bool = True


class PromotionResult(Model):
    """Result of a promotion or its rollback. `skipped`: by callId, why a call did not change."""

    run: Run
    calls: int
    skipped: dict[str, str] | None = None


class RunComparison(Model):
    """
    Comparison of a run with the live records or another run.

    `measured_against`: the gold set, "name@version"; without one the baseline counts as the truth, the only system is
    the run, and its errors are differences. `findings`: calls in which the value of a step differs. `left_out`: calls
    whose recording was replaced. `calls`: number of measured calls. `slices`, `worst`: by the metric `by`.
    """

    run: str
    beside: str
    measured_against: str
    by: str
    calls: int
    seconds: float
    left_out: int
    findings: dict[str, int]
    systems: list[ComparedSystem]
    slices: list[ComparedSlice]
    worst: list[ComparedCall]
    measured_at: AwareDatetime


class Scorecard(Model):
    """Questions that score a call. Without limits it applies to every call. `pass_mark`: the score that passes."""

    key: str
    type: Literal["scorecard"] = "scorecard"
    title: str = ""
    pass_mark: float | None = None
    outgoing: bool | None = None
    languages: list[str] = []
    teams: list[str] = []
    items: list[ScorecardItem] = []
    version: int = 0


class ScorecardResult(Model):
    """Score of a call on a scorecard, 0..100; None if no item counts. `passed`: None without a pass mark or score."""

    key: str
    version: int
    title: str
    pass_mark: float | None
    score: float | None
    auto_failed: bool
    passed: bool | None
    items: list[ScoredItem]
    sections: list[SectionScore] = []


class StoredPolicy(Model):
    """The policy of a workspace (`team_id` None) or a team; None: a team has its workspace's, a workspace none."""

    team_id: UUID | None
    version: int
    policy: NamedPolicy | None


class StoredScorecard(Model):
    """A version of a scorecard. `retired_at`: when it was replaced or removed; None: it is active."""

    scorecard: Scorecard
    made_at: AwareDatetime
    made_by: str
    retired_at: AwareDatetime | None
    retired_by: str | None


class Turn(Model):
    """Consecutive words of one speaker. `speaker` is a `Speaker.label`."""

    index: int
    speaker: str
    start: float
    end: float
    words: list[Word]
    language: str
    machine: bool = False


class CallLine(Model):
    """One row of a list: a call with its most wanted facts."""

    call: CallSummary
    agent: str | None = None
    contact: Contact | None = None
    tone: str | None = None
    summary: str | None = None
    tasks: int = 0
    open_tasks: int = 0
    scores: list[ScorecardScore] = []
    hits: list[Hit] = []


class CallListPage(Model):
    """A page of calls. `as_of`: pass it as `updatedAfter` later to miss no change."""

    items: list[CallLine]
    next: str | None
    as_of: AwareDatetime


class CallRedaction(Model):
    """What was hidden in a call, by which policy. `reason`: why redaction could not look."""

    status: Literal["off", "nothing_found", "found", "could_not_look"] | str
    policy: NamedPolicy
    counts: dict[str, int] | None = None
    spans: list[RedactedSpan] = []
    reason: str = ""


class ReviewSheet(Model):
    """The questions of a reviewer and their answers; without answers of other reviewers and of the machine."""

    calibration: Calibration
    scorecard: Scorecard
    questions: list[Question]
    calls: list[CalibrationCall]
    handed_in_at: AwareDatetime | None


class RunComparing(Model):
    """Progress: scored calls of all systems; `comparison` once all are scored."""

    done: int
    all: int
    comparison: RunComparison | None


class Transcript(Model):
    """Transcript, in one form for every audio layout. An empty one has the reason in `note`."""

    language: str | None
    language_probability: float | None
    duration: float
    speakers: list[Speaker]
    turns: list[Turn]
    layout: Layout
    engine: str
    note: str | None = None
    labels: list[list[Label]] = []
    languages: list[LanguageStretch] = []
    language_note: str | None = None
    doubts: list[Doubt] = []
    redaction: CallRedaction | None = None


class CallRecord(Model):
    """
    The record of a call. Results of a recording are included only while it is the call's present recording.

    Either with users' corrections, listed in `edits`, or as the machine produced it, without edits.
    """

    call: CallSummary
    job_id: UUID | None
    from_e164: str | None
    to_e164: str | None
    recording_url: str | None
    recording_url2: str | None
    layout: Layout | None
    transcript: Transcript | None
    findings: list[Finding]
    tasks: list[CallTask]
    contacts: list[Contact]
    recordings: list[Recording]
    warnings: list[str]
    submissions: int
    jobs: list[JobSummary]
    timeline: list[CallMoment]
    agent_user_id: UUID | None = None
    swapped: bool = False
    edits: list[CallEdit] = []
    answers: list[QuestionAnswer] = []
    trackers: list[TrackerResult] = []
    scorecards: list[ScorecardResult] = []
    request_ids: list[str] = []
    recordings_expired: bool = False
    content_expired: bool = False
    legal_holds: list[str] = []
    redaction: CallRedaction | None = None


class RunResult(Model):
    """A run's result of one call."""

    call: RunCall
    transcript: Transcript | None
    findings: list[Finding]
    warnings: list[str]
