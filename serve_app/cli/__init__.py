"""The command line `switchboard`: one file per subject, each imported when its command is called for.

`COMMANDS` is the table of contents. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 service or state not reachable.
"""

import logging

from serve_app.cli.ui.lazy import Entry, make_app

COMMANDS = (
    Entry(
        "demo",
        "serve_app.cli.run.demo:demo",
        "Start here: run the service on nine sample calls and show the records.",
        "Run",
    ),
    Entry("up", "serve_app.cli.run.up:up", "Start or join Ray, migrate the database, serve calls.", "Run"),
    Entry("status", "serve_app.cli.run.status:status", "Is the service up, and where; what waits.", "Run"),
    Entry("down", "serve_app.cli.run.down:down", "Stop the service of this machine, losing nothing.", "Run"),
    Entry(
        "migrate", "serve_app.cli.run.migrate:migrate", "Bring the database up to date, before `serve deploy`.", "Run"
    ),
    Entry("backup", "serve_app.cli.run.backup:app", "Back up the database and recordings; verify a backup.", "Run"),
    Entry("restore", "serve_app.cli.run.restore:restore", "Restore a backup into an empty database.", "Run"),
    Entry("plan", "serve_app.cli.run.plan:plan", "Cores, GPUs, growth and cost for a number of calls.", "Run"),
    Entry(
        "doctor",
        "serve_app.cli.doctor.command:doctor",
        "Check this machine: what is missing, and what to do about it.",
        "Run",
    ),
    Entry(
        "checkpoints",
        "serve_app.cli.run.checkpoints:app",
        "Model files from the package index: fetch, list, verify.",
        "Run",
    ),
    Entry(
        "submit",
        "serve_app.cli.calls.submit:submit",
        "Send recordings to the service, as a telephony system does.",
        "Calls",
    ),
    Entry("calls", "serve_app.cli.calls.calls:app", "List calls; read one: transcript, tone, tasks.", "Calls"),
    Entry(
        "search", "serve_app.cli.calls.search:app", "Search by meaning: index stored calls, see how far it is.", "Calls"
    ),
    Entry(
        "queue",
        "serve_app.cli.calls.queue:queue",
        "The backlog in seconds of audio; when it will be worked off.",
        "Calls",
    ),
    Entry("jobs", "serve_app.cli.calls.jobs:app", "Jobs: queued, running, finished, failed; retry them.", "Calls"),
    Entry(
        "process",
        "serve_app.cli.calls.process:process",
        "Run the pipeline on files in this process: no service.",
        "Calls",
    ),
    Entry(
        "backfill",
        "serve_app.cli.calls.backfill:backfill",
        "Run the pipeline on a folder or bucket, on a cluster, into Parquet.",
        "Calls",
    ),
    Entry(
        "gold",
        "serve_app.cli.workspace.gold:app",
        "Gold sets: calls as people know them, to measure against.",
        "Workspace",
    ),
    Entry(
        "runs",
        "serve_app.cli.workspace.runs:app",
        "Runs: stored calls by another model, compared, promoted.",
        "Workspace",
    ),
    Entry("keys", "serve_app.cli.workspace.keys:app", "API keys: create, list, rotate, revoke.", "Workspace"),
    Entry("console", "serve_app.cli.workspace.console:app", "The pages: sign-in links, open sessions.", "Workspace"),
    Entry(
        "credentials",
        "serve_app.cli.workspace.credentials:app",
        "Credentials for recording servers: add, list, remove, reseal.",
        "Workspace",
    ),
    Entry(
        "workspaces",
        "serve_app.cli.workspace.workspaces:app",
        "Workspaces: create, update, remove, terms, hosts.",
        "Workspace",
    ),
    Entry(
        "questions",
        "serve_app.cli.workspace.questions:app",
        "Your own questions and trackers: set, list, try.",
        "Workspace",
    ),
    Entry("teams", "serve_app.cli.workspace.teams:app", "Teams of a workspace: create, update, remove.", "Workspace"),
    Entry(
        "members",
        "serve_app.cli.workspace.members:app",
        "The people who handle calls: add, update, remove.",
        "Workspace",
    ),
    Entry(
        "contacts",
        "serve_app.cli.workspace.contacts:app",
        "The people who call: add, update, remove, import.",
        "Workspace",
    ),
    Entry(
        "webhooks",
        "serve_app.cli.webhooks.endpoints:app",
        "Send events to other systems: add, test, deliveries, replay.",
        "Workspace",
    ),
    Entry(
        "voiceprints",
        "serve_app.cli.workspace.voiceprints:app",
        "Voices of the people who handle calls: list, show, approve, remove, assign.",
        "Workspace",
    ),
)

app = make_app(COMMANDS)


class LastResort(logging.Handler):
    """Warnings of libraries and of our own that no other handler takes, as the command line tells everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        from serve_app.cli.ui.output import err

        err().print(self.format(record), markup=False)


def main() -> None:
    logging.lastResort = LastResort(logging.WARNING)
    app(prog_name="switchboard")
