#!/usr/bin/env bash
# What SmolLM2-135M learns, as docs/learning.md prints it: live in BFCL's multi-turn dialogs after
# sft, rejection fine-tuning and grpo; after sft on made dialogs; in prompt templates that it was never trained in; by
# other recipes of sft; in later stages behind three of them.
#   usage: bash scripts/bench/figures.sh [live] [made] [templates] [recipes] [later]     (default: all; run again, it carries on)
# Workspaces are runs/figures/live and so on. Each takes hours on a CPU; the last three were measured on a GPU.
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

best=(--config recipes/best.yaml)

rows() { # NAME [OPTIONS OF PREP]: rows of the tools of `asked`, and of every kind of question
  local name=$1 asked=runs/figures/$figure/asked
  shift
  agentlite prep bfcl:simple_python,multiple,irrelevance "${best[@]}" --dev .05 --test .8 --max-length 560 --out asked
  agentlite prep "$asked"/{test,dev,train}.jsonl bfcl:multiple,live_simple,live_multiple,live_irrelevance \
    bfcl:parallel,parallel_multiple,simple_java,simple_javascript "${best[@]}" "$@" --out "$name"
}

tuned() { # NAME DATA [OPTIONS]
  agentlite sft "${best[@]}" --save-steps 10000 --out "$1" --data "$2" "${@:3}"
}

recipes() { # each is asked the dev questions
  rows learn
  rows learn-distractors --set prep.distractors=3
  rows learn-renamed --set prep.mask_names=.5
  tuned recipe learn
  tuned five learn --epochs 5
  tuned fast learn --lr 2e-3
  tuned full learn --lr 3e-4 --full
  tuned r64 learn --lora-r 64 --set sft.lora_alpha=128
  tuned distractors learn-distractors
  tuned renamed learn-renamed
  local name models=()
  for name in recipe five fast full r64 distractors renamed; do models+=(--model $name); done
  agentlite eval "${best[@]}" --data learn --split dev -b 256 "${models[@]}"
}

later() { # they learn from the dev questions, which sft has not seen; distill from those that it has
  rows learn
  rows learn-all --dev 0
  local s name models
  for s in 0 1 2; do
    tuned "sft-$s" learn --seed $s
    tuned "more-$s" learn-all --seed $s
    agentlite pairs "${best[@]}" --model "sft-$s" --gold --seed $s -b 64 --split dev --out "pairs-$s"
    agentlite prep "${best[@]}" --from "pairs-$s" --keep 'best,exact>=1' --dev 0 --out "best-$s"
    local own=("${best[@]}" --seed $s --gradient-accumulation 1 --save-steps 10000)
    local rl=(--data learn --set grpo.split=dev --group-size 8 --max-new-tokens 64 --beta .02 --weights exact=1 --model "sft-$s")
    agentlite dpo "${own[@]}" --data "pairs-$s" --loss-type simpo --beta 2 --lr 2e-5 --epochs 2 -b 8 --out "simpo-$s"
    agentlite dpo "${own[@]}" --data "pairs-$s" --lr 3e-5 --epochs 2 -b 8 --out "dpo-$s"
    agentlite sft "${own[@]}" --model "sft-$s" --data "best-$s" --lr 2e-4 --epochs 2 --out "rft-$s"
    agentlite grpo "${own[@]}" "${rl[@]}" -b 256 --lr 2e-4 --max-steps 32 --out "grpo-$s"
    agentlite grpo "${own[@]}" "${rl[@]}" -b 64 --advantage value --set grpo.rollouts=256 --lr 1e-4 --max-steps 48 --out "ppo-$s"
    agentlite distill "${own[@]}" --teacher "sft-$s" --data learn --lr 1e-3 --epochs 1 -b 16 --lmbda 0 --fade 1 --beta 0 \
      --max-new-tokens 64 --out "distill-$s"
    models=(--model $base)
    for name in sft more simpo dpo rft grpo ppo distill; do models+=(--model "$name-$s"); done
    agentlite eval "${best[@]}" --data asked -b 256 "${models[@]}" --out "eval-$s"
  done
}

(($#)) || set -- live made templates recipes later
for figure; do
  case $figure in
    live | made | templates | recipes | later) "$figure" ;;
    *) echo "figures.sh: there is no figure '$figure'; take live, made, templates, recipes or later." >&2; exit 2 ;;
  esac
done
