"""Every metric of the service: the table from which the reference is written, and which boards and rules are held to.

Names are stable: one is changed as a field of the API is. Units are in the names, seconds unless they say otherwise.
"""

from pipeline.observability.metrics import BATCH_FILL, Counter, Gauge, Histogram, Metric

STAGES = "`Conductor` (the whole call), `Transcriber`, `Diarizer`"
CODES = "a code of [errors](errors.md)"

SUBMISSIONS = Counter(
    "switchboard_submissions_total",
    "Requests to `/submit`, by what became of them; not those that the standby took while Ray was away.",
    "Intake",
    {
        "answer": "`new`, `recording`, `superseded`, `retried`, `merged`, `duplicate` (all 202); else the kind of the "
        "problem: `invalid-body`, `not-authenticated`, `unavailable`, ...; `aborted`: the sender left"
    },
)

JOBS_ENDED = Counter(
    "switchboard_jobs_ended_total",
    "Jobs that ended. Those whose call got another recording are in neither state.",
    "Conductor",
    {"kind": "`process` (a recording), `analyze` (after a change of metadata)", "state": "`done`, `failed`"},
)
JOB_FAILURES = Counter("switchboard_job_failures_total", "Jobs that failed.", "Conductor", {"code": CODES})
JOB_RETRIES = Counter(
    "switchboard_job_retries_total", "Attempts that failed and are made again.", "Conductor", {"code": CODES}
)
AUDIO_DONE = Counter(
    "switchboard_audio_seconds_total",
    "Sound of completed calls, in seconds of the recording.",
    "Conductor",
    {"channels": "`1` (mixed), `2` (separated)"},
)
TURNAROUND = Histogram(
    "switchboard_call_turnaround_seconds",
    "From the 202 that promised a recording until its call was completed.",
    "Conductor",
    buckets=[5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600],
)

MODEL_TOKENS = Counter(
    "switchboard_model_tokens_total",
    "Tokens of the language model, as its endpoint counts them or, where it does not, as estimated.",
    "Conductor",
    {"kind": "`prompt`, `completion`"},
)
MODEL_NOT_ASKED = Counter(
    "switchboard_model_not_asked_total",
    "Calls for which the language model was asked nothing, or nothing more: they were analyzed by rules.",
    "Conductor",
    {"reason": "`requests`, `tokens`, `cost`: the limit of its workspace that is reached"},
)

JOBS = Gauge(
    "switchboard_jobs",
    "Jobs that are not done, by state.",
    "Conductor",
    {"state": "`fetching` (the recording is fetched or awaited), `queued`, `running`, `later` (after a failure)"},
)
QUEUE_AGE = Gauge(
    "switchboard_queue_age_seconds",
    "Since when the one waiting longest waits, of what is due: for its recording, for its turn, for an engine.",
    "Conductor",
    {"stage": "`fetch`, `Conductor`, `Transcriber`, `Diarizer`"},
)
QUEUE_AUDIO = Gauge(
    "switchboard_queue_audio_seconds",
    "Sound that a stage still has to process, running calls included, as far as its length is known.",
    "Conductor",
    {"stage": STAGES},
)
QUEUE_DRAIN = Gauge(
    "switchboard_queue_drain_seconds",
    "Until the replicas that a stage has will have done what waits, by its measured speed.",
    "Conductor",
    {"stage": STAGES},
)
RTFX = Gauge(
    "switchboard_rtfx_ratio",
    "Seconds of sound that a replica does in a second, by the last fifty or so calls; assumed until one is done.",
    "Conductor",
    {"stage": STAGES},
)
COST = Gauge(
    "switchboard_cost_per_audio_hour",
    "What an hour of sound costs, in the currency of `..._PRICE_PER_HOUR`; only of stages that have a price.",
    "Conductor",
    {"stage": STAGES},
)
REPLICAS = Gauge(
    "switchboard_replicas",
    "Replicas of a deployment that works on calls.",
    "Conductor",
    {"stage": STAGES, "state": "`running`, `wanted`"},
)

WEBHOOK_ATTEMPTS = Counter(
    "switchboard_webhook_attempts_total",
    "Events sent to endpoints.",
    "Conductor",
    {"outcome": "`delivered`, `retry`, `failed` (after the last attempt), `gone` (the receiver wants no more)"},
)
WEBHOOK_DELIVERY = Histogram(
    "switchboard_webhook_delivery_seconds",
    "From what happened to a call until an endpoint took its event.",
    "Conductor",
    buckets=[0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400],
)
WEBHOOK_UNSENT = Gauge("switchboard_webhook_unsent", "Deliveries that wait, or are on their way.", "Conductor")
WEBHOOK_LAG = Gauge("switchboard_webhook_lag_seconds", "How long the oldest of these has waited.", "Conductor")

DATABASE_UP = Gauge(
    "switchboard_database_up",
    "1: a Conductor reads from PostgreSQL what stands above; 0: it cannot, and the gauges above are gone.",
    "Conductor",
)
POSTGRES_CONNECTIONS = Gauge(
    "switchboard_postgres_connections",
    "Connections of a process to PostgreSQL.",
    "Intake, Api, Conductor",
    {
        "deployment": "`Intake`, `Api`, `Conductor`, `Events` (the Conductor's for work behind calls)",
        "pool": "`statements` (what `/submit` uses), `transactions`",
        "state": "`used`, `idle`, `limit` (most that there may be)",
    },
)
POSTGRES_WAITING = Gauge(
    "switchboard_postgres_waiting",
    "Statements that wait for a connection.",
    "Intake, Api, Conductor",
    {"deployment": "as above"},
)

EVERY: tuple[Metric, ...] = (
    SUBMISSIONS,
    JOBS_ENDED,
    JOB_FAILURES,
    JOB_RETRIES,
    AUDIO_DONE,
    TURNAROUND,
    MODEL_TOKENS,
    MODEL_NOT_ASKED,
    BATCH_FILL,
    JOBS,
    QUEUE_AGE,
    QUEUE_AUDIO,
    QUEUE_DRAIN,
    RTFX,
    COST,
    REPLICAS,
    WEBHOOK_ATTEMPTS,
    WEBHOOK_DELIVERY,
    WEBHOOK_UNSENT,
    WEBHOOK_LAG,
    DATABASE_UP,
    POSTGRES_CONNECTIONS,
    POSTGRES_WAITING,
)
