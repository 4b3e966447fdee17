"""The tables as SQLAlchemy sees them. Rows never leave this package: readers get the domain's dataclasses.

The schema itself is the SQL of `migrations/sql`, where the comments are; a test compares the two.
"""

import sqlalchemy as sa
from pgvector.sqlalchemy import Vector
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB, UUID

metadata = sa.MetaData()


def _id() -> sa.Column[object]:
    return sa.Column("id", UUID, primary_key=True, server_default=sa.text("gen_random_uuid()"))


def _now(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True))


def _text(name: str, required: bool = True, default: str | None = None) -> sa.Column[object]:
    return sa.Column(name, sa.Text, nullable=not required, server_default=default)


def _workspace() -> sa.Column[object]:
    return sa.Column("workspace_id", UUID, sa.ForeignKey("workspaces.id", ondelete="CASCADE"), nullable=False)


def _call(primary_key: bool = False) -> sa.Column[object]:
    reference = sa.ForeignKey("calls.id", ondelete="CASCADE")
    return sa.Column("call_pk", sa.BigInteger, reference, nullable=False, primary_key=primary_key)


def _job(primary_key: bool = False) -> sa.Column[object]:
    return sa.Column("job_id", UUID, nullable=False, primary_key=primary_key)


def _job_of_call(name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["call_pk", "job_id"], ["jobs.call_pk", "jobs.id"], name=name, ondelete="CASCADE")


def _team_of_workspace(name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["workspace_id", "team_id"], ["teams.workspace_id", "teams.id"], name=name)


