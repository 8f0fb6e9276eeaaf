"""Where `import vllm` finds that of support.simulated_vllm."""

from support import simulated_vllm

simulated_vllm.install()
