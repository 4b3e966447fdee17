#!/usr/bin/env bash
# On the head node: bring the database up to date, then deploy or update both Serve applications. Safe to repeat.
set -euo pipefail
PATH=$HOME/venv/bin:$PATH
set -a; . ~/switchboard/serve_app/deploy/node.env; set +a
switchboard migrate
serve deploy ~/switchboard/serve_app/deploy/serve.yaml
serve status
