#!/usr/bin/env bash
# The first hour on a GPU: set-up, tests/gpu, the cells of scripts/bench/gpu.py, sampling, the whole pipeline
# -> runs/gpu/results.md. Run again, it does what is missing.
#   usage: [USE_PYTHON=python3] bash scripts/gpu.sh [--minutes 30] [--only STEP] [--again] [--list] [--out DIR]
#   USE_PYTHON: a Python that has the packages, where there is no network; nothing is installed then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export HF_HUB_OFFLINE=1
if [[ -z ${USE_PYTHON:-} ]]; then
  HF_HUB_OFFLINE=0 bash scripts/setup.sh || {
    echo "gpu.sh: set-up failed. Without a network: USE_PYTHON=python3 bash scripts/gpu.sh, with a Python that has torch, trl and unsloth." >&2
    exit 1
  }
fi
exec "${USE_PYTHON:-.venv/bin/python}" scripts/bench/first_hour.py "$@"
