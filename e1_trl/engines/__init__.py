import os

from e1_trl.errors import is_debugging

# Read when vLLM is imported, here and in servers that are started from here.
if not is_debugging():
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # none of its warnings calls for action
# FlashInfer compiles its sampler when it is first used, which needs CUDA's own compiler, nvcc; vLLM's does not.
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
