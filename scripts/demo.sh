#!/usr/bin/env bash
# From nothing to tuned and measured agents, without a GPU: set-up, prep, sft, then pairs -> dpo, and grpo; all measured.
#   usage: bash scripts/demo.sh [WORKSPACE]      (default runs/demo; run again, it carries on where it stopped)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
run=${1:-$here/runs/demo}
bash "$here/scripts/setup.sh" --all
export HF_HUB_OFFLINE=1
started=$SECONDS

step() { printf '\n== %s\n' "$*" >&2; }
agentlite() { local command=$1; shift; "$here/.venv/bin/agentlite" "$command" --run "$run" --config recipes/demo.yaml "$@"; }

step "1/6 prep: BFCL questions -> records, split so that no question and no tool is shared"
agentlite prep
agentlite prep --out prep-single --set prep.join=1
step "2/6 sft: train an adapter to say what the records say"
agentlite sft
step "3/6 pairs: let it answer its training questions, score the answers, pair the best with the worst"
agentlite pairs
step "4/6 dpo: train it to prefer the better answers"
agentlite dpo
step "5/6 grpo: instead of that, train it on what it samples, each answer against its group"
agentlite grpo
step "6/6 eval: the base model and the three tuned ones on questions that none of them was trained on"
agentlite eval --model smollm2-135m --model sft --model dpo --model grpo

took=$((SECONDS - started))
cat <<EOF

Done in $((took / 60)) min $((took % 60)) s. Splitting BFCL into train and test shows that the pipeline works; it is no
leaderboard score. The report, with intervals, differences and what is beyond noise:
$run/report.html

Next, with a=.venv/bin/agentlite; d="--run $run --config recipes/demo.yaml":
  \$a report --run $run                                             # the result in words; opens the page
  \$a prep \$d --show 2                                                 # what is trained, marked
  \$a pairs \$d --from pairs --weights exact=1,task_completion=0 --out pairs-exact     # other weights: no model, no wait
  \$a dpo \$d --data pairs-exact --out dpo-exact; \$a eval \$d --model sft --model dpo-exact
  \$a eval \$d --model dpo --gate "tool_selection_accuracy>=0.9" --json || echo "not good enough"   # exit 9
  \$a prep YOUR.jsonl && \$a sft && \$a eval                             # your own data
EOF
