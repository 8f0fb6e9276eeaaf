#!/usr/bin/env bash
# Style, types, tests; sets everything up by itself and needs no hub.
#   usage: bash scripts/test.sh [--all] [PYTEST ARGUMENTS]      (--all: the sweeps whole, instead of a part of each)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
if [[ ${1:-} == --all ]]; then
  shift
  export AGENTLITE_TEST_ALL=1
fi
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 NO_COLOR=1
unset FORCE_COLOR AGENTLITE_RUN
python=.venv/bin/python
"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy
exec "$python" -m pytest --color=no "$@"
