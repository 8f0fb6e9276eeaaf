#!/usr/bin/env bash
# From nothing to a tuned and measured agent, without a GPU: set-up, then prep -> eval (base) -> sft -> eval (tuned).
#   usage: bash scripts/demo.sh [WORKSPACE]      (default runs/demo; run again, it carries on where it stopped)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
run=${1:-$here/runs/demo}
recipe=$here/configs/recipes/demo.yaml
bash "$here/scripts/setup.sh"
agentlite=$here/.venv/bin/agentlite
export HF_HUB_OFFLINE=1
started=$SECONDS

step() { printf '\n== %s\n' "$*" >&2; }

step "1/4 prep: BFCL questions -> records, split so that no question and no tool is shared"
"$agentlite" prep --run "$run" --config "$recipe"
step "2/4 eval: what the base model can do"
"$agentlite" eval --run "$run" --config "$recipe" --model smollm2-135m
step "3/4 sft: train an adapter"
"$agentlite" sft --run "$run" --config "$recipe"
step "4/4 eval: the tuned model beside the base model"
"$agentlite" eval --run "$run" --config "$recipe" --model smollm2-135m --model sft

took=$((SECONDS - started))
cat <<EOF

Done in $((took / 60)) min $((took % 60)) s. Splitting BFCL into train and test shows that the pipeline works; it is no
leaderboard score. The report, with intervals, tools to choose from, and settings: $run/report.md

Next:
  less "$run/report.md"
  .venv/bin/agentlite prep --run "$run" --config configs/recipes/demo.yaml --show 2      # what is trained, marked
  .venv/bin/agentlite sft --run "$run" --config configs/recipes/demo.yaml --out sft-r4 --lora-r 4   # a variant
  .venv/bin/agentlite eval --run "$run" --config configs/recipes/demo.yaml --model sft --model sft-r4
  .venv/bin/agentlite prep YOUR.jsonl && .venv/bin/agentlite sft && .venv/bin/agentlite eval        # your own data
EOF
