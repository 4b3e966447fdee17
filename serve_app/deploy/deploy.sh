#!/usr/bin/env bash
# On the head node: bring the database up to date and the head's code to all nodes, then deploy or update the Serve
# applications. Where the code, serve.yaml or a bound has changed, replicas are replaced one after another; safe to repeat.
set -euo pipefail
PATH=$HOME/venv/bin:$PATH
set -a; . ~/switchboard/serve_app/deploy/node.env; set +a
switchboard migrate
python3 ~/switchboard/serve_app/deploy/spread.py
umask 077
python3 ~/switchboard/serve_app/deploy/release.py ~/switchboard/serve_app/deploy/serve.yaml > ~/.switchboard/serve.yaml
serve deploy ~/.switchboard/serve.yaml
serve status
