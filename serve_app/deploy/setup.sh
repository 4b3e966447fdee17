#!/usr/bin/env bash
# Install Switchboard on a node, in ~/venv: setup.sh [aws|gcp ...]. What the service needs of requirements.lock, then what
# these extras add (without any: those of the last time); on a node with a GPU cuBLAS 12 too. Needs Python 3.11 or 3.12.
# Safe to repeat.
set -euo pipefail
cd ~/switchboard
python=$(command -v python3.11 || command -v python3.12 || command -v python3)
[ -x ~/venv/bin/python ] || "$python" -m venv ~/venv
~/venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --require-hashes --requirement serve_app/deploy/installer.lock
install() { ~/venv/bin/uv pip install --quiet --python ~/venv/bin/python "$@"; }
~/venv/bin/python serve_app/deploy/service_lock.py requirements.lock pyproject.toml > ~/service.lock
install --require-hashes --requirement ~/service.lock
mkdir -p -m 700 ~/.switchboard
[ $# -eq 0 ] || printf '%s\n' "$@" > ~/.switchboard/extras
extras=()
[ ! -e ~/.switchboard/extras ] || mapfile -t extras < ~/.switchboard/extras
[ ! -e /dev/nvidia0 ] || extras+=(cuda)
for extra in ${extras[@]+"${extras[@]}"}; do
    install --require-hashes --no-deps --requirement "serve_app/deploy/$extra.lock"
done
install --no-deps --no-build-isolation --editable .
# A login, and what `ray exec` and `ray down` run, finds the node's commands, its settings and the token.
line='[ ! -e ~/venv/bin/ray ] || { PATH=~/venv/bin:$PATH; set -a; . ~/switchboard/serve_app/deploy/node.env; set +a; }'
grep -qsxF "$line" ~/.bashrc || echo "$line" >> ~/.bashrc
# Models of the checkpoint store, if deploy.env names any.
set -a; . ~/switchboard/serve_app/deploy/node.env; set +a
~/venv/bin/switchboard checkpoints fetch --configured
