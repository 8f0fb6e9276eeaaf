#!/usr/bin/env bash
# What SmolLM2-135M learns, as docs/learning.md prints it: live in BFCL's multi-turn dialogs after
# sft, rejection fine-tuning and grpo; after sft on made dialogs; in prompt templates that it was never trained in.
#   usage: bash scripts/bench/figures.sh [live] [made] [templates]     (default: all; run again, it carries on)
# Workspaces are runs/figures/live, made and templates. Each takes hours on a CPU; templates were measured on a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export HF_HUB_OFFLINE=1
base=smollm2-135m
tasks=(--env bfcl:multi_turn_base)
for stage in rollout grpo make eval; do tasks+=(--set "$stage.extra_tools=4" --set "$stage.test=.5" --set "$stage.dev=0"); done
measured=(--limit 40 --max-new-tokens 128)

agentlite() { "${AGENTLITE:-.venv/bin/agentlite}" "$@" --run "runs/figures/$figure"; }

live() {
  agentlite rollout "${tasks[@]}" --model gold --split train --out gold
  agentlite prep --from gold --max-length 2672 --long-rows filter
  agentlite sft -b 1 --gradient-accumulation 2 --epochs 2 --lr 1e-3 --save-steps 4
  agentlite rollout "${tasks[@]}" --model sft --split train -n 2 --limit 44 --temperature .5 --max-new-tokens 128
  agentlite prep --from rollout --keep 'best,progress>=0.2' --max-length 2672 --long-rows filter --out prep-best
  agentlite sft --data prep-best --model sft -b 1 --gradient-accumulation 2 --epochs 1 --lr 2e-4 --save-steps 4 --out sft-2
  agentlite grpo "${tasks[@]}" --model sft --weights progress=1,state=.5,failed_calls=-.1 --max-steps 6 \
    -b 1 --gradient-accumulation 4 --group-size 4 --lr 1e-4 --max-new-tokens 128 --max-length 3072 --save-steps 1
  agentlite eval "${tasks[@]}" "${measured[@]}" --model $base --model sft --model sft-2 --model grpo
}

made() {
  agentlite make dialogs "${tasks[@]}" --split train -n 500
  agentlite prep --from make --dev 0 --test 0 --max-length 2048 --long-rows filter
  agentlite sft -b 1 --gradient-accumulation 4 --epochs 1 --lr 1e-3 --save-steps 8
  agentlite eval "${tasks[@]}" "${measured[@]}" --model $base --model sft
}

templates() {
  local folder=tests/support/prompt_templates
  local few=hermes,react,modelscope,ms-agent bfcl=(bfcl:simple_python bfcl:multiple --test .5 --dev 0)
  local several=$few,autogpt,kuaiagent,$folder/scout.txt,$folder/operator.txt protocols
  for protocols in 1=hermes 4=$few 8=$several; do
    local n=${protocols%%=*}
    agentlite prep "${bfcl[@]}" --protocol "${protocols#*=}" --max-length 2048 --long-rows filter --out "mat-$n"
    agentlite sft --data "mat-$n" -b 4 --gradient-accumulation 1 --epochs 2 --lr 1e-3 --out "sft-$n"
  done
  for protocols in hermes toolllama $folder/clerk.txt; do
    agentlite eval --data mat-1 --model $base --model sft-1 --model sft-4 --model sft-8 --protocol "$protocols" --max-new-tokens 96
  done
}

(($#)) || set -- live made templates
for figure; do
  case $figure in
    live | made | templates) "$figure" ;;
    *) echo "figures.sh: there is no figure '$figure'; take live, made or templates." >&2; exit 2 ;;
  esac
done
