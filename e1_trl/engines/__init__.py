import os

from e1_trl.errors import is_debugging

if not is_debugging():
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # read when vLLM is imported; it warns of nothing to be done
