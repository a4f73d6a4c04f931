import os

from e1_trl.errors import is_debugging

# Read when vLLM is imported, by the servers that are started from here as well.
if not is_debugging():
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # it warns of nothing to be done
# FlashInfer compiles its sampler when it is first used, which needs CUDA's own compiler, nvcc; vLLM's needs nothing.
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
