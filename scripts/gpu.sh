#!/usr/bin/env bash
# The first minutes on a GPU: every stage on random weights, sampling, tests/gpu, and the cells of scripts/bench/gpu.py
# -> OUT/STEP.log, and OUT/STEP.done for a step that passed. Run again, it does what is missing.
#   usage: [USE_PYTHON=python3] [OUT=runs/gpu] [MINUTES=30] [TOY=1] bash scripts/gpu.sh [STEP ...]
#   USE_PYTHON: a Python that has the packages, where there is no network.  MINUTES: no step starts after so many.
#   TOY: two layers, on any machine.  exit code: 0 all passed, 1 some failed, 75 some are left
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${USE_PYTHON:-.venv/bin/python}
[[ ${USE_PYTHON:-} ]] || bash scripts/setup.sh --all || { echo "gpu.sh: set-up failed. Without a network: USE_PYTHON=python3" >&2; exit 1; }
out=${OUT:-runs/gpu} end=$((SECONDS + 60 * ${MINUTES:-30})) failed=0 left=0
mkdir -p "$out"
out=$(realpath "$out") model=$(realpath "$out")/model
export HF_HUB_OFFLINE=1 NO_COLOR=1 PYTHONPATH=$PWD:$PWD/scripts/bench${PYTHONPATH:+:$PYTHONPATH}

stage() { "$python" -m agentlite "$@" --run "$out/run" --json; }
short=(--max-steps 4 --save-steps 2) answers=(--max-new-tokens 64) rows=(--rows 256)
[[ ${TOY:-} ]] && short=(--max-steps 1 -b 1 --gradient-accumulation 1) answers=(--max-new-tokens 4) rows=(--rows 4 --group 2 --prompt 40 --new-tokens 4 --steps 3)
model() {
  if [[ ${TOY:-} ]]; then "$python" -c 'import sys, pathlib, tiny; tiny.make_model(pathlib.Path(sys.argv[1]))' "$model"; else
    "$python" -c 'import json, sys, gpu, gpu_parts
gpu_parts.main({"part": "build", "folder": sys.argv[1], "facts": gpu.published_config("smollm2-135m"), "result": sys.argv[1] + ".json"})' "$model"
  fi
}
prep() { stage prep tests/support/rows/weather.jsonl --model "$model" --dev .2 --test .3; }
sft() { stage sft "${short[@]}"; }
pairs() { stage pairs -n 4 --gold "${answers[@]}"; } # random weights: the recorded answers are the chosen side
dpo() { stage dpo "${short[@]}"; }
grpo() { stage grpo "${short[@]}" -b 4 --group-size 2 "${answers[@]}"; }
evaluate() { stage eval --model "$model" --model sft "${answers[@]}"; }
export_() { stage export sft --merged "$out/merged" --force; }
sampling() { for engine in hf unsloth; do "$python" scripts/bench/sampling.py --model "$model" --engine $engine || return; done; }
grpo_step() { "$python" scripts/bench/grpo_step.py --model "$model" "${rows[@]}"; }
tests() { "$python" -m pytest -q -rs -p no:cacheprovider tests/gpu; }
cells() { "$python" scripts/bench/gpu.py --json "$out/cells.json" --models "$out/models"; }

steps=("$@")
((${#steps[@]})) || steps=(model prep sft pairs dpo grpo evaluate export_ sampling grpo_step tests cells)
for step in "${steps[@]}"; do
  [[ -e $out/$step.done ]] && continue
  if ((SECONDS > end)); then left=1; continue; fi
  began=$SECONDS
  if "$step" > "$out/$step.log" 2>&1; then touch "$out/$step.done"; state=passed; else failed=1 state=failed; fi
  echo "$step: $state in $((SECONDS - began)) s"
  [[ $state == passed ]] || tail -n 12 "$out/$step.log"
done
((failed)) && exit 1
exit $((left * 75))
