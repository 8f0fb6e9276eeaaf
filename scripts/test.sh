#!/usr/bin/env bash
# Style, types, tests; sets everything up by itself and needs no hub.
#   usage: bash scripts/test.sh [--quick | --all] [PYTEST ARGUMENTS]
#   --quick: style, types and the short tests that need no torch      --all: the sweeps whole, and every test of minutes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh --all
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
pytest=("$python" -m pytest --color=no --tb=short --durations=60 --durations-min=4)
if [[ ${AGENTLITE_TEST_QUICK:-} && $# == 0 ]]; then
  # A process a core takes every so many-th file: with thousands of short tests, a fifth of pytest-xdist's time goes to messages.
  mapfile -t files < <(find tests -name 'test_*.py' | LC_ALL=C sort)
  pytest+=(-n 0 -p no:cacheprovider)
  take() { # of the files, from number $1 on
    own=()
    for ((file = $1; file < ${#files[@]}; file += workers)); do own+=("${files[file]}"); done
  }
  logs=$(mktemp -d) parts=() failed=0
  trap 'kill "${parts[@]}" 2> /dev/null || true; rm -rf "$logs"' EXIT
  for ((first = 1; first < workers; first++)); do
    take "$first"
    "${pytest[@]}" "${own[@]}" > "$logs/$first" 2>&1 &
    parts[first]=$!
  done
  take 0
  "${pytest[@]}" "${own[@]}" || failed=1
  for first in "${!parts[@]}"; do
    wait "${parts[first]}" || failed=1
    cat "$logs/$first"
  done
  exit "$failed"
fi
# One file goes to one process, in the order of tests/conftest.py: the long ones first. `-n 0` runs all in one.
# A process that dies ends the run and is named: pytest-xdist hands its files to another one, and then waits for ever.
exec "${pytest[@]}" -n "$workers" --dist loadfile --no-loadscope-reorder --max-worker-restart=0 "$@"