workspaces = sa.Table(
    "workspaces",
    metadata,
    _id(),
    _text("name"),
    _text("default_country", required=False),
    _text("time_zone", default="UTC"),
    sa.Column("terms", ARRAY(sa.Text), nullable=False, server_default="{}"),
    _now("created_at"),
    sa.Column("priority", sa.Double, nullable=False, server_default="1"),
    sa.Column("live_seconds", sa.Integer, nullable=False, server_default="3600"),
    sa.Column("keep_digits", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("allowed_hosts", ARRAY(sa.Text), nullable=False, server_default="{}"),
)

teams = sa.Table(
    "teams",
    metadata,
    _id(),
    _workspace(),
    _text("name"),
    _now("created_at"),
    sa.Column("priority", sa.Double, nullable=False, server_default="1"),
    sa.UniqueConstraint("workspace_id", "id", name="teams_workspace_id_id_key"),
)

members = sa.Table(
    "members",
    metadata,
    sa.Column("workspace_id", UUID, sa.ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("user_id", UUID, primary_key=True, server_default=sa.text("gen_random_uuid()")),
    sa.Column("team_id", UUID),
    _text("name"),
    sa.Column("aliases", ARRAY(sa.Text), nullable=False, server_default="{}"),
    _now("created_at"),
    _team_of_workspace("members_team_fkey"),
)

contacts = sa.Table(
    "contacts",
    metadata,
    _id(),
    _workspace(),
    _text("name", required=False),
    _text("company", required=False),
    _text("email", required=False),
    _text("phone", required=False),
    _text("source", default="directory"),
    _now("created_at"),
    _now("updated_at"),
    sa.Index("contacts_phone_idx", "workspace_id", "phone"),
    sa.Index("contacts_recent_idx", "workspace_id", "updated_at"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    _id(),
    _workspace(),
    sa.Column("team_id", UUID),
    _text("name"),
    sa.Column("secret_sha256", BYTEA, nullable=False),
    _text("prefix"),
    sa.Column("scopes", ARRAY(sa.Text), nullable=False),
    _now("created_at"),
    _time("revoked_at"),
    sa.UniqueConstraint("secret_sha256", name="api_keys_secret_sha256_key"),
    _team_of_workspace("api_keys_team_fkey"),
)

calls = sa.Table(
    "calls",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    _workspace(),
    sa.Column("call_id", UUID, nullable=False),
    sa.Column("team_id", UUID, nullable=False),
    sa.Column("user_id", UUID),
    _text("from_number"),
    _text("to_number"),
    _text("from_e164", required=False),
    _text("to_e164", required=False),
    sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
    sa.Column("outgoing", sa.Boolean),
    sa.Column("duration", sa.BigInteger),
    _text("recording_url", required=False),
    _text("recording_url2", required=False),
    _text("recording_identity", required=False),
    _text("recording_identity2", required=False),
    _text("state"),
    sa.Column("job_id", UUID),
    sa.Column("metadata_version", sa.Integer, nullable=False, server_default="1"),
    sa.Column("warnings", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("analysis_warnings", ARRAY(sa.Text), nullable=False, server_default="{}"),
    _text("failure_code", required=False),
    _text("failure_message", required=False),
    sa.Column("failure_retryable", sa.Boolean),
    _now("created_at"),
    _now("updated_at"),
    _time("completed_at"),
    _time("analyzed_at"),
    _time("failed_at"),
    sa.UniqueConstraint("workspace_id", "call_id", name="calls_workspace_id_call_id_key"),
    _team_of_workspace("calls_team_fkey"),
    sa.ForeignKeyConstraint(
        ["id", "job_id"],
        ["jobs.call_pk", "jobs.id"],
        name="calls_job_fkey",
        deferrable=True,
        initially="DEFERRED",
        use_alter=True,
    ),
    sa.Index("calls_recent_idx", "workspace_id", "created_at"),
    sa.Index("calls_call_id_idx", "call_id"),
)

_live = sa.text("state IN ('queued', 'running')")

jobs = sa.Table(
    "jobs",
    metadata,
    _id(),
    _call(),
    _text("kind"),
    _text("state", default="fetching"),
    sa.Column("run", sa.Integer, nullable=False, server_default="0"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("crashes", sa.Integer, nullable=False, server_default="0"),
    _text("stage", required=False),
    _text("worker", required=False),
    _text("error_code", required=False),
    _text("error_message", required=False),
    sa.Column("error_retryable", sa.Boolean),
    _now("created_at"),
    _now("queued_at"),
    _now("not_before"),
    _time("tried_since"),
    _time("started_at"),
    _time("lease_until"),
    _time("finished_at"),
    sa.Column("team_id", UUID),
    sa.Column("live", sa.Boolean, nullable=False, server_default="true"),
    sa.Column("audio_seconds", sa.Double),
    sa.Column("channels", sa.SmallInteger),
    sa.Column("recognized", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("told_apart", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("fetch_run", sa.Integer, nullable=False, server_default="0"),
    sa.Column("hosts", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("fetch_warnings", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Index(
        "jobs_fetch_idx",
        "team_id",
        "not_before",
        "created_at",
        postgresql_where=sa.text("state = 'fetching' AND lease_until IS NULL"),
    ),
    sa.Index(
        "jobs_fetching_idx", "lease_until", postgresql_where=sa.text("state = 'fetching' AND lease_until IS NOT NULL")
    ),
    sa.Index(
        "jobs_queue_idx",
        "live",
        "team_id",
        "not_before",
        "created_at",
        "id",
        postgresql_where=sa.text("state = 'queued'"),
    ),
    sa.Index("jobs_running_idx", "lease_until", postgresql_where=sa.text("state = 'running'")),
    sa.Index("jobs_crashed_idx", "crashes", postgresql_where=sa.text("state IN ('queued', 'running') AND crashes > 0")),
    sa.UniqueConstraint("call_pk", "id", name="jobs_call_pk_id_key"),
    sa.Index("jobs_one_live_idx", "call_pk", "kind", unique=True, postgresql_where=_live),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("team_id", UUID, primary_key=True),
    sa.Column("live", sa.Boolean, primary_key=True),
    sa.Column("began", sa.Double, nullable=False),
    sa.Column("ended", sa.Double, nullable=False),
    sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False, server_default="0"),
    _time("seen_not_before"),
    _time("seen_created_at"),
    sa.Column("seen_id", UUID),
    _time("look_at"),
    _time("looked_at"),
)

paces = sa.Table(
    "paces",
    metadata,
    sa.Column("stage", sa.Text, primary_key=True),
    sa.Column("channels", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("calls", sa.Double, nullable=False),
    sa.Column("audio_seconds", sa.Double, nullable=False),
    sa.Column("worked_seconds", sa.Double, nullable=False),
    _now("updated_at"),
)

engines = sa.Table(
    "engines",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("replicas", sa.Integer, nullable=False),
    sa.Column("wanted", sa.Integer, nullable=False),
    _now("seen_at"),
)

submissions = sa.Table(
    "submissions",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    _call(),
    sa.Column("key_id", UUID, nullable=False),
    sa.Column("body", JSONB, nullable=False),
    sa.Column("job_id", UUID),
    sa.Column("received_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    sa.Column("token", UUID),
    sa.Index("submissions_token_key", "call_pk", "token", unique=True),
)

recordings = sa.Table(
    "recordings",
    metadata,
    _job(primary_key=True),
    sa.Column("channel", sa.SmallInteger, primary_key=True),
    _call(),
    _text("uri"),
    _text("sha256"),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    _text("media_type", required=False),
    _now("fetched_at"),
    _job_of_call("recordings_job_fkey"),
    sa.Index("recordings_call_idx", "call_pk"),
    sa.Column("settled", sa.Boolean, nullable=False, server_default="true"),
)

stage_results = sa.Table(
    "stage_results",
    metadata,
    _call(primary_key=True),
    sa.Column("content_key", sa.Text, primary_key=True),
    sa.Column("stage", sa.Text, primary_key=True),
    _job(),
    sa.Column("result", JSONB, nullable=False),
    _now("recorded_at"),
    _job_of_call("stage_results_job_fkey"),
)

transcripts = sa.Table(
    "transcripts",
    metadata,
    _call(primary_key=True),
    _job(),
    _text("language", required=False),
    sa.Column("duration", sa.Double, nullable=False),
    _text("engine"),
    sa.Column("content", JSONB, nullable=False),
    _now("written_at"),
    _job_of_call("transcripts_job_fkey"),
)

findings = sa.Table(
    "findings",
    metadata,
    _call(primary_key=True),
    sa.Column("step", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("value", JSONB, nullable=False),
    sa.Column("evidence", JSONB, nullable=False, server_default="[]"),
    sa.Column("confidence", sa.Double),
    _text("note", required=False),
    _now("written_at"),
)

tasks = sa.Table(
    "tasks",
    metadata,
    _call(primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    _text("title"),
    _text("owner"),
    _text("kind"),
    _text("owner_user_id", required=False),
    _text("beneficiary", required=False),
    _text("due_expression", required=False),
    sa.Column("due_date", sa.Date),
    sa.Column("due_time", sa.Time),
    sa.Column("confidence", sa.Double, nullable=False),
    sa.Column("evidence", JSONB, nullable=False),
)

call_contacts = sa.Table(
    "call_contacts",
    metadata,
    _call(primary_key=True),
    sa.Column("contact_id", UUID, sa.ForeignKey("contacts.id", ondelete="CASCADE"), primary_key=True),
    sa.Index("call_contacts_contact_idx", "contact_id"),
)

voiceprints = sa.Table(
    "voiceprints",
    metadata,
    _call(primary_key=True),
    _workspace(),
    sa.Column("user_id", UUID),
    _text("named_by", required=False),
    _text("model"),
    sa.Column("vector", Vector, nullable=False),
    sa.Column("speech_seconds", sa.Double, nullable=False),
    sa.Column("agreement", sa.Double),
    sa.Column("flaws", ARRAY(sa.Text), nullable=False, server_default="{}"),
    _text("standing", default="waiting"),
    sa.Column("reasons", ARRAY(sa.Text), nullable=False, server_default="{}"),
    _time("removed_at"),
    _now("created_at"),
    sa.Index("voiceprints_member_idx", "workspace_id", "user_id", "model"),
)

voiceprint_events = sa.Table(
    "voiceprint_events",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    _call(),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    _text("who"),
    _text("action"),
    sa.Column("user_id", UUID),
    sa.Index("voiceprint_events_call_idx", "call_pk", "id"),
)

voice_centroids = sa.Table(
    "voice_centroids",
    metadata,
    sa.Column("workspace_id", UUID, sa.ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("user_id", UUID, primary_key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("vector", Vector, nullable=False),
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("speech_seconds", sa.Double, nullable=False),
)

webhook_endpoints = sa.Table(
    "webhook_endpoints",
    metadata,
    _id(),
    _workspace(),
    sa.Column("team_id", UUID),
    _text("url"),
    _text("description", default=""),
    sa.Column("events", ARRAY(sa.Text), nullable=False),
    sa.Column("include", ARRAY(sa.Text), nullable=False, server_default="{}"),
    _text("secret"),
    _text("previous_secret", required=False),
    _time("previous_until"),
    _time("failing_since"),
    _time("gave_up_at"),
    _text("last_failure", required=False),
    _time("paused_until"),
    _time("disabled_at"),
    _text("disabled_reason", required=False),
    _now("created_at"),
    _team_of_workspace("webhook_endpoints_team_fkey"),
    sa.Index("webhook_endpoints_workspace_idx", "workspace_id"),
)

events = sa.Table(
    "events",
    metadata,
    _id(),
    _workspace(),
    _call(),
    _text("type"),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("data", JSONB, nullable=False),
    sa.Column("record", JSONB),
    sa.Column("transcript", JSONB),
    sa.Index("events_call_idx", "call_pk"),
    sa.Index("events_at_idx", "at"),
)

_unsent = sa.text("state IN ('waiting', 'behind', 'sending')")

webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    _workspace(),
    sa.Column("endpoint_id", UUID, sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), nullable=False),
    sa.Column("event_id", UUID, sa.ForeignKey("events.id", ondelete="CASCADE"), nullable=False),
    sa.Column("call_pk", sa.BigInteger, nullable=False),
    _text("state"),
    sa.Column("run", sa.Integer, nullable=False, server_default="0"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    _now("not_before"),
    _now("created_at"),
    _time("finished_at"),
    sa.UniqueConstraint("endpoint_id", "event_id", name="webhook_deliveries_once_key"),
    sa.Index(
        "webhook_deliveries_due_idx",
        "endpoint_id",
        "not_before",
        "id",
        postgresql_where=sa.text("state IN ('waiting', 'sending')"),
    ),
    sa.Index("webhook_deliveries_order_idx", "endpoint_id", "call_pk", "id", postgresql_where=_unsent),
    sa.Index("webhook_deliveries_event_idx", "event_id"),
)

webhook_attempts = sa.Table(
    "webhook_attempts",
    metadata,
    sa.Column(
        "delivery_id", sa.BigInteger, sa.ForeignKey("webhook_deliveries.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    _workspace(),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("status", sa.Integer),
    _text("outcome"),
    _text("answer", default=""),
)

host_credentials = sa.Table(
    "host_credentials",
    metadata,
    sa.Column("workspace_id", UUID, sa.ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("port", sa.Integer, primary_key=True, autoincrement=False, server_default="443"),
    _text("kind"),
    _text("name", required=False),
    _text("secret"),
    _now("created_at"),
)
