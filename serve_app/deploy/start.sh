#!/usr/bin/env bash
# Start Ray on a node: start.sh head|worker [options of `ray start`]. A worker finds the head by RAY_HEAD_IP.
# node.env (which reads deploy.env) is read before Ray starts: replicas inherit it.
set -euo pipefail
kind=$1
shift
PATH=$HOME/venv/bin:$PATH
mkdir -p -m 700 ~/.switchboard
for file in ~/ray_token ~/switchboard/deploy.env ~/deploy.env; do [ ! -e "$file" ] || chmod 600 "$file"; done
set -a; . ~/switchboard/serve_app/deploy/node.env; set +a
umask 077
ulimit -n 65536 2> /dev/null || ulimit -n "$(ulimit -H -n)"
# A node whose GPU is of no use joins no cluster: its engines would compute on the CPU, and calls would wait.
switchboard doctor --node
# Ray chooses ports at random unless they are named: these are the ones that nodes must reach on each other (the docs list them).
options=(
    --object-manager-port=8076 --node-manager-port=8077 --dashboard-agent-grpc-port=8078 --runtime-env-agent-port=8079
    --metrics-export-port=8080 --dashboard-agent-listen-port=52365 --min-worker-port=10002 --max-worker-port=19999
)
# Replicas that need no GPU run on nodes with this resource (serve.yaml): on the head, and on those without a GPU.
# Node types of `ray up` name it themselves.
if [ -z "${RAY_OVERRIDE_RESOURCES:-}" ] && { [ "$kind" = head ] || [ ! -e /dev/nvidia0 ]; }; then
    options+=('--resources={"service_node": 1000}')
fi
case $kind in
    head) exec ray start --head --port=6379 --dashboard-host=127.0.0.1 --ray-client-server-port=10001 "${options[@]}" "$@" ;;
    worker) exec ray start --address="$RAY_HEAD_IP:6379" "${options[@]}" "$@" ;;
    *) echo "start.sh head|worker, not $kind" >&2; exit 2 ;;
esac
