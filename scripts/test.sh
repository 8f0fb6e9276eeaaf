#!/usr/bin/env bash
# Style, types, tests; sets everything up by itself and needs no hub.
#   usage: bash scripts/test.sh [--quick | --all] [PYTEST ARGUMENTS]
#   --quick: style, types and the short tests that need no torch      --all: the sweeps whole, instead of a part of each
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
case ${1:-} in
  --quick) export AGENTLITE_TEST_QUICK=1; shift ;;
  --all) export AGENTLITE_TEST_ALL=1; shift ;;
esac
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 NO_COLOR=1
workers=$(nproc) # read first: nproc itself heeds OMP_NUM_THREADS
# one more than cores, since many tests wait for a server; the quick ones do not
[[ ${AGENTLITE_TEST_QUICK:-} ]] || workers=$((workers + 1))
export OMP_NUM_THREADS=1 # a process a core is faster than a process with all of them
unset FORCE_COLOR AGENTLITE_RUN
unset PYTHONDONTWRITEBYTECODE # or each worker and each program of a test compiles all anew
python=.venv/bin/python
"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy
# One file goes to one process, in the order of tests/conftest.py: the long ones first. `-n 0` runs all in one.
# A process that dies ends the run and is named: pytest-xdist hands its files to another one, and then waits for ever.
exec "$python" -m pytest --color=no --tb=short --durations=60 --durations-min=4 -n "$workers" --dist loadfile --no-loadscope-reorder --max-worker-restart=0 "$@"
