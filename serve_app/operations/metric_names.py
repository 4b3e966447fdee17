"""All metrics of the service: the source of the reference; dashboards and alert rules are checked against it.

Names are stable, like fields of the API. Units are in the names, seconds by default.
"""

from pipeline.observability import metrics
from pipeline.observability.metrics import Counter, Gauge, Histogram, Metric

DEPLOYMENTS = "`Conductor` (the whole call), `Transcriber`, `Diarizer`"
CODES = "a code of [errors](errors.md)"

SUBMISSIONS = Counter(
    "switchboard_submissions_total",
    "Requests to `/submit` by outcome, without those that the standby took while Ray was unavailable.",
    "Intake",
    {
        "answer": "`new`, `recording`, `superseded`, `retried`, `merged`, `duplicate` (all 202); else the kind of the "
        "problem: `invalid-body`, `not-authenticated`, `unavailable`, ...; `aborted`: the client disconnected"
    },
)

JOBS_ENDED = Counter(
    "switchboard_jobs_ended_total",
    "Jobs that ended. A job whose call received another recording has neither state.",
    "Conductor",
    {"kind": "`process` (a recording), `analyze` (after a change of metadata)", "state": "`done`, `failed`"},
)
JOB_FAILURES = Counter("switchboard_job_failures_total", "Jobs that failed.", "Conductor", {"code": CODES})
JOB_RETRIES = Counter(
    "switchboard_job_retries_total", "Failed attempts that are retried.", "Conductor", {"code": CODES}
)
AUDIO_DONE = Counter(
    "switchboard_audio_seconds_total",
    "Audio of completed calls, in seconds of the recording.",
    "Conductor",
    {"channels": "`1` (mixed), `2` (separated)"},
)
TURNAROUND = Histogram(
    "switchboard_call_turnaround_seconds",
    "From the 202 for a recording until its call was completed.",
    "Conductor",
    buckets=[5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600],
)

MODEL_TOKENS = Counter(
    "switchboard_model_tokens_total",
    "Tokens of the language model, counted by its endpoint, otherwise estimated.",
    "Conductor, Api",
    {"kind": "`prompt`, `completion`"},
)
MODEL_NOT_ASKED = Counter(
    "switchboard_model_not_asked_total",
    "Requests to the language model that were not sent: calls were analyzed by rules, questions not answered.",
    "Conductor, Api",
    {"reason": "`requests`, `tokens`, `cost`: the limit of its workspace that was reached"},
)

JOBS = Gauge(
    "switchboard_jobs",
    "Unfinished jobs, by state.",
    "Conductor",
    {"state": "`fetching` (the recording is downloaded or awaited), `queued`, `running`, `later` (after a failure)"},
)
QUEUE_AGE = Gauge(
    "switchboard_queue_age_seconds",
    "Waiting time of the oldest due job: for its recording, for its turn, for an engine.",
    "Conductor",
    {"deployment": f"{DEPLOYMENTS}; `fetch`: the Conductor's downloads"},
)
QUEUE_AUDIO = Gauge(
    "switchboard_queue_audio_seconds",
    "Audio that a deployment still has to process, running calls included, if its length is known.",
    "Conductor",
    {"deployment": DEPLOYMENTS},
)
QUEUE_DRAIN = Gauge(
    "switchboard_queue_drain_seconds",
    "Time in which a deployment's current replicas drain its backlog, by its measured speed.",
    "Conductor",
    {"deployment": DEPLOYMENTS},
)
RTFX = Gauge(
    "switchboard_rtfx_ratio",
    "Seconds of audio that a replica processes per second, by about the last fifty calls; assumed before the first.",
    "Conductor",
    {"deployment": DEPLOYMENTS},
)
COST = Gauge(
    "switchboard_cost_per_audio_hour",
    "Cost of an hour of audio, in the currency of `..._PRICE_PER_HOUR`; only for deployments with a price.",
    "Conductor",
    {"deployment": DEPLOYMENTS},
)
REPLICAS = Gauge(
    "switchboard_replicas",
    "Replicas of a deployment.",
    "Conductor",
    {"deployment": f"`Intake`, `Api`, `Console`, {DEPLOYMENTS}", "state": "`running`, `wanted`"},
)

WEBHOOK_ATTEMPTS = Counter(
    "switchboard_webhook_attempts_total",
    "Events sent to endpoints.",
    "Conductor",
    {"outcome": "`delivered`, `retry`, `failed` (after the last attempt), `gone` (the receiver unsubscribed)"},
)
WEBHOOK_DELIVERY = Histogram(
    "switchboard_webhook_delivery_seconds",
    "From the event of a call until an endpoint accepted it.",
    "Conductor",
    buckets=[0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400],
)
WEBHOOK_UNSENT = Gauge("switchboard_webhook_unsent", "Deliveries that are waiting or in progress.", "Conductor")
WEBHOOK_LAG = Gauge("switchboard_webhook_lag_seconds", "Age of the oldest of these.", "Conductor")

FILES_TO_DELETE = Gauge(
    "switchboard_deletions_waiting",
    "Stored files without a call, which wait for their deletion; it is retried until it succeeds.",
    "Conductor",
)

DISK_FREE = Gauge(
    "switchboard_disk_free_bytes",
    "Free space on the disk of a folder.",
    "Conductor",
    {"place": "`data` (the embedded PostgreSQL), `recordings`; no bucket"},
)
DATABASE_ROOM = Gauge(
    "switchboard_database_room",
    "1: PostgreSQL can write some MB to its disk; 0: the disk is full.",
    "Conductor",
)
BACKUP_AGE = Gauge(
    "switchboard_backup_age_seconds",
    "Time since the last complete `switchboard backup create`; before the first, since PostgreSQL archived WAL, or else"
    " since the first workspace was created, if there are calls.",
    "Conductor",
)

DATABASE_UP = Gauge(
    "switchboard_database_up",
    "1: a Conductor reads the gauges above from PostgreSQL; 0: it cannot, and they are removed.",
    "Conductor",
)
POSTGRES_CONNECTIONS = Gauge(
    "switchboard_postgres_connections",
    "Connections of a process to PostgreSQL.",
    "Intake, Api, Conductor",
    {
        "deployment": "`Intake`, `Api`, `Conductor`, `Events` (the Conductor's for work other than calls)",
        "pool": "`statements` (what `/submit` uses), `transactions`",
        "state": "`used`, `idle`, `limit` (max.)",
    },
)
POSTGRES_WAITING = Gauge(
    "switchboard_postgres_waiting",
    "Statements waiting for a connection, on average since the last report.",
    "Intake, Api, Conductor",
    {"deployment": "as above"},
)

EVERY = (metrics.BATCH_FILL, *(metric for metric in tuple(globals().values()) if isinstance(metric, Metric)))
