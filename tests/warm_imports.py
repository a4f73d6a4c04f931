"""What every forked program would import for itself, which the fork server imports once.

Collections of a forked program pass over what was there when it was forked: vLLM makes three as it starts.
"""

import gc

import deepspeed  # noqa: F401
import vllm.model_executor.models.qwen2
import vllm.v1.worker.gpu_worker  # noqa: F401
from vllm.model_executor.models import registry

import e1_trl.answers.mathematics.grader
import e1_trl.evaluation.evaluate
import e1_trl.serving.app
import e1_trl.train  # noqa: F401

# vLLM looks at the class of a new architecture in an interpreter of its own, which imports for ten seconds.
registry._run_in_subprocess = lambda look: look()

gc.collect()
gc.freeze()
