#!/usr/bin/env bash
# The peers that scripts/bench/rendering.py measures beside ours, each in an environment of its own: .peers/NAME.
#   usage: [PYTHON=python3.12] bash scripts/bench/peers.sh [swift] [llamafactory]      (run again, it does what is missing)
set -euo pipefail
exec >&2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
declare -A peers=([swift]="ms-swift==4.6.*" [llamafactory]="llamafactory==0.9.5")
export UV_NO_PROGRESS=1 PIP_DISABLE_PIP_VERSION_CHECK=1

install_cpu_torch() { # PYTHON VERSION
  "$1" -m pip -qq install --no-deps --no-compile "torch==$2+cpu" 2>/dev/null ||
    "$1" -m uv pip install --quiet --torch-backend=cpu "torch==$2"
}

for name in "${@:-${!peers[@]}}"; do
  folder=$PWD/.peers/$name
  if [[ $(cat "$folder/done" 2>/dev/null) == "${peers[$name]}" ]]; then continue; fi
  echo "peers: ${peers[$name]}"
  "${PYTHON:-python3.11}" -m venv --clear "$folder"
  python=$folder/bin/python
  export VIRTUAL_ENV=$folder
  "$python" -m pip -qq install uv
  install_cpu_torch "$python" "$(sed -n 's/^torch==//p' constraints.txt)"
  # Rows of text need none of these, and they come with CUDA only.
  printf "%s; python_version < '0'\n" torchvision torchaudio triton >"$folder/overrides.txt"
  "$python" -m uv pip install --quiet --override "$folder/overrides.txt" "${peers[$name]}"
  echo "${peers[$name]}" >"$folder/done"
done
