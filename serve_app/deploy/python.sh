#!/usr/bin/env bash
# Python for a replica and its tasks (release.py), with the settings that the node has now.
set -a; . ~/switchboard/serve_app/deploy/node.env; set +a
exec python3 "$@"
