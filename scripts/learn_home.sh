#!/usr/bin/env bash
# A model learns to act in the home of `agentlite init`: sft on a few right dialogs; rejection fine-tuning on the best of
# its own rollouts; grpo. docs/learning.md#acting-in-a-home has what each stage adds.
#   usage: bash scripts/learn_home.sh [SEED]     (default 0; workspace runs/home/seed-SEED; run again, it carries on)
# In the environment: DEMOS, how many dialogs sft gets; ROUNDS of rejection fine-tuning; TASKS, those with eight rollouts
# in a round; STEPS of grpo; TEST, how many of the 200 test tasks are measured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${DEMOS:=100}" "${ROUNDS:=2}" "${TASKS:=80}" "${STEPS:=6}" "${TEST:=200}"
seed=${1:-0}
export HF_HUB_OFFLINE=1 AGENTLITE_RUN=seed-$seed
bin=$PWD/.venv/bin
[ -d runs/home ] || "$bin/agentlite" init runs/home
cd runs/home
"$bin/python" home.py

act() { "$bin/agentlite" "$@" --env home.py:Home --set "$1.max_turns=6" --max-new-tokens 48; }
learn() { "$bin/agentlite" sft --seed "$seed" -b 2 --gradient-accumulation 1 --save-steps 20 "$@"; }
ready() { "$bin/agentlite" prep --protocol hermes --dev 0 --test 0 --no-call-share 0 --max-rejects 1 "$@"; }

act rollout --tasks train.jsonl --seed "$seed" --model gold --limit "$DEMOS" --out gold
ready --from gold
learn --epochs 3 --lr 1e-3
# the other tasks in which something is to be changed: a model that does nothing completes the rest, and would learn that
grep -vFf <(grep -o '"prompt": "[^"]*"' "seed-$seed/gold/tasks.jsonl") train.jsonl |
  grep -E '"name": "(set|add)"' >"changes-$seed.jsonl"
models=(--model smollm2-135m --model sft)
model=sft
for ((round = 1; round <= ROUNDS; round++)); do
  act rollout --tasks "changes-$seed.jsonl" --seed "$round$seed" --model $model -n 8 --limit "$TASKS" -b 64 --out "rollout-$round"
  ready "seed-$seed/gold/trajectories.jsonl" --from "rollout-$round" --keep 'best,env>=1' --out "best-$round"
  learn --data "best-$round" --model $model --epochs 2 --lr 5e-4 --out "rft-$round"
  model=rft-$round
  models+=(--model $model)
done
act grpo --tasks "changes-$seed.jsonl" --seed "$seed" --model $model --max-steps "$STEPS" -b 2 --gradient-accumulation 8 \
  --group-size 8 --lr 1e-4 --beta 0 --save-steps 4
act eval --tasks test.jsonl --split all --limit "$TEST" -b 32 "${models[@]}" --model grpo
