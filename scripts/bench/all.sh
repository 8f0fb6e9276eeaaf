#!/usr/bin/env bash
# Everything that is measured without a GPU, one after the other -> runs/bench/NAME.json. An hour and a quarter, on a
# machine that does nothing else; the first and the last say whether it was quiet: the control of startup should be
# near 1.
#   usage: bash scripts/bench/all.sh [NAME ...]      (run again, it does what is missing)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bench=scripts/bench python=.venv/bin/python out=runs/bench
export HF_HUB_OFFLINE=1 NO_COLOR=1
declare -A commands=(
  [startup]="$bench/startup.py" [startup-again]="$bench/startup.py"
  [rendering]="$bench/rendering.py" [reading]="$bench/reading.py"
  [curation]="$bench/curation.py"
  [reranking]="$bench/reranking.py"
  [sampling]="$bench/sampling.py" [sft]="$bench/overhead.py sft"
  [dpo]="$bench/overhead.py dpo" [grpo]="$bench/overhead.py grpo"
)
order=(startup rendering reading curation reranking sampling sft dpo grpo startup-again)
mkdir -p "$out"
for name in "${@:-${order[@]}}"; do
  [[ -v commands[$name] ]] || { echo "all.sh: no bench '$name'; there are: ${order[*]}" >&2; exit 2; }
  [[ -e $out/$name.json ]] && continue
  echo "== $name: ${commands[$name]}" >&2
  read -ra words <<<"${commands[$name]}"
  "$python" "${words[@]}" >"$out/$name.part"
  mv "$out/$name.part" "$out/$name.json"
done
