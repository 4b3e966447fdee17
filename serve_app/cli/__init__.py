"""The command line `switchboard`: one file per subject, each imported when its command is called.

`PANELS` is the table of contents. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 service or state not reachable.
"""

import logging

from serve_app.cli.ui.lazy import Entry, make_app

PANELS = {
    "Run": {
        "demo": ("run.demo:demo", "Start here: run the service on nine sample calls and show the records."),
        "up": ("run.up:up", "Start or join Ray, migrate the database, serve calls."),
        "status": ("run.status:status", "Show whether the service is up, its URL and backlog."),
        "down": ("run.up:down", "Stop the service of this machine; no call is lost."),
        "install-service": ("run.install_service:install_service", "Write a systemd unit, and a timer for backups."),
        "migrate": ("run.up:migrate", "Migrate the database, before `serve deploy`."),
        "backup": ("run.backup:app", "Back up the database and recordings; verify a backup."),
        "restore": ("run.backup:restore", "Restore a backup into an empty database."),
        "plan": ("run.plan:plan", "Estimate cores, GPUs, growth and cost for a number of calls."),
        "doctor": ("doctor.command:doctor", "Check this machine; show problems and how to fix them."),
        "checkpoints": ("run.checkpoints:app", "Model files from the package index: fetch, list, verify."),
    },
    "Calls": {
        "submit": ("calls.submit:submit", "Send recordings to the service, as a telephony system does."),
        "watch": ("watch.command:watch", "Submit the recordings that a phone system drops into a folder or bucket."),
        "calls": ("calls.calls:app", "List calls; read one: transcript, tone, tasks."),
        "ask": ("calls.ask:ask", "Ask a question about stored calls; the answer quotes them."),
        "mcp": ("calls.ask:mcp", "Tools for assistants (MCP): search, read, tasks, ask; read-only."),
        "erase": ("calls.erase:erase", "Delete a call, a person, a team or a workspace permanently."),
        "redact": ("calls.redact:redact", "Apply the policies of redaction to stored calls."),
        "export": ("calls.export:export", "Write everything held about a person into one archive."),
        "search": ("calls.search:app", "Search by meaning: index stored calls, show progress."),
        "queue": ("calls.queue:queue", "The backlog in seconds of audio, and the time to drain it."),
        "jobs": ("calls.jobs:app", "Jobs: queued, running, finished, failed; retry them."),
        "process": ("calls.process:process", "Run the pipeline on files in this process: no service."),
        "backfill": ("calls.backfill:backfill", "Run the pipeline on a folder or bucket, on a cluster, into Parquet."),
    },
    "Workspace": {
        "gold": ("workspace.gold:app", "Gold sets: reference transcripts to measure recognition."),
        "runs": ("workspace.runs:app", "Runs: process stored calls with another model; compare, promote."),
        "keys": ("workspace.keys:app", "API keys: create, list, rotate, revoke."),
        "console": ("workspace.console:app", "The console: sign-in links, open sessions."),
        "credentials": ("workspace.credentials:app", "Credentials for recording servers: add, list, remove, reseal."),
        "access-log": ("workspace.access_log:app", "Who read and changed calls: export, verify its hashes."),
        "workspaces": ("workspace.workspaces:app", "Workspaces: create, update, delete, terms, hosts."),
        "questions": ("workspace.questions:app", "Questions, trackers and scorecards: set, list, try."),
        "teams": ("workspace.teams:app", "Teams of a workspace: create, update, delete."),
        "members": ("workspace.members:app", "The people who handle calls: create, update, delete."),
        "contacts": ("workspace.contacts:app", "The people who call: create, update, delete, import."),
        "retention": ("workspace.retention:app", "Days after which recordings, transcripts, calls are deleted."),
        "redaction": ("workspace.redaction:app", "Personal data hidden in calls: policies by workspace and team."),
        "holds": ("workspace.holds:app", "Legal holds on calls, numbers, contacts: create, list, release."),
        "webhooks": ("workspace.webhooks:app", "Send events to other systems: create, test, deliveries, replay."),
        "voiceprints": ("workspace.voiceprints:app", "Voices of members: list, show, approve, remove, assign."),
    },
}
COMMANDS = tuple(
    Entry(name, f"serve_app.cli.{target}", help_, panel)
    for panel, commands in PANELS.items()
    for name, (target, help_) in commands.items()
)

app = make_app(COMMANDS)


class StderrHandler(logging.Handler):
    """Prints warnings that no other handler takes, in the form of everything else on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        from serve_app.cli.ui.output import err

        err().print(self.format(record), markup=False)


def main() -> None:
    logging.lastResort = StderrHandler(logging.WARNING)
    app(prog_name="switchboard")
